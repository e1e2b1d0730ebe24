// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

// This file moves an item from the source to its hook: through its session, its delay, and the cap.

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

// admit takes the source's next item into its session or its graph, or makes it wait for its time. It skips an item past the end.
func (s *Scheduler) admit(it *Item) {
	if s.cfg.ClosedLoop && s.mayGo() { // in a closed loop, a row's scheduled time is when its slot became free
		it.Intended = max(it.Intended, s.couldGo())
	}
	ordered := it.Row.WaitFor != nil && !s.cfg.OpenSessions // ordered by its graph
	if ordered {
		s.joinGraph(it)
	}
	switch {
	case s.pastEnd(it):
		s.skip(it, PastEnd)
	case it.Row.SessionID == "" && ordered:
		s.await(it)
	case it.Row.SessionID == "":
		s.delay(it)
	default:
		s.joinSession(it)
	}
}

// pastEnd reports whether it is too late to send an item. An item that nothing holds up is sent although it may be slightly late.
func (s *Scheduler) pastEnd(it *Item) bool {
	if s.cfg.ClosedLoop || it.Waited {
		return s.clk.Now() > s.end
	}
	return it.Intended > s.end
}

// joinSession makes an item a turn of its session, where it usually waits for the turn before.
func (s *Scheduler) joinSession(it *Item) {
	ses := s.enter(it, s.cfg.MaxSessions)
	switch {
	case s.cfg.OpenSessions:
		ses.busy++
		s.delay(it)
	case it.Row.WaitFor != nil: // it waits for the rows in wait_for instead of the turn before
		ses.busy++
		s.await(it)
	case ses.failed:
		s.skip(it, ses.gone)
	case ses.busy > 0:
		s.held++
		ses.pending.push(it)
	default:
		s.startTurn(it)
	}
	s.sessions.touch(ses)
}

// enter sets an item's session, and its turn unless that is known. It closes idle sessions to make room if there are at least limit.
func (s *Scheduler) enter(it *Item, limit int) *Session {
	ses, known := s.sessions.get(it.Row.SessionID, limit, func(old *Session) {
		s.stats.SessionsEvicted++
		if s.cfg.Carry { // nothing else needs it
			s.sessions.remember(old)
		}
	})
	if !known && s.cfg.Carry {
		if turns, was := s.sessions.wasClosed(ses.ID); was {
			ses.turns, ses.failed, ses.gone = turns, true, SessionClosed
		}
	}
	if it.Session = ses; !it.numbered {
		it.Turn, it.numbered = ses.turns, true
	}
	ses.turns = max(ses.turns, it.Turn+1)
	return ses
}

// startTurn sets the scheduled time of a turn whose predecessor has ended.
func (s *Scheduler) startTurn(it *Item) {
	ses := it.Session
	ses.busy++
	if it.Turn > 0 {
		due := ses.end
		switch {
		case it.Row.Delay.Set && (!it.Timed || s.cfg.ClosedLoop):
			due += mooncake.Duration(it.Row.Delay.V / s.cfg.Speedup)
		case it.Timed && !s.cfg.ClosedLoop:
			due = max(due, s.cfg.Zero+it.Offset)
		}
		it.Intended = max(due, s.begin)
	}
	if s.pastEnd(it) {
		ses.busy--
		s.skip(it, PastEnd)
		return
	}
	s.delay(it)
}

// delay makes an item wait for its scheduled time; it is prepared shortly before that time, and ready at that time.
func (s *Scheduler) delay(it *Item) {
	now := s.clk.Now()
	it.wake = it.Intended
	if it.Intended <= now && (s.delayed.Len() == 0 || !(*s.delayed.First()).before(it)) {
		s.makeReady(it)
		return
	}
	switch {
	case s.cfg.Prepare == 0 || it.prepared || it.Intended <= now || s.broken != nil:
	case it.Intended-s.cfg.Prepare-s.cfg.Prepare/4 <= now:
		it.prepared = true
		s.prepared++
		s.hooks.Prepare(it)
	default:
		it.wake -= s.cfg.Prepare
	}
	s.held++
	s.delayed.Push(it)
}

// makeReady queues an item that may be sent when there is a slot.
func (s *Scheduler) makeReady(it *Item) {
	it.Due = s.clk.Now()
	if s.hooks.Due != nil {
		s.hooks.Due(it)
	}
	s.held++
	s.ready.push(it)
	s.dispatch()
	if len(s.ready) > 0 { // items leave the queue in order, so this item, the last one, is still in it
		it.Waited = true
	}
}

