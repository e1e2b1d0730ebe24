// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/semconv"
)

// TestDisconnect: the chosen requests are cancelled when the given time has passed since they were sent. The others are served, and none
// counts as a failure.
func TestDisconnect(t *testing.T) {
	const n, after = 200, 500 * time.Millisecond
	for _, stream := range []bool{true, false} {
		cfg := Config{Disconnect: Disconnect{Share: 0.25, After: after}, Schedule: Schedule{Arrivals: load.Arrivals{Rate: 10, Pattern: load.Constant}}}
		cfg.MaxErrorRate, cfg.Prompt.NoStream = new(0.), !stream
		spans := tracetest.NewInMemoryExporter()
		cfg.Telemetry.SpanExporter = keepSpans{spans}
		rep, got := inVirtualTime(t, simulator.Config{Latency: simulator.Latency{Prefill: 2 * time.Second}}, cfg, rows(n, 10)...)
		s := &sender{disconnect: cfg.Disconnect}
		chosen := int64(0)
		for i, rec := range got {
			switch held := rec.Ended - rec.Headers; {
			case s.hangsUp(int64(i)):
				chosen++
				if rec.Outcome != simulator.ClientGone || held != after {
					t.Errorf("stream %v, row %d: %s after %v, want a client that leaves after %v", stream, i, rec.Outcome, held, after)
				}
			case rec.Outcome != simulator.Finished:
				t.Errorf("stream %v, row %d: %s after %v, want a whole reply", stream, i, rec.Outcome, held)
			}
		}
		if is := rep.Figures().Rows; chosen < n/8 || chosen > n/2 || is != (measure.Rows{Total: n, Served: n - chosen, Disconnected: chosen}) {
			t.Errorf("stream %v: %d chosen; counted %+v", stream, chosen, is)
		}
		if rep.ExitStatus != judge.ExitOK || rep.Verdict.Class == judge.Invalid || len(rep.Figures().Errors) > 0 {
			t.Errorf("stream %v: exit status %d, verdict %+v, errors %v", stream, rep.ExitStatus, rep.Verdict, rep.Figures().Errors)
		}
		if rep.Schedule.DisconnectShare != 0.25 || rep.Schedule.DisconnectAfter != 500 {
			t.Errorf("the summary says %+v", rep.Schedule)
		}
		told := int64(0)
		for _, span := range spans.GetSpans() {
			outcome, failed := "", span.Status.Code == codes.Error
			for _, a := range span.Attributes {
				if string(a.Key) == semconv.Outcome {
					outcome = a.Value.AsString()
				}
				failed = failed || string(a.Key) == semconv.ErrorType
			}
			if outcome == semconv.OutcomeDisconnected {
				told++
				if failed {
					t.Error("the span of a disconnected request is marked as a failure")
				}
			}
		}
		if told != chosen {
			t.Errorf("stream %v: %d spans have the outcome disconnected, want %d", stream, told, chosen)
		}
	}
}

// TestDisconnectTooLate: a cancellation after the end of the reply has no effect.
func TestDisconnectTooLate(t *testing.T) {
	cfg := Config{Disconnect: Disconnect{Share: 1, After: 3 * time.Second}}
	rep, _ := inVirtualTime(t, simulator.Config{Latency: simulator.Latency{Prefill: 2 * time.Second}}, cfg, rows(9, 10)...)
	if is := rep.Figures().Rows; is.Served != 9 {
		t.Errorf("%+v, want 9 served", is)
	}
}

// TestDisconnectAtOnce: without a delay the connection is closed when the request has been sent.
func TestDisconnectAtOnce(t *testing.T) {
	rep, got := inVirtualTime(t, simulator.Config{Latency: simulator.Latency{Prefill: time.Second}}, Config{Disconnect: Disconnect{Share: 1}}, rows(9, 10)...)
	if is := rep.Figures().Rows; is.Disconnected != 9 || len(got) != 9 || rep.Verdict.Class != judge.Invalid {
		t.Errorf("%+v, %d requests, verdict %v: want 9, and nothing measured", is, len(got), rep.Verdict.Class)
	}
}

// TestDisconnectInASession: after a cancelled turn, the next turn is sent, unless it needs the reply.
func TestDisconnectInASession(t *testing.T) {
	row := func(at, tokens int, ids string) string {
		return fmt.Sprintf(`{"session_id": "a", "timestamp": %d, "input_length": %d, "output_length": 1, "hash_ids": [%s]}`, at, tokens, ids)
	}
	cfg := Config{Disconnect: Disconnect{Share: 1, After: 100 * time.Millisecond}}
	_, got := inVirtualTime(t, simulator.Config{Latency: simulator.Latency{Prefill: time.Second}}, cfg, row(0, 600, "0, 1"), row(10, 1200, "0, 1, 2"))
	if _, at := order(got); len(at) != 2 || at[1] != 100*time.Millisecond {
		t.Errorf("turns came at %v", at)
	}
	rep, got := inVirtualTime(t, simulator.Config{Latency: simulator.Latency{Prefill: time.Second}}, cfg, row(0, 600, "0, 1"), row(10, 600, "2, 3"))
	if is := rep.Figures().Rows; len(got) != 1 || is.Disconnected != 1 || is.Skipped != 1 {
		t.Errorf("a prompt needs the reply before it: %d turns came; counted %+v", len(got), is)
	}
}

// TestDisconnectShare: over rows and seeds, the share is the requested one, and no row is always chosen.
func TestDisconnectShare(t *testing.T) {
	const n, seeds, share = 2000, 20, 0.1
	times := make(map[int64]int)
	for seed := range uint64(seeds) {
		s, chosen := &sender{disconnect: Disconnect{Share: share}, seed: seed}, 0
		for i := range int64(n) {
			if s.hangsUp(i) {
				chosen++
				times[i]++
			}
		}
		if sigma := math.Sqrt(n * share * (1 - share)); math.Abs(float64(chosen)-n*share) > 5*sigma {
			t.Errorf("seed %d: %d of %d", seed, chosen, n)
		}
	}
	for i, k := range times {
		if k > 12 { // by chance, fewer than one row in a hundred million is chosen by so many of 20 seeds
			t.Errorf("row %s is chosen by %d of %d seeds", strconv.FormatInt(i, 10), k, seeds)
		}
	}
	if (&sender{disconnect: Disconnect{Share: 1}}).hangsUp(-1) {
		t.Error("a warm-up request is disconnected")
	}
}
