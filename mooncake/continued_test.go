// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// conversation returns the rows of conversations of this many turns each, many of which are concurrent: a turn shares all but the last
// partial block of the previous turn, and has the replies to all previous turns.
func conversation(rng *rand.Rand, rows, turns, atATime int) []*Row {
	const fine, size = 16, 512
	type talk struct {
		row   *Row
		index int64
		turn  int
	}
	talks := make([]talk, atATime)
	nextFine, next := uint64(0), uint64(0)
	var out []*Row
	for index := range int64(rows) {
		t := &talks[rng.IntN(len(talks))]
		if t.turn == turns {
			*t = talk{}
		}
		row := &Row{Timestamp: Some(float64(index * 37)), OutputLength: Some(rng.Int64N(600) + 1), Model: "model-7b"}
		length, shared := rng.Int64N(1500)+100, int64(0)
		if before := t.row; before != nil {
			back := index - t.index
			for _, r := range before.Replies {
				r.Back += back
				row.Replies = append(row.Replies, r)
			}
			row.Replies = append(row.Replies, Reply{Back: back, At: before.InputLength.V, Tokens: before.OutputLength.V})
			length += before.InputLength.V + before.OutputLength.V
			shared = before.InputLength.V
			left := shared / fine
			for _, h := range before.HashRanges {
				if h.Count = min(h.Count, left); h.Count > 0 {
					row.HashRanges = append(row.HashRanges, h)
				}
				left -= h.Count
			}
			row.HashIDs = slices.Clone(before.HashIDs[:shared/size])
		}
		row.InputLength = Some(length)
		own := int64(BlockCount(length, fine)) - shared/fine
		// An id is left out where the two ranges would be one, as which tools write them.
		if n := len(row.HashRanges); n > 0 && row.HashRanges[n-1].last()+1 == nextFine {
			nextFine++
		}
		row.HashRanges = append(row.HashRanges, HashRange{nextFine, own})
		nextFine += uint64(own)
		for len(row.HashIDs) < BlockCount(length, size) {
			row.HashIDs = append(row.HashIDs, next)
			next++
		}
		row.OTel.TraceID[0], row.OTel.SpanID[0] = byte(index)|1, 1
		row.Observed = Observed{CachedTokens: Some(shared / 32 * 32), TTFT: Some(float64(rng.IntN(90)) + 10), Duration: Some(float64(rng.IntN(9000)))}
		*t = talk{row, index, t.turn + 1}
		out = append(out, row)
	}
	return out
}

func written(t *testing.T, rows []*Row) string {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b)
	for _, row := range rows {
		if err := w.Write(row); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// TestContinuedRows: ranges and replies make a row at most half again as long, however long conversations are, and are read back
// unchanged.
func TestContinuedRows(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine works: the race detector would find nothing")
	}
	for _, turns := range []int{1, 2, 10, 12, 20, 100} {
		rows := conversation(rand.New(rand.NewPCG(1, uint64(turns))), 4000, turns, 250)
		text := written(t, rows)
		full, plain := 0, 0
		for _, row := range rows {
			full += len(AppendRow(nil, row)) + 1
			one := *row
			one.HashRanges, one.Replies = nil, nil
			plain += len(AppendRow(nil, &one)) + 1
		}
		t.Logf("%3d turns: %4d bytes a row, x%.2f of those without ranges and replies; written in full x%.2f",
			turns, len(text)/len(rows), float64(len(text))/float64(plain), float64(full)/float64(plain))
		if 2*len(text) > 3*plain {
			t.Errorf("%d turns: rows of %d bytes, and of %d without ranges and replies: want half as much more at most", turns, len(text), plain)
		}
		got, r, err := read(text, fineReader())
		if err != nil || len(r.Notices()) > 0 {
			t.Fatal(r.Notices(), err)
		}
		for i, row := range rows {
			if diff := cmp.Diff(row.HashRanges, got[i].HashRanges) + cmp.Diff(row.Replies, got[i].Replies); diff != "" {
				t.Fatalf("%d turns, row %d (-want +got):\n%s", turns, i, diff)
			}
		}
		if again := written(t, got); again != text {
			t.Errorf("%d turns: the rows are written differently the second time", turns)
		}
	}
}

