// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash

import (
	"fmt"
	"math"
)

// MaxBlocks is the maximum number of blocks of one prompt, 512 Mi tokens in blocks of 512. A longer prompt is a counting error, and must
// not take the memory that its ids would need.
const MaxBlocks = 1 << 20

// Blocks appends the ids of the ceil(tokens/size) blocks of a prompt, of which only the text and the number of tokens are known, to dst.
// ends has, for each cell, the number of tokens at its end, as far as it can be estimated; it never decreases. An id stands for all text up
// to the end of its block: it is the value of the first cell that ends there or later, according to ends, or the tail if there is none. No
// id occurs twice in a prompt: if several borders fall into one cell, because the prompt has more than size tokens per cell (images, hidden
// tokens), the index of the block is added from the second of these blocks on, and always to the tail. For cells that were not made by a
// [Hasher], as a hostile sender may send them, only the number of ids is guaranteed.
//
// Tokens below 0, more than [MaxBlocks] blocks, and more ends than cells are an [ErrLength]; a size that is not 1 to 2^31-1 is an
// [ErrBlockSize].
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
