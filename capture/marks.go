// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/binary"
	"slices"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
)

// A mark is an offset in a prompt's text with a keyed value: the end of a cell, the end of a message, and, for a whole prompt, its end. A
// value identifies all text up to there, so two prompts have as many leading marks in common as their common text has, and the marks of
// many prompts are a tree. Cells make the tree fine. The ends of messages make it exact where prompts usually diverge, and where a prompt
// continues with the reply to another one.

// appendMarks appends the values of a prompt's marks, masked, big-endian so that bytes sort like marks.
func appendMarks(dst []byte, p *journal.Prompt, mask uint64) []byte {
	ends := p.Chain.Ends
	for i, cell := range p.Chain.Cells {
		border := int64(i+1) * blockhash.CellSize
		for len(ends) > 0 && ends[0].Bytes <= border {
			if ends[0].Bytes < border { // else the cell's value is used
				dst = binary.BigEndian.AppendUint64(dst, ends[0].Value^mask)
			}
			ends = ends[1:]
		}
		dst = binary.BigEndian.AppendUint64(dst, cell^mask)
	}
	for _, end := range ends {
		dst = binary.BigEndian.AppendUint64(dst, end.Value^mask)
	}
	if !p.Prefix { // the end of a cut text is meaningless
		dst = binary.BigEndian.AppendUint64(dst, p.Chain.Tail^mask)
	}
	return dst
}

// offsetsOf returns, for each of a prompt's marks, the number of bytes of text up to it, and, for each end of a message, the number of its
// mark, counted from 1. It reuses the memory of the two slices.
func offsetsOf(p *journal.Prompt, marks int, offsets []int64, which []int) ([]int64, []int) {
	offsets, which = slices.Grow(offsets[:0], marks)[:marks], which[:0]
	n, next := 0, int64(blockhash.CellSize) // position of the end of the next cell
	last := cellBytes(p)
	cells := func(to int64) {
		for ; next <= to && n < marks; next += blockhash.CellSize {
			offsets[n] = next
			n++
		}
	}
	for _, end := range p.Chain.Ends {
		cells(min(end.Bytes, last))
		if (end.Bytes+blockhash.CellSize != next || end.Bytes > last) && n < marks {
			offsets[n] = end.Bytes
			n++
		}
		which = append(which, n)
	}
	cells(last)
	if n < marks {
		offsets[n] = p.Chain.Bytes
		n++
	}
	return offsets[:n], which
}

// cellBytes returns the number of bytes of a prompt's text in cells.
func cellBytes(p *journal.Prompt) int64 {
	return min(p.Chain.Bytes/blockhash.CellSize, blockhash.MaxCells) * blockhash.CellSize
}

// textUpTo returns the number of bytes of text that the given number of leading marks cover.
func textUpTo(offsets []int64, marks int) int64 {
	if marks == 0 {
		return 0
	}
	return offsets[marks-1]
}

// maskEnds masks the values of a prompt, except for those of its cells.
func maskEnds(p *journal.Prompt, mask uint64) {
	p.Chain.Tail ^= mask
	for i := range p.Chain.Ends {
		p.Chain.Ends[i].Value ^= mask
	}
	if p.Reply != (blockhash.End{}) {
		p.Reply.Value ^= mask
	}
}
