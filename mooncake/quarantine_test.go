// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/internal/atomicfile"
)

func TestQuarantineKeepsRowsAsTheyWere(t *testing.T) {
	const in = "{\"input_length\":1}\nbad \"row\" <&>\r\n\n{\"input_length\":\"x\"}\n{\"text_input\":\"caf\xe9\"}\n{\"input_length\":2}"
	path := filepath.Join(t.TempDir(), "q.jsonl")
	q, err := NewQuarantine(path)
	if err != nil {
		t.Fatal(err)
	}
	rows, r, err := read(in, ReaderOptions{Name: "t", Reject: q.Add})
	if err != nil || len(rows) != 2 || rows[1].InputLength.V != 2 || r.Line() != 6 {
		t.Fatalf("%d rows, line %d, error %v, want the good rows", len(rows), r.Line(), err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file exists before it is complete: %v", err)
	}
	if err := q.Commit(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"trace":"t","line":2,"reason":"is not valid JSON at byte 1; write one JSON object on each line","row":"bad \"row\" <&>"}
{"trace":"t","line":4,"field":"input_length","reason":"input_length: a string: must be a number; correct the row, or leave the key out","row":"{\"input_length\":\"x\"}"}
{"trace":"t","line":5,"reason":"is not valid JSON at byte 19: a byte that is not UTF-8; convert the file to UTF-8, for instance from Latin-1","row_base64":"eyJ0ZXh0X2lucHV0IjoiY2Fm6SJ9"}
`
	if diff := cmp.Diff(want, string(data)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v: it may hold prompts", info.Mode(), err)
	}
	if q.Count() != 3 || q.First().Line != 2 || q.Name() != path {
		t.Errorf("%d rows, first %v, in %s", q.Count(), q.First(), q.Name())
	}
	if err := q.Add(Rejected{Fault: &RowError{Line: 9}}); err == nil {
		t.Error("a row added after Commit was lost without an error")
	}
}

func TestQuarantineIsForAFewRows(t *testing.T) {
	for _, test := range []struct {
		name      string
		good, bad int // the good rows come first
		stops     bool
	}{
		{"99 bad rows and nothing else: too few to tell", 0, 99, false},
		{"the first hundred are bad: it is another kind of file", 0, 100, true},
		{"as many bad as good", 150, 150, true},
		{"more good than bad", 151, 150, false},
	} {
		q, err := NewQuarantine("")
		if err != nil {
			t.Fatal(err)
		}
		in := strings.Repeat("{\"input_length\":1}\n", test.good) + strings.Repeat("bad\n", test.bad)
		_, r, err := read(in, ReaderOptions{Name: "t", Reject: q.Add})
		if stopped := err != nil && strings.Contains(err.Error(), "probably not a Mooncake trace"); stopped != test.stops || err != nil && !stopped {
			t.Errorf("%s: error %v", test.name, err)
		}
		if q.Count() != int64(test.bad) {
			t.Errorf("%s: %d rows counted, want %d", test.name, q.Count(), test.bad)
		}
		if err != nil {
			if _, again := r.Read(); again == nil || again.Error() != err.Error() {
				t.Errorf("%s: then %v, want the error to stay", test.name, again)
			}
		}
	}
}

func TestQuarantineThatFailsEndsTheReading(t *testing.T) {
	full := errors.New("disk full")
	_, _, err := read("bad\n{\"input_length\":1}\n", ReaderOptions{Reject: func(Rejected) error { return full }})
	if !errors.Is(err, full) {
		t.Errorf("error %v, want the quarantine's", err)
	}
}

func TestQuarantineNames(t *testing.T) {
	for trace, want := range map[string]string{
		"a/trace.jsonl": "trace.rejected.jsonl", "t.jsonl.zst": "t.rejected.jsonl", "t.txt": "t.txt.rejected.jsonl",
		"-": "stdin.rejected.jsonl", "https://u:p@h/x/t.jsonl.gz?key=s": "t.rejected.jsonl", "http://h": "h.rejected.jsonl", "": "trace.rejected.jsonl",
	} {
		if got := RejectedName(trace); got != want {
			t.Errorf("%q: %s, want %s", trace, got, want)
		}
	}
	dir := t.TempDir()
	trace := filepath.Join(dir, "t.jsonl")
	for _, name := range []string{trace, MetaName(trace)} {
		if err := os.WriteFile(name, []byte(twoRows), 0o600); err != nil {
			t.Fatal(err)
		}
		q, err := NewQuarantine(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := q.CheckName(trace); err == nil {
			t.Errorf("%s would be replaced", name)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, err := NewQuarantine(dir); err == nil {
		t.Error("a directory was taken for a file")
	}
	var none *Quarantine
	if none.Count() != 0 || none.First() != nil || none.Name() != "" || none.Close() != nil {
		t.Error("a nil quarantine does not behave like an empty one")
	}
}

// TestRefuse: a caller can refuse a row that was read, with the same effect as a refusal by the reader.
func TestRefuse(t *testing.T) {
	const in = "{\"input_length\":1}\n{\"input_length\":2}\n{\"input_length\":3}\n"
	fault := &RowError{Field: "input_length", Rule: "is even"}
	r := NewReader(strings.NewReader(in), ReaderOptions{Name: "t"})
	_, _ = r.Read()
	if err := r.Refuse(fault); err == nil || err.Error() != "t:1: input_length: is even" || fault.Line != 0 {
		t.Errorf("error %v, the fault itself %v", err, fault)
	}
	var got []Rejected
	r = NewReader(strings.NewReader(in), ReaderOptions{Name: "t", Reject: func(x Rejected) error {
		x.Text = bytes.Clone(x.Text)
		got = append(got, x)
		return nil
	}})
	for range 2 {
		if _, err := r.Read(); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Refuse(fault); err != nil {
		t.Fatal(err)
	}
	if row, err := r.Read(); err != nil || row.InputLength.V != 3 {
		t.Errorf("row %v, error %v", row, err)
	}
	if len(got) != 1 || got[0].Rows != 1 || got[0].Fault.Line != 2 || string(got[0].Text) != `{"input_length":2}` {
		t.Errorf("rejected %+v", got)
	}
}

// FuzzLenient: a lenient reading gives the same as a reading of only the good rows, each on a line. Rejected rows are in the quarantine
// file, in order and byte for byte, and can be read from it.
func FuzzLenient(f *testing.F) {
	for _, seed := range []string{
		"{\"input_length\":1}\nbad\n{\"input_length\":2}", "\xef\xbb\xbf{}\r\n\n[1]\n", "{\"text_input\":\"\xff\"}\n{\"input_length\":1}\n",
		"{\"payload\":{\"a\":1},\"session_id\":\"s\"}\n{\"input_length\":1,\"session_id\":\"s\"}\n{\"payload\":{},\"session_id\":\"s\"}\n",
		"[{\"payload\":{\"a\": 1}},\n{\"payload\":{\"a\": [1,\n2,]}} // x\n, 7]", "{\"input_length\":1,\n{\"input_length\":2}\n{\n\"input_length\": 3},{\"text_input\":\"x\n",
		"{\"input_length\":NaN}\n{\"input_length\":1,}\n\x00\n'", "{\"timestamp\":1e400,\"input_length\":1}\n{\"input_length\":9223372036854775808}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		var rejected []Rejected
		var file bytes.Buffer
		q := &Quarantine{out: new(atomicfile.File), buf: bufio.NewWriter(&file)}
		var good strings.Builder
		r := NewReader(strings.NewReader(in), ReaderOptions{MaxLine: 1 << 20, Reject: func(x Rejected) error {
			if err := q.Add(x); err != nil {
				return err
			}
			x.Text = bytes.Clone(x.Text)
			rejected = append(rejected, x)
			return nil
		}})
		var rows []*Row
		for {
			row, err := r.Read()
			if _, unfinished := errors.AsType[*unfinishedError](err); unfinished || errors.Is(err, io.EOF) {
				break
			}
			if _, isRow := errors.AsType[*RowError](err); err != nil && (!isRow || q.Count() < maxRejected) {
				t.Fatalf("a lenient reading ended with %v", err)
			} else if err != nil {
				return // too many
			}
			rows = append(rows, row)
			good.WriteString(strings.TrimSuffix(string(r.src.Raw), "\n") + "\n")
		}
		rest := in
		for i, x := range rejected {
			_, behind, found := strings.Cut(rest, string(x.Text))
			if !found || x.Fault.Line < 1 || x.Fault.Line > 1+int64(strings.Count(in, "\n")) {
				t.Fatalf("rejected text %d, of line %d, is %q, and not in the file", i, x.Fault.Line, x.Text)
			}
			rest = behind
		}
		if err := q.buf.Flush(); err != nil {
			t.Fatal(err)
		}
		dec := json.NewDecoder(&file)
		for i, x := range rejected {
			var got quarantined
			if err := dec.Decode(&got); err != nil {
				t.Fatalf("row %d of the quarantine: %v", i, err)
			}
			text := string(got.Base64)
			if got.Row != nil {
				text = *got.Row
			}
			if text != string(x.Text) || got.Line != x.Fault.Line || got.Reason == "" {
				t.Fatalf("the quarantine has %+v, want %q", got, x.Text)
			}
		}
		again, _, err := read(good.String(), ReaderOptions{MaxLine: 1 << 20})
		if err != nil {
			t.Fatalf("the good lines alone: %v", err)
		}
		if diff := cmp.Diff(rows, again); diff != "" {
			t.Fatalf("(-lenient +the good lines alone):\n%s", diff)
		}
	})
}
