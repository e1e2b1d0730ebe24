// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/moonloop/moonloop/capture/journal"
)

// TestPaged writes and reads records in no order, of which a tenth fits into memory.
func TestPaged(t *testing.T) {
	const records = 10_000
	rng := rand.New(rand.NewPCG(3, 5))
	p := newPaged(t.TempDir(), ownerBytes, records*ownerBytes/10)
	defer p.close()
	want := map[int64]uint64{}
	for range 4 * records {
		i, v := rng.Int64N(records), rng.Uint64()
		if rng.IntN(2) == 0 {
			binary.LittleEndian.PutUint64(p.put(i)[40:], v)
			want[i] = v
		} else if got := binary.LittleEndian.Uint64(p.get(i)[40:]); got != want[i] {
			t.Fatalf("record %d is %d, was %d", i, got, want[i])
		}
	}
	equal(t, "error", nil, p.err)
	if most := records * ownerBytes / 10 / pageSize; len(p.frames) > most || p.file.size == 0 {
		t.Errorf("%d pages in memory, want at most %d, and %d bytes on disk", len(p.frames), most, p.file.size)
	}
}

// TestOutside numbers ids outside of memory as in memory.
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
		t.Error("few ids need no disk")
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
	// The partitions of a compile come one after the other, and each has numbers of its own.
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
	if len(o.table.frames) > max(memory/8/pageSize, minFrames) || o.table.file.size == 0 {
		t.Errorf("%d pages in memory, and %d bytes on disk", len(o.table.frames), o.table.file.size)
	}
}
