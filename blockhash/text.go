// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash

import "math"

const (
	// CellSize is the number of bytes of text in a cell.
	CellSize = 128
	// MaxCells is the maximum number of cells of one prompt: 8 MiB of text. Any further text belongs to the tail.
	MaxCells = 1 << 16
)

// Reset begins a new prompt. The chain of the last prompt becomes invalid.
func (h *Hasher) Reset() {
	h.digest.ResetWithSeed(h.seed)
	h.left = CellSize
	h.role = RoleOther
	h.chain = Chain{Cells: h.chain.Cells[:0], Ends: h.chain.Ends[:0]}
}

// Role begins a message of the canonical prompt. The canonical prompt consists of each message's role, a newline, its text and
// another newline.
func (h *Hasher) Role(role string) {
	h.role = roleOf(role)
	h.line(role)
}

// Text ends a message. If the text comes in parts, write all but the last with [Hasher.WriteString].
func (h *Hasher) Text(text string) {
	h.line(text)
	h.ended()
}

func (h *Hasher) line(s string) {
	_, _ = h.WriteString(s)
	_, _ = h.WriteString("\n")
}

// WriteString hashes a piece of the canonical prompt unchanged. It never fails, and it does not matter how a prompt is divided into pieces.
func (h *Hasher) WriteString(s string) (int, error) {
	n := len(s)
	for s != "" {
		k := min(len(s), h.left)
		_, _ = h.digest.WriteString(s[:k])
		h.advance(k)
		s = s[k:]
	}
	return n, nil
}

// advance counts n bytes that were added to the digest, which are at most the rest of the cell.
func (h *Hasher) advance(n int) {
	h.chain.Bytes += int64(n)
	if h.left -= n; h.left > 0 {
		return
	}
	h.chain.Cells = append(h.chain.Cells, h.value(h.digest.Sum64(), border))
	h.left = CellSize
	if len(h.chain.Cells) == MaxCells {
		h.left = math.MaxInt // no cell ends from here on
	}
}

// Bytes returns the length of the text so far.
func (h *Hasher) Bytes() int64 { return h.chain.Bytes }

// Chain returns the chain of the text so far. Its cells and ends are valid until [Hasher.Reset], and do not change when more
// text is written.
func (h *Hasher) Chain() Chain {
	c := h.chain
	if len(c.Ends) == 0 {
		c.Ends = nil
	}
	c.Tail = h.value(h.digest.Sum64(), end)
	return c
}
