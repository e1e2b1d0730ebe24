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
	// Ends are where the messages of the text end, in order, at most [MaxEnds]; nil where that is not known. The last one of a
	// whole prompt ends with the text. What [Chain.KeptEnds] left out is not there.
	Ends []End
}

// End is a place in a canonical prompt where a message ends.
type End struct {
	Bytes int64  // length of the text up to there, at most [MaxEndBytes]
	Role  Role   // whose message it was
	Value uint64 // keyed value of the text up to there; where a cell ends there, that cell's
}

// Role is who wrote a message, as far as prompts are told apart by it.
type Role uint8

// The roles. The zero Role is any other.
const (
	RoleOther Role = iota
	RoleSystem
	RoleUser
	RoleAssistant
	RoleTool
	RoleTools // the definitions of tools
)

const (
	// MaxEnds is the most ends of messages that a [Hasher] finds in one prompt: the first ones. [Chain.KeptEnds] keeps fewer of many short
	// messages.
	MaxEnds = 1 << 12
	// MaxEndBytes is the greatest length of text at which an end is kept.
	MaxEndBytes = 1<<28 - 1
)

// The attribute mooncake.cells is a list of words of 8 bytes, little-endian: the cells, then the tail, then the length.
const (
	wordSize     = 8
	trailerWords = 2
)

// AppendBinary appends the chain in the form of the attribute mooncake.cells: 8 bytes little-endian for each cell, then
// 8 for the tail and 8 for the length of the text in bytes. The ends are no part of it: see [Chain.AppendEnds]. The error is always nil.
func (c Chain) AppendBinary(dst []byte) ([]byte, error) {
	for _, cell := range c.Cells {
		dst = binary.LittleEndian.AppendUint64(dst, cell)
	}
	dst = binary.LittleEndian.AppendUint64(dst, c.Tail)
	return binary.LittleEndian.AppendUint64(dst, uint64(c.Bytes)), nil //nolint:gosec // a length is not negative
}

// UnmarshalBinary reads what [Chain.AppendBinary] wrote into the memory of c.Cells, as far as that suffices. Nothing is
// kept of data, and c.Ends becomes nil. What no [Hasher] can have made is an error and leaves c as it
// was; whether the cells are values of one text cannot be checked.
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
	c.Ends = nil
	return nil
}

// Validate returns an [ErrLength] unless the chain has as many cells as its text, and ends that are within the text, one behind the
// other, of known roles, and the same as the cells that end where they do. Whether the values are those of one text cannot be checked.
func (c Chain) Validate() error {
	if err := checkCells(len(c.Cells), c.Bytes); err != nil {
		return err
	}
	return c.checkEnds()
}

// checkCells returns an error unless a text of this many bytes has this many cells.
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
