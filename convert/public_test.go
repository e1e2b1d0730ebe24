// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/mooncake"
)

// text returns a file with this content.
func text(name, content string) capture.Source {
	return capture.Source{Name: name, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }}
}

// written is a sink of one trace.
type written struct {
	*mooncake.Writer
	meta *mooncake.Meta
}

func writeTo(w io.Writer) *written { return &written{Writer: mooncake.NewWriter(w)} }

func (w *written) sink(capture.Partition) (capture.TraceWriter, error) { return w, nil }
func (w *written) Commit(meta *mooncake.Meta) error                    { w.meta = meta; return nil }
func (w *written) Close() error                                        { return nil }

// convert converts files and returns the trace as it is written, and its sidecar.
func convert(t *testing.T, opt Options, files ...capture.Source) (string, *mooncake.Meta) {
	t.Helper()
	var out bytes.Buffer
	w := writeTo(&out)
	result, err := Convert(t.Context(), opt, w.sink, files...)
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Traces) != 1 || result.Traces[0].Meta.Rows != w.meta.Rows || result.Lines == 0 {
		t.Errorf("result %+v of a trace with %d rows", result, w.meta.Rows)
	}
	return out.String(), w.meta
}

func join(s ...string) string { return strings.Join(s, "\n") + "\n" }

func dropped(meta *mooncake.Meta) map[string]int64 {
	out := make(map[string]int64)
	for _, d := range meta.Dropped {
		out[d.What+": "+d.Reason] = d.Count
	}
	return out
}

func TestDetect(t *testing.T) {
	for _, c := range []struct {
		reason, head string
		want         Format
	}{
		{"Azure 2023, a header alone", "TIMESTAMP,ContextTokens,GeneratedTokens", Azure},
		{"Azure 2025, CRLF and byte order mark", "\xef\xbb\xbfTIMESTAMP,NumImages,ContextTokens,GeneratedTokens\r\n2025", Azure},
		{"quoted names", `"TIMESTAMP","ContextTokens","GeneratedTokens"` + "\n", Azure},
		{"BurstGPT 1.1", "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n", BurstGPT},
		{"BurstGPT 1.2", "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n", BurstGPT},
		{"Bailian", `{"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.114}`, Bailian},
		{"Bailian, cut off in its ids", "\n" + `{"chat_id": 159, "parent_chat_id": -1, "hash_ids": [1, 2`, Bailian},
		{"Bailian over several lines", "[\n  {\n    \"chat_id\": 159, // x\n    \"parent_chat_id\": -1,\n    \"hash_ids\": [1,", Bailian},
		{"OTLP over several lines", "{\n  \"resourceSpans\": [\n    {", OTLP},
		{"Mooncake", `{"timestamp": 0, "input_length": 1}`, Mooncake},
		{"an empty file", "", ""},
		{"text", "hello, world\n", ""},
		{"a quote that does not end", `"TIMESTAMP,ContextTokens,GeneratedTokens` + "\n", ""},
	} {
		if got, err := Detect("f", []byte(c.head)); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", c.reason, got, err, c.want)
		}
	}
}

// TestAzure: seven fractional digits are kept, so that rows 100 ns apart have different times, and UTC offsets of dates are respected.
func TestAzure(t *testing.T) {
	got, meta := convert(t, Options{Format: Azure}, text("code.csv",
		"\xef\xbb\xbf"+strings.TrimSuffix(join(
			"TIMESTAMP,ContextTokens,GeneratedTokens\r",
			"2023-11-16 18:17:03.9799600,4808,10\r",
			"2023-11-16 18:17:03.9799601,3180,8\r",
			"\r",
			"2023-11-16 18:17:04.0319600,110,27\r",
			"2023-11-16 18:17:05,0,5\r", // no prompt
			"2023-11-16T19:17:05+01:00,7,0\r",
			`"2023-11-16 18:17:06.5", "12",3`,
		), "\n")))
	want := join(
		`{"timestamp": 0, "input_length": 4808, "output_length": 10}`,
		`{"timestamp": 0.0001, "input_length": 3180, "output_length": 8}`,
		`{"timestamp": 52, "input_length": 110, "output_length": 27}`,
		`{"timestamp": 1020.04, "input_length": 7, "output_length": 0}`,
		`{"timestamp": 2520.04, "input_length": 12, "output_length": 3}`,
	)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if got := meta.TimeBase.Format("2006-01-02T15:04:05.0000000Z07:00"); got != "2023-11-16T18:17:03.9799600Z" {
		t.Errorf("time base %s", got)
	}
	if meta.SessionMode != mooncake.SessionNone || meta.BlockSize != 0 || meta.Rows != 5 || meta.Identity["lengths"] != 5 || len(meta.Identity) != 1 {
		t.Errorf("sidecar %+v", meta)
	}
	if diff := cmp.Diff(map[string]int64{"rows: no prompt tokens": 1}, dropped(meta)); diff != "" {
		t.Errorf("dropped (-want +got):\n%s", diff)
	}
}

