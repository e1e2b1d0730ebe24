// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/moonloop/moonloop/mooncake"
)

// sizes multiplies lengths and preserves what rows share. The end of a block of the new prompt lies in a block of the old one, and rows
// have the same new blocks as far as they have the same old ones. The new blocks that end in a run of consecutive old ids get consecutive
// ids, because ids in few ranges are numbered quickly.
type sizes struct {
	c           *Config
	x           *index // for the prefix scale
	block, fine int
	tree        tree // for rows without ranges
	names       []uint64
	skipped     int64 // rows without a length
	replies     int64 // replies that were left out
}

func (s *sizes) rows(in step) step {
	return func() (*item, error) {
		it, err := in()
		if err != nil {
			return nil, err
		}
		if it.Kind() != mooncake.KindLength {
			s.skipped++
			return it, nil
		}
		s.replies += int64(len(it.Replies)) // their lengths and positions differ from those of the generated replies
		it.Replies, it.Observed = nil, mooncake.Observed{}
		if changes(s.c.OutputScale) && it.OutputLength.V > 0 {
			it.OutputLength.V = max(1, scaled(it.OutputLength.V, s.c.OutputScale))
		}
		switch {
		case changes(s.c.InputScale):
			err = s.input(it, 0, 1, s.c.InputScale)
		case changes(s.c.PrefixScale):
			err = s.input(it, min(int64(s.x.shared(it.seq))*int64(s.block), it.InputLength.V), s.c.PrefixScale, 1)
		}
		return it, err
	}
}

// partial marks the names of partial last blocks.
const partial = 1 << 63

// most is the maximum length: a row with a longer one would be invalid.
const most = 1 << 40

func scaled(n int64, factor float64) int64 {
	return int64(min(math.Round(float64(n)*factor), most))
}

// prompt describes the change of a prompt: its shared tokens are multiplied by one factor, the rest by the other.
type prompt struct {
	was, now, shared     int64
	prefix, rest, border float64
}

func newPrompt(was, shared int64, prefix, rest float64) prompt {
	border := scaled(shared, prefix)
	return prompt{was, max(1, min(most, border+scaled(was-shared, rest))), shared, prefix, rest, float64(border)}
}

// back returns the old block in which a new block of the same size ends.
func (p *prompt) back(j, size int) int {
	end := min(int64(j+1)*int64(size), p.now)
	old := p.shared + int64(math.Ceil((float64(end)-p.border)/p.rest))
	if float64(end) <= p.border {
		old = int64(math.Ceil(float64(end) / p.prefix))
	}
	return int(min(max(old, 1), p.was)-1) / size
}

// input changes a row's prompt.
func (s *sizes) input(it *item, shared int64, prefix, rest float64) error {
	p := newPrompt(it.InputLength.V, shared, prefix, rest)
	it.InputLength.V = p.now
	if it.HashRanges != nil {
		s.ranges(it, p)
		return nil
	}
	ids := len(it.HashIDs)
	if ids == 0 {
		return nil
	}
	if err := s.tree.hang(it); err != nil {
		return err
	}
	whole := ids == mooncake.BlockCount(p.was, s.block)
	blocks := mooncake.BlockCount(p.now, s.block)
	at := func(j int) int {
		if whole && j == blocks-1 {
			return ids - 1
		}
		return p.back(j, s.block)
	}
	if !whole { // the end of the prompt has no ids
		blocks = sort.Search(blocks, func(j int) bool { return at(j) >= ids })
	}
	s.tree.lay(it, blocks, whole && p.now%int64(s.block) != 0, at)
	if s.fine > 0 { // ids made from ranges have their own domain
		it.root = MaxRoots
	}
	return nil
}

