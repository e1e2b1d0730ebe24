// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/moonloop/moonloop/semconv"
)

// wide are limits that nothing in these tests reaches by itself.
var wide = limits{queueBytes: 1 << 30, batchBytes: 1 << 20, batchSpans: 512, linger: time.Second, timeout: 30 * time.Second}

func span(name string) sdktrace.ReadOnlySpan { return tracetest.SpanStub{Name: name}.Snapshot() }

// closeQueue shuts a queue down and returns its account, which must add up.
func closeQueue(t *testing.T, q *queue, within time.Duration) (ended, accepted int64, lost map[string]int64, first string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := q.shutdown(ctx); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	ended, accepted, lost, first = q.account()
	sum := accepted
	for _, n := range lost {
		sum += n
	}
	if ended != sum {
		t.Errorf("%d spans ended, but %d accepted and lost %v", ended, accepted, lost)
	}
	return ended, accepted, lost, first
}

// A burst against a slow exporter loses nothing as long as the bytes fit: the SDK's batch processor loses 17,440 of
// these, without a word.
func TestQueueBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &fakeExporter{do: func(context.Context, []sdktrace.ReadOnlySpan) error { time.Sleep(50 * ms); return nil }}
		q := newQueue(slow, wide)
		before := time.Now()
		for range 20_000 {
			q.add(span("request"))
		}
		if waited := time.Since(before); waited != 0 {
			t.Errorf("adding waited %v for the exporter", waited)
		}
		ended, accepted, lost, _ := closeQueue(t, q, time.Minute)
		if ended != 20_000 || accepted != 20_000 || len(slow.spans) != 20_000 {
			t.Errorf("ended %d, accepted %d, arrived %d, lost %v", ended, accepted, len(slow.spans), lost)
		}
	})
}

func TestQueueBounds(t *testing.T) {
	one := spanSize(span("request"))
	synctest.Test(t, func(t *testing.T) {
		l := wide
		l.queueBytes, l.batchBytes = 1000*one, 10*one
		hold := make(chan struct{})
		e := &fakeExporter{do: func(context.Context, []sdktrace.ReadOnlySpan) error { <-hold; return nil }}
		q := newQueue(e, l)
		for range 1500 {
			q.add(span("request"))
		}
		close(hold)
		_, accepted, lost, _ := closeQueue(t, q, time.Minute)
		if accepted != 1000 || lost[semconv.LostQueueFull] != 500 {
			t.Errorf("accepted %d, lost %v; want what the bytes allow, 1,000, and the rest counted", accepted, lost)
		}
		if got := slices.Max(e.batches); got != 10 {
			t.Errorf("the largest batch has %d spans, its bytes allow 10", got)
		}
		// Settled spans make room.
		if q.bytes != 0 {
			t.Errorf("%d bytes are still held", q.bytes)
		}
	})
}

func TestQueueOversizedSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := wide
		l.batchBytes = 500
		e := &fakeExporter{}
		q := newQueue(e, l)
		q.add(span("small"))
		q.add(span(strings.Repeat("x", 1000)))
		q.add(span("small"))
		closeQueue(t, q, time.Minute)
		if diff := cmp.Diff([]int{1, 1, 1}, e.batches); diff != "" {
			t.Errorf("a span above a batch's bytes goes alone (-want +got):\n%s", diff)
		}
	})
}

func TestQueueLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fakeExporter{}
		q := newQueue(e, wide)
		arrived := func() []int {
			synctest.Wait()
			e.mu.Lock()
			defer e.mu.Unlock()
			return slices.Clone(e.batches)
		}
		q.add(span("a"))
		time.Sleep(999 * ms)
		q.add(span("b"))
		if got := arrived(); len(got) != 0 {
			t.Errorf("exported %v before the linger was over", got)
		}
		time.Sleep(2 * ms)
		if diff := cmp.Diff([]int{2}, arrived()); diff != "" {
			t.Errorf("1 s after the first span (-want +got):\n%s", diff)
		}
		for range 513 { // a full batch does not wait, the one span after it does
			q.add(span("c"))
		}
		if diff := cmp.Diff([]int{2, 512}, arrived()); diff != "" {
			t.Errorf("a full batch (-want +got):\n%s", diff)
		}
		time.Sleep(time.Second)
		if diff := cmp.Diff([]int{2, 512, 1}, arrived()); diff != "" {
			t.Errorf("1 s later (-want +got):\n%s", diff)
		}
		closeQueue(t, q, time.Minute)
	})
}

