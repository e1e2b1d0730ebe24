// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"hash/maphash"
	"math"
	"sort"

	"github.com/moonloop/moonloop/mooncake"
)

// prefixes is the set of those prefixes of earlier rows' prompts that end at the borders of blocks: the content of an infinite prefix
// cache. Two blocks are the same only if the model and all blocks before them are the same, too, because the hit of an engine's cache
// begins at the start of a prompt and ends before the first block that differs.
//
// A prefix is identified by a number, its node. Canonical ids (0, 1, 2, ... in order of first appearance) are their own nodes. The new ids
// of a row are then consecutive, so a row needs one run of 16 bytes, whatever its length. Every other node is a hash of the node before and
// the id.
type prefixes struct {
	blockSize int
	budget    int // remaining memory: a run costs 1, a hash hashCost
	seed      maphash.Seed
	next      uint64 // ids below it are canonical
	runs      []run
	rest      map[uint64]uint32 // tokens of the block at the end of each other prefix
	full      bool              // some prefixes were not remembered

	nodes []uint64 // of the row added last, one for each of its blocks
	last  int      // index of the run that was found last; it usually contains the next id, too
}

// run is a range of consecutive canonical ids, each of which follows the one before. It ends where the next run starts.
type run struct {
	parent uint64 // node before the first id
	start  uint32 // the first id
	fill   uint32 // tokens in the last block; the others are full
}

const (
	// hashCost is the cost of a map entry in runs: 16 bytes, and the overhead of a map.
	hashCost = 4
	// hashed marks a node that is not a canonical id.
	hashed = 1 << 63
)

// overlap is the part of a row that earlier rows also have.
type overlap struct {
	blocks int   // leading blocks with all of the row's tokens
	tokens int64 // the same in tokens, with the known tokens of the next block
	known  bool  // false: the set may have had a prefix that was not remembered
}

// newPrefixes returns a set that remembers at least bound prefixes that are not canonical, or hashCost times as many runs.
func newPrefixes(blockSize, bound int) *prefixes {
	return &prefixes{blockSize: blockSize, budget: hashCost * min(bound, math.MaxInt/hashCost), seed: maphash.MakeSeed()}
}

// add adds a row's prefixes to the set and returns the part of the row that the set had before.
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
		if !added || p.full { // after an unknown prefix, all longer ones are unknown
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

// find returns the node of a prefix and the number of known tokens of its last block, 0 if the prefix is unknown. run is the index of the
// run that ends with it, or negative.
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

// run returns the index of the run that contains a canonical id, and where the run ends.
func (p *prefixes) run(id uint64) (at int, end uint64) {
	ending := func(at int) uint64 {
		if at+1 < len(p.runs) {
			return uint64(p.runs[at+1].start)
		}
		return p.next
	}
	if at, end = p.last, ending(p.last); id < uint64(p.runs[at].start) || id >= end {
		// The last run that does not start after the id.
		at = sort.Search(len(p.runs), func(i int) bool { return uint64(p.runs[i].start) > id }) - 1
		p.last, end = at, ending(at)
	}
	return at, end
}

// insert adds an unknown prefix, if there is memory left, and returns its node.
func (p *prefixes) insert(node, id uint64, fill uint32) uint64 {
	canonical := id == p.next && id < math.MaxUint32
	last := len(p.runs) - 1
	switch {
	case canonical && last >= 0 && node == id-1: // all before it is full: the row continues after it
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

// spend subtracts from the budget, and reports whether it was enough.
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
