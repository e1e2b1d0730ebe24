// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import "math"

// DefaultMaxIDs is the number of distinct ids that checks, digests and statistics of the prefix tree remember unless they
// are told otherwise: at most about 1 GiB, for canonical ids a third of that.
const DefaultMaxIDs = 1 << 24

// forest is the prefix forest of a trace: every id hangs below the id that precedes it. Ids are renumbered, so that a
// parent has a smaller number than its children, as long as the trace is valid (rule V5).
type forest struct {
	blockSize int
	max       int
	names     Renumber
	full      bool // more than max distinct ids: the arrays are gone

	parent []uint32 // number of the preceding id, NoParent at a root
	fill   []uint32 // tokens in the block
	refs   []uint32 // occurrences in rows
	last   []uint32 // rows that end with the id

	row []uint32 // the current row, renumbered
}

// NoParent is the parent of a root.
const NoParent = ^uint32(0)

// Forest is the prefix forest of rows: every id hangs below the id that precedes it. Ids are numbered in the order in which
// they first appear. The slices are the checker's own, for the rows so far.
type Forest struct {
	Parents    []uint32 // of each id the number of the preceding one, or [NoParent]
	References []uint32 // occurrences in rows
	Last       []uint32 // rows that end with the id
}

// Forest returns the prefix forest of the rows so far, empty where they had too many ids ([Checker.Unchecked]). It tells prefixes
// only where V4 and V5 hold.
func (c *Checker) Forest() Forest {
	return Forest{Parents: c.forest.parent, References: c.forest.refs, Last: c.forest.last}
}

// faults are the rules that a row breaks.
type faults uint8

const (
	repeated    faults = 1 << iota // V4
	parents                        // V5
	fills                          // V6
	order                          // V7
	disagreeing                    // V9
)

func newForest(blockSize, maxIDs int) *forest {
	if blockSize <= 0 {
		blockSize = BlockSize
	}
	if maxIDs <= 0 {
		maxIDs = DefaultMaxIDs
	}
	return &forest{blockSize: blockSize, max: min(maxIDs, 1<<31)}
}

// add puts a row into the forest and returns what is wrong with it and how many of its ids, the row's
// last ones in a valid trace, are new. Past the bound it does nothing.
func (f *forest) add(row *Row) (bad faults, fresh int) {
	f.row = f.row[:0]
	if f.full {
		return 0, 0
	}
	ids := row.Blocks(f.blockSize)
	prev := NoParent
	for i, id := range ids {
		n, known := f.names.lookup(id)
		if !known {
			if len(f.parent) == f.max {
				f.drop()
				return 0, 0
			}
			if f.names.add(id) != id {
				bad |= order
			}
			n = uint64(len(f.parent))
			f.parent = append(f.parent, prev)
			f.fill = append(f.fill, 0)
			f.refs = append(f.refs, 0)
			f.last = append(f.last, 0)
			fresh++
		}
		if f.parent[n] != prev {
			bad |= parents
		}
		if fill := f.fillOf(row, i, len(ids)); f.fill[n] == 0 {
			f.fill[n] = fill
		} else if f.fill[n] != fill {
			bad |= fills
		}
		f.refs[n]++
		prev = uint32(n) //nolint:gosec // max is at most 2^31
		f.row = append(f.row, prev)
	}
	if prev != NoParent {
		f.last[prev]++
	}
	// An id that comes twice in a row has two predecessors, so that rows with one parent each need no look.
	if bad&parents != 0 {
		seen := make(map[uint32]bool, len(f.row))
		for _, n := range f.row {
			if seen[n] {
				bad |= repeated
			}
			seen[n] = true
		}
	}
	return bad, fresh
}

// fillOf returns the tokens in block i of a row: the block size except in a partial last block.
func (f *forest) fillOf(row *Row, i, blocks int) uint32 {
	full := int64(f.blockSize)
	if i < blocks-1 {
		return clamp32(full)
	}
	return clamp32(min(full, row.InputLength.V-int64(i)*full))
}

// clamp32 narrows a number of tokens. Blocks of 2^32 tokens or more are all the same to the forest.
func clamp32(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

// drop gives the memory back when the bound is passed.
func (f *forest) drop() {
	*f = forest{blockSize: f.blockSize, max: f.max, full: true}
}

// children returns the children of every id, and the roots, as one list: those of id n are list[start[n]:start[n+1]],
// the roots are list[start[len(parent)]:].
func (f *forest) children() (start []int, list []uint32) {
	ids := len(f.parent)
	slot := func(p uint32) int {
		if p == NoParent {
			return ids
		}
		return int(p)
	}
	start = make([]int, ids+2)
	for _, p := range f.parent {
		start[slot(p)+1]++
	}
	for i := range ids + 1 {
		start[i+1] += start[i]
	}
	list = make([]uint32, ids)
	at := make([]int, ids+1)
	copy(at, start)
	for n, p := range f.parent {
		list[at[slot(p)]] = uint32(n)
		at[slot(p)]++
	}
	return start, list
}
