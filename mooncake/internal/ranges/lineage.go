// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package ranges

import (
	"hash/maphash"
	"math"
	"sort"

	"github.com/moonloop/moonloop/internal/ondisk"
)

// Lineage is the set of prompt prefixes of the rows before, at the borders of their fine blocks, by ids that come in ranges. Time
// and memory go by the number of ranges, never by that of ids.
//
// A prefix is named by a number, its node. Ids that are canonical (0, 1, 2, ... in order of first appearance) are their own
// nodes, and the new ones of a row are one run of 16 bytes. Ids that follow other ids than they did before, those of a second
// model, and those that are not canonical are side runs, with nodes of their own: some 100 bytes each.
type Lineage struct {
	fine   int64 // tokens of a full block
	budget int   // what may still be remembered: a run costs 1, a side run sideCost
	seed   maphash.Seed
	next   uint64 // ids below it are canonical
	runs   *ondisk.Array[fineRun]
	count  int64 // of runs
	side   []sideRun
	nodes  uint64               // of side runs
	branch map[branching]uint32 // the side run that begins after a node with an id
	Full   bool                 // prefixes were not remembered
	ranges int64                // that came
	steps  int64                // that they took

	path []stretch // of the row added last
}

// fineRun is a run of consecutive canonical ids, each of which follows the one before. It ends where the next one starts.
type fineRun struct {
	parent uint64 // node before the first id
	packed uint64 // the first id, and above its 40 bits the tokens of the last block; the other blocks are full
}

// sideRun is a run of consecutive ids that are not their own nodes.
type sideRun struct {
	node  uint64 // of the first id; the others follow
	first uint64 // id
	count int64
	fill  int64 // tokens in the last block
}

// branching is a node with the id that follows it.
type branching struct{ node, id uint64 }

// stretch is a part of a row's path: consecutive nodes of one run.
type stretch struct {
	at    int64 // the row's blocks before it
	node  uint64
	count int64
	run   int  // of the canonical ones; below 0: another one
	end   bool // it ends where its run ends
}

const (
	// NoNode is that of a prefix that was not remembered.
	NoNode = uint64(math.MaxUint64)

	sideCost = 6 // the price of a side run in runs of 16 bytes

	maxFineID = 1 << 40 // canonical ids are below it: 10^12
	sideNodes = 1 << 62 // nodes of side runs, from here on
	rootNodes = 1 << 63 // nodes before the first block, one for each model
	idBits    = 40
	maxFill   = 1<<(64-idBits) - 1 // a fine block is below a block
	maxTokens = 1 << 40            // of a prompt

	// Rows of which each range is cut into very many, which no trace has, end the remembering: their number could be anything.
	freeSteps     = 1 << 22
	stepsPerRange = 1 << 10
)

// NewLineage returns an empty set. The budget is in units of 16 bytes. Beyond so many bytes of memory runs are on disk, in a folder; 0 is without
// a bound.
func NewLineage(fine, budget int, dir string, memory int) *Lineage {
	return &Lineage{fine: int64(fine), budget: budget, seed: maphash.MakeSeed(), runs: ondisk.NewArray[fineRun](dir, memory)}
}

// Err says why runs are lost.
func (l *Lineage) Err() error {
	if l == nil {
		return nil
	}
	return l.runs.Err()
}

// Close gives memory and disk back.
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

// Shared is what a row has in common with the rows before.
type Shared struct {
	Tokens int64 // leading ones
	Known  bool  // false: a prefix that was not remembered may have been there
	// Strange: an id follows another one than it did before, or has another number of tokens, or ids are not canonical.
	Strange bool
}

// Add puts the prefixes of a prompt into the set and returns what was there of them before. Ids beyond what the length has room for
// do not count.
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
					out.Tokens += min(have, want) // behind a block that is not full there is nothing
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

// TooManySteps reports whether ranges are cut into so many that nothing more is to be remembered of them.
func TooManySteps(steps, ranges int64) bool { return steps > freeSteps+stepsPerRange*ranges }

// Next returns the number of canonical ids: those below it.
func (l *Lineage) Next() uint64 { return l.next }

// Runs returns the number of canonical runs.
func (l *Lineage) Runs() int { return int(l.count) }

// Size returns what is remembered, in units of the budget.
func (l *Lineage) Size() int { return int(l.count) + sideCost*len(l.side) }

// run returns the index of the canonical run that holds an id below next, and the id behind its last one.
func (l *Lineage) run(id uint64) (at int, end uint64) {
	at = sort.Search(int(l.count), func(i int) bool { return l.runs.At(int64(i)).start() > id }) - 1
	if next := int64(at + 1); next < l.count {
		return at, l.runs.At(next).start()
	}
	return at, l.next
}

// find returns the known nodes that go on from one with so many ids from one on, as far as they are of one run; none have a count
// of 0.
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
	if node >= sideNodes && node < rootNodes { // it may go on within its run
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

// insert remembers nodes that are not there, with so many tokens, if it still can: all of them, or those before the first new
// canonical id.
func (l *Lineage) insert(node, id uint64, count, tokens int64) stretch {
	lost := stretch{node: NoNode, count: count, run: -1}
	if node == NoNode {
		return lost
	}
	if id == l.next && count <= maxFineID-int64(l.next) { //nolint:gosec // below 2^40
		last := l.count - 1
		if last < 0 || node != id-1 { // else the last run goes on, and all before it is full
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
	if at := len(l.side) - 1; at >= 0 { // the last one may go on
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

// lastFill returns the tokens that are known of the last block of a stretch.
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

// fill notes that a stretch, which ends its run, has so many tokens.
func (l *Lineage) fill(s stretch, tokens int64) {
	last := tokens - (s.count-1)*l.fine
	if s.run >= 0 {
		l.runs.Put(int64(s.run)).setFill(last)
		return
	}
	l.side[^s.run].fill = last
}

// Spend takes from the budget.
func (l *Lineage) Spend(cost int) bool {
	if l.Full || l.budget < cost {
		l.Full = true
		return false
	}
	l.budget -= cost
	return true
}

// Block returns the node of the row added last that ends with its block of an index, and the run that it is in; ok is false when the
// row has no such block or its prefix was not remembered. The search begins at stretch from, and returns where it ended.
func (l *Lineage) Block(index int64, from int) (node uint64, run, at int, ok bool) {
	for at = from; at < len(l.path); at++ {
		if s := l.path[at]; index < s.at+s.count {
			return s.node + uint64(index-s.at), s.run, at, s.node != NoNode //nolint:gosec // not below it
		}
	}
	return 0, 0, at, false
}

// End returns the node of the row added last behind so many of its blocks, or [NoNode]. The search begins at stretch from, and leaves
// there where it ended: the next one is for as many blocks, or more.
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

// Strange returns, of a row added last whose ids do not go on as elsewhere, the block at which they do not: the first one that is on
// no run of the others. Ids below before were there before the row.
func (l *Lineage) Strange(before uint64) int64 {
	for _, s := range l.path {
		if s.run < 0 {
			return s.at
		}
	}
	// Every id has its place; one has another number of tokens. Only a row's last block, and one that was a row's last, can.
	for _, s := range l.path {
		if s.end && s.node+uint64(s.count) <= before { //nolint:gosec // above 0
			return s.at + s.count - 1
		}
	}
	s := l.path[len(l.path)-1]
	return s.at + s.count - 1
}
