// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

// This file continues a schedule that was cut short: rows that were over take their places in their sessions and graphs, and are not sent
// again, and nothing was due before the time at which the schedule continues.

import "time"

// Fate is how a row ended in an earlier part of the schedule.
type Fate uint8

// The fates.
const (
	Over       Fate = iota // its session and its graph continue
	Unserved               // its later turns, and rows that wait for it, are skipped
	PastTheEnd             // it was due after Config.Until, and so are its successors
)

// Pass adds an item of the source that had ended, at the replay time end, when the schedule was cut short. It sets the item's session and
// turn. It must be called before [Scheduler.TakeUp], in the order of the source.
func (s *Scheduler) Pass(it *Item, end time.Duration, fate Fate) {
	s.stats.Passed++
	why := PredecessorFailed
	if fate == PastTheEnd {
		why = PastEnd
	}
	ordered := it.Row.WaitFor != nil && !s.cfg.OpenSessions
	if it.Row.SessionID != "" {
		ses := s.enter(it, s.cfg.MaxSessions)
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

// Defer adds an item of the source that had not ended when the schedule was cut short, although later ones may have. It sets the item's
// session and turn. It must be called before [Scheduler.TakeUp], in the order of the source; the source of Run yields the item again.
func (s *Scheduler) Defer(it *Item) {
	if it.Row.SessionID != "" {
		s.sessions.touch(s.enter(it, s.cfg.MaxSessions))
	}
}

// TakeUp sets the start of the schedule, and the time from which rows may be sent: rows that were due earlier are due at that time. It is
// called once, before Run, after all calls of Pass.
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
