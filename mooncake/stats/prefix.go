// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"hash/maphash"
	"math"
	"sort"

	"github.com/moonloop/moonloop/mooncake"
)

// prefixes is the set of prompt prefixes of the rows before, at the borders of their blocks: what an infinite prefix cache
// holds. A block is the same as another one only when all blocks before it are, too, and the model: an id that follows
// another id than before is another block, since an engine's cache hits from the start of a prompt on and ends at the
// first block that differs.
//
// A prefix is named by a number, its node. Ids that are canonical (0, 1, 2, ... in order of first appearance) are their own
// nodes: the new ids of a row then follow one another, so a row costs one run of 16 bytes, whatever its length. Every other
// node is a hash of the node before and the id.
type prefixes struct {
	blockSize int
	budget    int // what may still be remembered: a run costs 1, a hash hashCost
	seed      maphash.Seed
	next      uint64 // ids below it are canonical
	runs      []run
	rest      map[uint64]uint32 // tokens of the block at the end of each other prefix
	full      bool              // prefixes were not remembered

	nodes []uint64 // of the row added last, one for each of its blocks
	last  int      // the run that was found last: that of the next id as a rule
}

// run is a row of consecutive canonical ids, each of which follows the one before. It ends where the next one starts.
type run struct {
	parent uint64 // node before the first id
	start  uint32 // the first id
	fill   uint32 // tokens in the last block; the others are full
}

const (
	// hashCost is the price of an entry of the map in runs: 16 bytes and what a map takes beside.
	hashCost = 4
	// hashed marks a node that is no canonical id.
	hashed = 1 << 63
)

// overlap is what a row has in common with the rows before.
type overlap struct {
	blocks int   // leading blocks of which all of the row's tokens were there
	tokens int64 // the same in tokens, with those of the next block that were there
	known  bool  // false: a prefix that was not remembered may have been there
}

// newPrefixes returns a set that remembers at least bound prefixes that are not canonical, and hashCost times as many runs.
func newPrefixes(blockSize, bound int) *prefixes {
	return &prefixes{blockSize: blockSize, budget: hashCost * min(bound, math.MaxInt/hashCost), seed: maphash.MakeSeed()}
}

// add puts a row's prefixes into the set and returns what was there of them before.
func (p *prefixes) add(row *mooncake.Row) overlap {
	ids := row.Blocks(p.blockSize)
	all := overlap{known: true}
	p.nodes = p.nodes[:0]
	node := maphash.String(p.seed, row.Model) | hashed
	missed, added := false, false
	for i, id := range ids {
		want := mooncake.BlockFill(row.InputLength.V, p.blockSize, i)
		var child uint64
		run, have := -1, uint32(0)
		if !added || p.full { // behind a prefix that was not there, none is
			child, run, have = p.find(node, id)
		}
		if !missed {
			all.tokens += int64(min(have, want))
			if have >= want {
				all.blocks++
			} else {
				missed = true
				all.known = have > 0 || !p.full
			}
		}
		switch {
		case have == 0:
			child, added = p.insert(node, id, want), true
		case want > have && run >= 0:
			p.runs[run].fill = want
		case want > have:
			p.rest[child] = want
		}
		node = child
		p.nodes = append(p.nodes, node)
	}
	return all
}

// find returns the node of a prefix and the tokens that are known of its last block, 0 when the prefix is not there. run
// is the run that ends with it, or negative.
func (p *prefixes) find(node, id uint64) (child uint64, run int, have uint32) {
	if id < p.next {
		at, end := p.run(id)
		r := p.runs[at]
		if before := id - 1; node == before && id != uint64(r.start) || node == r.parent && id == uint64(r.start) {
			if id+1 == end {
				return id, at, r.fill
			}
			return id, -1, math.MaxUint32 // it is full
		}
	}
	if len(p.rest) == 0 {
		return 0, -1, 0
	}
	child = p.hash(node, id)
	return child, -1, p.rest[child]
}

// run returns the run that holds a canonical id, and where that ends.
func (p *prefixes) run(id uint64) (at int, end uint64) {
	ending := func(at int) uint64 {
		if at+1 < len(p.runs) {
			return uint64(p.runs[at+1].start)
		}
		return p.next
	}
	if at, end = p.last, ending(p.last); id < uint64(p.runs[at].start) || id >= end {
		at = sort.Search(len(p.runs), func(i int) bool { return uint64(p.runs[i].start) > id }) - 1 // the last one that does not start above it
		p.last, end = at, ending(at)
	}
	return at, end
}

// insert remembers a prefix that is not there, if it still can, and returns its node.
func (p *prefixes) insert(node, id uint64, fill uint32) uint64 {
	canonical := id == p.next && id < math.MaxUint32
	last := len(p.runs) - 1
	switch {
	case canonical && last >= 0 && node == id-1: // all before it is full: the row goes on after it
		p.runs[last].fill = fill
	case canonical && p.spend(1):
		p.runs = append(p.runs, run{node, uint32(id), fill}) //nolint:gosec // bounded above
	case !canonical && p.spend(hashCost):
		if p.rest == nil {
			p.rest = make(map[uint64]uint32)
		}
		child := p.hash(node, id)
		p.rest[child] = fill
		return child
	default:
		return p.hash(node, id)
	}
	p.next++
	return id
}

// spend takes from the budget.
func (p *prefixes) spend(cost int) bool {
	if p.budget < cost {
		p.full = true
		return false
	}
	p.budget -= cost
	return true
}

func (p *prefixes) hash(node, id uint64) uint64 {
	return maphash.Comparable(p.seed, [2]uint64{node, id}) | hashed
}
