// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"time"

	"github.com/moonloop/moonloop/agent/clock"
)

// Forever is a time that no run reaches: only Wake ends a wait until then.
const Forever = time.Duration(1<<63 - 1)

// Spin is the maximum duration of spinning, which makes a kernel timer exact. Machines, above all virtual ones, take about this long to
// wake a goroutine, so spinning longer would only waste CPU time.
const Spin = 60 * time.Microsecond

// MaxUnread is how long a patient Waiter leaves replies unread, unless the requests that are due keep it from reading. It leaves room below
// the lateness that counts as a hiccup, because the meter of hiccups waits as long as everything else.
const MaxUnread = 650 * time.Microsecond

// Waiter puts one goroutine to sleep until a time of the run's clock. It separates the schedule from the machine's timers: on Linux,
// [NewWaiter] returns one that uses a kernel timer; in virtual time, and on other systems, waiters come from [NewSleeper].
type Waiter interface {
	// Wait returns true when the time has been reached, never earlier, and false if Wake ended the wait. Only one goroutine may wait at a
	// time. If calm is not nil, the wait may be patient: as long as calm returns true, other goroutines may get the processor only once in
	// MaxUnread, and Wake may take that long.
	Wait(until time.Duration, calm func() bool) bool
	// Wake ends the current wait, or, if there is none, the next one. Safe from any goroutine.
	Wake()
	// Close frees the timer. No Wait may be running.
	Close() error
}

// NewSleeper returns a Waiter on the runtime's own timers, which fire up to about 1 ms late on Linux
// (their poller counts in milliseconds). It is exact in a testing/synctest bubble.
func NewSleeper(clk clock.Clock) Waiter {
	return &sleeper{clk: clk, wake: make(chan struct{}, 1)}
}

type sleeper struct {
	clk  clock.Clock
	wake chan struct{}
}

func (s *sleeper) Wait(until time.Duration, _ func() bool) bool {
	var reached <-chan time.Time // nil, never ready, if only Wake can end the wait
	if until != Forever {
		d := until - s.clk.Now()
		if d <= 0 {
			return true
		}
		t := time.NewTimer(d)
		defer t.Stop()
		reached = t.C
	}
	select {
	case <-reached:
		return true
	case <-s.wake:
		return false
	}
}

func (s *sleeper) Wake() {
	select {
	case s.wake <- struct{}{}:
	default: // a wake is pending already
	}
}

func (s *sleeper) Close() error { return nil }
