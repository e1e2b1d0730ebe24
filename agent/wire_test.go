// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/semconv"
)

// stalling is a connection whose writer is not scheduled for a while after each write call, as on a busy machine.
type stalling struct {
	net.Conn
	stall time.Duration
}

func (s stalling) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	time.Sleep(s.stall)
	return n, err
}

// TestWireStampedLate: a request whose reply arrived before the instant of its last byte was recorded has no latency from the wire. It is
// counted, and the phases of its span still add up.
func TestWireStampedLate(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(trace, []byte(strings.Join(rows(3, 1000), "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		const prefill, stall = 5 * time.Millisecond, 8 * time.Millisecond
		// Each reply ends its connection, so that only the second row meets the stall.
		_, network, stop := serveVirtually(t, simulator.Config{
			Latency: simulator.Latency{Prefill: prefill}, Faults: simulator.Faults{Rates: map[simulator.Fault]float64{"close-after": 1}},
		})
		kept := &keepSpans{InMemoryExporter: tracetest.NewInMemoryExporter()}
		var due time.Time // of the second row
		cfg := Config{
			Trace: Trace{Name: trace}, Target: Target{URL: "http://engine", Model: "m"}, Prompt: Prompt{Endpoint: prompt.Completions},
			Out: filepath.Join(t.TempDir(), "out"), Waiter: schedule.NewSleeper,
			Progress: func(*Live) { due = time.Now().Add(time.Second) },
			DialContext: func(ctx context.Context, n, addr string) (net.Conn, error) {
				conn, err := network.Dial(ctx, n, addr)
				if away := time.Until(due); err == nil && away.Abs() < time.Second/2 {
					conn = stalling{conn, stall}
				}
				return conn, err
			},
		}
		cfg.Telemetry.SpanExporter = kept
		rep, err := Run(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		stop()
		f := rep.Figures()
		if f.Rows.Served != 3 || f.Connections.WireLate != 1 {
			t.Errorf("%d served, %d stamped late, want 3 and 1: %v", f.Rows.Served, f.Connections.WireLate, f.Errors)
		}
		for id, want := range map[measure.ID]float64{measure.TTFTWire: 5, measure.LatencyWire: 5, measure.HTTPWaiting: 5, measure.WireLag: 0} {
			if s, ok := f.Stat(id); !ok || s.Count != 2 || s.Min != want || s.Max != want {
				t.Errorf("%v: %+v, want two of %v", id, s, want)
			}
		}
		if s, _ := f.Stat(measure.TTFT); s.Count != 3 || s.Min != 5 {
			t.Errorf("from the start: %+v, want all three", s)
		}
		late, err := os.ReadFile(filepath.Join(cfg.Out, report.RequestsFile))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(strings.TrimSpace(string(late)), "\n") {
			var res struct {
				Result struct {
					Wire    *float64
					Unknown bool `json:"wire_unknown"`
				}
			}
			if err := json.Unmarshal([]byte(line), &res); err != nil {
				t.Fatal(err)
			}
			if late := i == 1; res.Result.Unknown != late || (res.Result.Wire == nil) != late {
				t.Errorf("row %d: %s", i, line)
			}
		}
		var table strings.Builder
		if err := rep.Table(&table, report.Width, false); err != nil || !strings.Contains(table.String(), "1 of 3 requests were answered before") {
			t.Errorf("error %v, table:\n%s", err, table.String())
		}
		checkAddsUp(t, kept.GetSpans())
	})
}

// checkAddsUp requires that the phases fill the span of the one request with the late timestamp.
func checkAddsUp(t *testing.T, spans tracetest.SpanStubs) {
	t.Helper()
	parts := make(map[string]time.Duration)
	for _, s := range spans {
		parts[s.Parent.SpanID().String()] += s.EndTime.Sub(s.StartTime)
	}
	flagged := 0
	for _, s := range spans {
		if s.Parent.IsValid() || s.Name == semconv.SpanMeasure {
			continue
		}
		if got, want := parts[s.SpanContext.SpanID().String()], s.EndTime.Sub(s.StartTime); got != want {
			t.Errorf("phases of %v in a span of %v", got, want)
		}
		for _, kv := range s.Attributes {
			switch string(kv.Key) {
			case semconv.WireUnknown:
				flagged++
			case semconv.GenAIResponseTimeToFirstChunk:
				if kv.Value.AsFloat64() != 0.005 {
					t.Errorf("time to the first chunk %v", kv.Value.AsFloat64())
				}
			}
		}
	}
	if flagged != 1 {
		t.Errorf("%d spans say that the wire is unknown, want 1", flagged)
	}
}
