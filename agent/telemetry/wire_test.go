// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon" //nolint:depguard // an independent receiver to test against
	"go.opentelemetry.io/collector/pdata/ptrace"  //nolint:depguard // an independent receiver to test against

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// Everything in a trace's row can be restored from the spans of its replay, over both transports of OTLP, configured by the environment
// and by the configuration.
func TestRowsOverTheWire(t *testing.T) {
	rows := []mooncake.Row{
		{
			Timestamp: mooncake.Some(0.0), InputLength: mooncake.Some(int64(6758)), OutputLength: mooncake.Some(int64(500)),
			HashIDs: []uint64{0, 1, 2, 3},
		},
		{ // the limits of a signed and an unsigned 64-bit number
			Timestamp: mooncake.Some(27482.0), InputLength: mooncake.Some(int64(1)), OutputLength: mooncake.Some(int64(0)),
			HashIDs: []uint64{1<<63 - 1, 1 << 63, 1<<63 + 1, math.MaxUint64 - 1, math.MaxUint64},
		},
		{ // a timestamp with digits below 1 ms and above what a float32 holds; an empty list of ids
			Timestamp: mooncake.Some(1758000000123.456), InputLength: mooncake.Some(int64(math.MaxInt64)),
			OutputLength: mooncake.Some(int64(math.MaxInt32 + 1)), HashIDs: []uint64{},
		},
		{ // a session, and the production span that the row was captured from
			Timestamp: mooncake.Some(3000.0), InputLength: mooncake.Some(int64(512)), OutputLength: mooncake.Some(int64(3)),
			HashIDs: []uint64{77}, SessionID: "0123456789abcdef",
			OTel: mooncake.SpanRef{TraceID: [16]byte{0xaa, 15: 1}, SpanID: [8]byte{0xbb, 7: 2}},
		},
		{TextInput: mooncake.Some("hello")}, // the text of a prompt is not on the span
	}
	want := append([]mooncake.Row(nil), rows...)
	want[4] = mooncake.Row{}

	for _, c := range []struct {
		name string
		env  func(*collector) []string
		cfg  func(*collector, *Config)
	}{
		{name: "gRPC by the environment", env: func(c *collector) []string {
			return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.grpc, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}
		}},
		{name: "HTTP by the environment", env: func(c *collector) []string {
			return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.http}
		}},
		{name: "gRPC by the configuration", cfg: func(c *collector, cfg *Config) { cfg.Endpoint, cfg.Protocol = c.grpc, ProtocolGRPC }},
		{name: "HTTP by the configuration", cfg: func(c *collector, cfg *Config) { cfg.Endpoint = c.http + "/" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			col := startCollector(t)
			cfg := target
			cleanEnv(t)
			if c.env != nil {
				cleanEnv(t, c.env(col)...)
			}
			if c.cfg != nil {
				c.cfg(col, &cfg)
			}
			p, clk := start(t, cfg)
			if p == nil {
				t.Fatal("telemetry is off")
			}
			ids := make(map[pcommon.SpanID]bool)
			for i := range rows {
				r := served(5)
				r.Row, r.Index = &rows[i], int64(i)
				ids[pcommon.SpanID(finish(p, nil, r).Ref().SpanID)] = true
			}
			loss := shutdown(t, p)
			if !loss.Complete() || loss.Ended != 20 || loss.MetricExports == 0 || loss.MetricFailures != 0 {
				t.Errorf("loss %+v", loss)
			}
			if diff := cmp.Diff(want, col.rows(t)); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			if got := col.traces.SpanCount(); got != 20 {
				t.Errorf("%d spans arrived, want 5 requests with 3 phases each", got)
			}
			if col.metrics.DataPointCount() == 0 {
				t.Error("no metrics arrived")
			}
			col.spans(func(res pcommon.Resource, s ptrace.Span) {
				if v, _ := res.Attributes().Get(semconv.RunID); v.Str() != "run-1" {
					t.Errorf("resource: run id %q", v.Str())
				}
				if !ids[s.SpanID()] {
					return
				}
				// Instants to the nanosecond.
				nanos := func(d time.Duration) pcommon.Timestamp { return pcommon.NewTimestampFromTime(clk.Wall(d)) }
				if s.StartTimestamp() != nanos(100*ms) || s.EndTimestamp() != nanos(190*ms) || s.Events().Len() != 5 {
					t.Errorf("span from %v to %v with %d events", s.StartTimestamp(), s.EndTimestamp(), s.Events().Len())
				}
				for i, event := range s.Events().All() {
					if event.Timestamp() != nanos(150*ms+time.Duration(i)*10*ms) {
						t.Errorf("event %d at %v", i, event.Timestamp())
					}
				}
			})
		})
	}
}

