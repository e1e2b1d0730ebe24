// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fineRow is a row of 1,030 tokens: 3 blocks of 512, 65 of 16.
const fineRow = `{"timestamp": 0, "input_length": 1030, "output_length": 9, "hash_ids": [0, 1, 2], "hash_ranges": [[0,65]]`

func fineReader() ReaderOptions { return ReaderOptions{Name: "t.jsonl", FineBlockSize: 16} }

func TestRangesRoundTrip(t *testing.T) {
	lines := []string{
		fineRow + `}`,
		`{"timestamp": 0, "input_length": 1030, "output_length": 9, "hash_ids": [0, 3, 4], "hash_ranges": [[0,40],[65,25]], ` +
			`"replies": [[1,600,100],[1,700,1]], "delay": 4, "observed": {"duration_ms": 3, "finish_reason": "stop;tool_calls"}}`,
		`{"input_length": 17, "hash_ids": [9], "hash_ranges": [[18446744073709551615,1],[0,1]]}`,
	}
	rows, _, err := read(strings.Join(lines, "\n"), fineReader())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]HashRange{{0, 40}, {65, 25}}, rows[1].HashRanges); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Reply{{1, 600, 100}, {1, 700, 1}}, rows[1].Replies); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]HashRange{{1<<64 - 1, 1}, {0, 1}}, rows[2].HashRanges); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for i, row := range rows {
		if got := string(AppendRow(nil, row)); got != lines[i] {
			t.Errorf("%s\nbecame %s", lines[i], got)
		}
		if again, err := ParseRow([]byte(lines[i])); err != nil || cmp.Diff(row, again) != "" {
			t.Errorf("%s by itself: %+v, %v", lines[i], again, err)
		}
	}
}

// Spaces do not matter, null and an empty list of replies mean absent, and rows without ranges need no size.
func TestRangesAreReadLeniently(t *testing.T) {
	for in, want := range map[string]Row{
		"{\"input_length\":20,\"hash_ids\":[1],\"hash_ranges\": [ [ 5 ,\t2 ] ] , \"replies\":[ ]}": {
			InputLength: Some[int64](20), HashIDs: []uint64{1}, HashRanges: []HashRange{{5, 2}},
		},
		`{"input_length":20,"hash_ranges":null,"replies":null}`: {InputLength: Some[int64](20)},
	} {
		rows, _, err := read(in, fineReader())
		if err != nil || len(rows) != 1 {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if diff := cmp.Diff(&want, rows[0]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", in, diff)
		}
	}
}

func TestRangesRefused(t *testing.T) {
	row := func(rest string) string {
		return `{"input_length": 1030, "hash_ids": [0, 1, 2], ` + rest + `}`
	}
	for name, test := range map[string]struct{ in, field, says string }{
		"not an array":         {row(`"hash_ranges": 4`), "hash_ranges", "must be an array"},
		"ids, not ranges":      {row(`"hash_ranges": [0, 1]`), "hash_ranges", "element 0: is not an array"},
		"half a range":         {row(`"hash_ranges": [[0, 64], [65]]`), "hash_ranges", "element 1: holds 1 numbers, not 2"},
		"three numbers":        {row(`"hash_ranges": [[0, 64, 1]]`), "hash_ranges", "element 0: holds more than 2 numbers"},
		"a negative id":        {row(`"hash_ranges": [[-1, 65]]`), "hash_ranges", "negative"},
		"a float":              {row(`"hash_ranges": [[0, 65.0]]`), "hash_ranges", "not an integer"},
		"an exponent":          {row(`"hash_ranges": [[0, 6e1]]`), "hash_ranges", "not an integer"},
		"a string":             {row(`"hash_ranges": [["0", 65]]`), "hash_ranges", "not an integer"},
		"a deeper array":       {row(`"hash_ranges": [[[0], 65]]`), "hash_ranges", "not an integer"},
		"beyond 64 bits":       {row(`"hash_ranges": [[18446744073709551616, 65]]`), "hash_ranges", "above 2^64-1"},
		"an empty list":        {row(`"hash_ranges": []`), "hash_ranges", "is empty"},
		"an empty range":       {row(`"hash_ranges": [[0, 65], [70, 0]]`), "hash_ranges", "element 1: has no id"},
		"ids beyond the last":  {row(`"hash_ranges": [[18446744073709551600, 65]]`), "hash_ranges", "goes beyond id 2^64-1"},
		"more ids than tokens": {row(`"hash_ranges": [[0, 1000], [2000, 31]]`), "hash_ranges", "element 1: is beyond input_length 1030"},
		"a giant count":        {row(`"hash_ranges": [[0, 18446744073709551615]]`), "hash_ranges", "above 2^40"},
		"a range twice":        {row(`"hash_ranges": [[0, 33], [0, 32]]`), "hash_ranges", "an id occurs twice"},
		"an overlap":           {row(`"hash_ranges": [[100, 33], [69, 32]]`), "hash_ranges", "an id occurs twice"},
		"one id too few":       {row(`"hash_ranges": [[0, 64]]`), "hash_ranges", "64 ids: input_length 1030 has 65 blocks of 16 tokens"},
		"one id too many":      {row(`"hash_ranges": [[0, 65], [70, 1]]`), "hash_ranges", "66 ids"},
		"too few hash ids":     {`{"input_length": 1030, "hash_ids": [0, 1], "hash_ranges": [[0, 65]]}`, "hash_ids", "names them all"},
		"no hash ids":          {`{"input_length": 1030, "hash_ranges": [[0, 65]]}`, "hash_ranges", "needs input_length and hash_ids"},
		"ranges of a text":     {`{"text_input": "x", "hash_ranges": [[0, 65]]}`, "hash_ranges", "needs input_length and hash_ids"},

		"replies of a text":                 {`{"text_input": "x", "replies": [[1, 1, 1]]}`, "replies", "needs input_length"},
		"a reply of two numbers":            {row(`"replies": [[1, 2]]`), "replies", "element 0: holds 2 numbers, not 3"},
		"a giant reply":                     {row(`"replies": [[1, 2, 9223372036854775807]]`), "replies", "above 2^40"},
		"a reply to the row itself":         {row(`"replies": [[0, 2, 3]]`), "replies", "element 0: is the reply of no row before"},
		"no prompt before a reply":          {row(`"replies": [[1, 0, 3]]`), "replies", "at the beginning of the prompt"},
		"a reply without tokens":            {row(`"replies": [[1, 2, 0]]`), "replies", "has no token"},
		"replies that overlap":              {row(`"replies": [[1, 2, 4], [1, 5, 4]]`), "replies", "element 1: begins before the end"},
		"replies out of order":              {row(`"replies": [[1, 20, 4], [1, 5, 4]]`), "replies", "element 1: begins before the end"},
		"a reply up to the end":             {row(`"replies": [[1, 1000, 30]]`), "replies", "input_length 1030"},
		"a reply after the end":             {row(`"replies": [[1, 1030, 1]]`), "replies", "input_length 1030"},
		"a reply to a row before the first": {row(`"replies": [[1, 2, 3]]`), "replies", "a row 1 back, but this one is row 1 of the trace"},
		"a finish that is not a word":       {row(`"observed": {"finish_reason": "the end"}`), "observed.finish_reason", "must be a word"},
		"a finish that is long":             {row(`"observed": {"finish_reason": "` + strings.Repeat("x", 65) + `"}`), "observed.finish_reason", "must be a word"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := read(test.in, fineReader())
			fault, ok := errors.AsType[*RowError](err)
			if !ok || fault.Field != test.field || !strings.Contains(err.Error(), test.says) || fault.Advice == "" || fault.Line != 1 {
				t.Errorf("%s\n got %v\nwant %s: ... %s", test.in, err, test.field, test.says)
			}
		})
	}
}