// TestAzureMerges: two files of one week become one trace, images are counted, and slight disorder is corrected.
func TestAzureMerges(t *testing.T) {
	got, meta := convert(t, Options{Format: Azure},
		text("conv.csv", join(
			"TIMESTAMP,ContextTokens,GeneratedTokens",
			"2024-05-10 00:00:00.009930+00:00,2162,5",
			"2024-05-10 00:00:02+00:00,3,3",
			"2024-05-10 00:00:01.5+00:00,2,2",
		)),
		text("lmm.csv", join(
			"TIMESTAMP,NumImages,ContextTokens,GeneratedTokens",
			"2024-05-10 00:00:00.009930,1,50,6",
			"2024-05-10 00:00:01.600000,0,60,7",
		)))
	want := join(
		`{"timestamp": 0, "input_length": 2162, "output_length": 5}`,
		`{"timestamp": 0, "input_length": 50, "output_length": 6, "images": [[1099511627777, 0, 0]]}`,
		`{"timestamp": 1490.07, "input_length": 2, "output_length": 2}`,
		`{"timestamp": 1590.07, "input_length": 60, "output_length": 7}`,
		`{"timestamp": 1990.07, "input_length": 3, "output_length": 3}`,
	)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if n := len(dropped(meta)); n > 0 {
		t.Errorf("dropped: %v", dropped(meta))
	}
}

const (
	burst11 = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
	burst12 = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type"
)

func TestBurstGPT(t *testing.T) {
	old := text("1.csv", join(
		burst11,
		"5,ChatGPT,472,18,490,Conversation log",
		"45,ChatGPT,1087,230,1317,Conversation log",
		"45,GPT-4,417,276,693,API log",
		"118,GPT-4,1360,0,1360,API log", // failed
	))
	young := text("3.csv", join(
		burst12,
		"19440110.0,1722ac82-0a46,43,GPT-4,906,446,1352,Conversation log",
		"19440161.25,,,ChatGPT,36,29,65,API log",
		"19440192.0000001,1722ac82-0a46,2,GPT-4,1400.0,10,1410,Conversation log",
	))
	for _, c := range []struct {
		name    string
		opt     Options
		file    capture.Source
		want    string
		mode    mooncake.SessionMode
		dropped map[string]int64
		zero    string // what the effect says about the zero of the files' times
	}{
		{
			name: "1.1 has no sessions, and failed requests are dropped", file: old,
			want: join(
				`{"timestamp": 0, "input_length": 472, "output_length": 18, "model": "ChatGPT"}`,
				`{"timestamp": 40000, "input_length": 1087, "output_length": 230, "model": "ChatGPT"}`,
				`{"timestamp": 40000, "input_length": 417, "output_length": 276, "model": "GPT-4"}`,
			),
			mode:    mooncake.SessionNone,
			dropped: map[string]int64{"rows: failed: no response tokens": 1, "values: Log Type: a row has no place for it": 3},
			zero:    "which came 5 s after",
		},
		{
			name: "failed requests are kept, and only those of one model", file: old, opt: Options{Failed: FailedKeep, Models: []string{"GPT-4"}},
			want: join(
				`{"timestamp": 0, "input_length": 417, "output_length": 276, "model": "GPT-4"}`,
				`{"timestamp": 73000, "input_length": 1360, "output_length": 0, "model": "GPT-4"}`,
			),
			mode:    mooncake.SessionNone,
			dropped: map[string]int64{"rows: another model": 2, "values: Log Type: a row has no place for it": 2},
			zero:    "which came 45 s after",
		},
		{
			name: "1.2 has sessions, but not for the API", file: young,
			want: join(
				`{"timestamp": 0, "input_length": 906, "output_length": 446, "session_id": "1722ac82-0a46", "model": "GPT-4", "observed": {"duration_ms": 43000}}`,
				`{"timestamp": 51250, "input_length": 36, "output_length": 29, "model": "ChatGPT"}`,
				`{"timestamp": 82000.0001, "input_length": 1400, "output_length": 10, "delay": 39000.0001, "session_id": "1722ac82-0a46", "model": "GPT-4", "observed": {"duration_ms": 2000}}`,
			),
			mode: mooncake.SessionFull,
			dropped: map[string]int64{
				"values: Log Type: a row has no place for it": 3,
			},
			zero: "which came 19440110 s after",
		},
	} {
		c.opt.Format = BurstGPT
		got, meta := convert(t, c.opt, c.file)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: rows (-want +got):\n%s", c.name, diff)
		}
		if diff := cmp.Diff(c.dropped, dropped(meta)); diff != "" {
			t.Errorf("%s: dropped (-want +got):\n%s", c.name, diff)
		}
		if effect := meta.Transformations[0].Effect; meta.SessionMode != c.mode || !strings.Contains(effect, c.zero) {
			t.Errorf("%s: mode %s, effect %q", c.name, meta.SessionMode, effect)
		}
	}
}

