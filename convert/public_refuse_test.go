// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/mooncake"
)

const (
	azureHeader = "TIMESTAMP,ContextTokens,GeneratedTokens"
	azureRow    = "2023-11-16 18:17:03.9799600,4808,10"
	secret      = "my secret prompt"
)

func TestPublicRefuses(t *testing.T) {
	for _, c := range []struct {
		reason, content, want string
		opt                   Options
	}{
		{"no header", join(azureRow), "f:1: TIMESTAMP: the column is missing; the first line must name", Options{Format: Azure}},
		{"the header of another format", join(burst11), "f:1: ContextTokens: the column is missing", Options{Format: Azure, Lookahead: 1}},
		{"a column is missing", "TIMESTAMP,ContextTokens\n", "f:1: GeneratedTokens: the column is missing", Options{Format: Azure}},
		{"a column twice", azureHeader + ",timestamp\n", "f:1: timestamp: the column occurs twice", Options{Format: Azure}},
		{"a header that is too long", strings.Repeat("x", 5000), "f:1: the first line is too long", Options{Format: Azure}},
		{"fields are missing", join(azureHeader, azureRow, "", "2023-11-16 18:17:04,1"), "f:4: the line has 2 fields, the header has 3", Options{Format: Azure}},
		{"a quote without end", join(azureHeader, `"2023-11-16 18:17:04,1,2`), "f:2: the line cannot be read", Options{Format: Azure}},
		{"seconds in place of a date", join(azureHeader, "12.5,1,2"), "f:2: TIMESTAMP: 12.5: is not a time; want a date", Options{Format: Azure}},
		{"an invalid date", join(azureHeader, "2023-02-30 18:17:04,1,2"), "f:2: TIMESTAMP: 2023-02-30 18:17:04: is not a time", Options{Format: Azure}},
		{"a date far away", join(azureHeader, "0001-01-01 00:00:00,1,2"), "is out of range", Options{Format: Azure}},
		{"negative tokens", join(azureHeader, "2023-11-16 18:17:04,-1,2"), "f:2: ContextTokens: -1: must be 0 or more", Options{Format: Azure}},
		{"half a token", join(azureHeader, "2023-11-16 18:17:04,1.5,2"), "f:2: ContextTokens: 1.5: is not an integer", Options{Format: Azure}},
		{"no output tokens", join(azureHeader, "2023-11-16 18:17:04,1,"), "f:2: GeneratedTokens: is empty", Options{Format: Azure}},
		{"too many tokens", join(azureHeader, "2023-11-16 18:17:04,9223372036854775807,2"), "f:2: input_length: 9223372036854775807: is not a number of tokens", Options{Format: Azure}},
		{"a token count of more than 64 bits", join(azureHeader, "2023-11-16 18:17:04,92233720368547758070,2"), "f:2: ContextTokens: 92233720368547758070: is not an integer", Options{Format: Azure}},
		{"text is not repeated", join(azureHeader, "2023-11-16 18:17:04,"+secret+",2"), "f:2: ContextTokens: a text of 16 bytes: is not an integer", Options{Format: Azure}},
		{"a time before zero", join(burst11, "-1,M,1,1,2,x"), "f:2: Timestamp: -1: must be 0 or more; want seconds", Options{Format: BurstGPT}},
		{"an invalid time", join(burst11, "NaN,M,1,1,2,x"), "Timestamp: a text of 3 bytes: is not a number", Options{Format: BurstGPT}},
		{"a time that is out of range", join(burst11, "1e300,M,1,1,2,x"), "Timestamp: 1e300: is out of range", Options{Format: BurstGPT}},
		{"a name that is too long", join(burst11, "1,"+strings.Repeat("m", 257)+",1,1,2,x"), "f:2: Model: a text of 257 bytes: is longer than 256", Options{Format: BurstGPT}},
		{"no such model", join(burst11, "1,M,1,1,2,x"), "no row could be made from f; 1 rows: another model; keep some of them with another --models or --failed, or name a file that has others", Options{Format: BurstGPT, Models: []string{"m"}}},
		{"an empty file", "", "no row could be made from f: there is no request in it; name a file that has some, or another format than bailian (--from)", Options{Format: Bailian}},
		{"not JSON", "{x}\n", "f:1: is not valid JSON at byte 2", Options{Format: Bailian}},
		{"no object", "[1]\n", "f:1: the line must be a JSON object", Options{Format: Bailian}},
		{"cut off", `{"chat_id": 1, "timest`, "f:1: the JSON object does not end; the file may be cut off", Options{Format: Bailian}},
		{"a key twice", `{"chat_id": 1, "chat_id": 2}`, "f:1: a key occurs twice", Options{Format: Bailian}},
		{"an id below zero", `{"timestamp": 1, "input_length": 1, "hash_ids": [1, -2]}`, "f:1: hash_ids: element 1: must be an integer from 0 to 2^64-1", Options{Format: Bailian}},
		{"an id beyond 64 bits", `{"timestamp": 1, "input_length": 1, "hash_ids": [18446744073709551616]}`, "hash_ids: element 0: must be", Options{Format: Bailian}},
		{"an id that is a float", `{"timestamp": 1, "input_length": 1, "hash_ids": [1.0e3]}`, "hash_ids: element 0: must be", Options{Format: Bailian}},
		{"an id that is text", `{"timestamp": 1, "input_length": 1, "hash_ids": ["` + secret + `"]}`, "hash_ids: element 0: must be", Options{Format: Bailian}},
		{"a text in place of the ids", `{"timestamp": 1, "input_length": 1, "hash_ids": "` + secret + `"}`, "f:1: hash_ids: must be an array", Options{Format: Bailian}},
		{"a chat id that is text", `{"chat_id": "` + secret + `"}`, "f:1: chat_id: must be an integer", Options{Format: Bailian}},
		{"a time that is text", `{"timestamp": "` + secret + `", "input_length": 1}`, "f:1: timestamp: is not a number", Options{Format: Bailian}},
		{"no time", `{"input_length": 1}`, "f:1: timestamp: is missing", Options{Format: Bailian}},
		{"no tokens", `{"timestamp": 1, "input_length": null}`, "f:1: input_length: is missing", Options{Format: Bailian}},
		{"half a token", `{"timestamp": 1, "input_length": 0.5}`, "f:1: input_length: 0.5: is not an integer", Options{Format: Bailian}},
		{
			"out of order", join(bailianRow(5, 1, 1), bailianRow(6, 1, 1), bailianRow(4, 1, 1)),
			"f:3: the row is 1s earlier than that of line 1, and too far behind it to be put into order; raise the look-ahead (--lookahead)",
			Options{Format: Bailian, Lookahead: 2},
		},
		{"a long line", join(bailianRow(5, 1, 1), `{"a": "`+strings.Repeat("x", 300)), "f:2: the line is too long; raise the line limit (--max-line)", Options{Format: Bailian, MaxLine: 200}},
		{"a long object", join("["+bailianRow(5, 1, 1), `,{"a": "`+strings.Repeat("x", 300)), "f:2: the JSON object that begins here is too long; raise the line limit (--max-line)", Options{Format: Bailian, MaxLine: 200}},
		{"an array without an end", "[" + bailianRow(5, 1, 1), "f:1: the JSON array that begins here does not end", Options{Format: Bailian}},
		{"an error on a further line", "[\n{\n\"timestamp\": 1,\n\"input_length\": x}]", "f:2: is not valid JSON at byte 35", Options{Format: Bailian}},
		{"an unknown format", "", `format "azur": want`, Options{Format: "azur"}},
		{"a block size that is no multiple of the format's", "", "block size 24: the blocks of bailian have 16 tokens", Options{Format: Bailian, Compile: capture.Options{BlockSize: 24}}},
		{"a block size below 0", "", "block size -1", Options{Format: Bailian, Compile: capture.Options{BlockSize: -1}}},
		{"a block size for a format without block ids", "", "block size 512: azure traces have no block ids", Options{Format: Azure, Compile: capture.Options{BlockSize: 512}}},
		{"failed requests in a format that does not mark them", "", "azure traces do not say which requests failed", Options{Format: Azure, Failed: FailedKeep}},
		{"an unknown choice for failed requests", "", `failed requests "no"`, Options{Format: BurstGPT, Failed: "no"}},
		{"models in a format that does not name them", "", "bailian traces do not name the models", Options{Format: Bailian, Models: []string{"m"}}},
		{"a look-ahead below 0", "", "look-ahead -1", Options{Format: Azure, Lookahead: -1}},
		{"a line limit below 0", "", "longest line -1", Options{Format: Azure, MaxLine: -1}},
	} {
		_, err := Convert(t.Context(), c.opt, writeTo(io.Discard).sink, text("f", c.content))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want it to contain %q", c.reason, err, c.want)
			continue
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error repeats text: %v", c.reason, err)
		}
		if row, ok := errors.AsType[*mooncake.RowError](err); strings.HasPrefix(c.want, "f:") != (ok && row.File == "f" && row.Line > 0) && strings.HasPrefix(c.want, "f:") {
			t.Errorf("%s: %v does not say where", c.reason, err)
		}
	}
	if _, err := Convert(t.Context(), Options{Format: Azure}, writeTo(io.Discard).sink); err == nil {
		t.Error("no file is not an error")
	}
}