// TestContinuedAfterRefusedRows: if a row of a conversation cannot be used, the rows that continue it, directly or indirectly, lose their
// ranges and replies, and no others do.
func TestContinuedAfterRefusedRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	rows := conversation(rng, 600, 12, 20)
	lines := strings.Split(strings.TrimSpace(written(t, rows)), "\n")
	broken := map[int]bool{} // unreadable lines
	for len(broken) < 20 {
		i := rng.IntN(len(lines))
		broken[i], lines[i] = true, `{"input_length": -1}`
	}
	lost := map[int]bool{}
	opt := fineReader()
	opt.Reject = func(Rejected) error { return nil }
	r := NewReader(strings.NewReader(strings.Join(lines, "\n")), opt)
	for i, want := range rows {
		if broken[i] {
			continue
		}
		row, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		if n := len(want.Replies); strings.Contains(lines[i], `"continues"`) {
			of := i - int(want.Replies[n-1].Back)
			lost[i] = broken[of] || lost[of]
		}
		if lost[i] {
			want = &Row{}
		}
		if diff := cmp.Diff(want.HashRanges, row.HashRanges); diff != "" {
			t.Fatalf("row %d (-want +got):\n%s", i, diff)
		}
	}
	n := int64(0)
	for _, is := range lost {
		if is {
			n++
		}
	}
	for _, notice := range r.Notices() {
		if notice.Code == NoticeContinuedLost && notice.Count == n && n > 20 {
			return
		}
	}
	t.Errorf("notices %v, want one that counts %d rows that lost their ranges", r.Notices(), n)
}

func TestContinuedRefused(t *testing.T) {
	first := fineRow + `}` + "\n"
	row := func(rest string) string {
		return `{"input_length": 1100, "hash_ids": [0, 1, 3], ` + rest + `}`
	}
	for name, test := range map[string]struct{ in, says string }{
		"not a number":            {first + row(`"continues": "64", "hash_ranges": [[70, 5]], "replies": [[1, 1030, 9]]`), "must be"},
		"0 ids":                   {first + row(`"continues": 0, "hash_ranges": [[70, 69]], "replies": [[1, 1030, 9]]`), "1 id or more"},
		"no ranges":               {first + row(`"continues": 64, "replies": [[1, 1030, 9]]`), "needs hash_ranges and replies"},
		"no replies":              {first + row(`"continues": 64, "hash_ranges": [[70, 5]]`), "needs hash_ranges and replies"},
		"a row before the first":  {first + row(`"continues": 64, "hash_ranges": [[70, 5]], "replies": [[2, 1030, 9]]`), "continues no row: this one is row 2"},
		"a row without ranges":    {`{"input_length": 9}` + "\n" + row(`"continues": 64, "hash_ranges": [[70, 5]], "replies": [[1, 1030, 9]]`), "has no hash_ranges"},
		"more ids than there are": {first + row(`"continues": 66, "hash_ranges": [[70, 3]], "replies": [[1, 1030, 9]]`), "has 66 ids of that row, which has 65"},
		"an id twice":             {first + row(`"continues": 64, "hash_ranges": [[60, 5]], "replies": [[1, 1030, 9]]`), "an id occurs twice"},
		"too few ids":             {first + row(`"continues": 64, "hash_ranges": [[70, 4]], "replies": [[1, 1030, 9]]`), "has 69 blocks of 16 tokens"},
		"a row that is forgotten": {
			first + strings.Repeat(`{"input_length": 16, "hash_ids": [9], "hash_ranges": [[900, 1]]}`+"\n", maxContinued) +
				row(fmt.Sprintf(`"continues": 64, "hash_ranges": [[70, 5]], "replies": [[%d, 1030, 9]]`, maxContinued+1)), "that is forgotten",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := read(test.in, fineReader()); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want one that says %q", err, test.says)
			}
		})
	}
	good := first + strings.Repeat(`{"input_length": 16, "hash_ids": [9], "hash_ranges": [[900, 1]]}`+"\n", maxContinued-1) +
		row(fmt.Sprintf(`"continues": 64, "hash_ranges": [[64, 5]], "replies": [[%d, 1030, 9]]`, maxContinued))
	rows, _, err := read(good, fineReader())
	if err != nil {
		t.Fatal(err)
	}
	last := rows[len(rows)-1]
	if diff := cmp.Diff([]HashRange{{0, 69}}, last.HashRanges); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if alone, err := ParseRow([]byte(good[strings.LastIndexByte(good, '\n')+1:])); err != nil || alone.HashRanges != nil || alone.Replies != nil {
		t.Errorf("by itself: %+v, %v", alone, err)
	}
}

// TestContinuedMemory: the number of remembered ranges and replies is bounded, too, and a writer never refers to what a reader has
// forgotten.
func TestContinuedMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine works: the race detector would find nothing")
	}
	rows := conversation(rand.New(rand.NewPCG(3, 3)), 1800, 2000, 3)
	text := written(t, rows)
	var r recent
	for i, row := range rows {
		if r.add(int64(i), row); r.size > maxRemembered {
			t.Fatalf("row %d: %d ranges and replies are remembered", i, r.size)
		}
	}
	if r.first == 0 {
		t.Error("nothing was forgotten: this test measures nothing")
	}
	got, _, err := read(text, fineReader())
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range rows {
		if !slices.Equal(row.HashRanges, got[i].HashRanges) || !slices.Equal(row.Replies, got[i].Replies) {
			t.Fatalf("row %d is not read back as it was written", i)
		}
	}
}
