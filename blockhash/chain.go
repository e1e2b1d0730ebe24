// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash

import (
	"encoding/binary"
	"fmt"
)

// Chain describes a prompt's text: a value for each of its cells, one for the end, and its length.
type Chain struct {
	// Cells are the values of the full cells in order, at most [MaxCells]. Two prompts have as many leading cells in common as their common
	// beginning has full cells.
	Cells []uint64
	// Tail is the value of the whole text. Texts with equal tails are equal, including the part after the last cell.
	Tail uint64
	// Bytes is the length of the text: at least [CellSize] per cell. The rest is less than a cell, unless the text has more cells than
	// [MaxCells].
	Bytes int64
	// Ends are the ends of the messages of the text, in order, at most [MaxEnds]; nil if they are not known. The last message of a whole
	// prompt ends with the text. Ends that [Chain.KeptEnds] left out are missing.
	Ends []End
}

// End is a position in a canonical prompt at which a message ends.
type End struct {
	Bytes int64  // length of the text up to there, at most [MaxEndBytes]
	Role  Role   // whose message it was
	Value uint64 // keyed value of the text up to there; if a cell ends there, the cell's value
}

// Role is the writer of a message, as far as prompts distinguish it.
type Role uint8

// The roles. The zero Role stands for any role that is not in the list.
const (
	RoleOther Role = iota
	RoleSystem
	RoleUser
	RoleAssistant
	RoleTool
	RoleTools // the definitions of tools
)

const (
	// MaxEnds is the maximum number of ends of messages that a [Hasher] records in one prompt: the first ones. For many short messages,
	// [Chain.KeptEnds] keeps fewer.
	MaxEnds = 1 << 12
	// MaxEndBytes is the maximum length of text at which an end is recorded.
	MaxEndBytes = 1<<28 - 1
)

// The attribute mooncake.cells is a list of words of 8 bytes, little-endian: the cells, then the tail, then the length.
const (
	wordSize     = 8
	trailerWords = 2
)

// AppendBinary appends the chain in the form of the attribute mooncake.cells: 8 bytes little-endian for each cell, then 8 for the tail and
// 8 for the length of the text in bytes. The ends are separate: see [Chain.AppendEnds]. The error is always nil.
func (c Chain) AppendBinary(dst []byte) ([]byte, error) {
	for _, cell := range c.Cells {
		dst = binary.LittleEndian.AppendUint64(dst, cell)
	}
	dst = binary.LittleEndian.AppendUint64(dst, c.Tail)
	return binary.LittleEndian.AppendUint64(dst, uint64(c.Bytes)), nil //nolint:gosec // a length is not negative
}

// UnmarshalBinary reads the output of [Chain.AppendBinary], into the memory of c.Cells if that suffices. It keeps no reference to data, and
// sets c.Ends to nil. It returns an error, and leaves c unchanged, for input that no [Hasher] can have made; it cannot check whether the
// cells are values of one text.
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

// Validate returns an [ErrLength] unless the chain has the right number of cells for its text, and ends that are within the text, in order,
// with known roles, and equal to the cells that end at the same positions. It cannot check whether the values are those of one text.
func (c Chain) Validate() error {
	if err := checkCells(len(c.Cells), c.Bytes); err != nil {
		return err
	}
	return c.checkEnds()
}

// checkCells returns an error unless a text of this many bytes has this many cells.
func checkCells(cells int, bytes int64) error {
	if bytes < 0 {
		return fmt.Errorf("mooncake.cells: no text is as long as the length says: %w: the attribute is not ours", ErrLength)
	}
	if want := min(bytes/CellSize, MaxCells); int64(cells) != want {
		return fmt.Errorf("mooncake.cells: %d cells, but a text of %d bytes has %d: %w: the attribute was cut or is not ours",
			cells, bytes, want, ErrLength)
	}
	return nil
}
