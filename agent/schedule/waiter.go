// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"time"

	"github.com/moonloop/moonloop/agent/clock"
)

// Forever is an instant that no run reaches: a wait until then ends by Wake only.
const Forever = time.Duration(1<<63 - 1)

// Spin bounds the spinning that makes a kernel timer exact: to the time that machines, virtual ones above all, need to wake a
// goroutine that reads it. More would only burn CPU.
const Spin = 60 * time.Microsecond

// Waiter puts one goroutine to sleep until an instant of the run's clock. It is the seam between the schedule
// and the machine's timers: a kernel timer in production, [NewSleeper] in virtual time and on other systems.
type Waiter interface {
	// Wait returns true once the instant has been reached, never before it, and false when Wake ended
	// the wait early. Only one goroutine may wait at a time.
	Wait(until time.Duration) bool
	// Wake ends the current wait, or, when there is none, the next one. Safe from any goroutine.
	Wake()
	// Close frees the timer. No Wait may be under way.
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

func (s *sleeper) Wait(until time.Duration) bool {
	var reached <-chan time.Time // nil, never ready, when there is nothing to wait for but Wake
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
	default: // one is pending already
	}
}

func (s *sleeper) Close() error { return nil }
