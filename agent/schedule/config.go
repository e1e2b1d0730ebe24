// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import "time"

// Config configures a schedule. The zero value sends each row at its offset, without a cap. Only a turn of a session, and a row of a graph,
// wait for earlier rows.
type Config struct {
	// Zero is the time of offset 0, on the run's clock. [Scheduler.TakeUp] sets it if it was not known before the calls of [Scheduler.Pass].
	Zero time.Duration
	// Slots is the maximum number of requests in flight; 0 = no cap. A closed loop needs one.
	Slots int
	// PrefillSlots is the maximum number of requests in flight without a first token; 0 = no cap. See [Scheduler.FirstToken].
	PrefillSlots int
	// SlotsOver is the time over which the slots open one by one, at equal intervals: the first one opens at Zero, the last one at Zero +
	// SlotsOver; 0 = all at once. PrefillSlotsOver is the same for PrefillSlots.
	SlotsOver, PrefillSlotsOver time.Duration
	// ClosedLoop sends in the source's order as slots become free and ignores offsets.
	ClosedLoop bool
	// OpenSessions ignores the order of turns and of graphs: each row is sent at its own offset, even if the rows before it have not ended.
	OpenSessions bool
	// Carry says that a turn needs the state of the turn before: if a session was closed to make room, its further turns are skipped.
	Carry bool
	// Speedup divides delays, and the time that tools took. 0 means 1.
	Speedup float64
	// Until is the replay time after which nothing is sent; 0 = none.
	Until time.Duration
	// Prepare is how long before its scheduled time an item is passed to Hooks.Prepare. The call may come up to a quarter of Prepare earlier,
	// if that saves a wake-up, or later, if the time becomes known later. 0 = never. It has no effect if a slot decides when an item is sent.
	Prepare time.Duration
	// MaxHeld is the maximum number of rows that are held (for their session or for a slot), and MaxSessions that of the sessions that are
	// remembered. At MaxHeld, the schedule stops reading until a row is sent, and counts a stall. At MaxSessions, the session that has been
	// idle longest is closed. 0 means 65,536 and 16,384.
	MaxHeld, MaxSessions int
	// MaxEnded is the maximum number of ended rows of graphs that are remembered for rows that wait for them. A forgotten one ended so long
	// ago that no row waits for it. 0 means 262,144.
	MaxEnded int
}

// Hooks are the functions that the scheduler calls, all on its own goroutine: the schedule is late by the time that they take.
type Hooks struct {
	// Prepare starts preparing an item's request, in a separate goroutine. Fire or Skip follows. May be nil.
	Prepare func(*Item)
	// Due is called when the item is due: at its scheduled time, or at the end of the rows before it. Fire or Skip follows. May be nil.
	Due func(*Item)
	// Fire sends the item's request, in a separate goroutine, which is started now if it was not prepared. The request ends with exactly one
	// call of Done.
	Fire func(*Item)
	// Calm reports whether all that happens before the next request can wait for MaxUnread, so that a wait may be patient; nil: it cannot.
	Calm func() bool
	// Skip is called for an item that will not be sent.
	Skip func(*Item, Reason)
}

// Reason says why an item was skipped.
type Reason uint8

// The reasons to skip.
const (
	SessionFailed     Reason = iota // an earlier turn of the session was not served
	SessionClosed                   // its session was closed to make room, and the turn needs its state
	PastEnd                         // it is due after Config.Until
	Stopped                         // the schedule was cancelled first
	PredecessorFailed               // a row that it waits for was not served
)

// Stats are the counts of a finished schedule.
type Stats struct {
	Fired, Skipped  int64
	Passed          int64 // rows that were over before
	Stalls          int64 // how often MaxHeld stopped the reading
	SessionsEvicted int64 // sessions closed because of MaxSessions
}
