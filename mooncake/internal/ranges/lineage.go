// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package ranges

import (
	"hash/maphash"
	"math"
	"sort"

	"github.com/moonloop/moonloop/internal/ondisk"
)

// Lineage is the set of those prefixes of earlier rows' prompts that end at the borders of fine blocks. Ids come as ranges, and time and
// memory depend on the number of ranges, never on that of ids.
//
// A prefix is identified by a number, its node. Canonical ids (0, 1, 2, ... in order of first appearance) are their own nodes, and the new
// ids of a row are one run of 16 bytes. Ids that follow other ids than before, those of a second model, and those that are not canonical
// are side runs with separate nodes: about 100 bytes each.
type Lineage struct {
	fine   int64 // tokens of a full block
	budget int   // remaining memory: a run costs 1, a side run sideCost
	seed   maphash.Seed
	next   uint64 // ids below it are canonical
	runs   *ondisk.Array[fineRun]
	count  int64 // of runs
	side   []sideRun
	nodes  uint64               // of side runs
	branch map[branching]uint32 // the side run that begins after a node, with an id
	Full   bool                 // some prefixes were not remembered
	ranges int64                // ranges so far
	steps  int64                // steps that they needed

	path []stretch // of the row added last
}

// fineRun is a range of consecutive canonical ids, each of which follows the one before. It ends where the next run starts.
type fineRun struct {
	parent uint64 // node before the first id
	packed uint64 // the first id, and above its 40 bits the tokens of the last block; the other blocks are full
}

// sideRun is a range of consecutive ids that are not their own nodes.
type sideRun struct {
	node  uint64 // of the first id; the others follow
	first uint64 // id
	count int64
	fill  int64 // tokens in the last block
}

// branching is a node and the id after it.
type branching struct{ node, id uint64 }

// stretch is a part of a row's path: consecutive nodes of one run.
type stretch struct {
	at    int64 // the row's blocks before it
	node  uint64
	count int64
	run   int  // index of the canonical run; below 0: a side run
	end   bool // it ends where its run ends
}

const (
	// NoNode is the node of a prefix that was not remembered.
	NoNode = uint64(math.MaxUint64)

	sideCost = 6 // cost of a side run, in runs of 16 bytes

	maxFineID = 1 << 40 // canonical ids are below it: 10^12
	sideNodes = 1 << 62 // nodes of side runs, from here on
	rootNodes = 1 << 63 // nodes before the first block, one for each model
	idBits    = 40
	maxFill   = 1<<(64-idBits) - 1 // a fine block has fewer tokens than a block
	maxTokens = 1 << 40            // of a prompt

	// If the ranges of rows are cut into too many pieces, which happens in no real trace, no more are remembered, because the number of
	// pieces could grow without limit.
	freeSteps     = 1 << 22
	stepsPerRange = 1 << 10
)

// NewLineage returns an empty set. The budget is in units of 16 bytes. Beyond memory, in bytes, runs are in a temporary file in the folder
// dir; 0 = no limit.
func NewLineage(fine, budget int, dir string, memory int) *Lineage {
	return &Lineage{fine: int64(fine), budget: budget, seed: maphash.MakeSeed(), runs: ondisk.NewArray[fineRun](dir, memory)}
}

// Err returns why runs were lost.
func (l *Lineage) Err() error {
	if l == nil {
		return nil
	}
	return l.runs.Err()
}

// Close frees memory and disk.
func (l *Lineage) Close() {
	if l != nil {
		l.runs.Close()
	}
}

func (r fineRun) start() uint64 { return r.packed & (maxFineID - 1) }
func (r fineRun) fill() int64   { return int64(r.packed >> idBits) }

func (r *fineRun) setFill(tokens int64) {
	r.packed = r.start() | min(uint64(tokens), maxFill)<<idBits //nolint:gosec // a block's
}

// Shared is the part of a row that earlier rows also have.
type Shared struct {
	Tokens int64 // leading tokens
	Known  bool  // false: the set may have had a prefix that was not remembered
	// Strange: an id follows a different id than before, or has another number of tokens, or ids are not canonical.
	Strange bool
}

