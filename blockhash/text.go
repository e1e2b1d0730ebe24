// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash

import "math"

const (
	// CellSize is the number of bytes of text in a cell.
	CellSize = 128
	// MaxCells is the most cells of one prompt: 8 MiB of text. Text after that is part of the tail.
	MaxCells = 1 << 16
)

// Reset begins a new prompt. The chain of the prompt before becomes invalid.
func (h *Hasher) Reset() {
	h.digest.ResetWithSeed(h.seed)
	h.held, h.end = 0, CellSize
	h.chain = Chain{Cells: h.chain.Cells[:0]}
}

// Role begins a message of the canonical prompt, which is, for every message, its role, a newline, its text and another
// newline.
func (h *Hasher) Role(role string) { h.line(role) }

// Text ends a message. Where its text comes in parts, all but the last are written with [Hasher.WriteString].
func (h *Hasher) Text(text string) { h.line(text) }

func (h *Hasher) line(s string) {
	_, _ = h.WriteString(s)
	_, _ = h.WriteString("\n")
}

// WriteString hashes a piece of the canonical prompt as it is. It never fails; how a prompt is cut into pieces makes no
// difference.
func (h *Hasher) WriteString(s string) (int, error) {
	n := len(s)
	h.chain.Bytes += int64(n)
	for s != "" {
		if h.held == 0 && len(s) >= CellSize { // a cell, or all, straight from where it stands
			k := min(len(s), h.end)
			_, _ = h.digest.WriteString(s[:k])
			s = s[k:]
			h.border()
			continue
		}
		k := copy(h.cell[h.held:], s)
		s = s[k:]
		h.hold(k)
	}
	return n, nil
}

// Write does for bytes what [Hasher.WriteString] does for a string.
func (h *Hasher) Write(p []byte) (int, error) {
	n := len(p)
	h.chain.Bytes += int64(n)
	for len(p) > 0 {
		if h.held == 0 && len(p) >= CellSize {
			k := min(len(p), h.end)
			_, _ = h.digest.Write(p[:k])
			p = p[k:]
			h.border()
			continue
		}
		k := copy(h.cell[h.held:], p)
		p = p[k:]
		h.hold(k)
	}
	return n, nil
}

// hold takes note of n bytes more in the cell that is filled piece by piece, and hashes it once it is full.
func (h *Hasher) hold(n int) {
	if h.held += n; h.held < CellSize {
		return
	}
	_, _ = h.digest.Write(h.cell[:])
	h.held = 0
	h.border()
}

// border takes the value of the border that the digest has come to, if it is one.
func (h *Hasher) border() {
	if h.end != CellSize {
		return
	}
	h.chain.Cells = append(h.chain.Cells, h.value(h.digest.Sum64(), border))
	if len(h.chain.Cells) == MaxCells {
		h.end = math.MaxInt // no border is ever reached again
	}
}

// Chain returns the chain of the text so far. Its cells are valid until [Hasher.Reset].
func (h *Hasher) Chain() Chain {
	c := h.chain
	digest := h.digest // the text may go on
	_, _ = digest.Write(h.cell[:h.held])
	c.Tail = h.value(digest.Sum64(), end)
	return c
}
