// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/internal/testport"
	"github.com/moonloop/moonloop/semconv"
)

// listen returns a listener on loopback that is closed with the test.
func listen(t *testing.T, addr string) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// blackHole returns an address at which the kernel accepts connections, and nobody ever answers.
func blackHole(t *testing.T) string {
	t.Helper()
	return listen(t, "127.0.0.1:0").Addr().String()
}

// nobody returns an address on which nothing listens.
func nobody(t *testing.T) string {
	t.Helper()
	return testport.Address(t)
}

// taking returns a function that starts a receiver and returns its address.
func taking(limit int, pause func()) func(*testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		ln := listen(t, "127.0.0.1:0")
		receiver(t, ln, limit, pause)
		return ln.Addr().String()
	}
}

// receiver starts an OTLP receiver over HTTP that accepts bodies up to a size, each after a pause.
func receiver(t *testing.T, ln net.Listener, limit int, pause func()) {
	t.Helper()
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			pause()
			body, err := io.ReadAll(r.Body)
			if err != nil || len(body) > limit {
				http.Error(w, "request body too large", http.StatusRequestEntityTooLarge)
			}
		}),
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(ln)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
}

// TestTelemetryOutage replays with OTLP endpoints that fail in different ways. Each replay serves all rows and ends, and its report says
// what was lost and why.
func TestTelemetryOutage(t *testing.T) {
	const n = 100
	for _, name := range []string{"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_TRACES_SAMPLER"} {
		t.Setenv(name, "")
	}
	var lines []string
	for i := range n {
		lines = append(lines, fmt.Sprintf(`{"timestamp": %d, "input_length": 100, "output_length": 10, "hash_ids": [%d]}`, 5*i, i))
	}
	e := newEngine(t, simulator.Config{Latency: simulator.Latency{Prefill: 5 * time.Millisecond, Decode: time.Millisecond}})
	run := func(t *testing.T, tel telemetry.Config, progress func(*Live)) replayed {
		t.Helper()
		tel.Linger = 250 * time.Millisecond
		r := e.replay(t, Config{Prompt: ids, Telemetry: tel, Progress: progress}, lines...)
		if r.err != nil {
			t.Fatal(r.err)
		}
		if rows := r.report.Figures().Rows; rows.Served != n {
			t.Errorf("%+v, want all %d served", rows, n)
		}
		return r
	}
	atOnce := func() {}
	slowly := func() { time.Sleep(100 * time.Millisecond) }
	var before int
	// If an export blocked the dispatch, it would wait for the last request, and the last request for it, until the export was cancelled.
	afterTheLast := func() {
		for len(e.Records())-before < n {
			time.Sleep(time.Millisecond)
		}
	}
	const all = 4*n + 1 // spans: request, queue, prefill, decode; the query of the vocabulary
	const (
		limitless          = 64 << 20
		overHTTP, overGRPC = telemetry.ProtocolHTTP, telemetry.ProtocolGRPC
	)
	for _, tc := range []struct {
		name     string
		endpoint func(*testing.T) string
		protocol string
		queue    int  // bytes; 0 = the default
		restarts bool // half-way
		// The only reason for which spans may be lost (why), and the bounds of their number (least, most).
		why         string
		least, most int64
	}{
		{"accepting", taking(limitless, atOnce), overHTTP, 0, false, semconv.LostExport, 0, 0},
		{"slow", taking(limitless, slowly), overHTTP, 0, false, semconv.LostExport, 0, 0},
		{"silent until the last request", taking(limitless, afterTheLast), overHTTP, 0, false, semconv.LostExport, 0, 0},
		{"black hole, HTTP", blackHole, overHTTP, 0, false, semconv.LostExport, all, all},
		{"black hole, gRPC", blackHole, overGRPC, 0, false, semconv.LostExport, all, all},
		{"black hole and a full queue", blackHole, overHTTP, 1, false, semconv.LostQueueFull, all, all},
		{"refusing, HTTP", nobody, overHTTP, 0, false, semconv.LostExport, all, all},
		{"refusing, gRPC", nobody, overGRPC, 0, false, semconv.LostExport, all, all},
		{"restarting, HTTP", nobody, overHTTP, 0, true, semconv.LostExport, 0, 0},
		{"over the size limit of a batch", taking(20<<10, atOnce), overHTTP, 0, false, semconv.LostTooLarge, 0, 0},
		{"over the size limit of a span", taking(100, atOnce), overHTTP, 0, false, semconv.LostTooLarge, all, all},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before = len(e.Records())
			address := tc.endpoint(t)
			var progress func(*Live)
			if tc.restarts {
				progress = func(*Live) {
					time.AfterFunc(300*time.Millisecond, func() { receiver(t, listen(t, address), limitless, atOnce) })
				}
			}
			patience := time.Minute // enough for a receiver that answers, however busy the machine is
			if tc.least == all && tc.why != semconv.LostTooLarge {
				patience = 300 * time.Millisecond
			}
			r := run(t, telemetry.Config{Endpoint: "http://" + address, Protocol: tc.protocol, QueueBytes: tc.queue, ExportTimeout: patience}, progress)
			tel := r.report.Telemetry
			if !tel.Enabled || tel.SpansEnded != all {
				t.Errorf("%+v, want %d spans ended", tel, all)
			}
			if got := tel.SpansLost[tc.why]; got < tc.least || got > tc.most || tel.Lost() != got {
				t.Errorf("lost %v of %d spans, %d accepted; want %d to %d for %q", tel.SpansLost, tel.SpansEnded, tel.SpansAccepted, tc.least, tc.most, tc.why)
			}
			told := strings.Contains(strings.Join(r.report.Warnings, "\n"), "telemetry is incomplete")
			if incomplete := tel.Lost() > 0 || tel.MetricExportsFailed > 0; told != incomplete {
				t.Errorf("%d spans lost, %d exports of metrics failed, warnings %q", tel.Lost(), tel.MetricExportsFailed, r.report.Warnings)
			}
			if tel.Lost() > 0 && r.report.Verdict.Class == judge.Valid {
				t.Error("a run whose spans are incomplete calls itself valid")
			}
		})
	}
}

// An interrupt does not wait for a black hole longer than the flush may take, and the counts are complete.
func TestInterruptDuringAnOutage(t *testing.T) {
	t.Setenv("OTEL_SDK_DISABLED", "")
	e := newEngine(t, simulator.Config{Latency: simulator.Latency{Prefill: time.Hour}})
	ctx, cancel := context.WithCancel(t.Context())
	cfg := Config{
		Prompt:    ids,
		Telemetry: telemetry.Config{Endpoint: "http://" + blackHole(t), ExportTimeout: 200 * time.Millisecond},
		Progress:  func(*Live) { time.AfterFunc(50*time.Millisecond, cancel) },
	}
	started := time.Now()
	r := e.replayContext(ctx, t, cfg, append(rows(2, 1), `{"timestamp": 3600000, "input_length": 100}`)...)
	if r.err != nil || r.report.ExitStatus != judge.ExitInterrupted || len(r.results) != 3 {
		t.Errorf("error %v, exit status %d, %d records", r.err, r.report.ExitStatus, len(r.results))
	}
	if tel := r.report.Telemetry; tel.Lost() == 0 || tel.Lost() != tel.SpansEnded {
		t.Errorf("%+v, want every span lost and counted", tel)
	}
	if took := time.Since(started); took > flushTime+time.Minute {
		t.Errorf("the end took %v", took)
	}
}
