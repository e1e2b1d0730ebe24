// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash

import (
	"encoding/binary"
	"fmt"
)

// Chain is what is kept of a prompt's text: a value for each of its cells, one for the end, and its length.
type Chain struct {
	// Cells are the values of the full cells in order, at most [MaxCells]. Two prompts have as many leading cells in
	// common as the beginning that they share has full cells.
	Cells []uint64
	// Tail is the value of the whole text. Texts of equal tails are equal, also after their last cell.
	Tail uint64
	// Bytes is the length of the text: at least [CellSize] per cell, and more than the rest of a cell beyond that only
	// where the text has more cells than are kept.
	Bytes int64
}

// The attribute mooncake.cells is a list of words of 8 bytes, little-endian: the cells, then the tail, then the length.
const (
	wordSize     = 8
	trailerWords = 2
)

// AppendBinary appends the chain in the form of the attribute mooncake.cells: 8 bytes little-endian for each cell, then
// 8 for the tail and 8 for the length of the text in bytes. The error is always nil.
func (c Chain) AppendBinary(dst []byte) ([]byte, error) {
	for _, cell := range c.Cells {
		dst = binary.LittleEndian.AppendUint64(dst, cell)
	}
	dst = binary.LittleEndian.AppendUint64(dst, c.Tail)
	return binary.LittleEndian.AppendUint64(dst, uint64(c.Bytes)), nil //nolint:gosec // a length is not negative
}

// UnmarshalBinary reads what [Chain.AppendBinary] wrote into the memory of c.Cells, as far as that suffices. Nothing is
// kept of data. What no [Hasher] can have made is an error and leaves c as it was; whether the cells are values of one
// text cannot be checked.
func (c *Chain) UnmarshalBinary(data []byte) error {
	words := len(data) / wordSize
	if len(data)%wordSize != 0 || words < trailerWords {
		return fmt.Errorf("mooncake.cells: %d bytes are not cells, a tail and a length of %d bytes each", len(data), wordSize)
	}
	cells := words - trailerWords
	size := int64(binary.LittleEndian.Uint64(data[len(data)-wordSize:])) //nolint:gosec // below 0 is refused next
	if err := checkCells(cells, size); err != nil {
		return err
	}
	c.Cells = c.Cells[:0]
	for i := range cells {
		c.Cells = append(c.Cells, binary.LittleEndian.Uint64(data[i*wordSize:]))
	}
	c.Tail = binary.LittleEndian.Uint64(data[cells*wordSize:])
	c.Bytes = size
	return nil
}

// Validate returns an [ErrLength] unless the chain has as many cells as its text. Whether the cells are values of one text
// cannot be checked.
func (c Chain) Validate() error { return checkCells(len(c.Cells), c.Bytes) }

// checkCells returns an error unless a text of so many bytes has so many cells.
func checkCells(cells int, bytes int64) error {
	if bytes < 0 {
		return fmt.Errorf("mooncake.cells: the length of the text is beyond any text: %w: the attribute is not ours", ErrLength)
	}
	if want := min(bytes/CellSize, MaxCells); int64(cells) != want {
		return fmt.Errorf("mooncake.cells: %d cells, but a text of %d bytes has %d: %w: the attribute was cut or is not ours",
			cells, bytes, want, ErrLength)
	}
	return nil
}
