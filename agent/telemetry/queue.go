// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/moonloop/moonloop/semconv"
)

// queue sends ended spans to an exporter. It replaces the SDK's batch processor: it is bounded by bytes instead of spans, never blocks its
// callers, and counts every span.
//
// Spans wait in one list, in the order of their ends. One goroutine exports a message from the head of the list when there is enough for
// one, or when the first span has waited long enough. Spans leave the list when their export has succeeded or finally failed. So spans
// that a receiver did not accept because it was away, or too slow, are still the head, and are sent again; see retry.go. One lock guards
// all state; it is never held during an export.
type queue struct {
	exporter sdktrace.SpanExporter
	limits   limits
	done     chan struct{} // closed when the exporting goroutine has ended
	ending   chan struct{} // closed when the field closed is set
	changed  chan struct{} // has one value if a message may be ready
	stop     context.CancelFunc

	mu       sync.Mutex
	waiting  []item
	inFlight int       // spans at the head that are being exported
	bytes    int       // of all waiting spans
	due      time.Time // when the spans that are not in flight are exported, even if there are few
	closed   bool      // no more spans are accepted
	gaveUp   bool      // the remaining spans have been counted as lost
	outage   outage
	loss     Loss // of spans: Ended = Accepted + Σ Lost + waiting
}

// item is one span in the queue.
type item struct {
	span   sdktrace.ReadOnlySpan
	size   int
	joined bool // it is exported with the one before if they fit into a message
}

type limits struct {
	queueBytes, batchBytes, batchSpans int
	messageBytes                       int           // of a message in a hurry, if that is more than batchBytes
	linger, timeout                    time.Duration // timeout is of one export
}

func newQueue(exporter sdktrace.SpanExporter, l limits) *queue {
	ctx, stop := context.WithCancel(context.Background())
	q := &queue{
		exporter: exporter, limits: l, stop: stop, loss: Loss{Lost: make(map[string]int64)},
		done: make(chan struct{}), ending: make(chan struct{}), changed: make(chan struct{}, 1),
	}
	go q.run(ctx)
	return q
}

// add adds ended spans of one trace, parents first, or counts them as lost. It never waits for the exporter. They are exported together if
// they fit into a message, else in order, so that a killed run leaves no span without its parent.
func (q *queue) add(spans ...sdktrace.ReadOnlySpan) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.loss.Ended += int64(len(spans))
	for i, s := range spans {
		size := spanSize(s)
		switch {
		case q.closed:
			q.loss.Lost[semconv.LostShutdown]++
		case q.bytes+size > q.limits.queueBytes:
			q.loss.Lost[semconv.LostQueueFull]++
		default:
			if len(q.waiting) == q.inFlight {
				q.due = time.Now().Add(q.limits.linger)
				q.wake()
			}
			q.waiting = append(q.waiting, item{s, size, i > 0})
			q.bytes += size
		}
	}
	if q.full() {
		q.wake()
	}
}

// full reports whether there is enough for a message. The caller holds the lock.
func (q *queue) full() bool {
	return q.bytes >= q.limits.batchBytes || len(q.waiting) >= q.limits.batchSpans
}

// wake makes the exporting goroutine check again.
func (q *queue) wake() {
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

func (q *queue) run(ctx context.Context) {
	defer close(q.done)
	for {
		spans := q.next(ctx)
		if spans == nil {
			return
		}
		began := time.Now()
		one, cancel := context.WithTimeout(ctx, q.limits.timeout)
		err := q.exporter.ExportSpans(one, spans)
		cancel()
		if q.settle(err, began) {
			q.rest(ctx, time.Since(began))
		} else {
			q.backOff(ctx)
		}
	}
}

// rest pauses after an export for as long as it has taken, so that goroutines that read streams get the processor. Exports have time,
// unless the queue fills, or the run is over.
func (q *queue) rest(ctx context.Context, d time.Duration) {
	q.mu.Lock()
	hurry := q.hurried()
	q.mu.Unlock()
	if !hurry {
		pause(ctx, min(d, maxRest), q.ending)
	}
}

// pause waits, unless something happens before.
func pause(ctx context.Context, d time.Duration, happens <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-happens:
	case <-ctx.Done():
	}
}

// hurried reports whether exports must be as fast as possible. The caller holds the lock.
func (q *queue) hurried() bool { return q.closed || q.bytes > q.limits.queueBytes/4 }

// maxRest is the maximum pause: an export may have taken long only because it waited for its receiver.
const maxRest = 20 * time.Millisecond

