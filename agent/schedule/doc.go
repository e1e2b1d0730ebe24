// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package schedule dispatches each row at its scheduled time.
//
// One goroutine, [Scheduler.Run], owns all state. It reads rows from a [Source] in the order of their offsets. It delays the
// turns of a session until the previous turn has ended, and all requests that a concurrency cap does not allow yet. It passes
// each item to the caller's fire function when it is due. The goroutines of requests report through [Scheduler.Done], and share
// nothing else with it.
//
// # Intended instants
//
// An item's offset counts in replay time from the start of the schedule: (timestamp − first timestamp) ÷ speed-up, plus what spreading
// added. Its scheduled time, called intended in the code, is
//
//   - zero + offset for a first turn, and for a later turn that its session is ready for;
//   - the end of the previous turn, when that is later than zero + offset;
//   - the end of the previous turn + delay ÷ speed-up, for a turn with a delay and no timestamp;
//   - the end of the last of the rows that it waits for + (delay + tool wait) ÷ speed-up, for a row of a graph (see graph.go);
//   - in a closed loop, the instant at which a slot became free.
//
// Lateness always counts from this time, so it includes the delay of a slow client, except for one part: the end of a turn or row is the time
// that is reported to [Scheduler.Done], at which its client noticed the end of the reply, and not the arrival of the last byte. A server may
// keep a complete stream open, and the time for which it does is not the client's delay.
//
// # Before the instant
//
// Config.Prepare is how long before its instant an item is passed to Hooks.Prepare, so that slow work on its request is done when
// it is due. It has no effect if the instant is not known in advance: in a closed loop, under a cap, and for a turn
// whose predecessor ended late.
package schedule