// TestBailian: seconds become milliseconds with all their digits, chats become sessions, and 64-bit ids stay distinct.
func TestBailian(t *testing.T) {
	got, meta := convert(t, Options{Format: Bailian}, text("a.jsonl", strings.TrimSuffix(join(
		`{"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.114, "input_length": 33, "output_length": 132, "type": "text", "turn": 1, "hash_ids": [1089, 18446744073709551615, 1091]}`,
		`{"chat_id": 160, "parent_chat_id": 7, "timestamp": 61.1141237, "input_length": 17, "output_length": 1, "type": "search", "turn": 3, "hash_ids": [1089, 9223372036854775808]}`,
		`{"chat_id": 161, "parent_chat_id": 159, "timestamp": 62.5, "input_length": 48, "output_length": 80, "type": "text", "turn": 2, "hash_ids": [1089, 18446744073709551615, 1092]}`,
		``,
		`{"chat_id": 162, "parent_chat_id": 161, "timestamp": 6.3e1, "input_length": 32, "output_length": null, "type": "text", "turn": 3, "hash_ids": [1092, 1089]}`,
		`{"chat_id": 163, "parent_chat_id": 7, "timestamp": 64, "input_length": 20, "output_length": 2, "new_field": {"a": 1}}`,
		`{"chat_id": 164, "parent_chat_id": 163, "timestamp": 65, "input_length": 0, "output_length": 2}`,
		`{"timestamp": 66, "input_length": 100, "output_length": 2, "hash_ids": []}`,
	), "\n")))
	want := join(
		`{"timestamp": 0, "input_length": 33, "output_length": 132, "hash_ids": [0, 1, 2], "session_id": "159"}`,
		`{"timestamp": 0.1237, "input_length": 17, "output_length": 1, "hash_ids": [0, 3], "session_id": "7"}`,
		`{"timestamp": 1386, "input_length": 48, "output_length": 80, "hash_ids": [0, 1, 4], "session_id": "159"}`,
		`{"timestamp": 1886, "input_length": 32, "hash_ids": [5, 6], "session_id": "159"}`, // 1092 and 1089 at other positions: other blocks
		`{"timestamp": 2886, "input_length": 20, "output_length": 2, "session_id": "7"}`,
		`{"timestamp": 4886, "input_length": 100, "output_length": 2}`,
	)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if meta.BlockSize != 16 || meta.SessionMode != mooncake.SessionFull {
		t.Errorf("sidecar %+v", meta)
	}
	if diff := cmp.Diff(map[string]int64{"trace": 4, "lengths": 2}, meta.Identity); diff != "" {
		t.Errorf("identity (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int64{
		"values: type: a row has no place for it": 4, "values: new_field: a row has no place for it": 1, "rows: no prompt tokens": 1,
	}, dropped(meta)); diff != "" {
		t.Errorf("dropped (-want +got):\n%s", diff)
	}
	if effect := meta.Transformations[0].Effect; !strings.Contains(effect, "61.114 s after") || !strings.Contains(effect, "; 1 session begins") {
		t.Errorf("effect %q", effect)
	}
}

