// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package ondisk

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
)

// record is of a size that does not divide a page.
type record struct {
	at, value uint64
	more      [3]byte
}

// TestArray writes and reads records in random order, with memory for all of them, for a tenth, or for as few as possible.
func TestArray(t *testing.T) {
	const records, size = 10_000, 24
	for i, memory := range []int{0, records * size / 10, 1, records * size / 10} {
		create, page := NewArray[record], pageSize
		if i == 3 {
			create, page = NewScattered[record], smallPage
		}
		t.Run(fmt.Sprintf("%d bytes, pages of %d", memory, page), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 5))
			a := create(t.TempDir(), memory)
			defer a.Close()
			want := map[int64]record{}
			for range 4 * records {
				i, v := rng.Int64N(records), rng.Uint64()
				if rng.IntN(2) == 0 {
					*a.Put(i) = record{uint64(i), v, [3]byte{1, 2, byte(v)}}
					want[i] = record{uint64(i), v, [3]byte{1, 2, byte(v)}}
				} else if got := a.At(i); got != want[i] {
					t.Fatalf("record %d is %v, was %v", i, got, want[i])
				}
			}
			if a.Err() != nil {
				t.Error(a.Err())
			}
			frames, disk := a.Frames()
			if most := max(memory/(page/2), minFrames); memory > 0 && (frames > most || disk == 0) || memory == 0 && disk > 0 {
				t.Errorf("%d pages in memory, want at most %d, and %d bytes on disk", frames, most, disk)
			}
		})
	}
}

// TestArrayWithoutDisk: if data cannot be stored, that is an error, and no record is wrong.
func TestArrayWithoutDisk(t *testing.T) {
	a := NewArray[record](t.TempDir()+string(os.PathSeparator)+"missing", 1)
	for i := range int64(10_000) {
		a.Put(i).at = uint64(i)
	}
	if a.Err() == nil {
		t.Error("want an error: there is no folder for what memory has no room for")
	}
}
