// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Ranges are renumbered like the ids in them, one by one, and are as few as possible, for any input: overlaps, repeated ids, two domains.
func TestRangesAreRenumberedLikeTheirIDs(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine works: the race detector would find nothing")
	}
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var ranges RenumberRanges
		next, numbers := uint64(0), map[[2]uint64]uint64{}
		room, canonical := 1+rng.Uint64N(400), seed%3 == 0
		for row := range 60 {
			domain := uint64(7)
			if seed%4 == 3 {
				domain = rng.Uint64N(2)
			}
			var src []HashRange
			for range rng.IntN(6) {
				h := HashRange{rng.Uint64N(room), 1 + rng.Int64N(1+int64(room)/4)}
				if canonical && rng.IntN(3) > 0 {
					h.First = min(h.First, next)
				}
				if seed%7 == 6 {
					h.First = math.MaxUint64 - h.First - uint64(h.Count)
				}
				src = append(src, h)
			}
			var want []uint64
			for _, id := range expand(src) {
				n, known := numbers[[2]uint64{domain, id}]
				if !known {
					n = next
					numbers[[2]uint64{domain, id}] = n
					next++
				}
				want = append(want, n)
			}
			before := []HashRange{{1000, 1}} // is left alone
			got := ranges.Domain(domain, before, src)
			if cmp.Diff(before, got[:1]) != "" || cmp.Diff(collapse(want), append([]HashRange(nil), got[1:]...)) != "" {
				t.Fatalf("seed %d, row %d: %v became %v, want %v", seed, row, src, got[1:], collapse(want))
			}
			if ranges.Len() != next {
				t.Fatalf("seed %d: %d ids, want %d", seed, ranges.Len(), next)
			}
		}
	}
}

// A row's ids and ranges are numbered separately, and canonical ones do not change and use no memory.
func TestRenumberRow(t *testing.T) {
	var r Renumber
	row := Row{HashIDs: []uint64{9, 4}, HashRanges: []HashRange{{100, 40}, {7, 3}}}
	r.Row(&row)
	again := Row{HashIDs: []uint64{9, 5}, HashRanges: []HashRange{{100, 20}, {8, 4}}}
	r.Row(&again)
	if diff := cmp.Diff(Row{HashIDs: []uint64{0, 1}, HashRanges: []HashRange{{0, 43}}}, row); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Row{HashIDs: []uint64{0, 2}, HashRanges: []HashRange{{0, 20}, {41, 4}}}, again); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var c RenumberRanges
	var buf []HashRange
	buf = c.Ranges(buf, []HashRange{{0, 10}})
	first := uint64(10)
	if n := testing.AllocsPerRun(100, func() {
		src := [...]HashRange{{0, int64(first) / 2}, {first, 10}}
		buf = c.Ranges(buf[:0], src[:])
		first += 10
	}); n > 0 {
		t.Errorf("%v allocations a row", n)
	}
	if c.domains != nil || c.kept() != 0 {
		t.Errorf("%d ranges are kept of canonical ids", c.kept())
	}
}

// The cost of hostile ranges depends on their number: here giant ranges, some of which overlap, come in the worst order.
func TestRenumberGiantRanges(t *testing.T) {
	var r RenumberRanges
	const n = 20_000
	var dst []HashRange
	for i := range uint64(n) { // downwards, with holes: each goes before all others
		dst = r.Ranges(dst[:0], []HashRange{{(n - i) << 40, 1 << 39}})
	}
	if r.kept() != n || len(dst) != 1 {
		t.Fatalf("%d ranges are kept, want %d", r.kept(), n)
	}
	dst = r.Ranges(dst[:0], []HashRange{{1 << 40, math.MaxInt64}})
	if len(dst) != 2*n-1 { // the lowest has the last numbers, which the new ones follow
		t.Errorf("a range over all became %d, want %d", len(dst), 2*n-1)
	}
	var joined RenumberRanges // ranges that continue one another become one
	joined.Ranges(nil, []HashRange{{100, 5}, {105, 5}, {110, 5}})
	if joined.kept() != 1 {
		t.Errorf("%d ranges are kept, want 1", joined.kept())
	}
	if dst = r.Ranges(dst[:0], []HashRange{{math.MaxUint64, 1}, {0, 1}}); len(dst) == 0 {
		t.Error("the last id has no number")
	}
}
