// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/binary"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
)

// Prompts of many short messages list only some of the places where these end, and not all of them the same ones: see
// [blockhash.Chain.KeptEnds]. Marks that one prompt has and another one with the same text has not would part them there. So before anything
// else is found out, prompts that have a cell in common get all ends in it that any of them lists.

// thinned reports whether a prompt may have messages whose ends it does not list.
func thinned(p *journal.Prompt) bool { return len(p.Chain.Ends) >= blockhash.MostEnds(p.Chain.Bytes) }

// An item of the join is the value of a cell, which of the two it is, and then of an end in that its place, its value and its role, or of
// a prompt its number and the mark of the cell. What is found is a prompt's number, the mark of a cell, and an end in it.
const (
	joinEnd  = 0
	joinCell = 1
)

// completeEnds gives prompts the ends that others list in the cells that they have in common.
func (c *compiler) completeEnds() error {
	found, err := c.sharedEnds()
	if err != nil {
		return err
	}
	defer found.close()
	full := newSorter(c.opt.TempDir, c.byText.limit)
	full.stage, full.progress = c.byText.stage, c.byText.progress
	if err := c.addComplete(full, found); err != nil {
		full.close()
		return err
	}
	c.byText.close()
	c.byText = full
	return nil
}

// sharedEnds returns the ends in the cells of each prompt, but for the marks that it shares with the prompt before.
func (c *compiler) sharedEnds() (*sorter, error) {
	join := newSorter(c.opt.TempDir, c.opt.Memory/8)
	defer join.close()
	add := func(to *sorter, words ...uint64) error {
		c.key = c.key[:0]
		for _, w := range words {
			c.key = binary.BigEndian.AppendUint64(c.key, w)
		}
		return to.add(c.key, nil)
	}
	err := c.prompts(func(t *text) error {
		ends := t.Chain.Ends
		for mark, border := range t.cells {
			n := 0
			for n < len(ends) && ends[n].Bytes <= border {
				n++
			}
			if mark > t.shared {
				cell := t.value(mark)
				for _, end := range ends[:n] {
					if err := add(join, cell, joinEnd, uint64(end.Bytes), end.Value, uint64(end.Role)); err != nil { //nolint:gosec // above 0
						return err
					}
				}
				if err := add(join, cell, joinCell, uint64(t.number), uint64(mark)); err != nil { //nolint:gosec // not negative
					return err
				}
			}
			ends = ends[n:]
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	found := newSorter(c.opt.TempDir, c.opt.Memory/8)
	var cell uint64
	var ends []blockhash.End // in it, in order
	err = join.each(c.ctx, func(b []byte) error {
		word := func(i int) uint64 { return binary.BigEndian.Uint64(b[markLength*i:]) }
		if word(0) != cell {
			cell, ends = word(0), ends[:0]
		}
		if word(1) == joinEnd {
			end := blockhash.End{Bytes: int64(word(2)), Value: word(3), Role: blockhash.Role(word(4))} //nolint:gosec // as they were written
			if n := len(ends); n == 0 || ends[n-1].Bytes < end.Bytes {
				ends = append(ends, end)
			}
			return nil
		}
		for _, end := range ends {
			if err := add(found, word(2), word(3), uint64(end.Bytes), end.Value, uint64(end.Role)); err != nil { //nolint:gosec // above 0
				return err
			}
		}
		return nil
	})
	if err != nil {
		found.close()
		return nil, err
	}
	return found, nil
}

// addComplete adds all prompts to a sorter, with the ends that were found.
func (c *compiler) addComplete(to, found *sorter) error {
	next, err := found.ahead()
	if err != nil {
		return err
	}
	type within struct {
		mark int // of the cell
		end  blockhash.End
	}
	var path []within // of the prompt at hand
	var cells []uint64
	var ends []blockhash.End
	return c.prompts(func(t *text) error {
		for len(path) > 0 && path[len(path)-1].mark > t.shared {
			path = path[:len(path)-1]
		}
		for ; len(next.item) > 0; err = next.advance() {
			word := func(i int) uint64 { return binary.BigEndian.Uint64(next.item[markLength*i:]) }
			if err != nil || word(0) != uint64(t.number) { //nolint:gosec // not negative
				break
			}
			path = append(path, within{int(word(1)), blockhash.End{Bytes: int64(word(2)), Value: word(3), Role: blockhash.Role(word(4))}}) //nolint:gosec // as they were written
		}
		if err != nil {
			return err
		}
		cells, ends = cells[:0], ends[:0]
		last := int64(0)
		for mark, border := range t.cells {
			cells, last = append(cells, t.value(mark)), border
		}
		for _, one := range path {
			border := t.at[one.mark-1]
			if border%blockhash.CellSize == 0 && border <= last && border-blockhash.CellSize < one.end.Bytes && one.end.Bytes <= border {
				ends = append(ends, one.end) // else a sender lies about its text
			}
		}
		for _, end := range t.Chain.Ends {
			if end.Bytes > last { // nobody has the cell that it would be in
				ends = append(ends, end)
			}
		}
		t.Chain.Cells, t.Chain.Ends = cells, ends[:min(len(ends), blockhash.MaxEnds)]
		return c.addText(to, &t.Inference, t.delay, 0)
	})
}

// value returns that of a mark, counted from 1.
func (t *text) value(mark int) uint64 { return binary.BigEndian.Uint64(t.marks[markLength*(mark-1):]) }

// cells yields the mark of each cell, counted from 1, and the bytes of text up to its end.
func (t *text) cells(yield func(mark int, border int64) bool) {
	next, last := int64(blockhash.CellSize), min(t.Chain.Bytes/blockhash.CellSize, blockhash.MaxCells)*blockhash.CellSize
	for i, at := range t.at {
		if at == next && next <= last {
			if !yield(i+1, at) {
				return
			}
			next += blockhash.CellSize
		}
	}
}
