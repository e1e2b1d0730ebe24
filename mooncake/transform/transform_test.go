// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake"
)

// conversations makes a trace of conversations under one system prompt, with ranges, replies, sessions, and some turns with a delay and no
// timestamp.
func conversations(t *testing.T, seed uint64, rows int) []byte {
	t.Helper()
	const block, fine, system = 512, 16, 1100
	random := rand.New(rand.NewPCG(seed, 1))
	type conversation struct {
		name    string
		rows    []int
		in, out []int64
	}
	var open []*conversation
	var file bytes.Buffer
	w := mooncake.NewWriter(&file)
	var ids, fines numbered
	names := map[string]uint64{}
	name := func(text string) uint64 {
		if _, known := names[text]; !known {
			names[text] = uint64(len(names)) * 7 // in no order
		}
		return names[text]
	}
	chain := func(c *conversation, n, size int64, row int) (list []uint64) {
		for end := size; end < n+size; end += size {
			switch {
			case end > n: // nobody continues a partial block
				list = append(list, name(fmt.Sprint("tail", size, row)))
			case end <= system:
				list = append(list, name(fmt.Sprint("system", size, end)))
			default:
				list = append(list, name(fmt.Sprint(c.name, size, end)))
			}
		}
		return list
	}
	at := 0.
	for i := range rows {
		var c *conversation
		if len(open) > 0 && random.IntN(3) > 0 {
			c = open[random.IntN(len(open))]
		} else {
			c = &conversation{name: fmt.Sprint("conversation ", i)}
			open = append(open, c)
		}
		n := int64(system + 1 + random.IntN(900))
		row := &mooncake.Row{OutputLength: mooncake.Some(int64(1 + random.IntN(300))), SessionID: c.name, Model: fmt.Sprint("m", len(open)%2)}
		if turns := len(c.rows); turns > 0 {
			n = c.in[turns-1] + c.out[turns-1] + 1 + random.Int64N(700)
			for j, before := range c.rows {
				row.Replies = append(row.Replies, mooncake.Reply{Back: int64(i - before), At: c.in[j], Tokens: c.out[j]})
			}
		}
		at += float64(random.IntN(4) * 3000)
		if len(c.rows) > 0 && random.IntN(5) == 0 {
			row.Delay = mooncake.Some(50.)
		} else {
			row.Timestamp = mooncake.Some(at)
		}
		c.rows, c.in, c.out = append(c.rows, i), append(c.in, n), append(c.out, row.OutputLength.V)
		row.InputLength, row.HashIDs = mooncake.Some(n), chain(c, n, block, i)
		ids.row(0, row.HashIDs)
		small := chain(c, n, fine, i)
		fines.row(0, small)
		row.HashRanges = collapse(nil, small)
		if err := w.Write(row); err != nil {
			t.Fatal(err)
		}
	}
	return file.Bytes()
}

// TestAnyTransformationIsATrace: after any step, the rows keep all rules of the format, and each reply is still that of its turn.
func TestAnyTransformationIsATrace(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	for n := range repeated(40, 8) {
		maybe := func(values ...float64) float64 { return values[random.IntN(len(values))] }
		c := Config{
			Seed: uint64(n), Scale: maybe(0, 0, 0.3, 0.8, 1.5, 3), Roots: int(maybe(0, 0, 3)), TimeScale: maybe(0, 0.3, 2),
			MaxGap: time.Duration(maybe(0, 1, 5000)) * time.Millisecond, First: int64(maybe(0, 100)), BlockSize: int(maybe(0, 0, 1024)),
			Turns: []TurnDelay{"", "", TurnsFromStart, TurnsFromEnd, TurnsAtOnce}[random.IntN(5)], Conversations: int64(maybe(0, 0, 30)),
			OutputScale: maybe(0, 0, 1.7), Start: time.Duration(maybe(0, 0, 60)) * time.Second, MaxInput: int64(maybe(0, 0, 3000)),
		}
		if random.IntN(2) == 0 {
			c.InputScale = maybe(0, 0.4, 1.3, 2.5)
		} else {
			c.PrefixScale = maybe(0, 0.4, 1.3, 2.5)
		}
		if random.IntN(4) == 0 {
			c.Models = []string{"m1"}
		}
		sources := []Source{source(conversations(t, uint64(n), 200), 16)}
		if c.Join = []Join{JoinNone, JoinAppend, JoinMerge}[random.IntN(3)]; c.Join != JoinNone {
			sources = append(sources, source(conversations(t, uint64(n)+1000, 150), 16))
		}
		rows, a, _ := transformed(t, c, sources...)
		broken := slices.DeleteFunc(a.Violations, func(v mooncake.Violation) bool { return v.Rule == mooncake.V1 }) // turns with only a delay
		if len(broken) > 0 || a.Unchecked+a.UncheckedRanges != "" {
			t.Errorf("%+v: %v %s %s", c, broken, a.Unchecked, a.UncheckedRanges)
		}
		for i, row := range rows {
			for _, r := range row.Replies {
				to := rows[i-int(r.Back)]
				if to.SessionID != row.SessionID || to.InputLength.V != r.At || to.OutputLength.V != r.Tokens {
					t.Fatalf("%+v: row %d has a reply that row %d did not have", c, i, i-int(r.Back))
				}
			}
		}
	}
}

