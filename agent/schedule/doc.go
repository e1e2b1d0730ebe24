// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package schedule sends each row at its instant.
//
// One goroutine, [Scheduler.Run], owns everything: it takes rows from a [Source] in the order of their offsets,
// holds back the turns of a session until the turn before has ended, holds back whatever a concurrency cap
// does not let through, and hands each item to the caller's fire function when its time has come. The
// goroutines that carry requests report back through [Scheduler.Done] and share nothing else with it.
//
// # Instants
//
// An item's offset counts in replay time from the schedule's zero: (timestamp − first timestamp) ÷ speed-up,
// plus what spreading added. Its intended instant is
//
//   - zero + offset for a first turn, and for a later turn that its session is ready for;
//   - the end of the previous turn, when that is later than zero + offset;
//   - the end of the previous turn + delay ÷ speed-up, for a turn with a delay and no timestamp;
//   - in a closed loop, the instant at which a slot became free.
//
// Lateness is always counted from the intended instant, so a slow client cannot hide in it.
//
// # Before the instant
//
// Config.Prepare before its instant an item is handed to Hooks.Prepare, so that all of its request that takes time is done when
// it is let go. That holds wherever the instant is known in advance: not in a closed loop, not under a cap, not for a turn
// whose predecessor ended late.
package schedule
