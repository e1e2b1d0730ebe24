// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/moonloop/moonloop/semconv"
)

// wide are generous limits. A test narrows those that it is about.
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
	l := q.account()
	ended, accepted, lost, first = l.Ended, l.Accepted, l.Lost, l.FirstError
	sum := accepted
	for _, n := range lost {
		sum += n
	}
	if ended != sum {
		t.Errorf("%d spans ended, but %d accepted and lost %v", ended, accepted, lost)
	}
	return ended, accepted, lost, first
}

// A burst against a slow exporter loses nothing as long as the bytes fit. The SDK's batch processor loses 17,440 of these spans without a
// message.
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
				<-q.done // the export in progress must not be counted again
				if l := q.account(); l.Ended != 1001 || l.Accepted != 0 || l.Lost[semconv.LostShutdown] != 1001 {
					t.Errorf("after all: ended %d, accepted %d, lost %v", l.Ended, l.Accepted, l.Lost)
				}
			})
		})
	}
}

// The possible answers of an exporter, in the words of the OTLP exporters.
func TestQueueErrors(t *testing.T) {
	for _, c := range []struct {
		name     string
		do       func(n int) error
		accepted int64
		lost     map[string]int64
		first    string
	}{
		{
			"connection refused until the end", func(int) error { return errors.New("connection refused") },
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
			"partial success that claims too much", // a receiver cannot change our counts
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
			"a quota is not a size", func(int) error { return errors.New("rpc error: code = ResourceExhausted desc = quota exceeded") },
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

// An export that hangs ends by its own timeout. Its spans are retried, and none is lost.
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
		if accepted != 20 || len(lost) > 0 {
			t.Errorf("accepted %d, lost %v", accepted, lost)
		}
	})
}

// passing are the errors of a receiver that may soon be back or ready, in the words of the OTLP exporters.
var passing = map[string]error{
	"HTTP, refused": &url.Error{Op: "Post", URL: "http://x/v1/traces", Err: &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}},
	"HTTP, no name": &url.Error{Op: "Post", URL: "http://x/v1/traces", Err: &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "x"}}},
	"HTTP, reset":   &url.Error{Op: "Post", URL: "http://x/v1/traces", Err: &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}},
	"HTTP, closed":  &url.Error{Op: "Post", URL: "http://x/v1/traces", Err: io.EOF},
	"HTTP, no answer": fmt.Errorf("traces export: retry-able request failure: %w", // client timeout
		&url.Error{Op: "Post", URL: "http://x/v1/traces", Err: os.ErrDeadlineExceeded}),
	"HTTP 503":          errors.New("traces export: retry-able request failure: body: (empty)"),
	"gRPC, refused":     fmt.Errorf("traces export: exporter export timeout: %w", status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`)),
	"gRPC, closed":      fmt.Errorf("traces export: %w", status.Error(codes.Unavailable, "error reading from server: EOF")),
	"gRPC, no answer":   fmt.Errorf("traces export: %w", status.Error(codes.DeadlineExceeded, "context deadline exceeded")),
	"gRPC, overloaded":  fmt.Errorf("traces export: %w", status.Error(codes.Unavailable, "data refused due to high memory usage")),
	"an export's limit": context.DeadlineExceeded,
}

// A receiver that restarts, or is too slow for a while, costs no span, neither during the run nor at its end. A receiver that stays away
// costs all of them, and the end of the run does not wait longer for it than allowed.
func TestQueueOutage(t *testing.T) {
	for name, failure := range passing {
		for _, c := range []struct {
			what              string
			from, until, stop time.Duration // of the outage, and of the run
			lost              int64
		}{
			{"outage that ends before the run", 0, 40 * time.Second, 50 * time.Second, 0},
			{"outage at the end of the run", 9 * time.Second, 13 * time.Second, 10 * time.Second, 0},
			{"outage without an end", 0, time.Hour, 40 * time.Second, 100},
		} {
			t.Run(name+", "+c.what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					begun := time.Now()
					e := &fakeExporter{do: func(context.Context, []sdktrace.ReadOnlySpan) error {
						if at := time.Since(begun); at >= c.from && at < c.until {
							return failure
						}
						return nil
					}}
					l := wide
					l.batchSpans, l.timeout = 10, 5*time.Second
					q := newQueue(e, l)
					var want []string
					for i := range 100 {
						time.Sleep(c.stop / 100)
						q.add(span(fmt.Sprint(i)))
						want = append(want, fmt.Sprint(i))
					}
					end := time.Now()
					_, accepted, lost, first := closeQueue(t, q, time.Hour)
					if lost[semconv.LostExport] != c.lost || accepted != 100-c.lost || (first == "") != (c.lost == 0) {
						t.Errorf("%d accepted, lost %v, want %d; first error %q", accepted, lost, c.lost, first)
					}
					if took := time.Since(end); took > 10*time.Second {
						t.Errorf("the end took %v", took)
					}
					var got []string
					for _, s := range e.spans {
						got = append(got, s.Name())
					}
					if diff := cmp.Diff(want, got); diff != "" && c.lost == 0 {
						t.Errorf("order (-want +got):\n%s", diff)
					}
				})
			})
		}
	}
}

// During an outage, the queue keeps what it has room for. Further spans are lost to the full queue, and the rest arrives.
func TestQueueOutageIsBounded(t *testing.T) {
	one := spanSize(span("request"))
	synctest.Test(t, func(t *testing.T) {
		back := false
		e := &fakeExporter{do: func(context.Context, []sdktrace.ReadOnlySpan) error {
			if back {
				return nil
			}
			return passing["gRPC, no answer"]
		}}
		l := wide
		l.queueBytes, l.batchBytes, l.messageBytes = 1000*one, 10*one, 100*one
		q := newQueue(e, l)
		for range 1500 {
			q.add(span("request"))
		}
		time.Sleep(time.Minute)
		if l := q.account(); l.Accepted != 0 || l.Lost[semconv.LostQueueFull] != 500 || l.FirstError == "" || q.bytes != 1000*one {
			t.Errorf("in the outage %d accepted, lost %v, %d bytes held, first error %q", l.Accepted, l.Lost, q.bytes, l.FirstError)
		}
		back = true
		_, accepted, lost, _ := closeQueue(t, q, time.Minute)
		if accepted != 1000 || lost[semconv.LostQueueFull] != 500 || len(lost) != 1 || q.bytes != 0 {
			t.Errorf("accepted %d, lost %v, %d bytes held", accepted, lost, q.bytes)
		}
		if q.account().Resent == 0 {
			t.Error("nothing was sent twice, although no answer came")
		}
	})
}

// A receiver that needs a second for each span gets fewer at a time, until it answers in time.
func TestQueueSlowReceiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &fakeExporter{do: func(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
			select {
			case <-time.After(time.Duration(len(spans)) * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		l := wide
		l.messageBytes = l.batchBytes
		q := newQueue(e, l)
		for range 200 {
			q.add(span("request"))
		}
		_, accepted, lost, first := closeQueue(t, q, time.Hour)
		if accepted != 200 || len(lost) > 0 || first != "" {
			t.Errorf("accepted %d, lost %v, %s", accepted, lost, first)
		}
	})
}

func TestErrorText(t *testing.T) {
	long := errorText(errors.New(strings.Repeat("ä", 1000)))
	if len(long) > maxErrorText+len("…") || !strings.HasSuffix(long, "…") {
		t.Errorf("%d bytes, end %q", len(long), long[len(long)-5:])
	}
}