// 200 spans with 2,000 token events are 25 MB: in the SDK's batches of 512 spans they exceed gRPC's 4 MiB, and none of them arrives. Under
// the race detector, which makes this ten times as slow, the test uses a quarter (-short): still over 4 MiB.
func TestLongSpansOverGRPC(t *testing.T) {
	col := startCollector(t)
	cleanEnv(t)
	cfg := target
	cfg.Endpoint, cfg.Protocol = col.grpc, ProtocolGRPC
	p, _ := start(t, cfg)
	n := 200
	if testing.Short() {
		n /= 4
	}
	for i := range n {
		r := served(2000)
		r.Index = int64(i)
		finish(p, nil, r)
	}
	loss := shutdown(t, p)
	if !loss.Complete() || loss.Ended != int64(4*n) || col.traces.SpanCount() != 4*n || loss.FirstError != "" {
		t.Errorf("%d spans arrived, %+v", col.traces.SpanCount(), loss)
	}
	events := 0
	col.spans(func(_ pcommon.Resource, s ptrace.Span) { events += s.Events().Len() })
	if events != n*2000 {
		t.Errorf("%d token events arrived", events)
	}
}

// If batches are too large for the receiver, the spans still arrive, in halves.
func TestTooLargeBatchesOverTheWire(t *testing.T) {
	col := startCollector(t)
	for name, set := range map[string]func(*Config){
		"gRPC": func(c *Config) { c.Endpoint, c.Protocol = col.grpc, ProtocolGRPC },
		"HTTP": func(c *Config) { c.Endpoint = col.http },
	} {
		t.Run(name, func(t *testing.T) {
			col.traces.Reset()
			cleanEnv(t)
			cfg := target
			cfg.BatchBytes = 64 << 20
			set(&cfg)
			p, _ := start(t, cfg)
			for range 45 { // about 6 MB
				finish(p, nil, served(2000))
			}
			loss := shutdown(t, p)
			if !loss.Complete() || col.traces.SpanCount() != 180 {
				t.Errorf("%d spans arrived, %+v", col.traces.SpanCount(), loss)
			}
		})
	}
}

// No receiver listens: everything is counted, and the end comes in time.
func TestExporterDown(t *testing.T) {
	for _, protocol := range []string{ProtocolGRPC, ProtocolHTTP} {
		t.Run(protocol, func(t *testing.T) {
			cleanEnv(t)
			cfg := target
			cfg.Endpoint, cfg.Protocol = "http://"+freeAddr(t), protocol
			p, _ := start(t, cfg)
			for range 100 {
				finish(p, nil, served(10))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 500*ms)
			defer cancel()
			done := make(chan Loss, 1)
			go func() {
				loss, err := p.Shutdown(ctx)
				if err != nil {
					t.Error(err)
				}
				done <- loss
			}()
			select {
			case loss := <-done:
				if loss.Ended != 400 || loss.Accepted != 0 || loss.LostSpans() != 400 || loss.FirstError == "" {
					t.Errorf("%+v", loss)
				}
				if loss.MetricFailures == 0 {
					t.Error("the metrics' failure was not counted")
				}
			case <-time.After(30 * time.Second): // far from the deadline of 500 ms, for a busy machine
				t.Fatal("shutdown does not end")
			}
		})
	}
}
