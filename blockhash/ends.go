// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// The ends of the messages of a text. Two prompts diverge at such a position far more often than at the end of a cell, and the server's
// token counts show its position in tokens.

// endSize is the number of bytes of an end in the attributes mooncake.cells.ends and mooncake.cells.reply: its value, and its position with
// its role in the low roleBits.
const (
	endSize  = wordSize + 4
	roleBits = 4
	lastRole = RoleTools
)

// roleOf returns the role of a message by its name in the canonical prompt.
func roleOf(name string) Role {
	switch name {
	case "system", "developer":
		return RoleSystem
	case "user":
		return RoleUser
	case "assistant", "model":
		return RoleAssistant
	case "tool", "function":
		return RoleTool
	case "tools":
		return RoleTools
	default:
		return RoleOther
	}
}

// End returns the end of a message that ends with the text so far, and has the role of the last call of [Hasher.Role]. ok is false beyond
// [MaxEndBytes]. If the text continues with a reply, this is the end of the reply, which a chain that was taken earlier does not have.
func (h *Hasher) End() (end End, ok bool) {
	if h.chain.Bytes > MaxEndBytes {
		return End{}, false
	}
	return End{Bytes: h.chain.Bytes, Role: h.role, Value: h.value(h.digest.Sum64(), border)}, true
}

// ended records the end of a message.
func (h *Hasher) ended() {
	if len(h.chain.Ends) == MaxEnds {
		return
	}
	if end, ok := h.End(); ok {
		h.chain.Ends = append(h.chain.Ends, end)
	}
}

// AppendBinary appends the end in the form of the attribute mooncake.cells.ends: 8 bytes little-endian for its value, and 4 for 16 times
// its position plus its role. For an end that [End.UnmarshalBinary] would refuse, it returns an error.
func (e End) AppendBinary(dst []byte) ([]byte, error) {
	if err := e.check(); err != nil {
		return dst, err
	}
	dst = binary.LittleEndian.AppendUint64(dst, e.Value)
	return binary.LittleEndian.AppendUint32(dst, uint32(e.Bytes)<<roleBits|uint32(e.Role)), nil //nolint:gosec // just checked
}

// UnmarshalBinary reads the output of [End.AppendBinary]. It returns an error, and leaves e unchanged, for input that no [Hasher] can have
// made.
func (e *End) UnmarshalBinary(data []byte) error {
	if len(data) != endSize {
		return fmt.Errorf("end of a message: %d bytes: %w: it has %d", len(data), ErrLength, endSize)
	}
	read := endOf(data)
	if err := read.check(); err != nil {
		return err
	}
	*e = read
	return nil
}

// endOf returns the end at the beginning of data.
func endOf(data []byte) End {
	place := binary.LittleEndian.Uint32(data[wordSize:])
	return End{Bytes: int64(place >> roleBits), Role: Role(place & (1<<roleBits - 1)), Value: binary.LittleEndian.Uint64(data)}
}

// check returns an error for an end that is impossible in any text.
func (e End) check() error {
	if e.Bytes < 1 || e.Bytes > MaxEndBytes || e.Role > lastRole {
		return fmt.Errorf("end of a message: after %d bytes, of role %d: %w: want 1 to %d bytes, and a role from 0 to %d",
			e.Bytes, e.Role, ErrLength, MaxEndBytes, lastRole)
	}
	return nil
}

// AppendEnds appends the ends of messages in the form of the attribute mooncake.cells.ends, 12 bytes each as in [End.AppendBinary]. For a
// chain that [Chain.Validate] refuses, the result is unreadable.
func (c Chain) AppendEnds(dst []byte) []byte {
	for _, e := range c.Ends {
		dst, _ = e.AppendBinary(dst) // those of a valid chain are valid
	}
	return dst
}

// UnmarshalEnds reads the output of [Chain.AppendEnds], into the memory of c.Ends if that suffices. It keeps no reference to data. It
// returns an error, and leaves c unchanged, for ends that no [Hasher] can have made from a text with the cells and the length of c, which
// must be set.
func (c *Chain) UnmarshalEnds(data []byte) error {
	if len(data)%endSize != 0 || len(data) > endSize*MaxEnds {
		return fmt.Errorf("mooncake.cells.ends: %d bytes: %w: an end has %d, and there are at most %d ends", len(data), ErrLength, endSize, MaxEnds)
	}
	// Append after the existing ends, so that refused input changes nothing.
	before := len(c.Ends)
	read := slices.Grow(c.Ends, len(data)/endSize)
	for ; len(data) > 0; data = data[endSize:] {
		read = append(read, endOf(data))
	}
	if err := (Chain{Cells: c.Cells, Bytes: c.Bytes, Ends: read[before:]}).checkEnds(); err != nil {
		return err
	}
	c.Ends = append(read[:0], read[before:]...)
	return nil
}

// checkEnds returns an error unless ends are possible in the text of the chain.
func (c Chain) checkEnds() error {
	if len(c.Ends) > MaxEnds {
		return fmt.Errorf("mooncake.cells.ends: %d ends: %w: there are at most %d", len(c.Ends), ErrLength, MaxEnds)
	}
	var before End
	for _, e := range c.Ends {
		if err := e.check(); err != nil {
			return err
		}
		if e.Bytes <= before.Bytes || e.Bytes > c.Bytes {
			return fmt.Errorf("mooncake.cells.ends: an end at byte %d after one at byte %d, in a text of %d bytes: %w: the attribute is not ours",
				e.Bytes, before.Bytes, c.Bytes, ErrLength)
		}
		if cell := e.Bytes/CellSize - 1; e.Bytes%CellSize == 0 && cell < int64(len(c.Cells)) && c.Cells[cell] != e.Value {
			return fmt.Errorf("mooncake.cells.ends: the end after %d bytes is not that of the cell which ends there: %w: the attribute is not ours",
				e.Bytes, ErrLength)
		}
		before = e
	}
	return nil
}

// ValidateReply returns an [ErrLength] unless an end can be that of the reply to the prompt of this chain: of a message of the assistant
// after it. It cannot check whether the value is that of such a text.
func (c Chain) ValidateReply(reply End) error {
	if err := reply.check(); err != nil {
		return err
	}
	const least = int64(len("assistant\n\n"))
	if reply.Role != RoleAssistant || reply.Bytes < c.Bytes+least {
		return fmt.Errorf("mooncake.cells.reply: an end at byte %d of role %d, after a prompt of %d bytes: %w: "+
			"a reply is a message of the assistant after the prompt", reply.Bytes, reply.Role, c.Bytes, ErrLength)
	}
	return nil
}