// ranges changes the prompt of a row with ranges.
func (s *sizes) ranges(it *item, p prompt) {
	was, now := p.was, p.now
	times := uint64(math.Ceil(max(p.prefix, p.rest))) + 2 // the maximum number of new blocks that end in a run, for each of its blocks
	chain := func(ids []uint64, size int, trunk int) (out []uint64, inTrunk int) {
		whole := len(ids) == mooncake.BlockCount(was, size)
		blocks := mooncake.BlockCount(now, size)
		out = make([]uint64, 0, min(blocks, int(times)*(len(ids)+1))) //nolint:gosec // a factor
		run, first, begin := 0, uint64(0), 0                          // the index after the current run, the run's first id, and the new block where it begins
		for j := range blocks {
			end := min(int64(j+1)*int64(size), now)
			at := p.back(j, size)
			last := whole && end == now
			if last {
				at = len(ids) - 1
			}
			if at >= len(ids) {
				break
			}
			for run <= at {
				if run == 0 || ids[run] != ids[run-1]+1 {
					first, begin = ids[run], j
				}
				run++
			}
			name := first*times + uint64(j-begin) //nolint:gosec // above 0
			if last && end%int64(size) != 0 {
				name = partial | ids[at] // no other row continues it
			}
			out = append(out, name)
			if at < trunk && inTrunk == j {
				inTrunk++
			}
		}
		return out, inTrunk
	}
	s.names = s.names[:0]
	ratio := s.block / s.fine
	for _, r := range it.HashRanges {
		for i := range r.Count {
			s.names = append(s.names, r.First+uint64(i))
		}
	}
	if p.prefix != p.rest { // the part after the last shared block cannot be longer in one row than in another, so it is no longer shared
		for f := range s.names {
			s.names[f] = it.HashIDs[f/ratio]*uint64(ratio) + uint64(f%ratio) //nolint:gosec // above 0
		}
	}
	fine, trunk := chain(s.names, s.fine, it.trunk*ratio)
	it.HashRanges = collapse(nil, fine)
	it.HashIDs, it.trunk = ends(fine, ratio, true), trunk/ratio
	if trunk == len(fine) {
		it.trunk = len(it.HashIDs)
	}
}

// ends returns the ids of larger blocks; each is named by the small block at its end. Those that end in a run of consecutive small ids get
// consecutive ids. If the last blocks of a prompt have no ids, it returns the ids of the whole blocks.
func ends(ids []uint64, ratio int, whole bool) []uint64 {
	out := make([]uint64, 0, len(ids)/ratio+1)
	run, first, begin := 0, uint64(0), 0 // as in the chain of sizes
	for end := ratio; end <= len(ids); end += ratio {
		for ; run < end; run++ {
			if run == 0 || ids[run] != ids[run-1]+1 {
				first, begin = ids[run], len(out)
			}
		}
		out = append(out, first+uint64(len(out)-begin))
	}
	if n := len(ids); n%ratio != 0 && whole {
		out = append(out, partial|ids[n-1])
	}
	return out
}

// blocks makes larger blocks from the blocks of a trace. If there are no ranges, the small blocks become ranges, so nothing is lost.
type blocks struct {
	was, now int
	ranges   bool // the small blocks become ranges
	tree     tree
	small    []mooncake.HashRange // kept for its memory
}

func newBlocks(size, block, fine int) (*blocks, error) {
	if size < block || size%block != 0 {
		return nil, fmt.Errorf("new block size %d: the trace has blocks of %d tokens, and the new size must be a multiple of that: ids say nothing about parts of a block", size, block)
	}
	return &blocks{was: block, now: size, ranges: fine == 0}, nil
}

func (b *blocks) rows(in step) step {
	ratio := b.now / b.was
	return func() (*item, error) {
		it, err := in()
		if err != nil || len(it.HashIDs) == 0 {
			return it, err
		}
		n := len(it.HashIDs)
		whole := n == mooncake.BlockCount(it.InputLength.V, b.was)
		if !b.ranges { // the ids of ranges already show what is shared
			all := it.trunk == n
			it.HashIDs = ends(it.HashIDs, ratio, whole)
			if it.trunk /= ratio; all {
				it.trunk = len(it.HashIDs)
			}
			return it, nil
		}
		if err := b.tree.hang(it); err != nil {
			return nil, err
		}
		large, partial := n/ratio, false
		if whole {
			b.small = collapse(b.small[:0], it.HashIDs)
			it.HashRanges = slices.Clone(b.small)
			if partial = n%ratio != 0; partial {
				large++
			}
		}
		b.tree.lay(it, large, partial, func(j int) int { return min((j+1)*ratio, n) - 1 })
		return it, nil
	}
}