func TestQueueDeadline(t *testing.T) {
	for name, heeds := range map[string]bool{"exporter heeds its context": true, "exporter does not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &fakeExporter{do: func(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
					if heeds {
						<-ctx.Done()
						return ctx.Err()
					}
					time.Sleep(time.Hour)
					return nil
				}}
				l := wide
				l.timeout = 2 * time.Hour
				q := newQueue(e, l)
				for range 1000 {
					q.add(span("request"))
				}
				before := time.Now()
				_, accepted, lost, first := closeQueue(t, q, 3*time.Second)
				if took := time.Since(before); took != 3*time.Second {
					t.Errorf("shutdown took %v, want 3 s", took)
				}
				if accepted != 0 || lost[semconv.LostShutdown] != 1000 || !strings.Contains(first, "1000 spans were not sent in time") {
					t.Errorf("accepted %d, lost %v, first error %q", accepted, lost, first)
				}
				q.add(span("late"))
				<-q.done // the export that was under way must not be counted again
				if ended, accepted, lost, _ := q.account(); ended != 1001 || accepted != 0 || lost[semconv.LostShutdown] != 1001 {
					t.Errorf("after all: ended %d, accepted %d, lost %v", ended, accepted, lost)
				}
			})
		})
	}
}

// What an exporter may answer, in the words of the OTLP exporters.
func TestQueueErrors(t *testing.T) {
	for _, c := range []struct {
		name     string
		do       func(n int) error
		accepted int64
		lost     map[string]int64
		first    string
	}{
		{
			"gone", func(int) error { return errors.New("connection refused") },
			0,
			map[string]int64{semconv.LostExport: 100},
			"connection refused",
		},
		{
			"partial success: 30 of 100 rejected",
			func(int) error {
				return errors.New("traces export: OTLP partial success: too\nold (30 spans rejected)")
			},
			70,
			map[string]int64{semconv.LostRejected: 30},
			"30 spans rejected",
		},
		{
			"partial success without loss is a warning",
			func(int) error {
				return errors.New("traces export: OTLP partial success: slow down (0 spans rejected)")
			},
			100, nil, "slow down",
		},
		{
			"partial success that claims too much", // a receiver is not trusted with our account
			func(int) error { return errors.New("OTLP partial success: x (900 spans rejected)") },
			0,
			map[string]int64{semconv.LostRejected: 100},
			"900",
		},
		{
			"too large for more than 10 spans", // halved until it fits: 12 and 13 do not
			func(n int) error {
				if n > 10 {
					return errors.New("rpc error: code = ResourceExhausted desc = grpc: received message larger than max (5 vs. 4)")
				}
				return nil
			},
			100, nil, "",
		},
		{
			"too large even alone",
			func(int) error {
				return errors.New("failed to send to http://x: 413 Request Entity Too Large (body: ...)")
			},
			0,
			map[string]int64{semconv.LostTooLarge: 100},
			"413",
		},
		{
			"a quota is no size", func(int) error { return errors.New("rpc error: code = ResourceExhausted desc = quota exceeded") },
			0,
			map[string]int64{semconv.LostExport: 100},
			"quota",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(&fakeExporter{do: func(_ context.Context, s []sdktrace.ReadOnlySpan) error { return c.do(len(s)) }}, wide)
				for range 100 {
					q.add(span("request"))
				}
				_, accepted, lost, first := closeQueue(t, q, time.Minute)
				if diff := cmp.Diff(fmt.Sprint(c.accepted, c.lost), fmt.Sprint(accepted, lost)); diff != "" {
					t.Errorf("accepted and lost (-want +got):\n%s", diff)
				}
				if !strings.Contains(first, c.first) || (c.first == "") != (first == "") {
					t.Errorf("first error %q, want %q", first, c.first)
				}
			})
		})
	}
}

// An export that hangs ends by its own timeout; the next batch gets its chance.
func TestQueueExportTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		e := &fakeExporter{do: func(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
			if calls++; calls > 1 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}}
		l := wide
		l.batchSpans = 10
		q := newQueue(e, l)
		for range 20 {
			q.add(span("request"))
		}
		_, accepted, lost, _ := closeQueue(t, q, time.Minute)
		if accepted != 10 || lost[semconv.LostExport] != 10 {
			t.Errorf("accepted %d, lost %v", accepted, lost)
		}
	})
}

func TestErrorText(t *testing.T) {
	long := errorText(errors.New(strings.Repeat("ä", 1000)))
	if len(long) > maxErrorText+len("…") || !strings.HasSuffix(long, "…") {
		t.Errorf("%d bytes, end %q", len(long), long[len(long)-5:])
	}
}
