// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash_test

import (
	"bytes"
	"testing"

	"github.com/moonloop/moonloop/blockhash"
)

// FuzzCells: any value of the attribute is refused, or encodes to itself.
func FuzzCells(f *testing.F) {
	h := testHasher(f)
	for _, text := range []string{"", "hello", string(make([]byte, 128)), string(make([]byte, 1000))} {
		attr, _ := chainOf(h, text).AppendBinary(nil)
		f.Add(attr)
	}
	f.Add([]byte{1, 2, 3})
	f.Add(bytes.Repeat([]byte{255}, 24))
	f.Fuzz(func(t *testing.T, data []byte) {
		var c blockhash.Chain
		if c.UnmarshalBinary(data) != nil {
			return
		}
		if again, err := c.AppendBinary(nil); err != nil || !bytes.Equal(again, data) {
			t.Errorf("%x was read and written as %x, error %v", data, again, err)
		}
		// Cells that no hasher made give arbitrary ids, but as many as there are blocks.
		if ids, err := c.Blocks(nil, make([]int64, len(c.Cells)/2), 5000, 512); err != nil || len(ids) != 10 {
			t.Errorf("%d ids, error %v; want 10", len(ids), err)
		}
	})
}

// FuzzBlocks lays blocks with ends that fit or not: there are as many ids as blocks, without duplicates.
func FuzzBlocks(f *testing.F) {
	f.Add([]byte("hello, world; hello again"), uint16(16), uint16(40))
	f.Add(bytes.Repeat([]byte{0, 1, 255, 7}, 30), uint16(1), uint16(3000))
	f.Add([]byte{0}, uint16(512), uint16(65535))
	f.Add([]byte{}, uint16(0), uint16(1))
	f.Fuzz(func(t *testing.T, steps []byte, size, tokens uint16) {
		steps = steps[:min(len(steps), 200)]
		c := chainOf(testHasher(t), string(make([]byte, (len(steps)+1)*blockhash.CellSize)))
		var ends []int64
		end := int64(0)
		for _, step := range steps {
			end += int64(step)
			ends = append(ends, end)
		}
		block := 1 + int(size)
		ids, err := c.Blocks(nil, ends, int64(tokens), block)
		if err != nil {
			t.Fatal(err)
		}
		if want := (int(tokens) + block - 1) / block; len(ids) != want {
			t.Fatalf("%d tokens in blocks of %d: %d ids, want %d", tokens, block, len(ids), want)
		}
		seen := make(map[uint64]int, len(ids))
		for i, id := range ids {
			if first, ok := seen[id]; ok {
				t.Fatalf("blocks %d and %d of %d have one id", first, i, len(ids))
			}
			seen[id] = i
		}
	})
}
