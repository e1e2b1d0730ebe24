// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

// DefaultMaxIDs is the default number of distinct ids that checks, digests and statistics of the prefix tree remember: at most about 1 GiB,
// or a third of that for canonical ids.
const DefaultMaxIDs = 1 << 24

// forest is the prefix forest of a trace: the parent of every id is the id before it. Ids are renumbered, so that a parent has a smaller
// number than its children, as long as the trace is valid (rule V5).
type forest struct {
	blockSize int
	max       int
	names     Renumber
	full      bool // more than max distinct ids: the nodes are freed

	nodes []Node
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

// Forest returns the prefix forest of the rows so far, by the numbers of ids. It is empty if there were too many ids ([Checker.Unchecked]).
// It is meaningful only if V4 and V5 hold. The slice belongs to the checker.
func (c *Checker) Forest() []Node { return c.forest.nodes }

func newForest(blockSize, maxIDs int) *forest {
	if blockSize <= 0 {
		blockSize = BlockSize
	}
	if maxIDs <= 0 {
		maxIDs = DefaultMaxIDs
	}
	return &forest{blockSize: blockSize, max: min(maxIDs, 1<<31)}
}

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
			if len(f.nodes) == f.max { // the memory is freed
				*f = forest{blockSize: f.blockSize, max: f.max, full: true}
				return 0
			}
			if f.names.add(id) != id {
				bad |= order
			}
			n = uint64(len(f.nodes))
			f.nodes = append(f.nodes, Node{Parent: prev})
		}
		node := &f.nodes[n]
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
		f.nodes[prev].Last++
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
