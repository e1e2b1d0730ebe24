// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"slices"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
)

// A prompt of many short messages lists only some of the places where its messages end, and two prompts may list different places: see
// [blockhash.Chain.KeptEnds]. If one prompt has a mark that another one with the same text lacks, their texts seem to differ from there
// on. So, as a first step, prompts with a cell in common get all message ends in it that any of them lists.
//
// Few cells need that. If prompts list the same ends, a cell is in only one place in the tree of marks. If not, the first cell
// after the fork is in both branches, and later cells may be, too. So the first cells of all branches show which cells can be
// in several places.
//
// Each step goes from sorter to sorter, so that shards can divide the work: see shard.go.

// thinned reports whether a prompt may have messages whose ends it does not list.
func thinned(p *journal.Prompt) bool { return len(p.Chain.Ends) >= blockhash.MostEnds(p.Chain.Bytes) }

// findBranches finds the first cells of all branches in the tree of marks.
func (c *compiler) findBranches(to *sorter) error {
	var path []int // marks of the last prompt that are cells
	return c.prompts(func(t *text) error {
		// A branch begins where a prompt differs from the last one.
		n := len(path)
		for n > 0 && path[n-1] > t.shared {
			n--
		}
		if mark := t.before.cellFrom(t.shared + 1); mark > 0 && (n == len(path) || path[n] != mark) {
			if err := to.addWords(t.before.value(mark)); err != nil {
				return err
			}
		}
		path = path[:n]
		if mark := t.cellFrom(t.shared + 1); mark > 0 {
			path = append(path, mark)
			return to.addWords(t.value(mark))
		}
		return nil
	})
}

// findParted finds the cells that several branches begin with: those that are in several places.
func (c *compiler) findParted(branches, to *sorter) error {
	var cell uint64
	times := 0
	return branches.each(c.ctx, func(b []byte) error {
		if times++; word(b, 0) != cell {
			cell, times = word(b, 0), 1
		}
		if times != 2 {
			return nil
		}
		c.parted = true
		return to.addWords(cell)
	})
}

// An item of the join begins with the value of a cell and its kind, joinEnd or joinCell. With joinEnd, the place, value and
// role of an end in that cell follow. With joinCell, a prompt's number, the mark of the cell, the number of ends that the
// prompt lists there, and the prompt's part follow. A result is a prompt's part and number, the mark of a cell, and an end in it.
const (
	joinEnd  = 0
	joinCell = 1
)

// gatherEnds finds the cells of all prompts that may be in several places, and the ends in them: the parted cells, and all cells after one of
// these in the same prompt. It leaves out cells whose marks a prompt shares with the prompt before.
func (c *compiler) gatherEnds(partedCells, join *sorter) error {
	var parted []uint64
	if err := partedCells.each(c.ctx, func(b []byte) error { parted = append(parted, word(b, 0)); return nil }); err != nil {
		return err
	}
	first := 0 // mark of the prompt's first cell that may be in another branch, too; 0: none
	return c.prompts(func(t *text) error {
		if first > t.shared {
			first = 0
		}
		ends := t.Chain.Ends
		for mark := t.cellFrom(1); mark > 0; mark = t.cellFrom(mark + 1) {
			n := 0
			for n < len(ends) && ends[n].Bytes <= t.at[mark-1] {
				n++
			}
			in, marks := ends[:n], t.ends[len(t.ends)-len(ends):]
			if ends = ends[n:]; mark <= t.shared {
				continue
			}
			cell := t.value(mark)
			if _, is := slices.BinarySearch(parted, cell); first == 0 && is {
				first = mark
			}
			if first == 0 {
				continue
			}
			for i, end := range in {
				if err := join.addWords(cell, joinEnd, uint64(end.Bytes), t.value(marks[i]), uint64(end.Role)); err != nil { //nolint:gosec // above 0
					return err
				}
			}
			if err := join.addWords(cell, joinCell, uint64(t.number), uint64(mark), uint64(n), t.part()); err != nil { //nolint:gosec // not negative
				return err
			}
		}
		return nil
	})
}

// matchEnds finds, for each prompt that does not list all ends in its cells, all ends in them.
func (c *compiler) matchEnds(join, found *sorter) error {
	var cell uint64
	var ends []blockhash.End // in it, in order
	return join.each(c.ctx, func(b []byte) error {
		if word(b, 0) != cell {
			cell, ends = word(b, 0), ends[:0]
		}
		switch {
		case word(b, 1) == joinEnd:
			end := blockhash.End{Bytes: int64(word(b, 2)), Value: word(b, 3), Role: blockhash.Role(word(b, 4))} //nolint:gosec // as they were written
			if n := len(ends); n == 0 || ends[n-1].Bytes < end.Bytes {
				ends = append(ends, end)
			}
		case word(b, 4) < uint64(len(ends)):
			for _, end := range ends {
				if err := found.addWordsOf(word(b, 5), word(b, 2), word(b, 3), uint64(end.Bytes), end.Value, uint64(end.Role)); err != nil { //nolint:gosec // above 0
					return err
				}
			}
		}
		return nil
	})
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
	var path []within // of the current prompt
	var cells []uint64
	var ends []blockhash.End
	return c.prompts(func(t *text) error {
		for len(path) > 0 && path[len(path)-1].mark > t.shared {
			path = path[:len(path)-1]
		}
		for ; len(next.item) > 0; err = next.advance() {
			one := next.item[partLength:]
			if err != nil || word(one, 0) != uint64(t.number) { //nolint:gosec // not negative
				break
			}
			path = append(path, within{int(word(one, 1)), blockhash.End{Bytes: int64(word(one, 2)), Value: word(one, 3), Role: blockhash.Role(word(one, 4))}}) //nolint:gosec // as they were written
		}
		if err != nil {
			return err
		}
		if len(path) == 0 {
			return to.add(t.item, nil)
		}
		cells, ends = cells[:0], ends[:0]
		last := 0
		for mark := t.cellFrom(1); mark > 0; mark = t.cellFrom(mark + 1) {
			cells, last = append(cells, t.value(mark)), mark
		}
		own := t.Chain.Ends
		for i, mark := range t.ends {
			own[i].Value = t.value(mark)
		}
		for _, one := range path {
			border := t.at[one.mark-1]
			if border%blockhash.CellSize != 0 || one.mark > last || one.end.Bytes <= border-blockhash.CellSize || border < one.end.Bytes {
				continue // the sender's claim about its text cannot be true
			}
			for len(own) > 0 && own[0].Bytes < one.end.Bytes {
				ends, own = append(ends, own[0]), own[1:]
			}
			if len(own) > 0 && own[0].Bytes == one.end.Bytes {
				own = own[1:]
			}
			ends = append(ends, one.end)
		}
		ends = append(ends, own...)
		t.Chain.Cells, t.Chain.Ends = cells, ends[:min(len(ends), blockhash.MaxEnds)]
		return c.addText(to, &t.Inference, t.delay, 0)
	})
}
