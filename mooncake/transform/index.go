// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/internal/words"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// index is what a first pass remembers of the remaining rows: the position of each in the prefix tree, and its size. The new blocks of a
// row are one run of consecutive canonical ids, so the tree consists of runs, not of blocks.
type index struct {
	block int

	rows   column[hanging]
	near   []uint32 // for each page of ids, the row that has the page's first id
	links  [][2]uint32
	clock  stats.Arrivals
	copied bool // copies will be laid over the rows, on the ticks of the clock
	timed  bool
	verbal int64 // rows that bring their own text

	// Weights of rows, if some are selected or copied.
	scaled  bool
	key     []float64
	in, out []uint32

	cluster []uint32 // for each row, the row that represents its cluster
	trunk   []uint32 // blocks of each row's run that belong to the trunk
	deepest []uint32 // leading blocks of each row that other rows have, too
}

// hanging is the position of a row in the tree: its new ids are a run, which may be empty, after those of all earlier rows.
type hanging struct {
	start  uint64 // first id of the run
	lead   uint32 // leading blocks that rows before had
	parent uint32 // row whose run holds the last leading block, or none
	offset uint32 // of the last leading block in the run of parent
}

const none = math.MaxUint32

// maxIndexed is the maximum number of rows in an index.
const maxIndexed = math.MaxUint32 - 1

func newIndex(block int) *index { return &index{block: block} }

// numbered converts the ids of rows to the canonical ids of the index. Canonical ids of domain 0 cost one comparison each; from the first
// other id on, names knows all of them.
type numbered struct {
	plain  uint64 // ids so far, while all are canonical
	names  mooncake.RenumberRanges
	ranges []mooncake.HashRange
	given  []mooncake.HashRange
	added  int // new ids of the row
}

// row renumbers the ids of a row in place. Ids of different domains are different.
func (n *numbered) row(domain uint64, ids []uint64) {
	if n.added = 0; len(ids) == 0 {
		return
	}
	if n.added = n.count(domain, ids); n.names.Len() > 0 {
		expand(ids, n.ranges)
	}
}

// count returns how many of the ids are new, without changing them.
func (n *numbered) count(domain uint64, ids []uint64) (added int) {
	if len(ids) == 0 {
		return 0
	}
	if n.names.Len() == 0 {
		next := n.plain
		if domain == 0 {
			next = canonical(next, ids)
		}
		if domain == 0 && next != notCanonical {
			added, n.plain = int(next-n.plain), next //nolint:gosec // at most len(ids)
			return added
		}
		n.remember()
	}
	before := n.names.Len()
	n.given = collapse(n.given[:0], ids)
	n.ranges = n.names.Domain(domain, n.ranges[:0], n.given)
	return int(n.names.Len() - before) //nolint:gosec // at most len(ids)
}

// remember adds the canonical ids so far to names.
func (n *numbered) remember() {
	if n.names.Len() == 0 && n.plain > 0 {
		n.ranges = n.names.Domain(0, n.ranges[:0], []mooncake.HashRange{{Count: int64(n.plain)}}) //nolint:gosec // ids that were there
	}
}

// len returns the number of distinct ids so far.
func (n *numbered) len() uint64 { return max(n.plain, n.names.Len()) }

// notCanonical is a value after which no id can come.
const notCanonical = math.MaxUint64

// canonical returns the number of ids after a row, given their number before it, if each new id of the row is the next number.
func canonical(next uint64, ids []uint64) uint64 {
	for _, id := range ids {
		switch {
		case id > next:
			return notCanonical
		case id == next:
			next++
		}
	}
	return next
}

// collapse appends ids as ranges.
func collapse(dst []mooncake.HashRange, ids []uint64) []mooncake.HashRange {
	for len(ids) > 0 {
		n := 1
		for n < len(ids) && ids[n] == ids[0]+uint64(n) {
			n++
		}
		dst, ids = append(dst, mooncake.HashRange{First: ids[0], Count: int64(n)}), ids[n:]
	}
	return dst
}

// expand writes the ids of ranges one by one.
func expand(ids []uint64, ranges []mooncake.HashRange) {
	ids = ids[:0]
	for _, r := range ranges {
		ids = appendRun(ids, r.First, int(r.Count))
	}
}

// appendRun appends n consecutive ids, beginning with first.
func appendRun(dst []uint64, first uint64, n int) []uint64 {
	at := len(dst)
	dst = slices.Grow(dst, n)[:at+n]
	for i := range dst[at:] {
		dst[at+i] = first + uint64(i)
	}
	return dst
}

// clip limits a length to 32 bits; for a sample, a longer one makes no difference.
func clip(n mooncake.Opt[int64]) uint32 { return uint32(min(n.V, math.MaxUint32)) } //nolint:gosec // bounded

// add adds a row with canonical ids, of which this many are new, given the number of all ids so far.
func (x *index) add(it *item, added int, all uint64) {
	ids := it.HashIDs
	lead := len(ids) - added
	x.timed = x.timed || it.timed
	if x.scaled {
		x.key, x.in, x.out = append(x.key, it.key), append(x.in, clip(it.InputLength)), append(x.out, clip(it.OutputLength))
	}
	if x.copied {
		x.clock.Add(it.Row)
	}
	if it.Kind() != mooncake.KindLength {
		x.verbal++
	}
	row := hanging{start: all - uint64(added), lead: uint32(lead), parent: none} //nolint:gosec // at most the ids of a row
	if lead > 0 && ids[lead-1] < row.start {
		row.parent = x.of(ids[lead-1])
		row.offset = uint32(ids[lead-1] - x.rows.at(row.parent).start) //nolint:gosec // likewise
	}
	for ; added > 0 && uint64(len(x.near))*page < all; x.near = append(x.near, uint32(x.rows.n)) { //nolint:gosec // bounded by maxIndexed
	}
	x.rows.add(row)
}