// dispatch fires the ready items, as far as there are slots.
func (s *Scheduler) dispatch() {
	if !s.allOpen() || !s.prefill.allOpen() {
		now := s.clk.Now()
		s.open(now)
		s.prefill.open(now)
	}
	for len(s.ready) > 0 && s.mayGo() {
		s.held--
		it := s.ready.pop()
		if it.Waited && s.pastEnd(it) {
			s.drop(it, PastEnd)
			continue
		}
		if s.cfg.ClosedLoop { // see admit
			it.Intended = max(it.Intended, s.couldGo())
		}
		if s.cfg.Slots > 0 {
			s.acquireSlot()
		}
		if s.cfg.PrefillSlots > 0 {
			s.prefill.acquireSlot()
			it.prefilling = true
		}
		s.settle(it)
		s.pace.add(it.Intended)
		s.inFlight++
		s.stats.Fired++
		s.hooks.Fire(it)
	}
}

// complete processes the completions that have been reported.
func (s *Scheduler) complete() {
	s.mu.Lock()
	done := s.done
	s.done = s.taken[:0]
	s.mu.Unlock()
	s.taken = done
	for _, c := range done {
		if c.item.prefilling {
			c.item.prefilling = false
			s.prefill.freeSlot(c.at)
		}
		if c.only {
			continue
		}
		s.inFlight--
		if s.cfg.Slots > 0 {
			s.freeSlot(c.at)
		}
		if c.item.Session != nil {
			s.endTurn(c.item.Session, c.at, c.ok || c.item.Row.WaitFor != nil)
		}
		s.leaveGraph(c.item, c.at, c.ok, PredecessorFailed)
	}
	clear(done)
}

// endTurn ends a turn and starts the session's next one.
func (s *Scheduler) endTurn(ses *Session, at time.Duration, ok bool) {
	ses.busy--
	ses.end = max(ses.end, at)
	if !ok && !s.cfg.OpenSessions {
		ses.failed, ses.gone = true, SessionFailed
	}
	for ses.busy == 0 && len(ses.pending) > 0 {
		it := ses.pending.pop()
		s.held--
		if ses.failed {
			s.skip(it, ses.gone)
		} else {
			s.startTurn(it)
		}
	}
	s.sessions.touch(ses)
}

// settle counts an item that was sent or skipped as no longer prepared, if it was prepared.
func (s *Scheduler) settle(it *Item) {
	if it.prepared {
		s.prepared--
	}
}

func (s *Scheduler) skip(it *Item, why Reason) {
	if it.Session == nil && it.Row.SessionID != "" { // for its turn; few rows are skipped before they join, so no session makes room for them
		s.sessions.touch(s.enter(it, math.MaxInt))
	}
	s.settle(it)
	s.stats.Skipped++
	s.hooks.Skip(it, why)
	if why != PastEnd && why != Stopped {
		why = PredecessorFailed
	}
	s.leaveGraph(it, s.clk.Now(), false, why)
}

// drop skips an item whose turn has started, and ends that turn.
func (s *Scheduler) drop(it *Item, why Reason) {
	s.skip(it, why)
	if it.Session != nil {
		s.endTurn(it.Session, it.Session.end, true)
	}
}

// skipHeld skips all items that wait for a turn, a time or a slot.
func (s *Scheduler) skipHeld() {
	if s.held == 0 {
		return
	}
	for _, ses := range s.sessions.byID {
		for _, it := range ses.pending {
			s.skip(it, Stopped)
		}
		ses.pending = nil
	}
	underWay := func(it *Item) {
		if it.Session != nil {
			it.Session.busy--
		}
		s.skip(it, Stopped)
	}
	waiting := slices.SortedFunc(maps.Keys(s.graph.waiting), func(a, b *Item) int { return cmp.Compare(a.Index, b.Index) })
	clear(s.graph.waiting) // so that ending one of them does not start another
	for _, it := range waiting {
		underWay(it)
	}
	for s.delayed.Len() > 0 {
		underWay(s.delayed.Pop())
	}
	for len(s.ready) > 0 {
		underWay(s.ready.pop())
	}
	s.held = 0
}
