// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"sort"

	"github.com/moonloop/moonloop/mooncake"
)

// tree numbers the new blocks of rows whose prefixes are scaled by what the index knows of the old ones, instead of looking each of them up:
// a row has the new blocks of its parent as far as these end in old ones that both have, and a run of new ones behind them. It wants the rows
// as they are in the index, all of them and in that order, with canonical ids and without ranges.
type tree struct {
	x     *index
	block int
	next  uint64 // id
	nodes []node
	// twice are the partial last blocks of rows that end where others go on, or end: by their old ids.
	twice map[uint64]uint64
}

// node is a row's new blocks: so many, of which the leading ones are its parent's, and the others have consecutive ids.
type node struct {
	start   uint64
	partial uint64 // the old id of a last block that is partial, from 1
	lead, n uint32
}

// full is how many of the blocks are whole.
func (n *node) full() int {
	if n.partial != 0 {
		return int(n.n) - 1
	}
	return int(n.n)
}

func newTree(x *index, block int) *tree {
	return &tree{x: x, block: block, nodes: make([]node, len(x.key)), twice: map[uint64]uint64{}}
}

// prefix scales the shared part of a row's prompt.
func (t *tree) prefix(it *item, shared int64, factor float64) {
	p := newPrompt(it.InputLength.V, shared, factor, 1)
	it.InputLength.V = p.now
	ids := it.HashIDs
	if len(ids) == 0 {
		return
	}
	whole := len(ids) == mooncake.BlockCount(p.was, t.block)
	blocks := mooncake.BlockCount(p.now, t.block)
	at := func(j int) int {
		if whole && j == blocks-1 {
			return len(ids) - 1
		}
		return p.back(j, t.block)
	}
	n := blocks
	if !whole { // the end of the prompt has no ids
		n = sort.Search(blocks, func(j int) bool { return at(j) >= len(ids) })
	}
	full := n
	partial := whole && p.now%int64(t.block) != 0
	if partial {
		full--
	}
	had := int(t.x.lead[it.seq])
	lead := sort.Search(full, func(j int) bool { return at(j) >= had })
	if lead > 0 { // a row before may have filled the same last block less
		lead = min(lead, t.nodes[t.x.parent[it.seq]].full())
	}
	row, end := &t.nodes[it.seq], ids[len(ids)-1]+1
	*row = node{start: t.next, lead: uint32(lead), n: uint32(n)} //nolint:gosec // blocks of a row
	out := ids[:0]
	if cap(out) < n {
		out = make([]uint64, 0, n)
	}
	out = out[:n]
	for k, r := lead, t.x.parent[it.seq]; k > 0; r = t.x.parent[r] { // from the last one on, up the tree
		above := &t.nodes[r]
		for ; k > int(above.lead); k-- {
			out[k-1] = above.start + uint64(k-1) - uint64(above.lead)
		}
	}
	for k := lead; k < full; k++ {
		out[k] = t.next
		t.next++
	}
	if partial {
		row.partial = end
		out[full] = t.last(it.seq, end, had == len(ids))
	}
	it.HashIDs = out
}

// last returns the id of a row's partial last block, which is another row's where both end in the same old block.
func (t *tree) last(seq int, end uint64, known bool) uint64 {
	if known {
		if id, again := t.twice[end]; again {
			return id
		}
		if r := t.x.parent[seq]; t.nodes[r].partial == end {
			above := t.nodes[r]
			return above.start + uint64(above.n-above.lead) - 1
		}
		t.twice[end] = t.next
	}
	t.next++
	return t.next - 1
}