// of returns the row in which an existing id first occurred.
func (x *index) of(id uint64) uint32 {
	from, to := int(x.near[id/page]), x.rows.n
	if next := id/page + 1; next < uint64(len(x.near)) {
		to = int(x.near[next]) + 1
	}
	return uint32(from+sort.Search(to-from, func(i int) bool { return x.rows.at(uint32(from+i)).start > id })) - 1 //nolint:gosec // bounded by maxIndexed
}

// link marks two rows as belonging together.
func (x *index) link(a, b int) {
	x.links = append(x.links, [2]uint32{uint32(a), uint32(b)}) //nolint:gosec // bounded by maxIndexed
}

// share determines what rows share with others, before and after them.
func (x *index) share() {
	x.deepest = make([]uint32, x.rows.n)
	for i := range uint32(x.rows.n) { //nolint:gosec // bounded by maxIndexed
		if row := x.rows.at(i); row.parent != none {
			x.deepest[row.parent] = max(x.deepest[row.parent], row.offset+1)
		}
	}
	for i := range x.deepest {
		x.deepest[i] += x.rows.at(uint32(i)).lead
	}
}

// onlyShared discards what is not needed for the shared blocks of rows.
func (x *index) onlyShared() { x.rows, x.near, x.links = column[hanging]{}, nil, nil }

// shared returns the number of leading blocks of a row that another row has, too.
func (x *index) shared(row int) int { return int(x.deepest[row]) }

// divide determines the trunk, that is the blocks that more than this many rows have, and the clusters below it.
func (x *index) divide(most float64) {
	n := uint32(x.rows.n)     //nolint:gosec // bounded by maxIndexed
	size := make([]uint32, n) // rows that hang below a row's run, with it
	for i := range n {
		i = n - 1 - i
		size[i]++
		if p := x.rows.at(i).parent; p != none {
			size[p] += size[i]
		}
	}
	// The references of a block are the rows that reach it. Only a few runs can have blocks of the trunk.
	reach := map[uint32]map[uint32]uint32{}
	for i := range n {
		if row := x.rows.at(i); row.parent != none && float64(size[row.parent]) > most {
			if reach[row.parent] == nil {
				reach[row.parent] = map[uint32]uint32{}
			}
			reach[row.parent][row.offset] += size[i]
		}
	}
	x.trunk = make([]uint32, n)
	for p, at := range reach {
		offsets := make([]uint32, 0, len(at))
		for o := range at {
			offsets = append(offsets, o)
		}
		slices.Sort(offsets)
		rows := uint32(1)
		for _, o := range slices.Backward(offsets) {
			if rows += at[o]; float64(rows) > most {
				x.trunk[p] = o + 1
				break
			}
		}
	}
	x.cluster = make([]uint32, n)
	for i := range n {
		x.cluster[i] = i
		if row := x.rows.at(i); row.parent != none && row.offset >= x.trunk[row.parent] {
			x.cluster[i] = x.cluster[row.parent]
		}
	}
	for _, l := range x.links {
		a, b := x.root(l[0]), x.root(l[1])
		x.cluster[max(a, b)] = min(a, b)
	}
	for i := range x.cluster {
		x.cluster[i] = x.cluster[x.cluster[i]] // which is its own root already, being earlier
	}
}

// tooLarge returns a note about the largest cluster, if a sample of this share cannot have the right size because of it: alone, the cluster is
// more than the rows to keep, or than those to leave out. Otherwise, it returns "".
func (x *index) tooLarge(share float64) string {
	sizes, largest := make([]uint32, len(x.cluster)), uint32(0)
	for _, c := range x.cluster {
		sizes[c]++
		largest = max(largest, sizes[c])
	}
	if float64(largest) <= min(share, 1-share)*float64(len(x.cluster)) {
		return ""
	}
	return fmt.Sprintf(" (the largest cluster has %s, and is never divided)", words.Plural(int64(largest), "row"))
}

// root returns the representative of a row's cluster, while clusters are joined.
func (x *index) root(i uint32) uint32 {
	for x.cluster[i] != i {
		x.cluster[i] = x.cluster[x.cluster[i]]
		i = x.cluster[i]
	}
	return i
}

// trunks returns the number of leading blocks of each row that belong to the trunk.
func (x *index) trunks() []uint32 {
	all := make([]uint32, x.rows.n)
	for i := range all {
		row := x.rows.at(uint32(i))
		switch p := row.parent; {
		case x.trunk[i] > 0:
			all[i] = row.lead + x.trunk[i]
		case p == none:
		case x.trunk[p] > 0: // it ends in the run above, or before that
			all[i] = min(row.lead, x.rows.at(p).lead+min(x.trunk[p], row.offset+1))
		default:
			all[i] = all[p]
		}
	}
	return all
}

// hit returns the tokens of a row that an infinite cache has.
func (x *index) hit(row uint32) float64 {
	return math.Min(float64(x.rows.at(row).lead)*float64(x.block), float64(x.in[row]))
}