// Add adds the prefixes of a prompt to the set and returns how much of the prompt the set had before. Ids beyond those that the length has
// room for do not count.
func Add[R ~struct {
	First uint64
	Count int64
}](l *Lineage, model string, length int64, ranges []R) Shared {
	l.path = l.path[:0]
	node := l.root(model)
	out := Shared{Known: true}
	missed := false
	at, left := int64(0), length
	l.ranges += int64(len(ranges))
	for _, r := range ranges {
		h := struct {
			First uint64
			Count int64
		}(r)
		id, count := h.First, min(h.Count, (left-1)/l.fine+1)
		for left > 0 && count > 0 {
			if l.steps++; TooManySteps(l.steps, l.ranges) {
				l.Full = true
				node = NoNode
			}
			s := l.find(node, id, count)
			there := s.count > 0
			if !there {
				if !missed {
					missed, out.Known = true, !l.Full
				}
				s = l.insert(node, id, count, min(left, count*l.fine))
			}
			want := min(left, s.count*l.fine)
			if there {
				have := (s.count-1)*l.fine + l.lastFill(s)
				if !missed {
					out.Tokens += min(have, want) // nothing follows a block that is not full
				}
				if have < want {
					l.fill(s, want)
				}
				out.Strange = out.Strange || have != want
			}
			out.Strange = out.Strange || s.run < 0
			s.at = at
			l.path = append(l.path, s)
			node = s.node + uint64(s.count) - 1 //nolint:gosec // above 0
			if s.node == NoNode {
				node = NoNode
			}
			at, left = at+s.count, left-want
			id, count = id+uint64(s.count), count-s.count //nolint:gosec // likewise
		}
	}
	return out
}

// root returns the node before the first block of a model's prompts.
func (l *Lineage) root(model string) uint64 {
	return (maphash.String(l.seed, model) | rootNodes) &^ 1 // never NoNode
}

// TooManySteps reports whether ranges are cut into so many pieces that no more may be remembered.
func TooManySteps(steps, ranges int64) bool { return steps > freeSteps+stepsPerRange*ranges }

// Next returns the number after the highest canonical id.
func (l *Lineage) Next() uint64 { return l.next }

// Runs returns the number of canonical runs.
func (l *Lineage) Runs() int { return int(l.count) }

// Size returns the used memory, in units of the budget.
func (l *Lineage) Size() int { return int(l.count) + sideCost*len(l.side) }

// run returns the index of the canonical run that contains an id below next, and the id after its last one.
func (l *Lineage) run(id uint64) (at int, end uint64) {
	at = sort.Search(int(l.count), func(i int) bool { return l.runs.At(int64(i)).start() > id }) - 1
	if next := int64(at + 1); next < l.count {
		return at, l.runs.At(next).start()
	}
	return at, l.next
}

// find returns the known nodes that follow a node, for the ids from id to id+count-1, as far as these nodes belong to one run; the
// stretch's count is 0 if there are none.
func (l *Lineage) find(node, id uint64, count int64) stretch {
	if node == NoNode {
		return stretch{}
	}
	if id < l.next {
		at, end := l.run(id)
		r := l.runs.At(int64(at))
		if start := r.start(); id == start && r.parent == node || id > start && node == id-1 {
			have := int64(end - id) //nolint:gosec // below 2^40
			return stretch{node: id, count: min(count, have), run: at, end: count >= have}
		}
	}
	if len(l.side) == 0 {
		return stretch{}
	}
	if node >= sideNodes && node < rootNodes { // it may continue within its run
		at := sort.Search(len(l.side), func(i int) bool { return l.side[i].node > node }) - 1
		r := &l.side[at]
		if k := int64(node-r.node) + 1; k < r.count && r.first+uint64(k) == id { //nolint:gosec // below the count
			return stretch{node: node + 1, count: min(count, r.count-k), run: ^at, end: count >= r.count-k}
		}
	}
	if at, ok := l.branch[branching{node, id}]; ok {
		r := &l.side[at]
		return stretch{node: r.node, count: min(count, r.count), run: ^int(at), end: count >= r.count}
	}
	return stretch{}
}

