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

// index is what a first pass remembers of the remaining rows: the position of each in the prefix tree, and its size. The new blocks of a
// row are one run of consecutive canonical ids, so the tree consists of runs, not of blocks.
type index struct {
	block int

	key     []float64
	in, out []uint32
	lead    []uint32 // leading blocks that earlier rows had
	parent  []uint32 // row whose run has the last of them, or none
	offset  []uint32 // position of that block in the run
	starts  []uint64 // first id of each run, ascending
	owner   []uint32 // row of each run
	links   [][2]uint32
	clock   stats.Arrivals
	copied  bool // copies will be overlaid, at ticks of the clock
	timed   bool
	verbal  int64    // rows with their own text
	near    []uint32 // for each stretch of ids, the run of its first id

	cluster []uint32 // for each row, the row that represents its cluster
	trunk   []uint32 // blocks of each row's run that belong to the trunk
	deepest []uint32 // blocks of each row's run that other rows share
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

// appendRun appends this many ids from one on.
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

// add adds a row with canonical ids; fresh of them are new.
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

// stretch is the number of ids per entry of near. The search for the run of an id starts there.
const stretch = 64

// runOf returns the run of an added id, or -1.
func (x *index) runOf(id uint64) int {
	from := int(x.near[id/stretch])
	to := len(x.starts)
	if next := id/stretch + 1; next < uint64(len(x.near)) {
		to = int(x.near[next]) + 1
	}
	return from + sort.Search(to-from, func(i int) bool { return x.starts[from+i] > id }) - 1
}

// link marks two rows as belonging together.
func (x *index) link(a, b int) {
	x.links = append(x.links, [2]uint32{uint32(a), uint32(b)}) //nolint:gosec // bounded by maxIndexed
}

// share determines what rows share with others, before and after them.
func (x *index) share() {
	x.deepest = make([]uint32, len(x.key))
	for i, p := range x.parent {
		if p != none {
			x.deepest[p] = max(x.deepest[p], x.offset[i]+1)
		}
	}
}

// onlyShared frees everything that shared does not need.
func (x *index) onlyShared() {
	x.key, x.in, x.out, x.parent, x.offset, x.starts, x.owner, x.near, x.links = nil, nil, nil, nil, nil, nil, nil, nil, nil
}

// shared returns the number of leading blocks of a row that another row has, too.
func (x *index) shared(row int) int { return int(x.lead[row] + x.deepest[row]) }

// divide determines the trunk, that is the blocks that more than this many rows have, and the clusters below it.
func (x *index) divide(most float64) {
	n := len(x.key)
	size := make([]uint32, n) // number of rows below a row's run, including itself
	for i := n - 1; i >= 0; i-- {
		size[i]++
		if p := x.parent[i]; p != none {
			size[p] += size[i]
		}
	}
	// The references of a block are the rows that reach it. Only few runs can have blocks of the trunk.
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
	all := make([]uint32, len(x.key))
	for row, p := range x.parent {
		switch {
		case x.trunk[row] > 0:
			all[row] = x.lead[row] + x.trunk[row]
		case p == none:
		case x.trunk[p] > 0: // it ends in the run above, or earlier
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