// TestASourceThatBreaksOff: the error of a file that is cut off, such as a compressed one, says what to do.
func TestASourceThatBreaksOff(t *testing.T) {
	cut := io.MultiReader(strings.NewReader(`{"chat_id": 1`), failing{io.ErrUnexpectedEOF})
	source := capture.Source{Name: "f", Open: func() (io.ReadCloser, error) { return io.NopCloser(cut), nil }}
	const want = "f:1: the file cannot be read to its end: unexpected EOF; use a complete copy of the file"
	if _, err := Convert(t.Context(), Options{Format: Bailian}, writeTo(io.Discard).sink, source); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

// closing is a file that decrements the number of open files when it is closed.
type closing struct {
	io.Reader
	open *int
}

func (c closing) Close() error { *c.open--; return nil }

// TestConvertClosesItsFiles: Convert closes every file that it opened, whatever happens.
func TestConvertClosesItsFiles(t *testing.T) {
	broken := errors.New("the disk is gone")
	open := 0
	file := func(r io.Reader, err error) capture.Source {
		return capture.Source{Name: "f", Open: func() (io.ReadCloser, error) {
			if err != nil {
				return nil, err
			}
			open++
			return closing{r, &open}, nil
		}}
	}
	good := func() io.Reader { return strings.NewReader(join(azureHeader, azureRow)) }
	for _, c := range []struct {
		reason string
		off    bool
		files  []capture.Source
		out    io.Writer
		want   error
	}{
		{"all is well", false, []capture.Source{file(good(), nil), file(good(), nil)}, io.Discard, nil},
		{"the second file cannot be opened", false, []capture.Source{file(good(), nil), file(nil, broken)}, io.Discard, broken},
		{"the source breaks off", false, []capture.Source{file(io.MultiReader(good(), failing{broken}), nil)}, io.Discard, broken},
		{"the output breaks off", false, []capture.Source{file(good(), nil)}, failing{broken}, broken},
		{"the conversion is cancelled", true, []capture.Source{file(good(), nil)}, io.Discard, broken},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		if c.off {
			cancel(broken)
		}
		_, err := Convert(ctx, Options{Format: Azure}, writeTo(c.out).sink, c.files...)
		cancel(nil)
		if !errors.Is(err, c.want) || open != 0 {
			t.Errorf("%s: error %v, want %v; %d files left open", c.reason, err, c.want, open)
		}
	}
}

// TestConvertDetects: Convert detects the format of the first file, opens each file at most once, and closes it.
func TestConvertDetects(t *testing.T) {
	broken := errors.New("the disk is gone")
	for _, c := range []struct {
		reason string
		first  io.Reader
		opt    Options
		rows   int64
		want   string // of the error
	}{
		{"Azure", strings.NewReader(join(azureHeader, azureRow)), Options{}, 2, ""},
		{"Azure, more than a buffer holds", io.MultiReader(strings.NewReader(join(azureHeader)), strings.NewReader(strings.Repeat(azureRow+"\n", 5000))), Options{}, 5001, ""},
		{"Bailian", strings.NewReader(join(bailianRow(1, 16, 1))), Options{}, 0, "g:1: is not valid JSON"},
		{"OTLP", strings.NewReader(`{"resourceSpans":[]}`), Options{}, 0, "g:1: is not valid JSON"},
		{"Mooncake", strings.NewReader(`{"timestamp": 0, "input_length": 1, "output_length": 1}`), Options{}, 0, "f is a Mooncake trace already"},
		{"an empty file", strings.NewReader(""), Options{}, 0, "f is empty"},
		{"text", strings.NewReader("once upon a time\n"), Options{}, 0, "f: its format is not known"},
		{"an error of reading", failing{broken}, Options{}, 0, "f: cannot be read: the disk is gone"},
		{"options that the format does not know", strings.NewReader(join(azureHeader, azureRow)), Options{Failed: FailedKeep}, 0, "azure traces do not say"},
	} {
		open, opened := 0, 0
		file := func(name string, r io.Reader) capture.Source {
			return capture.Source{Name: name, Open: func() (io.ReadCloser, error) { open++; opened++; return closing{r, &open}, nil }}
		}
		w := writeTo(io.Discard)
		_, err := Convert(t.Context(), c.opt, w.sink, file("f", c.first), file("g", strings.NewReader(join(azureHeader, azureRow))))
		switch {
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v, want it to contain %q", c.reason, err, c.want)
		case c.want == "" && (err != nil || w.meta.Rows != c.rows):
			t.Errorf("%s: error %v, sidecar %+v, want %d rows", c.reason, err, w.meta, c.rows)
		}
		if open != 0 || opened > 2 {
			t.Errorf("%s: %d files were opened, %d left open", c.reason, opened, open)
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error)  { return 0, f.err }
func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestSeconds(t *testing.T) {
	for _, c := range []struct {
		text string
		want int64
	}{
		{"0", 0},
		{"61.114", 61_114_000_000},
		{"5.", 5_000_000_000},
		{"0.0000001", 100},
		{"0.1234567899", 123_456_789}, // the tenth digit is cut off
		{"1700000000.123456789", 1_700_000_000_123_456_789},
		{"1.5e-3", 1_500_000},
		{"2E3", 2_000_000_000_000},
	} {
		if got, err := decimal(c.text, time.Second); err != nil || got != c.want {
			t.Errorf("%s: %d, %v; want %d", c.text, got, err, c.want)
		}
	}
	for _, text := range []string{"", ".5", "-1", "-0.5", "+1", "1.2.3", "0x10", "1_000", "inf", "9223372036.9", "99999999999999999999", "1e-", "-1e3"} {
		if got, err := decimal(text, time.Second); err == nil {
			t.Errorf("%q is %d ns", text, got)
		}
	}
}

func TestMillisecondsAreTheNearest(t *testing.T) {
	for _, c := range []struct {
		ns   int64
		want string
	}{
		{0, "0"},
		{100, "0.0001"},
		{1_020_040_000, "1020.04"},
		{121*86_400*1_000_000_000 + 1_000_000, "10454400001"}, // a float does not hold these nanoseconds exactly
		{604_799_999_999_900, "604799999.9999"},
		{9_223_372_036_854_000_000, "9223372036854"},
	} {
		if got := strconv.FormatFloat(milliseconds(c.ns), 'f', -1, 64); got != c.want {
			t.Errorf("%d ns are %s ms, want %s", c.ns, got, c.want)
		}
	}
}

// fuzz checks for any input that nothing panics, and that the result can be read.
func fuzz(f *testing.F, format Format, seeds ...string) {
	f.Helper()
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, content string) {
		var out strings.Builder
		w := writeTo(&out)
		if _, err := Convert(t.Context(), Options{Format: format, Lookahead: 4, MaxLine: 1 << 16}, w.sink, text("f", content)); err != nil {
			return
		}
		meta := w.meta
		r := mooncake.NewReader(strings.NewReader(out.String()), mooncake.ReaderOptions{BlockSize: meta.BlockSize})
		rows, last := int64(0), 0.
		for ; ; rows++ {
			row, err := r.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if row.Timestamp.V < last {
				t.Fatalf("row %d is earlier than the previous row", rows)
			}
			last = row.Timestamp.V
		}
		if rows != meta.Rows || rows == 0 {
			t.Fatalf("%d rows, the sidecar says %d", rows, meta.Rows)
		}
		var side strings.Builder
		if err := meta.Write(&side); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzAzure(f *testing.F) {
	fuzz(f, Azure, join(azureHeader, azureRow, "2024-05-10 00:00:00.009930+00:00,2162,5"), "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n\"")
}

func FuzzBurstGPT(f *testing.F) {
	fuzz(f, BurstGPT, join(burst11, "5,ChatGPT,472,18,490,Conversation log"), join(burst12, "19440110.0,a,43,GPT-4,906,446,1352,x", "1e3,,,,1,1,,"))
}

func FuzzBailian(f *testing.F) {
	fuzz(f, Bailian, bailianRow(5, 40, 1, 2, 3)+"\n"+bailianRow(4, 1, 1), `{"chat_id": 160, "parent_chat_id": 7, "timestamp": 6.11e1, "input_length": 17.0, "hash_ids": [18446744073709551615]}`)
}

// TestDetectNothing: an empty file, and one of white space, are not of an unknown format. The error says what to do.
func TestDetectNothing(t *testing.T) {
	for head, want := range map[string]string{
		"": "f is empty: ", "\xef\xbb\xbf": "f has nothing but white space: ", " \r\n\n": "f has nothing but white space: ",
	} {
		_, err := Detect("f", []byte(head))
		if err == nil || errors.Is(err, ErrUnknownFormat) || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "name a file") {
			t.Errorf("%q: %v", head, err)
		}
	}
}

func FuzzDetect(f *testing.F) {
	f.Add([]byte(azureHeader))
	f.Add([]byte(`{"chat_id": 1, "x": [`))
	f.Fuzz(func(t *testing.T, head []byte) {
		if format, err := Detect("f", head); err == nil {
			if _, err := ParseFormat(string(format)); err != nil {
				t.Error(err)
			}
		}
	})
}

// BenchmarkAzure converts a file of 100,000 rows.
func BenchmarkAzure(b *testing.B) {
	var in strings.Builder
	in.WriteString(azureHeader + "\n")
	for i := range 100_000 {
		fmt.Fprintf(&in, "2024-05-10 %02d:%02d:%02d.%06d+00:00,%d,%d\n", i/36000, i/600%60, i/10%60, i%10*100_000, i%8000+1, i%500)
	}
	b.SetBytes(int64(in.Len()))
	for b.Loop() {
		if _, err := Convert(b.Context(), Options{Format: Azure}, writeTo(io.Discard).sink, text("f", in.String())); err != nil {
			b.Fatal(err)
		}
	}
}
