// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/internal/testpipe"
	"github.com/moonloop/moonloop/semconv"
)

// serveVirtually serves an engine on a network in memory. stop ends both, and returns when nothing of them is running.
func serveVirtually(t *testing.T, cfg simulator.Config) (e *simulator.Engine, network *testpipe.Network, stop func()) {
	t.Helper()
	e, err := simulator.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	network = testpipe.New()
	unserve := network.Serve(e.NewServer())
	return e, network, func() {
		unserve()
		_ = e.Close()
	}
}

// TestVirtualTime replays a trace with everything real except the clock and the network: scheduler, HTTP client and server, SSE reader,
// spans. None of them may add a nanosecond.
func TestVirtualTime(t *testing.T) {
	// A trace on a 3 s grid like the public one: bursts at one instant.
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	const n = 1000
	w := bufio.NewWriter(f)
	for i := range n {
		fmt.Fprintf(w, `{"timestamp": %d, "input_length": %d, "output_length": %d, "hash_ids": [0, %d]}`+"\n", 3000*(i/9), 600+i%400, 1+i%17, i+1)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	replayVirtually(t, path, n, 1)
}

// replayVirtually replays a trace in a bubble and requires that no timing is off by anything.
func replayVirtually(t *testing.T, path string, n int, speedup float64) {
	t.Helper()
	const (
		prefill = 70 * time.Millisecond
		step    = 20 * time.Millisecond
	)
	synctest.Test(t, func(t *testing.T) {
		_, network, stop := serveVirtually(t, simulator.Config{
			Latency: simulator.Latency{Prefill: prefill, Decode: step},
			Record:  simulator.Recording{Keep: n + 10},
		})
		spans := tracetest.NewInMemoryExporter()
		kept := &keepSpans{InMemoryExporter: spans}
		cfg := Config{
			Trace:       Trace{Name: path},
			Target:      Target{URL: "http://engine", Model: "m"},
			Prompt:      Prompt{Endpoint: prompt.Completions},
			Schedule:    Schedule{Speedup: speedup},
			Out:         filepath.Join(t.TempDir(), "out"),
			RunID:       "run",
			DialContext: network.Dial,
			Waiter:      schedule.NewSleeper,
		}
		cfg.Telemetry.SpanExporter = kept
		rep, err := Run(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		stop()

		f := rep.Figures()
		if f.Rows.Served != int64(n) {
			t.Fatalf("%d of %d rows served; %v", f.Rows.Served, n, f.Errors)
		}
		for id, want := range map[measure.ID]float64{
			measure.Lateness:     0,
			measure.TTFTWire:     prefill.Seconds() * 1e3,
			measure.TTFT:         prefill.Seconds() * 1e3,
			measure.TTFTIntended: prefill.Seconds() * 1e3,
			measure.InterChunk:   step.Seconds() * 1e3,
			measure.ITL:          step.Seconds() * 1e3,
			measure.WireLag:      0,
		} {
			s, ok := f.Stat(id)
			if !ok || s.Min != want || s.Max != want || s.Count == 0 {
				t.Errorf("%v: min %v, max %v of %d, want exactly %v", id, s.Min, s.Max, s.Count, want)
			}
		}
		checkVirtualSpans(t, spans.GetSpans(), n, prefill, step)
	})
}

// checkVirtualSpans requires that the phases of each request span are exact to the nanosecond.
func checkVirtualSpans(t *testing.T, spans tracetest.SpanStubs, n int, prefill, step time.Duration) {
	t.Helper()
	children := make(map[string]time.Duration)
	requests := 0
	for _, s := range spans {
		if s.Parent.IsValid() {
			children[s.Parent.SpanID().String()+s.Name] += s.EndTime.Sub(s.StartTime)
		}
	}
	for _, s := range spans {
		if s.Parent.IsValid() || s.Name == semconv.SpanMeasure {
			continue
		}
		requests++
		id := s.SpanContext.SpanID().String()
		total := s.EndTime.Sub(s.StartTime)
		queue, pre, dec := children[id+semconv.PhaseQueue], children[id+semconv.PhasePrefill], children[id+semconv.PhaseDecode]
		tokens := len(s.Events)
		if queue != 0 || pre != prefill || dec != time.Duration(tokens-1)*step || queue+pre+dec != total {
			t.Fatalf("span of %v: queue %v, prefill %v, decode %v with %d tokens", total, queue, pre, dec, tokens)
		}
		for i, ev := range s.Events {
			if want := s.StartTime.Add(prefill + time.Duration(i)*step); !ev.Time.Equal(want) {
				t.Fatalf("token %d at %v, want %v", i, ev.Time, want)
			}
		}
	}
	if requests != n {
		t.Errorf("%d request spans, want %d", requests, n)
	}
}

// keepSpans keeps its spans when it is shut down, unlike the exporter that it wraps.
type keepSpans struct{ *tracetest.InMemoryExporter }

func (keepSpans) Shutdown(context.Context) error { return nil }

var _ sdktrace.SpanExporter = keepSpans{}

// TestAcceptanceVirtualTime does the same for the whole public trace: an hour of traffic in seconds.
func TestAcceptanceVirtualTime(t *testing.T) {
	path := os.Getenv("MOONLOOP_TRACE")
	if path == "" {
		t.Skip("MOONLOOP_TRACE does not name the public trace; make acceptance sets it")
	}
	replayVirtually(t, path, 12031, 1)
}
