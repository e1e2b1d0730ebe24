// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/moonloop/moonloop/semconv"
)

// queue carries ended spans to an exporter. It stands in for the SDK's batch processor: bounded by bytes instead of
// spans, never blocking whoever adds to it, and with an account of every span.
//
// Spans become batches as they arrive. One goroutine exports the batches in order. What a receiver did not take because it
// was away, or too slow, goes back to the head and is tried again; see retry.go. All states are under one lock that is never
// held during an export.
type queue struct {
	exporter sdktrace.SpanExporter
	limits   limits
	done     chan struct{} // closed when the exporting goroutine has ended
	ending   chan struct{} // closed with closed
	stop     context.CancelFunc

	mu       sync.Mutex
	changed  *sync.Cond // a batch is ready, or the queue is closed
	filling  batch
	ready    []batch
	inFlight int         // spans of the batch under export
	bytes    int         // of all spans not settled
	linger   *time.Timer // cuts the filling batch
	closed   bool        // nothing more is taken
	gaveUp   bool        // what is not settled has been counted as lost
	outage   outage

	ended, accepted, resent int64 // spans
	lost                    map[string]int64
	firstError              string
}

type limits struct {
	queueBytes, batchBytes, batchSpans int
	messageBytes                       int           // to which batches are joined in a hurry; 0 = they are not
	linger, timeout                    time.Duration // timeout is of one export
}

type batch struct {
	spans []sdktrace.ReadOnlySpan
	bytes int
}

func newQueue(exporter sdktrace.SpanExporter, l limits) *queue {
	ctx, stop := context.WithCancel(context.Background())
	q := &queue{exporter: exporter, limits: l, done: make(chan struct{}), ending: make(chan struct{}), stop: stop, lost: make(map[string]int64)}
	q.changed = sync.NewCond(&q.mu)
	q.linger = time.AfterFunc(l.linger, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.cut()
	})
	q.linger.Stop()
	go q.run(ctx)
	return q
}

// add takes ended spans of one trace, parents first, or counts them as lost. It never waits for the exporter. They go out
// together where they fit into a batch, else in order: a run that is killed leaves no span behind whose parent is missing.
func (q *queue) add(spans ...sdktrace.ReadOnlySpan) {
	sizes, all := make([]int, len(spans)), 0
	for i, s := range spans {
		sizes[i] = spanSize(s)
		all += sizes[i]
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.filling.bytes+all > q.limits.batchBytes || len(q.filling.spans)+len(spans) > q.limits.batchSpans {
		q.cut()
	}
	for i, s := range spans {
		q.addOne(s, sizes[i])
	}
}

// addOne takes one span. The caller holds the lock.
func (q *queue) addOne(s sdktrace.ReadOnlySpan, size int) {
	q.ended++
	switch {
	case q.closed:
		q.lost[semconv.LostShutdown]++
		return
	case q.bytes+size > q.limits.queueBytes:
		q.lost[semconv.LostQueueFull]++
		return
	}
	if q.filling.bytes+size > q.limits.batchBytes {
		q.cut()
	}
	if len(q.filling.spans) == 0 {
		q.linger.Reset(q.limits.linger)
	}
	q.filling.spans = append(q.filling.spans, s)
	q.filling.bytes += size
	q.bytes += size
	if len(q.filling.spans) >= q.limits.batchSpans || q.filling.bytes >= q.limits.batchBytes {
		q.cut()
	}
}

// cut makes the filling batch ready. The caller holds the lock.
func (q *queue) cut() {
	if len(q.filling.spans) == 0 {
		return
	}
	q.linger.Stop()
	q.ready = append(q.ready, q.filling)
	q.filling = batch{}
	q.changed.Broadcast()
}

func (q *queue) run(ctx context.Context) {
	defer close(q.done)
	for {
		b, ok := q.next()
		if !ok {
			return
		}
		began := time.Now()
		r := q.export(ctx, b.spans)
		if q.settle(b, r, began) {
			q.rest(ctx, time.Since(began))
		} else {
			q.backOff(ctx)
		}
	}
}

// rest leaves the processor to those who read streams for as long as the last export has taken. Exports are in no hurry,
// unless the queue fills, or the run is over.
func (q *queue) rest(ctx context.Context, d time.Duration) {
	q.mu.Lock()
	hurry := q.hurried()
	q.mu.Unlock()
	if hurry {
		return
	}
	select {
	case <-time.After(min(d, maxRest)):
	case <-q.ending:
	case <-ctx.Done():
	}
}

// hurried reports whether exports are to come as fast as they can. The caller holds the lock.
func (q *queue) hurried() bool { return q.closed || q.bytes > q.limits.queueBytes/4 }

// maxRest bounds the rest after an export that has waited for its receiver.
const maxRest = 20 * time.Millisecond

// next waits for a batch, or several in one when there is a hurry: to a distant receiver each message takes a round trip.
// It returns false when the queue is closed and empty.
func (q *queue) next() (batch, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.ready) == 0 {
		if q.closed {
			return batch{}, false
		}
		q.changed.Wait()
	}
	var b batch
	n := 0
	for ; n < len(q.ready); n++ {
		more := q.ready[n]
		if n > 0 && (!q.hurried() || b.bytes+more.bytes > q.message() || len(b.spans)+len(more.spans) > q.limits.batchSpans) {
			break
		}
		b.spans = append(b.spans, more.spans...)
		b.bytes += more.bytes
		q.ready[n] = batch{}
	}
	q.ready = q.ready[n:]
	q.inFlight = len(b.spans)
	return b, true
}

