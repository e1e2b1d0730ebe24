// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake"
)

func TestCompare(t *testing.T) {
	const a = `{"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [7, 8]}
{"timestamp": 1.5, "input_length": 1000, "output_length": 5, "hash_ids": [7, 9]}

{"timestamp": 2.25, "input_length": 600, "output_length": 1}
`
	at := func(row, one, two int64) Difference { return Difference{1, row, [2]int64{one, two}} }
	for _, tc := range []struct {
		name, b string
		opt     CompareOptions
		want    Comparison
		text    string
	}{
		{"other ids, another zero, no blank line: the same", `{"timestamp": 5, "input_length": 1000, "output_length": 5, "hash_ids": [0, 1]}
{"timestamp": 6.5, "input_length": 1000, "output_length": 5, "hash_ids": [0, 2]}
{"timestamp": 7.25, "input_length": 600, "output_length": 1}
`, CompareOptions{}, Comparison{Rows: [2]int64{3, 3}, Timed: 3, Unknown: 1}, "the same workload: 3 rows with the same lengths and shared blocks; timestamps at most 0 ms apart; 1 row without"},
		{"a block that is shared becomes one of its own, and is so from then on", `{"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [7, 8]}
{"timestamp": 1.5, "input_length": 1000, "output_length": 5, "hash_ids": [3, 9]}
{"timestamp": 2.25, "input_length": 600, "output_length": 1}
`, CompareOptions{}, Comparison{Rows: [2]int64{3, 3}, Timed: 3, Unknown: 1, Blocks: at(1, 2, 2)}, "not the same workload: other blocks in 1 row, first on lines 2 and 2"},
		{"a block of its own becomes shared", `{"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [7, 8]}
{"timestamp": 1.5, "input_length": 1000, "output_length": 5, "hash_ids": [7, 8]}
{"timestamp": 2.25, "input_length": 600, "output_length": 1}
`, CompareOptions{}, Comparison{Rows: [2]int64{3, 3}, Timed: 3, Unknown: 1, Blocks: at(1, 2, 2)}, "other blocks"},
		{"ids in one trace only, and another length", `{"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [7, 8]}
{"timestamp": 1.5, "input_length": 1000, "output_length": 6, "hash_ids": [7, 9]}
{"timestamp": 2.25, "input_length": 600, "output_length": 1, "hash_ids": [10, 11]}
`, CompareOptions{}, Comparison{Rows: [2]int64{3, 3}, Timed: 3, Lengths: at(1, 2, 2), Blocks: at(2, 4, 3)}, "other lengths in 1 row, first on lines 2 and 2; other blocks in 1 row, first on lines 4 and 3"},
		{"ids beyond the end of the prompt do not count", `{"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [7, 8, 99]}
{"timestamp": 1.5, "input_length": 1000, "output_length": 5, "hash_ids": [7, 9, 99]}
{"timestamp": 2.25, "input_length": 600, "output_length": 1}
`, CompareOptions{}, Comparison{Rows: [2]int64{3, 3}, Timed: 3, Unknown: 1}, "the same workload"},
		{"other times, and a row without a time", `{"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [7, 8]}
{"timestamp": 1.625, "input_length": 1000, "output_length": 5, "hash_ids": [7, 9]}
{"input_length": 600, "output_length": 1}
`, CompareOptions{}, Comparison{Rows: [2]int64{3, 3}, Timed: 2, Unknown: 1, Apart: 0.125, Timestamps: Difference{2, 1, [2]int64{2, 2}}}, "other timestamps in 2 rows, first on lines 2 and 2; timestamps at most 0.125 ms apart"},
		{"a difference that is tolerated", `{"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [7, 8]}
{"timestamp": 1.625, "input_length": 1000, "output_length": 5, "hash_ids": [7, 9]}
{"timestamp": 2.25, "input_length": 600, "output_length": 1}
`, CompareOptions{Tolerance: 0.125}, Comparison{Rows: [2]int64{3, 3}, Timed: 3, Unknown: 1, Apart: 0.125}, "the same workload"},
		{"a shorter trace", `{"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [7, 8]}
`, CompareOptions{}, Comparison{Rows: [2]int64{3, 1}, Timed: 1}, "not the same workload: 3 and 1 row"},
		{"more ids than can be remembered", a, CompareOptions{MaxIDs: 1}, Comparison{Rows: [2]int64{3, 3}, Timed: 3, Unknown: 1, Unchecked: 1}, "the blocks of 1 row not compared"},
	} {
		got, err := Compare(t.Context(), mooncake.NewReader(strings.NewReader(a), mooncake.ReaderOptions{}), mooncake.NewReader(strings.NewReader(tc.b), mooncake.ReaderOptions{}), tc.opt)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if got.Apart < 1e-9 {
			got.Apart = 0 // a rounding error
		}
		if diff := cmp.Diff(&tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
		if !strings.Contains(got.String(), tc.text) || got.Same() != strings.HasPrefix(got.String(), "the same") && got.Unchecked == 0 {
			t.Errorf("%s: same is %v, %q, want %q", tc.name, got.Same(), got.String(), tc.text)
		}
	}
}

func TestCompareEnds(t *testing.T) {
	row := `{"timestamp": 0, "input_length": 1000, "output_length": 5}` + "\n"
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Compare(ctx, mooncake.NewReader(strings.NewReader(row), mooncake.ReaderOptions{}), mooncake.NewReader(strings.NewReader(row), mooncake.ReaderOptions{}), CompareOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
	_, err := Compare(t.Context(), mooncake.NewReader(strings.NewReader(row), mooncake.ReaderOptions{}), mooncake.NewReader(strings.NewReader("{}\n"), mooncake.ReaderOptions{Name: "b"}), CompareOptions{})
	if _, ok := errors.AsType[*mooncake.RowError](err); !ok {
		t.Errorf("error %v, want that of the row", err)
	}
}

// Ranges are compared by what they share, whatever their ids, and replies by their values. A row that differs does not make later rows
// differ.
func TestCompareRanges(t *testing.T) {
	rows := conversations(rand.New(rand.NewPCG(3, 9)), 40, 32, 16)
	sharing := 0 // the last row that shares something, so that no later row shares with it
	for i := range rows {
		if len(rows[i].HashRanges) > 1 {
			sharing = i
		}
	}
	trace := func(change func(i int, r *mooncake.Row)) *mooncake.Reader {
		var text []byte
		for i := range rows {
			r := rows[i].Row
			r.HashRanges, r.Replies = slices.Clone(r.HashRanges), slices.Clone(r.Replies)
			change(i, &r)
			text = append(mooncake.AppendRow(text, &r), '\n')
		}
		return mooncake.NewReader(bytes.NewReader(text), mooncake.ReaderOptions{BlockSize: 32, FineBlockSize: 16})
	}
	for name, tc := range map[string]struct {
		change          func(i int, r *mooncake.Row)
		ranges, replies int64
	}{
		"the same": {func(int, *mooncake.Row) {}, 0, 0},
		"other ids": {func(_ int, r *mooncake.Row) {
			ids := expand(r.HashRanges)
			for i, id := range ids {
				ids[i] = id/3*1000 + id%3
			}
			r.HashRanges = collapse(ids)
		}, 0, 0},
		"one row shares nothing": {func(i int, r *mooncake.Row) {
			if i == sharing {
				r.HashRanges = []mooncake.HashRange{{First: 1 << 40, Count: int64(len(expand(r.HashRanges)))}}
			}
		}, 1, 0},
		"a row without ranges": {func(i int, r *mooncake.Row) { r.HashRanges = [][]mooncake.HashRange{r.HashRanges, nil}[i/39] }, 1, 0},
		"missing replies": {func(i int, r *mooncake.Row) {
			if n := len(r.Replies); n > 1 {
				r.Replies = r.Replies[1:]
			}
		}, 0, -1},
	} {
		got, err := Compare(t.Context(), trace(func(int, *mooncake.Row) {}), trace(tc.change), CompareOptions{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got.Ranges.Count != tc.ranges || tc.replies < 0 != (got.Replies.Count > 0) || got.Same() != (tc.ranges == 0 && tc.replies == 0) ||
			strings.HasPrefix(got.String(), "the same") != got.Same() {
			t.Errorf("%s: %+v: %s", name, got, got)
		}
	}
}