// TestSurplusIDs: ids beyond the blocks of a prompt are counted, and if all rows have some, the file has other blocks than the format.
func TestSurplusIDs(t *testing.T) {
	const long = `{"chat_id":1,"parent_chat_id":-1,"timestamp":1,"input_length":20,"output_length":3,"type":"text","turn":1,"hash_ids":[1,2,3,4,5]}`
	right := strings.Replace(long, "[1,2,3,4,5]", "[1,2]", 1)
	for _, c := range []struct {
		file, reason string
		ids          int64
	}{
		{join(long, long), "hash ids: more than the prompt has blocks; it is so in each row, so the blocks of the file are probably smaller than those of this format", 6},
		{join(long, right), "hash ids: more than the prompt has blocks", 3},
		{join(right, right), "hash ids: more than the prompt has blocks", 0},
	} {
		_, meta := convert(t, Options{Format: Bailian}, text("b.jsonl", c.file))
		if got := dropped(meta)[c.reason]; got != c.ids {
			t.Errorf("%d of %q, want %d; dropped %v", got, c.reason, c.ids, dropped(meta))
		}
	}
}

// TestBailianFilesAreApart: ids and chats of two files are unrelated.
func TestBailianFilesAreApart(t *testing.T) {
	line := `{"chat_id": 1, "parent_chat_id": -1, "timestamp": 5, "input_length": 32, "output_length": 1, "hash_ids": [0, 1]}` + "\n"
	got, _ := convert(t, Options{Format: Bailian}, text("a", line), text("b", line))
	want := join(
		`{"timestamp": 0, "input_length": 32, "output_length": 1, "hash_ids": [0, 1], "session_id": "1/1"}`,
		`{"timestamp": 0, "input_length": 32, "output_length": 1, "hash_ids": [2, 3], "session_id": "2/1"}`,
	)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// bailianRow is a line of a Bailian file with a time in seconds, a number of tokens, and ids. Its chat id is the time.
func bailianRow(at, tokens int, ids ...int) string {
	parts := make([]string, len(ids))
	for i, id := range ids {
		parts[i] = strconv.Itoa(id)
	}
	return `{"chat_id": ` + strconv.Itoa(at) + `, "parent_chat_id": -1, "timestamp": ` + strconv.Itoa(at) + `, "input_length": ` + strconv.Itoa(tokens) +
		`, "output_length": 1, "hash_ids": [` + strings.Join(parts, ",") + `]}`
}

// TestReblock: blocks of 64 tokens are made of four ids; a partial last block has its own number unless the whole prompt is the same.
func TestReblock(t *testing.T) {
	for _, c := range []struct {
		reason string
		rows   []string
		want   [][]uint64
	}{
		{"full blocks are shared", []string{bailianRow(0, 128, 1, 2, 3, 4, 5, 6, 7, 8), bailianRow(1, 128, 1, 2, 3, 4, 5, 6, 7, 9)}, [][]uint64{{0, 1}, {0, 2}}},
		{"the same last block of the same prompt", []string{bailianRow(0, 70, 1, 2, 3, 4, 5), bailianRow(1, 70, 1, 2, 3, 4, 5)}, [][]uint64{{0, 1}, {0, 1}}},
		{"a last block of another length", []string{bailianRow(0, 70, 1, 2, 3, 4, 5), bailianRow(1, 71, 1, 2, 3, 4, 5)}, [][]uint64{{0, 1}, {0, 2}}},
		{"a partial last block is never the full block that begins with it", []string{bailianRow(0, 63, 1, 2, 3, 4), bailianRow(1, 64, 1, 2, 3, 4)}, [][]uint64{{0}, {1}}},
		{"ids that are not chained: the fourth alone does not identify the block", []string{bailianRow(0, 64, 1, 2, 3, 4), bailianRow(1, 64, 9, 2, 3, 4)}, [][]uint64{{0}, {1}}},
		{"ids that are not chained: the same block after another", []string{bailianRow(0, 128, 1, 1, 1, 1, 2, 2, 2, 2), bailianRow(1, 64, 2, 2, 2, 2)}, [][]uint64{{0, 1}, {2}}},
		{"too few ids: whole blocks only", []string{bailianRow(0, 200, 1, 2, 3, 4, 5)}, [][]uint64{{0}}},
		{"too many ids: only the first ones count", []string{bailianRow(0, 64, 1, 2, 3, 4, 5, 6)}, [][]uint64{{0}}},
	} {
		var out bytes.Buffer
		w := writeTo(&out)
		if _, err := Convert(t.Context(), Options{Format: Bailian, Compile: capture.Options{BlockSize: 64}}, w.sink, text("x", join(c.rows...))); err != nil {
			t.Errorf("%s: %v", c.reason, err)
			continue
		}
		var got [][]uint64
		r := mooncake.NewReader(&out, mooncake.ReaderOptions{BlockSize: 64, Strict: true})
		for {
			row, err := r.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", c.reason, err)
			}
			got = append(got, row.HashIDs)
		}
		if diff := cmp.Diff(c.want, got); diff != "" || w.meta.BlockSize != 64 {
			t.Errorf("%s: block size %d, ids (-want +got):\n%s", c.reason, w.meta.BlockSize, diff)
		}
	}
}

