// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"cmp"
	"iter"

	"github.com/moonloop/moonloop/internal/ondisk"
)

// DefaultMaxIDs is the default number of distinct ids that checks, digests and statistics of the prefix tree remember: at most about 1 GiB,
// or a third of that for canonical ids.
const DefaultMaxIDs = 1 << 24

// forest is the prefix forest of a trace: the parent of every id is the id before it. Ids are renumbered, so that a parent has a smaller
// number than its children, as long as the trace is valid (rule V5).
type forest struct {
	blockSize int
	max       int // nodes
	maxNames  int // limit for ids that are not their own numbers
	names     Renumber
	full      bool // more than max distinct ids: the nodes are freed

	nodes *ondisk.Array[Node]
	count int64    // of nodes
	row   []uint32 // the current row, renumbered
}

// Node is an id in the prefix forest of rows: its parent is the id before it. Ids are numbered in the order in which they first appear.
type Node struct {
	Parent     uint32 // number of the preceding id, or [NoParent]
	References uint32 // occurrences in rows
	Last       uint32 // number of rows that end with the id
	Tokens     uint32 // in the block, which is smaller at the end of a prompt
}

// NoParent is the parent of a root.
const NoParent = ^uint32(0)

// Forest is the prefix forest of rows, by the numbers of ids.
type Forest struct {
	nodes *ondisk.Array[Node]
	count int64
}

// Forest returns the prefix forest of the rows so far. It is empty if there were too many ids ([Checker.Unchecked]). It is meaningful only if
// V4 and V5 hold, and valid until the checker is used again.
func (c *Checker) Forest() Forest { return Forest{c.forest.nodes, c.forest.count} }

// Len returns the number of ids.
func (f Forest) Len() int { return int(f.count) }

// Node returns the node with number n, 0 ≤ n < Len.
func (f Forest) Node(n uint32) Node { return f.nodes.At(int64(n)) }

// All returns all nodes by number, parents before their children.
func (f Forest) All() iter.Seq2[uint32, Node] {
	return func(yield func(uint32, Node) bool) {
		for n := range uint32(f.count) { //nolint:gosec // fewer than 2^31
			if !yield(n, f.Node(n)) {
				return
			}
		}
	}
}

func newForest(opt *CheckOptions) *forest {
	f := &forest{
		blockSize: cmp.Or(max(opt.BlockSize, 0), BlockSize), max: min(cmp.Or(max(opt.MaxIDs, 0), DefaultMaxIDs), mostIDs),
		nodes: ondisk.NewArray[Node](opt.TempDir, opt.share(4)),
	}
	f.maxNames = f.max
	if opt.Memory > 0 && opt.MaxIDs <= 0 {
		f.max = mostIDs
	}
	return f
}

// mostIDs is the maximum number of ids: their numbers have 31 bits.
const mostIDs = 1 << 31

// add adds a row to the forest and returns the rules that its ids break. Past the limit it does nothing.
func (f *forest) add(row *Row) (bad faults) {
	f.row = f.row[:0]
	if f.full {
		return 0
	}
	prev := NoParent
	for i, id := range row.Blocks(f.blockSize) {
		n, known := f.names.lookup(id)
		if !known {
			if f.count == int64(f.max) || len(f.names.other) == f.maxNames { // the memory is freed
				f.nodes.Close()
				*f = forest{blockSize: f.blockSize, max: min(f.max, int(f.count)), full: true}
				return 0
			}
			if f.names.add(id) != id {
				bad |= order
			}
			n = uint64(f.count) //nolint:gosec // not negative
			f.count++
			*f.nodes.Put(f.count - 1) = Node{Parent: prev}
		}
		node := f.nodes.Put(int64(n)) //nolint:gosec // fewer than 2^31
		if node.Parent != prev {
			bad |= parents
		}
		if fill := BlockFill(row.InputLength.V, f.blockSize, i); node.Tokens == 0 {
			node.Tokens = fill
		} else if node.Tokens != fill {
			bad |= fills
		}
		node.References++
		prev = uint32(n) //nolint:gosec // max is at most 2^31
		f.row = append(f.row, prev)
	}
	if prev != NoParent {
		f.nodes.Put(int64(prev)).Last++
	}
	// An id that occurs twice in a row has two predecessors, so rows in which each id has one parent need no search.
	if bad&parents != 0 {
		seen := make(map[uint32]bool, len(f.row))
		for _, n := range f.row {
			if seen[n] {
				bad |= repeated
			}
			seen[n] = true
		}
	}
	return bad
}