// insert adds unknown nodes, with this many tokens, if there is memory left: all of them, or those before the first new canonical id.
func (l *Lineage) insert(node, id uint64, count, tokens int64) stretch {
	lost := stretch{node: NoNode, count: count, run: -1}
	if node == NoNode {
		return lost
	}
	if id == l.next && count <= maxFineID-int64(l.next) { //nolint:gosec // below 2^40
		last := l.count - 1
		if last < 0 || node != id-1 { // else the last run continues, and all before it is full
			if !l.Spend(1) {
				return lost
			}
			last++
			l.count++
			*l.runs.Put(last) = fineRun{parent: node, packed: id}
		}
		l.next += uint64(count) //nolint:gosec // above 0
		l.runs.Put(last).setFill(tokens - (count-1)*l.fine)
		return stretch{node: id, count: count, run: int(last), end: true}
	}
	if id < l.next {
		if known := int64(l.next - id); count > known { //nolint:gosec // below 2^40
			count, tokens = known, known*l.fine
		}
	}
	fill := tokens - (count-1)*l.fine
	if at := len(l.side) - 1; at >= 0 { // the last one may continue
		if r := &l.side[at]; r.node+uint64(r.count)-1 == node && r.first+uint64(r.count) == id { //nolint:gosec // above 0
			first := l.nodes
			r.count, r.fill = r.count+count, fill
			l.nodes += uint64(count) //nolint:gosec // above 0
			return stretch{node: sideNodes + first, count: count, run: ^at, end: true}
		}
	}
	if l.nodes > sideNodes-maxTokens || !l.Spend(sideCost) {
		l.Full = true
		return lost
	}
	if l.branch == nil {
		l.branch = make(map[branching]uint32)
	}
	l.branch[branching{node, id}] = uint32(len(l.side)) //nolint:gosec // bounded by the budget
	l.side = append(l.side, sideRun{node: sideNodes + l.nodes, first: id, count: count, fill: fill})
	s := stretch{node: sideNodes + l.nodes, count: count, run: ^(len(l.side) - 1), end: true}
	l.nodes += uint64(count) //nolint:gosec // above 0
	return s
}

// lastFill returns the known number of tokens in the last block of a stretch.
func (l *Lineage) lastFill(s stretch) int64 {
	switch {
	case !s.end:
		return l.fine
	case s.run >= 0:
		r := l.runs.At(int64(s.run))
		return r.fill()
	}
	return l.side[^s.run].fill
}

// fill records that a stretch, which ends its run, has this many tokens.
func (l *Lineage) fill(s stretch, tokens int64) {
	last := tokens - (s.count-1)*l.fine
	if s.run >= 0 {
		l.runs.Put(int64(s.run)).setFill(last)
		return
	}
	l.side[^s.run].fill = last
}

// Spend subtracts from the budget, and reports whether it was enough.
func (l *Lineage) Spend(cost int) bool {
	if l.Full || l.budget < cost {
		l.Full = true
		return false
	}
	l.budget -= cost
	return true
}

// Block returns the node at the end of a block of the row added last, by the block's index, and the node's run. ok is false if the row has
// no such block, or if its prefix was not remembered. The search begins at the stretch with the index from; the call returns the index at
// which it ended.
func (l *Lineage) Block(index int64, from int) (node uint64, run, at int, ok bool) {
	for at = from; at < len(l.path); at++ {
		if s := l.path[at]; index < s.at+s.count {
			return s.node + uint64(index-s.at), s.run, at, s.node != NoNode //nolint:gosec // not below it
		}
	}
	return 0, 0, at, false
}

// End returns the node at the end of a number of blocks of the row added last, or [NoNode]. The search begins at the stretch with the index
// from, and stores in from the index at which it ended; the next call must be for at least as many blocks.
func (l *Lineage) End(model string, blocks int64, from *int) uint64 {
	if blocks == 0 {
		return l.root(model)
	}
	node, _, at, ok := l.Block(blocks-1, *from)
	if *from = at; ok {
		return node
	}
	return NoNode
}

// Strange returns the block of the row added last at which its ids do not continue as they did in other rows: the first block on a side
// run, or else the block with another number of tokens. before is what [Lineage.Next] returned before the row was added.
func (l *Lineage) Strange(before uint64) int64 {
	for _, s := range l.path {
		if s.run < 0 {
			return s.at
		}
	}
	// Every id has its position; one has another number of tokens. Only the last block of a row can.
	for _, s := range l.path {
		if s.end && s.node+uint64(s.count) <= before { //nolint:gosec // above 0
			return s.at + s.count - 1
		}
	}
	s := l.path[len(l.path)-1]
	return s.at + s.count - 1
}
