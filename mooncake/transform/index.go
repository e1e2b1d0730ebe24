// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"math"
	"slices"
	"sort"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// index is what a first pass remembers of the rows that the filters leave: where each hangs in the prefix tree, and what it weighs. The new
// blocks of a row are one run of consecutive canonical ids, so that the tree is one of runs, not of blocks.
type index struct {
	block int

	key     []float64
	in, out []uint32
	lead    []uint32 // leading blocks that rows before had
	parent  []uint32 // row whose run holds the last of them, or none
	offset  []uint32 // of that in the run
	starts  []uint64 // first id of each run, ascending
	owner   []uint32 // row of each run
	links   [][2]uint32
	clock   stats.Arrivals
	copied  bool // copies will be laid over the rows, on the ticks of the clock
	timed   bool
	verbal  int64    // rows that bring their own text
	near    []uint32 // of each stretch of ids, the run that its first one is in

	cluster []uint32 // row that stands for the cluster of each row
	trunk   []uint32 // blocks of each row's run that belong to the trunk
	deepest []uint32 // blocks of each row's run that other rows share
}

const none = math.MaxUint32

// maxIndexed is how many rows can be indexed.
const maxIndexed = math.MaxUint32 - 1

func newIndex(block int) *index { return &index{block: block} }

// numbered gives rows the canonical ids that the index is about. Ids of the domain 0 that come canonical cost a comparison each; from the
// first other one on, names knows all of them.
type numbered struct {
	plain  uint64 // ids so far, while all are canonical
	names  mooncake.RenumberRanges
	ranges []mooncake.HashRange
	given  []mooncake.HashRange
	added  int // ids of the row that are new
}

// row numbers the ids of a row in place, those of a domain apart from those of others.
func (n *numbered) row(domain uint64, ids []uint64) {
	if n.added = 0; len(ids) == 0 {
		return
	}
	if n.added = n.count(domain, ids); n.names.Len() > 0 {
		expand(ids, n.ranges)
	}
}

// count does so without a change to the ids, and returns how many of them are new.
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

// remember has names know the ids that came canonical.
func (n *numbered) remember() {
	if n.names.Len() == 0 && n.plain > 0 {
		n.ranges = n.names.Domain(0, n.ranges[:0], []mooncake.HashRange{{Count: int64(n.plain)}}) //nolint:gosec // ids that were there
	}
}

// len returns the number of distinct ids so far.
func (n *numbered) len() uint64 { return max(n.plain, n.names.Len()) }

// notCanonical is what no id comes after.
const notCanonical = math.MaxUint64

// canonical returns how many ids there are after a row, with this many before it, where each new one is the next number.
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

// appendRun appends this many ids from one on.
func appendRun(dst []uint64, first uint64, n int) []uint64 {
	at := len(dst)
	dst = slices.Grow(dst, n)[:at+n]
	for i := range dst[at:] {
		dst[at+i] = first + uint64(i)
	}
	return dst
}

// clip makes a length fit into 32 bits: no longer one differs in what a sample does.
func clip(n mooncake.Opt[int64]) uint32 { return uint32(min(n.V, math.MaxUint32)) } //nolint:gosec // bounded

// add adds a row with canonical ids, of which this many are new.
func (x *index) add(it *item, added int) {
	ids := it.HashIDs
	lead := len(ids) - added
	x.key, x.timed = append(x.key, it.key), x.timed || it.timed
	x.in, x.out = append(x.in, clip(it.InputLength)), append(x.out, clip(it.OutputLength))
	x.lead = append(x.lead, uint32(lead)) //nolint:gosec // at most the ids of a row
	if x.copied {
		x.clock.Add(it.Row)
	}
	if it.Kind() != mooncake.KindLength {
		x.verbal++
	}
	parent, offset := uint32(none), uint32(0)
	if lead > 0 {
		id := ids[lead-1]
		run := x.runOf(id)
		if run >= 0 {
			parent, offset = x.owner[run], uint32(id-x.starts[run]) //nolint:gosec // likewise
		}
	}
	x.parent, x.offset = append(x.parent, parent), append(x.offset, offset)
	if added > 0 {
		for first := ids[lead]; uint64(len(x.near))*stretch < first+uint64(added); {
			run := len(x.starts)
			if uint64(len(x.near))*stretch < first { // in the run before
				run = max(run-1, 0)
			}
			x.near = append(x.near, uint32(run)) //nolint:gosec // bounded by maxIndexed
		}
		x.starts, x.owner = append(x.starts, ids[lead]), append(x.owner, uint32(len(x.key)-1)) //nolint:gosec // likewise
	}
}

