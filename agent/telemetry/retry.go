// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A Collector that restarts, or that a busy machine has slowed down, is no reason to lose spans. What it did not take is kept
// in the queue, whose bytes are bounded, and tried again: as long as the run lasts, and at its end for as long as the
// receiver may be expected back. An attempt that timed out may have arrived all the same, so its spans may arrive twice, with
// the same ids.

// trouble is what an export's error says about the next attempt.
type trouble uint8

const (
	lasting trouble = iota // the same spans fail again
	away                   // nobody is there
	broken                 // somebody was there, and has gone without an answer
	late                   // no answer came in time
	busy                   // the receiver asks to be spared for a while
)

// doubtful reports whether the receiver may have the spans all the same.
func (t trouble) doubtful() bool { return t == broken || t == late }

// troubleOf classifies the error of an exporter. What the one of OTLP over HTTP deems worth another attempt shows in its words
// only.
func troubleOf(err error) trouble {
	if s, ok := status.FromError(err); ok {
		return troubleOfStatus(s)
	}
	timeout, ok := errors.AsType[net.Error](err)
	if ok && timeout.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return late
	}
	if strings.Contains(err.Error(), "retry-able request failure") {
		return busy
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return away
	}
	op, ok := errors.AsType[*net.OpError](err)
	switch {
	case ok && op.Op == "dial":
		return away
	case ok && (op.Op == "read" || op.Op == "write"), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return broken
	}
	return lasting
}

func troubleOfStatus(s *status.Status) trouble {
	text := s.Message()
	switch s.Code() {
	case codes.Unavailable:
		switch {
		case strings.Contains(text, "authentication handshake failed"): // a certificate that does not do
			return lasting
		case strings.Contains(text, "connection error"), strings.Contains(text, "name resolver error"):
			return away
		case strings.Contains(text, "error reading from server"), strings.Contains(text, "transport is closing"):
			return broken
		}
		return busy
	case codes.Aborted:
		return busy
	case codes.DeadlineExceeded:
		return late
	default:
		return lasting
	}
}

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
	// what failed, and it doubles with each message that gets through.
	message int
}

// goesOn enters a failed attempt.
func (o *outage) goesOn(r result, bytes int, began time.Time) {
	if o.since.IsZero() || r.accepted > 0 {
		o.since, o.wait = began, firstWait
	}
	o.cause = r.cause
	if r.why == late {
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

// message is the bound on the bytes to which batches are joined. The caller holds the lock.
func (q *queue) message() int {
	if q.outage.message > 0 {
		return min(q.outage.message, q.limits.messageBytes)
	}
	return q.limits.messageBytes
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
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ending:
	case <-ctx.Done():
	}
}

// newBatch is a batch of spans that have been in one.
func newBatch(spans []sdktrace.ReadOnlySpan) batch {
	b := batch{spans: spans}
	for _, s := range spans {
		b.bytes += spanSize(s)
	}
	return b
}

// quarters returns the batch in four parts, or in as many as it has spans.
func (b batch) quarters() (parts []batch) {
	for part := range slices.Chunk(b.spans, (len(b.spans)+3)/4) {
		parts = append(parts, newBatch(part))
	}
	return parts
}
