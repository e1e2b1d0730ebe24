// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package jsonrows

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// found is what a reader returns to a caller that parses.
type found struct {
	Text   string
	Line   int64
	Layout Layout
}

// readAll reads with a small buffer, so that values cross its ends.
func readAll(r *Reader, each func()) ([]found, error) {
	var all []found
	for {
		if err := r.Next(); err != nil {
			return all, err
		}
		if !isObject(r.Text) {
			if _, err := r.Extend(); err != nil {
				return all, err
			}
		}
		each()
		all = append(all, found{string(bytes.TrimRight(r.Text, "\r\n")), r.Line, r.Layout})
	}
}

func isObject(text []byte) bool {
	return json.Valid(text) && bytes.HasPrefix(bytes.TrimSpace(text), []byte("{"))
}

func ofBytes(in string, most int) *Reader {
	return NewReader(bufio.NewReaderSize(iotest.OneByteReader(strings.NewReader(in)), 16), most, false)
}

func TestLayouts(t *testing.T) {
	for _, test := range []struct {
		name, in string
		want     []found
	}{
		{"one on each line", "{\"a\":1}\n\n {\"b\":2}\r\n{\"c\":3}", []found{{`{"a":1}`, 1, 0}, {`{"b":2}`, 3, 0}, {`{"c":3}`, 4, 0}}},
		{"several lines", "{\n \"a\": 1\n}\n{\n\"b\":{\n\"c\":[\n{}]}}\n", []found{{"{\n \"a\": 1\n}", 1, Spans}, {"{\n\"b\":{\n\"c\":[\n{}]}}", 4, Spans}}},
		{"several lines, none of them indented", "{\"m\":[\n{\"a\":1},\n{\"b\":2}],\n\"c\":\n{}}\n{\"d\":4}", []found{{"{\"m\":[\n{\"a\":1},\n{\"b\":2}],\n\"c\":\n{}}", 1, Spans}, {`{"d":4}`, 6, 0}}},
		{"an array on a line", `[{"a":1},{"b":[2]}, {}]`, []found{{`{"a":1}`, 1, Array}, {`{"b":[2]}`, 1, Array | Shares}, {`{}`, 1, Array | Shares}}},
		{"an array with one on each line", "[\n {\"a\":1},\n {\"b\":2},\n]\n{\"c\":3}", []found{{`{"a":1}`, 2, Array}, {`{"b":2}`, 3, Array}, {`{"c":3}`, 5, 0}}},
		{"two arrays", "[{}]\n[{}]", []found{{`{}`, 1, Array}, {`{}`, 2, Array}}},
		{"an empty array", "[ ]\n", nil},
		{"commas after lines", "{\"a\":1},\n{\"b\":2},\n", []found{{`{"a":1}`, 1, 0}, {`{"b":2}`, 2, Commas}}},
		{"several on one line", `{"a":1}{"b":2} {"c":3}`, []found{{`{"a":1}`, 1, 0}, {`{"b":2}`, 1, Shares}, {`{"c":3}`, 1, Shares}}},
		{"comments", "// first\n{\"a\":1} // {\"x\":0}\n/* two\nlines **/{\"b\":2}", []found{{`{"a":1}`, 2, Comments}, {`{"b":2}`, 4, Comments}}},
		{"comments within", "{\"a\": /* , */ \"//\", // }\n\"b\":\"/*\"}", []found{{"{\"a\":         \"//\",     \n\"b\":\"/*\"}", 1, Spans | Comments}}},
		{"comments that begin with #", "# first\n{\"a\": \"#\", # }\n\"b\":2 # c\n}#", []found{{"{\"a\": \"#\",    \n\"b\":2    \n}", 2, Spans | Comments}}},
		{"trailing commas", "{\"a\":[1,2,],/**/}", []found{{`{"a":[1,2 ]     }`, 1, Commas | Comments}}},
		{"brackets in strings", "[{\"a\":\"]}\\\"\\\\\"}]", []found{{`{"a":"]}\"\\"}`, 1, Array}}},
		{"a byte order mark", "\xef\xbb\xbf{}", []found{{`{}`, 1, 0}}},

		{"no objects", "xyz\n12 {}\n{}", []found{{"xyz", 1, 0}, {"12 {}", 2, 0}, {"{}", 3, 0}}},
		{"no objects in an array", "[ 1,[2,3],\"],\"\nx{}]", []found{{"1", 1, Array}, {"[2,3]", 1, Array}, {`"],"`, 1, Array}, {"x{}", 2, Array}}},
		{"rows that are arrays", "[1,{}]\n[[2]]\n{}", []found{{"[1,{}]", 1, 0}, {"[[2]]", 2, 0}, {"{}", 3, 0}}},
		{"text after an object", "{\"a\":1} x\n{}", []found{{`{"a":1}`, 1, 0}, {"x", 1, Shares}, {"{}", 2, 0}}},
		{"a slash", "/x\n{}\n/", []found{{"/x", 1, 0}, {"{}", 2, 0}, {"/", 3, 0}}},
		{"cut in a string", "{\"a\":\"x\n{\"b\":2}", []found{{`{"a":"x`, 1, 0}, {`{"b":2}`, 2, 0}}},
		{"cut after a key", "{\"a\":1,\n{\"b\":2}\n{\"c\":3}", []found{{"{\"a\":1,\n", 1, Spans}, {`{"b":2}`, 2, 0}, {`{"c":3}`, 3, 0}}},
		{"cut in a list", "{\"a\":[1,\n{\"b\":2}\n{\"c\":3}\n", []found{{"{\"a\":[1,\n", 1, Spans}, {`{"b":2}`, 2, 0}, {`{"c":3}`, 3, 0}}},
		{"cut in a list before the last object", "{\"a\":[1,\n{\"b\":2}\n", []found{{"{\"a\":[1,\n", 1, Spans}, {`{"b":2}`, 2, 0}}},
		{"cut within lines", "{\n \"a\": \"x\n \"b\": {\n }\n}\n{\n}\n", []found{{"{\n \"a\": \"x", 1, Spans}, {"{\n}", 6, Spans}}},
		{"cut at the end", "{}\n{\"a\":{", []found{{"{}", 1, 0}, {"{\"a\":{", 2, 0}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := readAll(ofBytes(test.in, 1000), func() {})
			if !errors.Is(err, io.EOF) {
				t.Errorf("error %v", err)
			}
			for i := range got {
				got[i].Text = strings.TrimRight(got[i].Text, "\n")
			}
			for i := range test.want {
				test.want[i].Text = strings.TrimRight(test.want[i].Text, "\n")
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatDoesNotEnd(t *testing.T) {
	broken := errors.New("broken")
	deep := strings.Repeat("[", 2*maxDepth)
	for _, test := range []struct {
		name string
		in   io.Reader
		n    int // texts before the error
		line int64
		want string
	}{
		{"an array", strings.NewReader("\n[{},\n{}"), 2, 2, "the JSON array that begins here does not end"},
		{"a comment", strings.NewReader("{}\n /* {}\n{}"), 1, 2, "the comment that begins here does not end"},
		{"a long line", strings.NewReader("{}\n{\"a\":\"" + strings.Repeat("x", 200_000) + "\"}"), 1, 2, ErrLongLine.Error()},
		{"a long object", strings.NewReader("[{},\n{\"a\":\"" + strings.Repeat("x", 200_000) + "\"}]"), 1, 2, ErrLongRow.Error()},
		{"a long comment in an object", strings.NewReader("[{},\n{/*" + strings.Repeat("x", 200_000)), 1, 2, ErrLongRow.Error()},
		{"a source that fails", io.MultiReader(strings.NewReader("{}\n{"), iotest.ErrReader(broken)), 1, 2, "broken"},
		{"a source that fails within an array", io.MultiReader(strings.NewReader("[{}\n,"), iotest.ErrReader(broken)), 1, 2, "broken"},
		{"a source that fails after a slash", io.MultiReader(strings.NewReader("[{}\n/"), iotest.ErrReader(broken)), 1, 2, "broken"},
		{"deep brackets", strings.NewReader(`{"a":` + deep + "\n{}\n" + deep + "\n{}"), 4, 4, "EOF"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := NewReader(bufio.NewReader(test.in), 100_000, false)
			all, err := readAll(r, func() {})
			if err == nil || !strings.Contains(err.Error(), test.want) || r.Line != test.line || len(all) != test.n {
				t.Errorf("%d texts, then line %d: %v; want %d, line %d: %s", len(all), r.Line, err, test.n, test.line, test.want)
			}
		})
	}
}

// TestCommentsHaveAnyLength: text that is not a row is not kept in memory.
func TestCommentsHaveAnyLength(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	all, err := readAll(ofBytes("//"+long+"\n/*"+long+"*/ {}"+strings.Repeat(" ", 50)+"\n"+strings.Repeat(" ", 100_000)+"{}", 100), func() {})
	if !errors.Is(err, io.EOF) || len(all) != 2 {
		t.Errorf("%d objects, error %v", len(all), err)
	}
}

// TestScanningAgainIsBounded: rows that are all cut off in a list must not be scanned again and again.
func TestScanningAgainIsBounded(t *testing.T) {
	const rows, most = 20_000, 10_000
	r := NewReader(bufio.NewReader(strings.NewReader(strings.Repeat("{\"a\":[\n", rows))), most, false)
	scanned := 0
	_, err := readAll(r, func() { scanned += len(r.Raw) })
	if r.again > most {
		t.Errorf("%d bytes were scanned again, at most %d may be; end %v", r.again, most, err)
	}
}

// FuzzReader: what is returned and what is skipped together make the file. Only white space, comments, commas and the brackets of arrays
// are skipped. Text is Raw except for blanks. It does not matter how the bytes arrive.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		"{\"a\":1}\n{\"b\":[{}]}\n", "[{\"a\":1},\n{}]", "{\n\"a\": /* x */ [1,],\n}\n// y\n{}", "{\"a\":[1,\n{\"b\":2}\n{\"c\":3}\n",
		"{\"a\":\"x\n{\"b\":2}", "{}{},/", "[1,[2],\"]\"]{", "\xef\xbb\xbf{}\r\n\x00", "{\"a\":{\n \"b\": \"x\n }\n]\n{}", "/*/ {} */ {\"/*\":0}//", "#\n{ # x\n}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		r := NewReader(bufio.NewReader(strings.NewReader(in)), 1<<20, false)
		torn := ofBytes(in, 1<<20)
		rest := strings.TrimPrefix(in, string(utf8BOM))
		last := int64(0)
		got, err := readAll(r, func() {
			if r.Line < last || len(r.Raw) < len(bytes.TrimRight(r.Text, " \t\r\n")) {
				t.Fatalf("line %d after line %d, text %q of %q", r.Line, last, r.Text, r.Raw)
			}
			last = r.Line
			for i, c := range r.Text {
				if c != r.Raw[i] && c != ' ' {
					t.Fatalf("text %q of %q", r.Text, r.Raw)
				}
			}
			comment := func() bool {
				return strings.HasPrefix(rest, "#") || strings.HasPrefix(rest, "//") || strings.HasPrefix(rest, "/*")
			}
			for comment() || !strings.HasPrefix(rest, string(r.Raw)) {
				rest = passed(t, rest)
			}
			rest = rest[len(r.Raw):]
		})
		if errors.Is(err, io.EOF) {
			for rest != "" {
				rest = passed(t, rest)
			}
		}
		again, errAgain := readAll(torn, func() {})
		if diff := cmp.Diff(got, again); diff != "" || err.Error() != errAgain.Error() || r.Line != torn.Line {
			t.Fatalf("in pieces: %v and %v, lines %d and %d (-whole +pieces):\n%s", err, errAgain, r.Line, torn.Line, diff)
		}
	})
}

// passed removes what may be skipped.
func passed(t *testing.T, rest string) string {
	t.Helper()
	begin, end, skip := "", "", 0
	switch {
	case rest == "":
		t.Fatal("more was returned than there is")
	case strings.HasPrefix(rest, "//"):
		begin, end = "//", "\n"
	case strings.HasPrefix(rest, "#"):
		begin, end = "#", "\n"
	case strings.HasPrefix(rest, "/*"):
		begin, end, skip = "/*", "*/", 2
	case strings.ContainsAny(rest[:1], " \t\r\n,[]"):
		return rest[1:]
	default:
		t.Fatalf("%q was passed over", rest)
	}
	at := strings.Index(rest[len(begin):], end)
	if at < 0 {
		return ""
	}
	return rest[len(begin)+at+skip:]
}

// FuzzLayout: a valid object is returned unchanged, whatever is around it.
func FuzzLayout(f *testing.F) {
	f.Add(`{"a": [1, {"b": "}\"//"}], "c": "/*"}`, uint8(0))
	f.Add(`{"messages":[{"role":"user","content":"[{"}]}`, uint8(3))
	f.Fuzz(func(t *testing.T, object string, how uint8) {
		if !isObject([]byte(object)) {
			t.Skip()
		}
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, []byte(object), "", []string{"", " ", "\t"}[how%3]); err != nil {
			t.Skip()
		}
		in := pretty.String()
		for i, around := range []func(string) string{
			func(s string) string { return s + "\n" + s },
			func(s string) string { return "[" + s + "," + s + "]" },
			func(s string) string { return "[\n" + s + ",\n" + s + ",\n]" },
			func(s string) string { return "// {\n" + s + "/* { */," + s },
		} {
			got, err := readAll(ofBytes(around(in), 1<<20), func() {})
			if !errors.Is(err, io.EOF) || len(got) != 2 || got[1].Text != strings.TrimSpace(in) {
				t.Fatalf("layout %d of %q: %v, %+v", i, in, err, got)
			}
		}
	})
}
