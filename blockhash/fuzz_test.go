// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash_test

import (
	"bytes"
	"testing"

	"github.com/moonloop/moonloop/blockhash"
)

// FuzzCells: whatever stands in the attribute is refused or comes out again as it was.
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
		// Cells that no hasher made: any ids will do, as many as there are blocks.
		if ids, err := new(blockhash.Borders).Lay(nil, c, 5000, 512); err != nil || len(ids) != 10 {
			t.Errorf("%d ids, error %v; want 10", len(ids), err)
		}
	})
}

// FuzzLay lays a sequence of prompts that share beginnings, with counts that fit or not, and checks each row: as many
// ids as blocks, none twice.
func FuzzLay(f *testing.F) {
	f.Add([]byte("hello, world; hello again"), uint16(16), uint16(40), uint8(100))
	f.Add([]byte("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), uint16(1), uint16(3000), uint8(0))
	f.Add([]byte{0}, uint16(512), uint16(65535), uint8(3))
	f.Add([]byte{}, uint16(0), uint16(1), uint8(255))
	f.Fuzz(func(t *testing.T, text []byte, size, tokens uint16, limit uint8) {
		const cellSize = 8 // more cells, more cases
		h := testHasher(t)
		h.SetCellSize(cellSize)
		b := blockhash.Borders{Limit: int(limit)}
		b.SetCellSize(cellSize)
		text = text[:min(len(text), 2000)]
		block := 1 + int(size)
		for turn := range 6 {
			h.Reset()
			_, _ = h.Write(text[:len(text)*(turn+1)/6])
			_, _ = h.WriteString("some more"[:turn])
			count := int64(tokens) * int64(turn*turn%5) / 3 // up and down: no anchor may bend a row
			ids, err := b.Lay(nil, h.Chain(), count, block)
			if err != nil {
				t.Fatal(err)
			}
			if want := int((count + int64(block) - 1) / int64(block)); len(ids) != want {
				t.Fatalf("turn %d: %d tokens in blocks of %d: %d ids, want %d", turn, count, block, len(ids), want)
			}
			seen := make(map[uint64]int, len(ids))
			for i, id := range ids {
				if first, ok := seen[id]; ok {
					t.Fatalf("turn %d: blocks %d and %d of %d have one id", turn, first, i, len(ids))
				}
				seen[id] = i
			}
		}
	})
}
