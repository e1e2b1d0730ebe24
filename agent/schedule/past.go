// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

// This file takes up a schedule that was broken off: rows that were over then take their place in their sessions and graphs, and are
// not sent again, and nothing was due before the instant at which the schedule goes on.

import "time"

// Fate is how a row ended in a part of the schedule that is over.
type Fate uint8

// The fates.
const (
	Over       Fate = iota // its session and its graph go on
	Unserved               // no turn after it goes, and no row that waits for it
	PastTheEnd             // it lay past Config.Until, and so does what follows it
)

// Pass says of an item of the source that it was over at an instant of replay time, before the schedule was broken off. It is called
// before [Scheduler.TakeUp], in the order of the source, and sets the item's session and turn.
func (s *Scheduler) Pass(it *Item, end time.Duration, fate Fate) {
	s.stats.Passed++
	why := PredecessorFailed
	if fate == PastTheEnd {
		why = PastEnd
	}
	ordered := it.Row.WaitFor != nil && !s.cfg.OpenSessions
	if it.Row.SessionID != "" {
		ses := s.enter(it)
		ses.end = max(ses.end, end)
		if fate == Unserved && !ordered && !s.cfg.OpenSessions && !ses.failed {
			ses.failed, ses.gone = true, SessionFailed
		}
		s.sessions.touch(ses)
	}
	if ordered {
		s.joinGraph(it)
		s.leaveGraph(it, end, fate == Over, why)
	}
}

// TakeUp sets the schedule's zero, and the instant from which on rows may go: what was due before is due then. It is called once, before
// Run, after all calls of Pass.
func (s *Scheduler) TakeUp(zero, begin time.Duration) {
	s.cfg.Zero, s.begin = zero, begin
	if s.cfg.Until > 0 {
		s.end = zero + s.cfg.Until
	}
	s.slots, s.prefill = newSlots(zero, s.cfg.Slots, s.cfg.SlotsOver), newSlots(zero, s.cfg.PrefillSlots, s.cfg.PrefillSlotsOver)
	for _, ses := range s.sessions.byID {
		ses.end += zero
	}
	for _, v := range s.graph.rows {
		v.last += zero
	}
}