// TestReblockIsTheDefinition: on random prompts two rows share exactly as many large blocks as their common ids fill.
func TestReblockIsTheDefinition(t *testing.T) {
	var rows []string
	var lists [][]int
	state := uint64(1)
	next := func(n int) int {
		state = state*6364136223846793005 + 1442695040888963407
		return int(state >> 33 % uint64(n))
	}
	for i := range 200 {
		var ids []int
		for range 1 + next(40) {
			ids = append(ids, next(2))
		}
		lists = append(lists, ids)
		rows = append(rows, bailianRow(i, 16*len(ids), ids...))
	}
	var out bytes.Buffer
	w := writeTo(&out)
	if _, err := Convert(t.Context(), Options{Format: Bailian, Compile: capture.Options{BlockSize: 64}}, w.sink, text("x", join(rows...))); err != nil {
		t.Fatal(err)
	}
	meta := w.meta
	if meta.Digests.Seq == mooncake.Undefined || meta.Digests.Tree == mooncake.Undefined {
		t.Errorf("digests %+v", meta.Digests)
	}
	var got [][]uint64
	r := mooncake.NewReader(&out, mooncake.ReaderOptions{BlockSize: 64, Strict: true})
	for range lists {
		row, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, row.HashIDs)
	}
	for i, a := range lists {
		for j, b := range lists[:i] {
			common := 0
			for common < min(len(a), len(b)) && a[common] == b[common] {
				common++
			}
			want := common / 4
			if common == len(a) && common == len(b) {
				want = len(got[i])
			}
			shared := 0
			for shared < min(len(got[i]), len(got[j])) && got[i][shared] == got[j][shared] {
				shared++
			}
			if shared != want {
				t.Fatalf("rows %d and %d share %d blocks, want %d:\n%v\n%v", i, j, shared, want, a, b)
			}
		}
	}
}

func TestChatsAreForgotten(t *testing.T) {
	c := chats{max: 2}
	add := func(id, parent int64) int64 {
		q := &request{chat: mooncake.Some(id)}
		if parent >= 0 {
			q.parent = mooncake.Some(parent)
		}
		first, _ := c.add(q)
		return first
	}
	add(1, -1)
	for id := int64(2); id < 50; id++ {
		add(id*100, -1) // others
		if first := add(id, id-1); first != 1 {
			t.Fatalf("request %d belongs to %d although its parent came just before", id, first)
		}
	}
	for id := int64(50); id < 60; id++ {
		add(id*100, -1)
	}
	if first := add(60, 2); first != 2 || c.cut != 1 {
		t.Errorf("the parent was forgotten long ago: session %d, %d cut", first, c.cut)
	}
	if n := len(c.young) + len(c.old); n > 5 {
		t.Errorf("%d requests remembered", n)
	}
}
