// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"fmt"
	"sort"

	"github.com/moonloop/moonloop/internal/splitmix"
	"github.com/moonloop/moonloop/mooncake"
)

// tree gives rows other blocks and preserves what they share. It knows the position of each row in the prefix tree of the old blocks. A row
// has the new blocks of the row above it, as far as these end in old blocks that both have, and a run of new blocks after them. So a row
// needs one search, not one for each block, and its new blocks get canonical ids at once.
//
// An id identifies its block and all before it. As everywhere, an id that follows a different id than before is a different block.
type tree struct {
	ids   numbered // of old blocks
	next  uint64   // new id
	nodes column[node]
	near  []uint32 // for each page of old ids, the row that added the page's first id
	// twice has, by old id, the new ids of the partial last blocks of rows that end where another row continues or ends.
	twice map[uint64]uint64

	// The current row: the old ids before it, how many of its blocks earlier rows have, and the row with the last of these.
	was   uint64
	had   int
	above uint32
}

// node is a row: its old blocks (the leading ones are those of the row above it, and the others have consecutive ids), and its new blocks
// in the same form. It uses 40 bytes.
type node struct {
	old, start uint64 // the first ids of its own blocks
	above      uint32 // row, or none
	had, own   uint32 // old blocks from the row above; its own old blocks
	lead, n    uint32 // new blocks from the row above; all new blocks
	partial    bool   // the last of its new blocks is partial
}

// full returns how many of the new blocks are full.
func (n *node) full() int {
	if n.partial {
		return int(n.n) - 1
	}
	return int(n.n)
}

// page is the number of old ids for which the tree remembers one row, at which the search for the row of an id begins.
const page = 64

// of returns the row that added an old block, or none.
func (t *tree) of(id uint64) uint32 {
	if id/page >= uint64(len(t.near)) {
		return none
	}
	from, to := int(t.near[id/page]), t.nodes.n
	if next := id/page + 1; next < uint64(len(t.near)) {
		to = int(t.near[next]) + 1
	}
	at := uint32(from+sort.Search(to-from, func(i int) bool { return t.nodes.at(uint32(from+i)).old > id })) - 1 //nolint:gosec // bounded by maxIndexed
	if at == none || id-t.nodes.at(at).old >= uint64(t.nodes.at(at).own) {
		return none
	}
	return at
}

// hang finds the position of a row with ids, and makes these canonical.
func (t *tree) hang(it *item) error {
	if t.nodes.n >= maxIndexed {
		return fmt.Errorf("lengths and block sizes of more than %d rows cannot be changed; transform the trace in parts", uint32(maxIndexed))
	}
	ids := it.HashIDs
	trunk, own := it.domains()
	t.was = t.ids.len()
	t.ids.row(trunk, ids[:it.trunk])
	added := t.ids.added
	t.ids.row(own, ids[it.trunk:])
	added += t.ids.added
	it.root, it.trunk = 0, len(ids) // from now on they have one domain
	t.had, t.above = len(ids)-added, none
	if t.had > 0 {
		t.above = t.of(ids[t.had-1])
	}
	if !t.fits(ids) {
		t.strange(ids)
	}
	return nil
}

// fits reports whether the current row has the old blocks of the row above it, and new ones after these.
func (t *tree) fits(ids []uint64) bool {
	for i, id := range ids[t.had:] {
		if id != t.was+uint64(i) {
			return false
		}
	}
	for k, row := t.had, t.above; k > 0; {
		if row == none {
			return false
		}
		n := t.nodes.at(row)
		had := int(n.had)
		if k <= had || k > had+int(n.own) {
			return false
		}
		for ; k > had; k-- {
			if ids[k-1] != n.old+uint64(k-1-had) { //nolint:gosec // not negative
				return false
			}
		}
		row = n.above
	}
	return true
}

// strange gives the current row other ids, from the first block that follows a different block than before.
func (t *tree) strange(ids []uint64) {
	const domain, others = 1 << 63, 0x9e3779b97f4a7c15
	k := 0
	for ; k < len(ids) && ids[k] < t.was; k++ {
		row := t.of(ids[k])
		if row == none || uint64(t.nodes.at(row).had)+ids[k]-t.nodes.at(row).old != uint64(k) || k > 0 && t.block(row, k-1) != ids[k-1] {
			break
		}
	}
	t.ids.remember()
	t.was, t.had = t.ids.len(), k
	before := uint64(0)
	for i := range ids {
		if i >= k {
			name := []mooncake.HashRange{{First: splitmix.Mix(ids[i] + before*others), Count: 1}}
			t.ids.ranges = t.ids.names.Domain(domain, t.ids.ranges[:0], name)
			ids[i] = t.ids.ranges[0].First
		}
		if before = ids[i] + 1; ids[i] < t.was {
			t.had = i + 1
		}
	}
	if t.above = none; t.had > 0 {
		t.above = t.of(ids[t.had-1])
	}
}

// block returns an old block of a row; the row must have it.
func (t *tree) block(row uint32, at int) uint64 {
	n := t.nodes.at(row)
	for at < int(n.had) {
		n = t.nodes.at(n.above)
	}
	return n.old + uint64(at) - uint64(n.had) //nolint:gosec // not negative
}

// lay assigns ids to the n new blocks of the row that was added last; the last one may be partial. at returns the old block in which a new
// one ends; it must not decrease.
func (t *tree) lay(it *item, n int, partial bool, at func(j int) int) {
	ids := it.HashIDs
	full := n
	if partial {
		full--
	}
	lead := sort.Search(full, func(j int) bool { return at(j) >= t.had })
	if lead > 0 { // an earlier row may have filled the same last block less
		lead = min(lead, t.nodes.at(t.above).full())
	}
	own := len(ids) - t.had
	row := node{old: t.was, start: t.next, above: t.above, had: uint32(t.had), own: uint32(own), lead: uint32(lead), n: uint32(n), partial: partial} //nolint:gosec // blocks of a row
	for ; own > 0 && uint64(len(t.near))*page < t.was+uint64(own); t.near = append(t.near, uint32(t.nodes.n)) {                                      //nolint:gosec // above 0; bounded by maxIndexed
	}
	t.nodes.add(row)
	end := ids[len(ids)-1]
	out := ids[:0]
	if cap(out) < n {
		out = make([]uint64, 0, n)
	}
	out = out[:n]
	for k, above := lead, t.above; k > 0; { // from the last one up the tree
		other := t.nodes.at(above)
		for first := int(other.lead); k > first; k-- {
			out[k-1] = other.start + uint64(k-1-first) //nolint:gosec // not negative
		}
		above = other.above
	}
	for k := lead; k < full; k++ {
		out[k] = t.next
		t.next++
	}
	if partial {
		out[full] = t.last(end)
	}
	it.HashIDs, it.trunk = out, n
}

// last returns the id of the partial last block of the current row. If another row ends in the same old block, both share it.
func (t *tree) last(end uint64) uint64 {
	if end < t.was {
		if id, again := t.twice[end]; again {
			return id
		}
		if n := t.nodes.at(t.above); n.partial && n.old+uint64(n.own)-1 == end {
			return n.start + uint64(n.n-n.lead) - 1
		}
		if t.twice == nil {
			t.twice = map[uint64]uint64{}
		}
		t.twice[end] = t.next
	}
	t.next++
	return t.next - 1
}
