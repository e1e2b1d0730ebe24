// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"time"
)

// A Collector that restarts, or is slow on a busy machine, is no reason to lose spans. Spans that it did not accept stay in the queue,
// whose bytes are bounded, and are sent again: as long as the run lasts, and at its end for as long as the receiver may be expected back.
// An attempt that timed out may have arrived, so its spans may arrive twice, with the same ids.

// The waits between two attempts.
const (
	firstWait = 100 * time.Millisecond
	maxWait   = 5 * time.Second
	// hurriedWait is the longest wait after the end of the run.
	hurriedWait = 250 * time.Millisecond
)

// restartTime is how long to wait for an absent receiver at the end of a run. If it has been absent longer by then, it gets one more
// attempt.
const restartTime = 5 * time.Second

// lateAttempts is the maximum number of consecutive exports that time out: each sends a quarter of the one before, so the last has 8 spans
// of 512.
const lateAttempts = 4

// patience is how long a receiver is retried once the run has ended. It counts from the first failed attempt, which may have been before
// the end of the run.
func patience(why trouble, timeout time.Duration) time.Duration {
	if why == away || why == broken {
		return min(timeout, restartTime)
	}
	return lateAttempts * timeout
}

// outage is a time in which the receiver accepts nothing. The zero value means no outage.
type outage struct {
	since time.Time     // start of its first attempt; zero outside of an outage
	wait  time.Duration // before the next attempt
	cause error         // of the last failed attempt, kept after the outage
	// message is the maximum number of bytes in a message; 0 = any. After a timeout it is a quarter of the failed message, and half of a
	// message that was too large; it doubles with each message that succeeds.
	message int
}

// goesOn records a failed attempt.
func (o *outage) goesOn(why trouble, cause error, bytes int, began time.Time) {
	if o.since.IsZero() {
		o.since, o.wait = began, firstWait
	}
	o.cause = cause
	if why == late {
		o.message = max(1, bytes/4)
	}
}

// over records an attempt that succeeded or finally failed.
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