// TestNothingToDo: a transformation that does nothing gives the trace, byte for byte.
func TestNothingToDo(t *testing.T) {
	data := conversations(t, 1, 300)
	s, err := Open(Config{Scale: 1, TimeScale: 1, Roots: 1}, source(data, 16))
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	w := mooncake.NewWriter(&file)
	for row, err := s.Next(); err == nil; row, err = s.Next() {
		if err := w.Write(row); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(string(data), file.String()); d != "" {
		t.Error(d)
	}
}

// TestClosedStream: after Close a stream returns no further row, and does not wait for one; at its end it stays at its end.
func TestClosedStream(t *testing.T) {
	for name, c := range map[string]Config{"one pass": {}, "two passes": {Scale: 2}} {
		for _, take := range []int{1, 1 << 20} {
			s, err := Open(c, source(conversations(t, 1, 2000), 16))
			if err != nil {
				t.Fatal(err)
			}
			want := fs.ErrClosed
			for range take {
				if _, err = s.Next(); err != nil {
					want = io.EOF
					break
				}
			}
			s.Close()
			for range 2 {
				if row, err := s.Next(); row != nil || !errors.Is(err, want) {
					t.Errorf("%s: after Close, Next gives %v, %v; want %v", name, row, err, want)
				}
			}
		}
	}
	waiting := readAhead(func() (int, error) { return 0, nil }, func(int) int { return 1 })
	waiting.stop()
	for range 3 * batchRows {
		if _, err := waiting.next(); errors.Is(err, fs.ErrClosed) {
			return
		}
	}
	t.Error("rows are read ahead after stop")
}

// TestConfigSaysWhatIsWrong: each error names one field, its value and its range.
func TestConfigSaysWhatIsWrong(t *testing.T) {
	for want, c := range map[string]Config{
		`sample-by "x": must be session or prefix`:                                          {SampleBy: "x"},
		"spread 9: must be none, uniform or even":                                           {Spread: 9},
		"min-input -3: must be 0 or more":                                                   {MinInput: -3},
		"max-output -1: must be 0 or more":                                                  {MaxOutput: -1},
		"conversations -1: must be 0 or more":                                               {Conversations: -1},
		"max-context -1: must be 0 or more":                                                 {MaxContext: -1},
		"shift -1s: must be 0 or more":                                                      {Shift: -time.Second},
		"max-delay -1s: must be 0 or more":                                                  {MaxDelay: -time.Second},
		`turns "x": must be start, end or none`:                                             {Turns: "x"},
		`to-models ["a" ""]: no name must be empty`:                                         {ToModels: []string{"a", ""}},
		fmt.Sprintf("new block size -1: must be from 1 to %d, or 0", mooncake.MaxBlockSize): {BlockSize: -1},
	} {
		if err := c.Validate(); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if got := Spread(9).String(); got != "spread 9" {
		t.Error(got)
	}
}

// TestSteps: the effect of each step on a small trace, as timestamp, lengths, ids.
func TestSteps(t *testing.T) {
	const trace = `{"timestamp": 0, "input_length": 1100, "output_length": 10, "hash_ids": [0, 1, 2], "model": "a"}
{"timestamp": 0, "input_length": 1600, "output_length": 20, "hash_ids": [0, 1, 3, 4], "model": "b"}
{"timestamp": 3000, "input_length": 600, "output_length": 30, "hash_ids": [0, 5], "model": "a"}
{"timestamp": 9000, "input_length": 600, "output_length": 0, "hash_ids": [6, 7], "model": "b"}`
	for name, c := range map[string]struct {
		c    Config
		want string
	}{
		"time scale": {Config{TimeScale: 0.5}, "0 1100 10 [0 1 2];0 1600 20 [0 1 3 4];1500 600 30 [0 5];4500 600 0 [6 7]"},
		"window":     {Config{Start: time.Second, End: 3 * time.Second}, "3000 600 30 [0 1]"},
		"model":      {Config{Models: []string{"b"}}, "0 1600 20 [0 1 2 3];9000 600 0 [4 5]"},
		"first":      {Config{First: 1}, "0 1100 10 [0 1 2]"},
		"lengths":    {Config{MinInput: 700, MaxOutput: 15}, "0 1100 10 [0 1 2]"},
		"gap":        {Config{MaxGap: 3 * time.Second}, "0 1100 10 [0 1 2];0 1600 20 [0 1 3 4];3000 600 30 [0 5];6000 600 0 [6 7]"},
		"output":     {Config{OutputScale: 0.01}, "0 1100 1 [0 1 2];0 1600 1 [0 1 3 4];3000 600 1 [0 5];9000 600 0 [6 7]"},
		"input":      {Config{InputScale: 0.5}, "0 550 10 [0 1];0 800 20 [0 2];3000 300 30 [3];9000 300 0 [4]"},
		"prefix":     {Config{PrefixScale: 2}, "0 2124 10 [0 1 2 3 4];0 2624 20 [0 1 2 3 5 6];3000 1112 30 [0 1 7];9000 600 0 [8 9]"},
		"blocks":     {Config{BlockSize: 1024}, "0 1100 10 [0 1];0 1600 20 [0 2];3000 600 30 [3];9000 600 0 [4]"},
	} {
		rows, _, report := transformed(t, c.c, source([]byte(trace), 0))
		if hits := report.Before.TokenHits; c.c.First == 0 && hits != 1536./3900 { // of blocks of 512, whatever happens to them
			t.Errorf("%s: %v of the tokens hit before", name, hits)
		}
		var got []string
		for _, r := range rows {
			got = append(got, fmt.Sprint(r.Timestamp.V, r.InputLength.V, r.OutputLength.V, r.HashIDs))
		}
		if d := cmp.Diff(c.want, strings.Join(got, ";")); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// TestJoin: the ids of two traces stay distinct, and an appended trace continues at the pace of the first.
func TestJoin(t *testing.T) {
	a := []byte(`{"timestamp": 5, "input_length": 600, "output_length": 1, "hash_ids": [0, 1]}
{"timestamp": 25, "input_length": 600, "output_length": 1, "hash_ids": [0, 2]}`)
	b := []byte(`{"timestamp": 100, "input_length": 600, "output_length": 1, "hash_ids": [0, 1]}
{"timestamp": 130, "input_length": 600, "output_length": 1, "hash_ids": [0, 2]}`)
	for join, want := range map[Join]string{
		JoinAppend: "5 [0 1];25 [0 2];45 [3 4];75 [3 5]",
		JoinMerge:  "5 [0 1];5 [2 3];25 [0 4];35 [2 5]",
	} {
		rows, _, _ := transformed(t, Config{Join: join}, source(a, 0), source(b, 0))
		var got []string
		for _, r := range rows {
			got = append(got, fmt.Sprint(r.Timestamp.V, r.HashIDs))
		}
		if d := cmp.Diff(want, strings.Join(got, ";")); d != "" {
			t.Errorf("%s (-want +got):\n%s", join, d)
		}
	}
}

// TestPacked: a row that is stored between two passes is read back unchanged; damage is an error.
func TestPacked(t *testing.T) {
	for _, line := range []string{
		`{"timestamp": 1.5, "input_length": 9, "output_length": 0, "hash_ids": [3, 4, 7, 18446744073709551615, 0]}`,
		`{"input_length": 9, "hash_ids": []}`,
		`{"delay": 3, "input_length": 40, "hash_ids": [0], "hash_ranges": [[0, 2], [7, 1]], "replies": [[1, 2, 3]], "session_id": "s", "request_id": "r", "model": "m", "class": "c", "priority": -2}`,
		`{"input_length": 9, "class": "c"}`,
		`{"input_length": 9, "priority": 0}`,
		`{"timestamp": 2, "input_length": 1, "otel": {"trace_id": "0102030405060708090a0b0c0d0e0f10", "span_id": "0102030405060708"}, "observed": {"ttft_ms": 0, "finish_reason": "stop"}}`,
		`{"timestamp": 2, "messages": [{"role": "user", "content": "x"}], "tools": [{}], "extra": {"a": 1}, "priority": 3}`,
		`{"timestamp": 2, "text_input": "", "output_length": 7}`,
		`{"timestamp": 2, "input_length": 5, "request_id": "b", "wait_for": ["a"], "tool_wait_ms": 3}`,
		`{"timestamp": 2, "input_length": 5, "request_id": "a", "wait_for": []}`,
	} {
		row, err := mooncake.ParseRow([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		want := &item{Row: row, source: 3, index: 1 << 40, key: 77, timed: true}
		b := pack(nil, want)
		got := new(slab).item()
		err = unpack(got, b, new(idSlab))
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(item{})); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", line, err, diff)
		}
		for cut := range b {
			if err := unpack(new(slab).item(), b[:cut], new(idSlab)); err == nil {
				t.Errorf("%s: the first %d of %d bytes were read as a row", line, cut, len(b))
			}
		}
	}
}
