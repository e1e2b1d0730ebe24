// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"time"
)

// A Collector that restarts, or that a busy machine has slowed down, is no reason to lose spans. What it did not take is kept
// in the queue, whose bytes are bounded, and tried again: as long as the run lasts, and at its end for as long as the
// receiver may be expected back. An attempt that timed out may have arrived all the same, so its spans may arrive twice, with
// the same ids.

// The waits between two attempts.
const (
	firstWait = 100 * time.Millisecond
	maxWait   = 5 * time.Second
	// hurriedWait is the longest after the end of the run.
	hurriedWait = 250 * time.Millisecond
)

// restartTime is how long a receiver that is away is waited for at the end of a run. One that has been away for longer by
// then gets one more attempt.
const restartTime = 5 * time.Second

// lateAttempts is how many exports in a row may time out: each sends a quarter of the one before, so the last has 8 spans of 512.
const lateAttempts = 4

// patience is how long after its first failed attempt a receiver is given up, once the run is over.
func patience(why trouble, timeout time.Duration) time.Duration {
	if why == away || why == broken {
		return min(timeout, restartTime)
	}
	return lateAttempts * timeout
}

// outage is a time in which the receiver takes nothing. The zero outage is none.
type outage struct {
	since time.Time     // start of its first attempt; zero outside of an outage
	wait  time.Duration // before the next attempt
	cause error         // of the last failed attempt, kept after the outage
	// message is the number of bytes that the receiver is trusted to take in time; 0 = any. After a timeout it is a quarter of
	// what failed, and half of what was too large; it doubles with each message that gets through.
	message int
}

// goesOn enters a failed attempt.
func (o *outage) goesOn(why trouble, cause error, bytes int, began time.Time) {
	if o.since.IsZero() {
		o.since, o.wait = began, firstWait
	}
	o.cause = cause
	if why == late {
		o.message = max(1, bytes/4)
	}
}

// over enters an attempt that was settled.
func (o *outage) over(accepted bool, bytes, most int) {
	if !accepted {
		return
	}
	o.since, o.wait = time.Time{}, 0
	if o.message > 0 {
		if o.message = max(o.message, 2*bytes); o.message >= most {
			o.message = 0
		}
	}
}

// backOff waits before the next attempt. The end of the run cuts it short.
func (q *queue) backOff(ctx context.Context) {
	q.mu.Lock()
	wait, ending := max(q.outage.wait, firstWait), q.ending
	q.outage.wait = min(2*wait, maxWait)
	if q.closed {
		wait, ending = min(wait, hurriedWait), nil
	}
	q.mu.Unlock()
	pause(ctx, wait, ending)
}
