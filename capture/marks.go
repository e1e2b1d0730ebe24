// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/binary"
	"slices"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
)

// A mark is an offset in a prompt's text with a keyed value: the end of a cell, the end of a message, and, of a whole prompt, its
// end. A value stands for all text up to there, so two prompts have as many leading marks in common as the text that they
// share has, and the marks of many prompts are a tree. Cells make the tree fine; the ends of messages make it exact where prompts
// part as a rule, and where a prompt goes on with the reply to another one.

// appendMarks appends the values of a prompt's marks, masked, big-endian so that bytes sort like marks.
func appendMarks(dst []byte, p *journal.Prompt, mask uint64) []byte {
	ends := p.Chain.Ends
	for i, cell := range p.Chain.Cells {
		border := int64(i+1) * blockhash.CellSize
		for len(ends) > 0 && ends[0].Bytes <= border {
			if ends[0].Bytes < border { // else it is the cell's
				dst = binary.BigEndian.AppendUint64(dst, ends[0].Value^mask)
			}
			ends = ends[1:]
		}
		dst = binary.BigEndian.AppendUint64(dst, cell^mask)
	}
	for _, end := range ends {
		dst = binary.BigEndian.AppendUint64(dst, end.Value^mask)
	}
	if !p.Prefix { // the end of a text that was cut is that of nothing
		dst = binary.BigEndian.AppendUint64(dst, p.Chain.Tail^mask)
	}
	return dst
}

// offsetsOf returns the bytes of text up to each mark of a prompt that has so many of them, and for each end of a message which mark it is, counted
// from 1, in the memory that is given.
func offsetsOf(p *journal.Prompt, marks int, offsets []int64, which []int) ([]int64, []int) {
	offsets, which = slices.Grow(offsets[:0], marks)[:marks], which[:0]
	n, next := 0, int64(blockhash.CellSize) // end of the next cell
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

// cellBytes returns the bytes of a prompt's text that are in cells.
func cellBytes(p *journal.Prompt) int64 {
	return min(p.Chain.Bytes/blockhash.CellSize, blockhash.MaxCells) * blockhash.CellSize
}

// textUpTo returns the bytes of text up to this many marks.
func textUpTo(offsets []int64, marks int) int64 {
	if marks == 0 {
		return 0
	}
	return offsets[marks-1]
}

// maskEnds sets the values of a prompt apart by a mask, but for those of its cells.
func maskEnds(p *journal.Prompt, mask uint64) {
	p.Chain.Tail ^= mask
	for i := range p.Chain.Ends {
		p.Chain.Ends[i].Value ^= mask
	}
	if p.Reply != (blockhash.End{}) {
		p.Reply.Value ^= mask
	}
}