// next waits for a message, and returns nil if the queue is closed and empty.
func (q *queue) next(ctx context.Context) []sdktrace.ReadOnlySpan {
	for {
		q.mu.Lock()
		wait := time.Until(q.due)
		switch {
		case len(q.waiting) == 0 && q.closed:
			q.mu.Unlock()
			return nil
		case len(q.waiting) == 0:
			wait = time.Hour // until there is something
		case q.closed || q.full() || wait <= 0:
			defer q.mu.Unlock()
			return q.message()
		}
		q.mu.Unlock()
		pause(ctx, wait, q.changed)
	}
}

// message begins the export of a message from the head of the queue. The message has at most a batch's bytes, or more in a hurry, because
// each message to a distant receiver takes a round trip; but it has at least one span. The caller holds the lock.
func (q *queue) message() []sdktrace.ReadOnlySpan {
	limit := q.limits.batchBytes
	if q.hurried() {
		limit = max(limit, q.limits.messageBytes)
	}
	if q.outage.message > 0 {
		limit = min(limit, q.outage.message)
	}
	var spans []sdktrace.ReadOnlySpan
	bytes, group := 0, 0
	for n, it := range q.waiting {
		bytes += it.size
		if !it.joined {
			group = n
		}
		if n > 0 && (bytes > limit || n >= q.limits.batchSpans) {
			if group > 0 {
				spans = spans[:group]
			}
			q.due = time.Now().Add(q.limits.linger)
			break
		}
		spans = append(spans, it.span)
	}
	q.inFlight = len(spans)
	return spans
}

// settle processes the result of an export that began at a time, and reports whether the next one need not wait. Messages that are too
// large for the receiver are sent again in halves, and temporary failures are sent again unchanged.
func (q *queue) settle(err error, began time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.gaveUp { // counted already
		return true
	}
	sent, bytes := q.waiting[:q.inFlight], 0
	for _, it := range sent {
		bytes += it.size
	}
	q.inFlight = 0
	n := int64(len(sent))
	var lost int64
	var reason string
	switch why := troubleOf(err); why {
	case none:
	case partly:
		lost, reason = min(refused(err), n), semconv.LostRejected
	case lasting:
		lost, reason = n, semconv.LostExport
	case large:
		if n > 1 {
			q.outage.message, q.due = max(1, bytes/2), time.Now()
			return true
		}
		lost, reason = n, semconv.LostTooLarge
	default:
		q.outage.goesOn(why, err, bytes, began)
		q.due = time.Now()
		if q.closed && time.Since(q.outage.since) >= patience(why, q.limits.timeout) {
			q.lose(semconv.LostExport, err)
			return true
		}
		if why.doubtful() {
			q.loss.Resent += n
		}
		return false
	}
	q.loss.Accepted += n - lost
	if lost > 0 {
		q.loss.Lost[reason] += lost
	}
	q.loss.note(err)
	q.waiting, q.bytes = slices.Delete(q.waiting, 0, len(sent)), q.bytes-bytes
	q.outage.over(n > lost, bytes, max(q.limits.batchBytes, q.limits.messageBytes))
	return true
}

// shutdown exports the queued spans, as far as ctx allows, and closes the exporter. The rest is counted as lost.
func (q *queue) shutdown(ctx context.Context) error {
	q.mu.Lock()
	q.closed = true
	close(q.ending)
	q.wake()
	q.mu.Unlock()

	select {
	case <-q.done:
	case <-ctx.Done():
		q.giveUp(context.Cause(ctx))
	}
	q.stop()
	return q.exporter.Shutdown(ctx)
}

// giveUp counts all remaining spans as lost, because the time is over.
func (q *queue) giveUp(cause error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.gaveUp = true
	if q.outage.cause != nil {
		cause = fmt.Errorf("%w; the last attempt: %w", cause, q.outage.cause)
	}
	q.lose(semconv.LostShutdown, fmt.Errorf("%d spans were not sent in time: %w", len(q.waiting), cause))
}

// lose counts the waiting spans as lost. The caller holds the lock.
func (q *queue) lose(why string, cause error) {
	if n := len(q.waiting); n > 0 {
		q.loss.Lost[why] += int64(n)
		q.loss.note(cause)
	}
	q.waiting, q.inFlight, q.bytes = nil, 0, 0
}

// account returns the counts of spans so far.
func (q *queue) account() Loss {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.loss
	l.Lost = maps.Clone(l.Lost)
	if len(l.Lost) > 0 { // the queue is, or was, full because of the outage
		l.note(q.outage.cause)
	}
	return l
}
