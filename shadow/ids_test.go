// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake"
)

func span(n byte) (s mooncake.SpanRef) {
	s.TraceID[15], s.SpanID[7] = n, n
	return s
}

// TestIDsStay compiles windows whose ids begin at 0 each time. What is shared with an earlier row keeps the ids that the earlier row was
// given.
func TestIDsStay(t *testing.T) {
	var n numbering
	give := func(row byte, ids ...uint64) []uint64 { return idsOf(n.translate(span(row), rangesOf(ids))) }
	for _, c := range []struct {
		why  string
		rows [][]uint64 // of the compilation: first the number of the row, then its ids
		want [][]uint64
	}{
		{"the first window", [][]uint64{{1, 0, 1, 2}, {2, 0, 1, 3}, {3, 4, 5}}, [][]uint64{{0, 1, 2}, {0, 1, 3}, {4, 5}}},
		{"new rows, compiled with the rows before", [][]uint64{{1, 0, 1, 2}, {2, 0, 1, 3}, {3, 4, 5}, {4, 0, 1, 3, 6}, {5, 4, 7}}, [][]uint64{{0, 1, 2}, {0, 1, 3}, {4, 5}, {0, 1, 3, 6}, {4, 7}}},
		{"rows keep their ids when the oldest rows are gone", [][]uint64{{4, 0, 1, 2, 3}, {5, 4, 5}, {6, 0, 1, 2, 6}, {7, 4, 5, 7}}, [][]uint64{{0, 1, 3, 6}, {4, 7}, {0, 1, 3, 8}, {4, 7, 9}}},
		{"rows that share more than was found before keep their ids", [][]uint64{{4, 0, 1, 2, 3}, {5, 0, 1}, {8, 0, 1, 2, 3, 4}}, [][]uint64{{0, 1, 3, 6}, {4, 7}, {0, 1, 3, 6, 10}}},
		{"a row with fewer ids than before keeps its old ids", [][]uint64{{8, 0, 1}, {9, 0, 1, 2}}, [][]uint64{{0, 1, 3, 6, 10}, {0, 1, 11}}},
		{"a shared part gets new ids if its owner has other ids before it", [][]uint64{{1, 0, 1, 2}, {5, 0, 1, 3, 4}, {10, 0, 1, 3, 4}}, [][]uint64{{0, 1, 2}, {4, 7}, {0, 1, 12, 13}}},
	} {
		n.begin()
		for i, row := range c.rows {
			if got := give(byte(row[0]), row[1:]...); !cmp.Equal(got, c.want[i]) {
				t.Errorf("%s: row %d has %v, want %v", c.why, row[0], got, c.want[i])
			}
		}
	}
	if n.next != 14 {
		t.Errorf("the next new id is %d, want 14", n.next)
	}
}
