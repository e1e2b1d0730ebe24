// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/semconv"
)

// TestGraphs replays random graphs in virtual time. The trace and the engine's latency alone determine when each request is sent and ends:
// every span must have exactly these times.
func TestGraphs(t *testing.T) {
	const (
		prefill  = 70 * time.Millisecond
		decode   = 20 * time.Millisecond
		speedup  = 2.
		n        = 300
		perGraph = 12
	)
	rng := rand.New(rand.NewPCG(1, 2))
	starts, ends := make([]time.Duration, n), make([]time.Duration, n)
	waits := make([][]int64, n)
	var lines strings.Builder
	for i := range n {
		graph, output := i/perGraph, 1+rng.IntN(20)
		var names []string
		if i%perGraph > 1 { // two roots
			for j := graph * perGraph; j < i; j++ {
				if rng.IntN(3) == 0 || j == i-1 && waits[i] == nil {
					waits[i] = append(waits[i], int64(j))
					names = append(names, fmt.Sprintf(`"r%d"`, j))
				}
			}
		}
		// The timestamps are those of an engine that was slower than this one.
		stamp, delay, tool := 500*graph+1000*(i%perGraph), rng.IntN(300), rng.IntN(300)
		fmt.Fprintf(&lines, `{"timestamp": %d, "input_length": 600, "output_length": %d, "delay": %d, "tool_wait_ms": %d, "session_id": "s%d", "request_id": "r%d", "wait_for": [%s]}`+"\n",
			stamp, output, delay, tool, graph, i, strings.Join(names, ", "))
		starts[i] = time.Duration(float64(stamp)/speedup) * time.Millisecond
		if waits[i] != nil {
			starts[i] = 0
			for _, j := range waits[i] {
				starts[i] = max(starts[i], ends[j])
			}
			starts[i] += time.Duration(float64(delay+tool) / speedup * float64(time.Millisecond))
		}
		ends[i] = starts[i] + prefill + time.Duration(output-1)*decode
	}
	path := filepath.Join(t.TempDir(), "graphs.jsonl")
	if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		_, network, stop := serveVirtually(t, simulator.Config{Latency: simulator.Latency{Prefill: prefill, Decode: decode}})
		spans := tracetest.NewInMemoryExporter()
		kept := &keepSpans{InMemoryExporter: spans}
		cfg := Config{
			Trace:       Trace{Name: path},
			Target:      Target{URL: "http://engine", Model: "m"},
			Prompt:      Prompt{Endpoint: prompt.Completions},
			Schedule:    Schedule{Speedup: speedup},
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
		if s, _ := f.Stat(measure.Lateness); f.Rows.Served != n || s.Max != 0 {
			t.Errorf("%d of %d rows served, the latest %v ms late", f.Rows.Served, n, s.Max)
		}
		rows := map[int]tracetest.SpanStub{}
		for _, s := range spans.GetSpans() {
			for _, a := range s.Attributes {
				if a.Key == semconv.Row {
					rows[int(a.Value.AsInt64())] = s
				}
			}
		}
		if len(rows) != n {
			t.Fatalf("%d spans of requests, want %d", len(rows), n)
		}
		zero := rows[0].StartTime // row 0 is due at 0
		for i, s := range rows {
			if start, end := s.StartTime.Sub(zero), s.EndTime.Sub(zero); start != starts[i] || end != ends[i] {
				t.Errorf("row %d from %v to %v, want %v to %v", i, start, end, starts[i], ends[i])
			}
			var said []int64
			for _, a := range s.Attributes {
				if a.Key == semconv.WaitFor {
					said = a.Value.AsInt64Slice()
				}
			}
			if !slices.Equal(said, waits[i]) {
				t.Errorf("row %d waited for %v, says its span, want %v", i, said, waits[i])
			}
		}
	})
}