// stretch is for how many ids the index remembers a run, from which on to look for that of one of them.
const stretch = 64

// runOf returns the run of an id that was added, or -1.
func (x *index) runOf(id uint64) int {
	from := int(x.near[id/stretch])
	to := len(x.starts)
	if next := id/stretch + 1; next < uint64(len(x.near)) {
		to = int(x.near[next]) + 1
	}
	return from + sort.Search(to-from, func(i int) bool { return x.starts[from+i] > id }) - 1
}

// link says that two rows belong together.
func (x *index) link(a, b int) {
	x.links = append(x.links, [2]uint32{uint32(a), uint32(b)}) //nolint:gosec // bounded by maxIndexed
}

// share finds what rows share with others, before and after them.
func (x *index) share() {
	x.deepest = make([]uint32, len(x.key))
	for i, p := range x.parent {
		if p != none {
			x.deepest[p] = max(x.deepest[p], x.offset[i]+1)
		}
	}
}

// onlyShared forgets all that shared does not need.
func (x *index) onlyShared() {
	x.key, x.in, x.out, x.parent, x.offset, x.starts, x.owner, x.near, x.links = nil, nil, nil, nil, nil, nil, nil, nil, nil
}

// shared returns the leading blocks of a row that another one has, too.
func (x *index) shared(row int) int { return int(x.lead[row] + x.deepest[row]) }

// divide finds the trunk, the blocks that more than this many rows have, and the clusters below it.
func (x *index) divide(most float64) {
	n := len(x.key)
	size := make([]uint32, n) // rows that hang below a row's run, with it
	for i := n - 1; i >= 0; i-- {
		size[i]++
		if p := x.parent[i]; p != none {
			size[p] += size[i]
		}
	}
	// References of a block are the rows that reach it. Few runs can have blocks of the trunk.
	reach := map[uint32]map[uint32]uint32{}
	for i := range n {
		if p := x.parent[i]; p != none && float64(size[p]) > most {
			if reach[p] == nil {
				reach[p] = map[uint32]uint32{}
			}
			reach[p][x.offset[i]] += size[i]
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
		x.cluster[i] = uint32(i)
		if p := x.parent[i]; p != none && x.offset[i] >= x.trunk[p] {
			x.cluster[i] = x.cluster[p]
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

// root returns the row that stands for the cluster of a row, while clusters are joined.
func (x *index) root(i uint32) uint32 {
	for x.cluster[i] != i {
		x.cluster[i] = x.cluster[x.cluster[i]]
		i = x.cluster[i]
	}
	return i
}

// trunks returns the leading blocks of each row that belong to the trunk.
func (x *index) trunks() []uint32 {
	all := make([]uint32, len(x.key))
	for row, p := range x.parent {
		switch {
		case x.trunk[row] > 0:
			all[row] = x.lead[row] + x.trunk[row]
		case p == none:
		case x.trunk[p] > 0: // it ends in the run above, or before that
			all[row] = min(x.lead[row], x.lead[p]+min(x.trunk[p], x.offset[row]+1))
		default:
			all[row] = all[p]
		}
	}
	return all
}

// hit returns the tokens of a row that an infinite cache has.
func (x *index) hit(row int) float64 {
	return math.Min(float64(x.lead[row])*float64(x.block), float64(x.in[row]))
}
