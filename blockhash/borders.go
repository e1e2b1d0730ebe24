// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash

import (
	"fmt"
	"math"
)

// MaxBlocks is the most blocks of one prompt, 512 Mi tokens in blocks of 512. A longer one is a mistake of whoever
// counted, and must not cost the memory for its ids.
const MaxBlocks = 1 << 20

// Blocks appends the ids of the ceil(tokens/size) blocks of a prompt of which only the text and the number of tokens are
// known, size tokens to a block, to dst. ends says after how many tokens each cell ends, as far as somebody can tell; it
// never falls. An id stands for all text up to the end of its block: it is the first cell of ends that ends at or after
// this, or the tail where there is none. No id occurs twice in a prompt: where several borders fall into one cell,
// because the prompt has more than size tokens per cell (images, hidden tokens), the index of the block is added from
// the second on, and always to the tail. Of cells that no [Hasher] made, as a hostile sender may, nothing is promised but
// as many ids as blocks.
//
// Tokens below 0, more than [MaxBlocks] blocks, and more ends than cells are an [ErrLength], a size that is not 1 to
// 2^31-1 is an [ErrBlockSize].
func (c Chain) Blocks(dst []uint64, ends []int64, tokens int64, size int) ([]uint64, error) {
	switch {
	case size < 1 || size > math.MaxInt32:
		return dst, fmt.Errorf("blocks of %d tokens: %w: a block has 1 to %d", size, ErrBlockSize, math.MaxInt32)
	case tokens < 0 || (tokens-1)/int64(size) >= MaxBlocks:
		return dst, fmt.Errorf("a prompt of %d tokens in blocks of %d: %w: at most %d blocks, and not below 0",
			tokens, size, ErrLength, MaxBlocks)
	case len(ends) > len(c.Cells):
		return dst, fmt.Errorf("ends of %d cells for a prompt of %d: %w", len(ends), len(c.Cells), ErrLength)
	}
	j, used := 0, -1 // the cell at the border, and that of the border before
	for i := range (tokens + int64(size) - 1) / int64(size) {
		for j < len(ends) && ends[j] < int64(size)*(i+1) {
			j++
		}
		var id uint64
		switch {
		case j == len(ends):
			id = c.Tail + uint64(i)
		case j == used:
			id = c.Cells[j] + uint64(i)
		default:
			id = c.Cells[j]
		}
		dst, used = append(dst, id), j
	}
	return dst, nil
}
