// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash

import (
	"fmt"
	"math"
	"math/bits"
)

const (
	// DefaultBorderLimit is the number of cells whose position [Borders] remembers unless told otherwise: 512 MiB of
	// distinct text, in about 150 MiB of memory.
	DefaultBorderLimit = 1 << 22
	// MaxBlocks is the most blocks of one prompt, 512 Mi tokens in blocks of 512. A longer one is a mistake of whoever
	// counted, and must not cost the memory for its ids.
	MaxBlocks = 1 << 20
)

// Borders lays the borders of blocks of tokens over prompts of which only the text, as a [Chain], and the number of
// tokens are known. It remembers, for every cell, after how many tokens it ends: a cell that prompts share has one
// position, given by the first of them, and the tokens beyond the last known cell are spread evenly over the text that
// is new. So each prompt's count is an anchor for those that go on from it, and errors do not add up along a
// conversation. A border lies half a cell late on average; 92 to 96 of 100 requests of conversations share exactly as
// many blocks as their tokens do, and nearly all others one more or less. It is the shared beginning without an anchor of
// its own, a system prompt, that may be further off: where the text behind it in the first prompt has far more or fewer
// tokens per byte, and is long, its borders are displaced, for all prompts that share it.
//
// The result depends on the order of the prompts. The zero Borders is empty and ready. One goroutine at a time may use it.
type Borders struct {
	// Limit is the number of cells to remember; [DefaultBorderLimit] if 0. Up to two prompts' cells more may be held.
	// What is forgotten costs the sharing of prompts that come back after a long time, and makes nothing wrong.
	Limit int

	// Two generations: the young one takes every cell that is used, and when it is full it becomes the old one, which
	// is forgotten. All cells of a prompt go into one generation, so that no cell outlives those before it: it could
	// not be found any more.
	young, old map[uint64]int64
	renewed    int // cells of the old generation that are in the young one, too
	forgotten  int64

	ends []int64 // of the prompt at hand, by cell; kept for its memory
	size int     // of a cell; CellSize if 0
}

// Lay appends the ids of the ceil(tokens/size) blocks of a prompt, size tokens to a block, to dst. An id stands for all
// text up to the end of its block: it is the first cell that ends at or after this, or the tail where there is none.
// No id occurs twice in a prompt: where several borders fall into one cell, because the prompt has more than size tokens
// per cell (images, hidden tokens), the index of the block is added from the second on, and always to the tail. Of cells that no
// [Hasher] made, as a hostile sender may, nothing is promised but as many ids as blocks.
//
// Tokens below 0, more than [MaxBlocks] blocks, and a chain with more or fewer cells than its text has are an
// [ErrLength], a size that is not 1 to 2^31-1 is an [ErrBlockSize]; nothing is remembered of such a prompt.
func (b *Borders) Lay(dst []uint64, c Chain, tokens int64, size int) ([]uint64, error) {
	if size < 1 || size > math.MaxInt32 {
		return dst, fmt.Errorf("blocks of %d tokens: %w: a block has 1 to %d", size, ErrBlockSize, math.MaxInt32)
	}
	if tokens < 0 || (tokens-1)/int64(size) >= MaxBlocks {
		return dst, fmt.Errorf("a prompt of %d tokens in blocks of %d: %w: at most %d blocks, and not below 0",
			tokens, size, ErrLength, MaxBlocks)
	}
	if err := checkCells(len(c.Cells), c.Bytes, b.cellSize()); err != nil {
		return dst, fmt.Errorf("%w: %w", ErrLength, err)
	}
	b.place(c, tokens)

	j, used := 0, -1 // the cell at the border, and that of the border before
	for i := range (tokens + int64(size) - 1) / int64(size) {
		for j < len(b.ends) && b.ends[j] < int64(size)*(i+1) {
			j++
		}
		var id uint64
		switch {
		case j == len(b.ends):
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

// place sets b.ends to the tokens after which each cell of the prompt ends.
func (b *Borders) place(c Chain, tokens int64) {
	b.rotate()
	b.ends = b.ends[:0]
	known := int64(0) // tokens before the text that is new
	for _, cell := range c.Cells {
		position, ok := b.recall(cell)
		if !ok {
			break
		}
		known = position
		b.ends = append(b.ends, position)
	}
	first := len(b.ends)
	more := max(0, tokens-known) // below 0 where somebody counted in another way
	text := c.Bytes - int64(first*b.cellSize())
	for j := first; j < len(c.Cells); j++ {
		// A border is a whole number of tokens, so that whole positions, rounded down, compare as exact ones do.
		// They are the same on every platform, which those in floating point need not be.
		position := known + share(more, int64((j+1-first)*b.cellSize()), text)
		b.young[c.Cells[j]] = position
		b.ends = append(b.ends, position)
	}
}

// share returns floor(n·part/whole) for 0 <= part <= whole and 0 < whole, without overflow.
func share(n, part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(part))    //nolint:gosec // not negative
	quotient, _ := bits.Div64(hi, lo, uint64(whole)) //nolint:gosec // not negative
	return int64(quotient)                           //nolint:gosec // at most n
}

// recall returns the position of a cell, and makes it young.
func (b *Borders) recall(cell uint64) (int64, bool) {
	if position, ok := b.young[cell]; ok {
		return position, true
	}
	position, ok := b.old[cell]
	if ok {
		b.young[cell] = position
		b.renewed++
	}
	return position, ok
}

// rotate makes room for a prompt.
func (b *Borders) rotate() {
	limit := b.Limit
	if limit <= 0 {
		limit = DefaultBorderLimit
	}
	switch {
	case b.young == nil:
		b.young, b.old = map[uint64]int64{}, map[uint64]int64{}
	case len(b.young) >= max(1, limit/2):
		b.forgotten += int64(len(b.old) - b.renewed)
		clear(b.old)
		b.young, b.old, b.renewed = b.old, b.young, 0
	}
}

func (b *Borders) cellSize() int {
	if b.size == 0 {
		return CellSize
	}
	return b.size
}

// Len returns the number of cells that are remembered.
func (b *Borders) Len() int { return len(b.young) + len(b.old) - b.renewed }

// Forgotten returns the number of cells that [Borders.Limit] has cost so far.
func (b *Borders) Forgotten() int64 { return b.forgotten }