// A writer refuses what a reader refuses, as far as the row alone shows it.
func TestWriterRefusesBadRanges(t *testing.T) {
	for _, row := range []Row{
		{InputLength: Some[int64](20), HashIDs: []uint64{1}, HashRanges: []HashRange{{5, -2}}},
		{InputLength: Some[int64](20), HashIDs: []uint64{1}, HashRanges: []HashRange{}},
		{InputLength: Some[int64](20), Replies: []Reply{{1, 19, 1}}},
		{InputLength: Some[int64](20), Observed: Observed{FinishReason: "a b"}},
	} {
		if err := NewWriter(new(strings.Builder)).Write(&row); err == nil {
			t.Errorf("%+v was written", row)
		}
	}
}

// Ranges mean nothing without the size of their blocks, from the sidecar or a flag. The two must agree with one another, and with the
// block size.
func TestFineBlockSize(t *testing.T) {
	dir := t.TempDir()
	trace := filepath.Join(dir, "x.jsonl")
	for name, test := range map[string]struct {
		sidecar   string
		opt       OpenOptions
		fine      int
		says      string
		lateFault bool // reported when the row is read, not when the trace is opened
	}{
		"unknown":                       {says: "x.meta.json), or --fine-block-size", lateFault: true},
		"the sidecar":                   {sidecar: `{"schema": 1, "block_size": 512, "fine_block_size": 16}`, fine: 16},
		"without a block size":          {sidecar: `{"schema": 1, "fine_block_size": 16}`, fine: 16},
		"given":                         {opt: OpenOptions{FineBlockSize: 16}, fine: 16},
		"given, and in the sidecar":     {sidecar: `{"schema": 1, "fine_block_size": 16}`, opt: OpenOptions{FineBlockSize: 16}, fine: 16},
		"contradicted":                  {sidecar: `{"schema": 1, "fine_block_size": 16}`, opt: OpenOptions{FineBlockSize: 8}, says: "fine block size 8 contradicts the trace's sidecar, which says 16"},
		"not that of the ids":           {opt: OpenOptions{FineBlockSize: 32}, says: "65 ids: input_length 1030 has 33 blocks of 32 tokens", lateFault: true},
		"not a divisor":                 {opt: OpenOptions{FineBlockSize: 48}, says: "must divide the block size 512"},
		"not finer":                     {opt: OpenOptions{FineBlockSize: 512}, says: "must divide the block size 512 and be below it"},
		"not a divisor, in the sidecar": {sidecar: `{"schema": 1, "block_size": 512, "fine_block_size": 15}`, says: "fine_block_size 15 must divide block_size 512"},
		"negative, in the sidecar":      {sidecar: `{"schema": 1, "fine_block_size": -1}`, says: "fine_block_size -1 must be above 0"},
		"giant, in the sidecar":         {sidecar: `{"schema": 1, "fine_block_size": 16777217}`, says: "fine_block_size 16777217 must be above 0 and at most"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(trace, []byte(fineRow+"}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			_ = os.Remove(MetaName(trace))
			if test.sidecar != "" {
				if err := os.WriteFile(MetaName(trace), []byte(test.sidecar), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			open, err := Open(t.Context(), trace, test.opt)
			if err == nil {
				defer func() { _ = open.Close() }()
				if test.says != "" && !test.lateFault {
					t.Fatal("was opened")
				}
				_, err = open.Read()
				if test.says == "" && open.FineBlockSize() != test.fine {
					t.Errorf("%d tokens, want %d", open.FineBlockSize(), test.fine)
				}
			}
			if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("%v, want %q", err, test.says)
			}
		})
	}
}

// A reader that leaves out rows counts back without them: each reply still names its row, or is left out and counted.
func TestRepliesToRowsLeftOut(t *testing.T) {
	const rows = 40
	bad := func(i int) bool { return i%5 == 2 || i == 30 || i == 31 }
	var in strings.Builder
	for i := range rows {
		if bad(i) {
			in.WriteString("{\"input_length\": -1}\n\n") // the blank line is not a row
			continue
		}
		fmt.Fprintf(&in, `{"input_length": 1030, "request_id": "%d"`, i)
		for k, back := range []int{1, 2, 3, 7, 21} {
			if back > i {
				break
			}
			fmt.Fprintf(&in, "%s[%d, %d, 2]", map[bool]string{true: `, "replies": [`, false: ", "}[k == 0], back, 10+10*k)
		}
		if i > 0 {
			in.WriteString("]")
		}
		in.WriteString("}\n")
	}
	r := NewReader(strings.NewReader(in.String()), ReaderOptions{Reject: func(Rejected) error { return nil }})
	var kept []int // the rows as numbered in the file
	lost := int64(0)
	for i := range rows {
		if bad(i) {
			continue
		}
		row, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		var want []Reply
		for k, back := range []int{1, 2, 3, 7, 21} {
			if back > i {
				break
			}
			if bad(i - back) {
				lost++
				continue
			}
			for n := range kept {
				if kept[n] == i-back {
					want = append(want, Reply{Back: int64(len(kept) - n), At: int64(10 + 10*k), Tokens: 2})
				}
			}
		}
		if diff := cmp.Diff(want, row.Replies); diff != "" {
			t.Fatalf("row %d (-want +got):\n%s", i, diff)
		}
		kept = append(kept, i)
	}
	for _, n := range r.Notices() {
		if n.Code == NoticeReplyLost {
			if n.Count != lost || lost < 10 {
				t.Errorf("%d replies are counted as lost, want %d", n.Count, lost)
			}
			return
		}
	}
	t.Error("the notices do not mention that replies were left out")
}

// A row that its user refuses is left out like one that the reader refuses.
func TestRepliesToARowThatTheUserRefuses(t *testing.T) {
	in := `{"input_length": 9}` + "\n" + `{"input_length": 9}` + "\n" + `{"input_length": 9, "replies": [[1, 2, 1], [2, 4, 1]]}`
	r := NewReader(strings.NewReader(in), ReaderOptions{Reject: func(Rejected) error { return nil }})
	for i := range 3 {
		row, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			if err := r.Refuse(&RowError{Rule: "is too early"}); err != nil {
				t.Fatal(err)
			}
		}
		if i == 2 {
			if diff := cmp.Diff([]Reply{{1, 4, 1}}, row.Replies); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
	}
}

// The memory of refused rows is bounded: a reply to an older row is left out, never assigned to another row.
func TestRefusalsAreBounded(t *testing.T) {
	var f refusals
	for i := range int64(maxRefusals + 1) {
		f.add(2 * i) // the even rows
	}
	if len(f.at) > maxRefusals {
		t.Fatalf("%d places", len(f.at))
	}
	index := int64(2*maxRefusals + 2)
	row := Row{Replies: []Reply{{Back: 1, At: 1, Tokens: 1}, {Back: 3, At: 3, Tokens: 1}, {Back: 4, At: 5, Tokens: 1}, {Back: index - 1, At: 7, Tokens: 1}}}
	lost, fault := f.remap(&row, index)
	if fault != nil || lost != 2 {
		t.Errorf("%d lost, %v", lost, fault)
	}
	if diff := cmp.Diff([]Reply{{1, 1, 1}, {2, 3, 1}}, row.Replies); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
