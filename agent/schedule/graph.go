// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

// This file makes rows wait for the rows before them in their graph: those of an agent, its tools and its helpers.
//
// A row waits for rows that the source yielded before it. It does not wait for others, which are not part of this run, so no row waits
// forever. A row whose predecessor was not served is skipped, like the later turns of a session: an agent without an answer does not ask
// the next question. All rows that follow it are skipped, too.

import (
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

// graph has the rows of all graphs that have not ended, or ended recently.
type graph struct {
	rows    map[int64]*vertex // by index
	ended   []int64           // keys of rows, in the order in which they ended
	waiting map[*Item]struct{}
	leaving []*vertex // have ended, and are processed one after the other
	busy    bool
}

// vertex is an item's node in its graph.
type vertex struct {
	pending int           // predecessors that have not ended
	after   []*Item       // items that wait for it
	last    time.Duration // end of the latest predecessor; once the item has ended, its own end
	bound   bool          // it has a predecessor of this run
	over    bool          // it has ended
	broken  bool          // it, or a predecessor, was not served
	reason  Reason        // for which its successors are then skipped
}

// joinGraph records an item's predecessors.
func (s *Scheduler) joinGraph(it *Item) {
	it.vertex = new(vertex)
	s.graph.rows[it.Index] = it.vertex
	for _, index := range it.After {
		if p := s.graph.rows[index]; p != nil && p.over {
			it.vertex.learn(p)
		} else if p != nil {
			it.vertex.pending++
			p.after = append(p.after, it)
		}
	}
}

// learn records a predecessor's end.
func (v *vertex) learn(p *vertex) {
	v.last, v.bound = max(v.last, p.last), true
	if p.broken && !v.broken {
		v.broken, v.reason = true, p.reason
	}
}

// await makes an item wait for its predecessors.
func (s *Scheduler) await(it *Item) {
	if it.vertex.pending == 0 {
		s.startVertex(it)
		return
	}
	s.held++
	s.graph.waiting[it] = struct{}{}
}

// startVertex sets the intended instant of an item whose predecessors have ended.
func (s *Scheduler) startVertex(it *Item) {
	v := it.vertex
	if v.bound {
		wait := it.Row.Delay.V + it.Row.ToolWait.V // 0 where absent
		it.Intended = max(v.last+mooncake.Duration(wait/s.cfg.Speedup), s.begin)
	}
	switch {
	case v.broken:
		s.drop(it, v.reason)
	case s.pastEnd(it):
		s.drop(it, PastEnd)
	default:
		s.delay(it)
	}
}

// leaveGraph ends an item, and starts the items that wait for no other one. If the item was not served, why is the reason for skipping
// those.
func (s *Scheduler) leaveGraph(it *Item, at time.Duration, ok bool, why Reason) {
	g, v := &s.graph, it.vertex
	if v == nil || v.over {
		return
	}
	v.over, v.last, v.broken, v.reason = true, at, !ok, why
	g.ended = append(g.ended, it.Index)
	for len(g.ended) > s.cfg.MaxEnded {
		delete(g.rows, g.ended[0])
		g.ended = g.ended[1:]
	}
	g.leaving = append(g.leaving, v)
	if g.busy { // iterative, because a chain of skipped rows can be long
		return
	}
	g.busy = true
	for len(g.leaving) > 0 {
		over := g.leaving[0]
		g.leaving = g.leaving[1:]
		for _, next := range over.after {
			next.vertex.learn(over)
			next.vertex.pending--
			if _, waits := g.waiting[next]; waits && next.vertex.pending == 0 {
				delete(g.waiting, next)
				s.held--
				s.startVertex(next)
			}
		}
		over.after = nil
	}
	g.busy = false
}
