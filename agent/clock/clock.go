// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package clock is the one clock of a run.
//
// Every instant of a run is an offset from the run's start on the monotonic clock, so that a step of the wall clock cannot change
// a latency. The wall clock is read once, at the start, to give the run a date.
package clock

import "time"

// Never marks a time that was not reached. It is far below every real time.
const Never = time.Duration(-1 << 62)

// Clock counts from the time at which it was made.
type Clock struct{ start time.Time }

// New starts a clock.
func New() Clock { return Clock{start: time.Now()} }

// Now returns the time since the start. It costs about 20 ns.
func (c Clock) Now() time.Duration { return time.Since(c.start) }

// Wall converts a time of the run to wall-clock time.
func (c Clock) Wall(at time.Duration) time.Time { return c.start.Add(at) }

// Start returns the wall-clock time, with its monotonic reading, at which the clock started.
func (c Clock) Start() time.Time { return c.start }

// Millis returns a duration in milliseconds, the unit of traces and of figures.
func Millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