// settle enters the result of an export that began at an instant, and reports whether all of it is settled: what is kept
// stands at the head of the queue again.
func (q *queue) settle(b batch, r result, began time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.gaveUp { // counted already
		return true
	}
	q.inFlight = 0
	q.accepted += r.accepted
	for why, n := range r.lost {
		q.lost[why] += n
	}
	q.note(r.err)
	if len(r.kept) == 0 {
		q.bytes -= b.bytes
		q.outage.over(r.accepted > 0, b.bytes, q.limits.messageBytes)
		return true
	}
	kept := newBatch(r.kept)
	q.bytes -= b.bytes - kept.bytes
	q.outage.goesOn(r, kept.bytes, began)
	again := []batch{kept}
	if r.why == late { // less at a time
		again = kept.quarters()
	}
	q.ready = append(again, q.ready...)
	if q.closed && time.Since(q.outage.since) >= patience(r.why, q.limits.timeout) {
		q.lose(semconv.LostExport, r.cause)
		return true
	}
	if r.why.doubtful() {
		q.resent += int64(len(r.kept))
	}
	return false
}

// shutdown exports what is queued, as far as ctx allows, and closes the exporter. What is left is counted as lost.
func (q *queue) shutdown(ctx context.Context) error {
	q.mu.Lock()
	q.cut()
	if !q.closed {
		q.closed = true
		close(q.ending)
	}
	q.linger.Stop()
	q.changed.Broadcast()
	q.mu.Unlock()

	select {
	case <-q.done:
	case <-ctx.Done():
		q.giveUp(context.Cause(ctx))
	}
	q.stop()
	return q.exporter.Shutdown(ctx)
}

// giveUp counts everything that is not settled as lost: the time is over.
func (q *queue) giveUp(cause error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	left := q.inFlight
	for _, b := range q.ready {
		left += len(b.spans)
	}
	q.gaveUp = true
	if q.outage.cause != nil {
		cause = fmt.Errorf("%w; the last attempt: %w", cause, q.outage.cause)
	}
	q.lose(semconv.LostShutdown, fmt.Errorf("%d spans were not sent in time: %w", left, cause))
	q.changed.Broadcast()
}

// lose counts what is queued, and under export, as lost. The caller holds the lock.
func (q *queue) lose(why string, cause error) {
	left := q.inFlight
	for _, b := range q.ready {
		left += len(b.spans)
	}
	q.ready, q.inFlight, q.bytes = nil, 0, 0
	if left > 0 {
		q.lost[why] += int64(left)
		q.note(cause)
	}
}

// note keeps the first error. The caller holds the lock.
func (q *queue) note(err error) {
	if q.firstError == "" && err != nil {
		q.firstError = errorText(err)
	}
}

// sentAgain returns the number of spans that were sent again although the receiver may have them.
func (q *queue) sentAgain() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.resent
}

// account returns the counts so far: ended = accepted + Σ lost + queued.
func (q *queue) account() (ended, accepted int64, lost map[string]int64, firstError string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	firstError = q.firstError
	if firstError == "" && len(q.lost) > 0 && q.outage.cause != nil { // the queue is full because of it
		firstError = errorText(q.outage.cause)
	}
	return q.ended, q.accepted, maps.Clone(q.lost), firstError
}
