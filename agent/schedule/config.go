// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import "time"

// Config says how a schedule runs. The zero value is an open loop without a cap.
type Config struct {
	// Zero is the run-clock instant of offset 0. [Scheduler.TakeUp] sets it where rows have been passed before it is known.
	Zero time.Duration
	// Slots is the number of requests that may be under way at once; 0 = no cap. A closed loop needs one.
	Slots int
	// PrefillSlots is the number of requests that may be without a first token at once; 0 = no cap. See [Scheduler.FirstToken].
	PrefillSlots int
	// SlotsOver is the time within which the slots of Slots open one by one, at equal intervals, the first one at Zero, the last one
	// at its end; 0 = all at once. PrefillSlotsOver is that of PrefillSlots.
	SlotsOver, PrefillSlotsOver time.Duration
	// ClosedLoop sends in the source's order as slots become free and ignores offsets.
	ClosedLoop bool
	// OpenSessions ignores the order of turns and of graphs: each row is sent at its own offset, whatever became
	// of the rows before.
	OpenSessions bool
	// Carry says that a turn needs what the turn before left behind: a session that has been closed to make room
	// takes no further turns.
	Carry bool
	// Speedup divides delays, and the time that tools took. 0 means 1.
	Speedup float64
	// Until is the replay time after which nothing is sent; 0 = none.
	Until time.Duration
	// Prepare is how long before its intended instant an item is handed to Hooks.Prepare, or up to a quarter more, where
	// that spares a wake-up, or less, where the instant is known later. 0 = not at all. Without effect where a slot decides
	// when an item goes.
	Prepare time.Duration
	// MaxHeld bounds the rows that are held back (for their session or for a slot) at any time, and
	// MaxSessions the sessions that are remembered. At the first bound the schedule reads no further until a row
	// is let go, and counts a stall; at the second the session that has been idle longest is closed.
	// 0 means 65,536 and 16,384.
	MaxHeld, MaxSessions int
	// MaxEnded bounds the rows of graphs that have ended and are remembered for those that wait for them. One that was forgotten ended so
	// long ago that nobody waits for it. 0 means 262,144.
	MaxEnded int
}

// Hooks are the scheduler's ways out. All are called on the scheduler's goroutine: whatever they take, the schedule
// is late by.
type Hooks struct {
	// Prepare does what can be done of an item's request before it is due, in a goroutine of its own. Fire or Skip
	// follows. May be nil.
	Prepare func(*Item)
	// Due says that the item's turn has come: its intended instant, or the end of the rows before it. Fire or Skip follows. May be nil.
	Due func(*Item)
	// Fire lets the item's request go, and starts it where it was not prepared, in a goroutine of its own, which ends in
	// exactly one call of Done.
	Fire func(*Item)
	// Skip disposes of an item that will not be sent.
	Skip func(*Item, Reason)
}

// Reason says why an item was skipped.
type Reason uint8

// The reasons to skip.
const (
	SessionFailed     Reason = iota // an earlier turn of the session was not served
	SessionClosed                   // its session was closed to make room, and with it what the turn needs
	PastEnd                         // its turn lies past Config.Until
	Stopped                         // the schedule was cancelled first
	PredecessorFailed               // a row that it waits for was not served
)

// Stats is what a finished schedule counted.
type Stats struct {
	Fired, Skipped  int64
	Passed          int64 // rows that were over before
	Stalls          int64 // times that MaxHeld stopped the reading
	SessionsEvicted int64 // sessions closed because of MaxSessions
}
