// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/moonloop/moonloop/capture/journal"
)

// TestOutside: ids get the same numbers outside of memory as in memory.
func TestOutside(t *testing.T) {
	const memory = 1 << 16
	rng := rand.New(rand.NewPCG(3, 6))
	type row struct {
		partition uint32
		domain    journal.Domain
		ids       []uint64
	}
	var rows []row
	for range 3000 {
		r := row{rng.Uint32N(2), journal.Domain(rng.Uint32N(3)), nil}
		for range rng.IntN(20) {
			r.ids = append(r.ids, rng.Uint64N(20_000))
		}
		rows = append(rows, r)
	}
	if outsideOf(100, t.TempDir(), memory) != nil {
		t.Error("100 ids are kept outside of memory, although they fit")
	}
	o := outsideOf(30_000, t.TempDir(), memory)
	defer o.close()
	for _, r := range rows {
		if err := o.add(r.partition, r.domain, r.ids); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.settle(); err != nil {
		t.Fatal(err)
	}
	// Each partition has its own numbers.
	inside, outside := [2]numbers{}, [2]numbers{{outside: o}, {outside: o}}
	for i, r := range rows {
		names, err := o.row(r.partition, r.domain, r.ids)
		if err != nil {
			t.Fatal(err)
		}
		want, got := slices.Clone(r.ids), slices.Clone(r.ids)
		inside[r.partition].renumber(r.domain, want, nil)
		outside[r.partition].renumber(r.domain, got, names)
		if i%7 == 0 { // ids of text take numbers, too
			inside[r.partition].fresh(nil, 3)
			outside[r.partition].fresh(nil, 3)
		}
		if !slices.Equal(want, got) {
			t.Fatalf("row %d is %v, want %v", i, got, want)
		}
	}
	if _, disk := o.table.Frames(); disk == 0 {
		t.Error("no number is on disk")
	}
}

// TestDistinct: few ids are counted exactly, or nearly, and many to a few percent. Repetitions do not count; the same id of another domain,
// or in another partition, does.
func TestDistinct(t *testing.T) {
	for _, n := range []int64{0, 1, 10, 1000, 10_000, 1_000_000} {
		d := newDistinct()
		for i := range uint64(n) {
			d.add(uint32(i%2), journal.Domain(i%3), []uint64{i / 6, i / 6})
		}
		if got, off := d.count(), max(n/10, n/100+1); got < n-off || got > n+off {
			t.Errorf("%d ids are counted as %d", n, got)
		}
	}
}
