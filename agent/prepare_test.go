// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/internal/simulator"
)

// TestPrepared begins requests before they are due, in virtual time. Whatever happens before a row is due, the row is sent exactly once,
// when it is due, or not at all.
func TestPrepared(t *testing.T) {
	const prepare, lead = 8 * time.Millisecond, 50 * time.Millisecond
	for _, tc := range []struct {
		name string
		// dial runs before each connection; n counts from 1.
		dial    func(n int64) error
		slow    time.Duration // each connection takes that long
		stop    time.Duration // the run's interrupt, in replay time; 0 = none
		served  int64
		skipped int64
		sent    int
		late    time.Duration // of the last row at the engine, which needs a new connection
	}{
		{name: "nothing unusual", served: 3, sent: 3},
		{name: "a connection is refused while a row is prepared, but not later", dial: func(n int64) error {
			if n == 2 { // a row that is being prepared
				return errors.New("refused")
			}
			return nil
		}, served: 3, sent: 3},
		{name: "connecting takes less time than the preparation", slow: prepare - time.Millisecond, served: 3, sent: 3},
		{name: "connecting takes more time than the preparation", slow: prepare + 5*time.Millisecond, served: 3, sent: 3, late: 5 * time.Millisecond},
		{name: "an interrupt while a row is ready", stop: 35 * time.Millisecond, served: 1, skipped: 2, sent: 1},
		{name: "an interrupt while a row is connecting", stop: 35 * time.Millisecond, slow: 7 * time.Millisecond, served: 1, skipped: 2, sent: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			trace := filepath.Join(t.TempDir(), "trace.jsonl")
			rows := `{"timestamp": 0, "input_length": 512, "output_length": 3, "hash_ids": [1]}
{"timestamp": 40, "input_length": 512, "output_length": 3, "hash_ids": [2]}
{"timestamp": 40, "input_length": 512, "output_length": 3, "hash_ids": [3]}
`
			if err := os.WriteFile(trace, []byte(rows), 0o600); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				e, network, stop := serveVirtually(t, simulator.Config{
					Latency: simulator.Latency{Prefill: 20 * time.Millisecond}, Record: simulator.Recording{Keep: 10},
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var dialled atomic.Int64
				rep, err := Run(ctx, Config{
					Trace: Trace{Name: trace}, Target: Target{URL: "http://engine", Model: "m"}, Prompt: Prompt{Endpoint: prompt.Completions},
					Schedule: Schedule{Prepare: prepare}, Lead: lead, Waiter: schedule.NewSleeper,
					Progress: func(*Live) {
						if tc.stop > 0 {
							time.AfterFunc(lead+tc.stop, cancel)
						}
					},
					DialContext: func(ctx context.Context, n, addr string) (net.Conn, error) {
						time.Sleep(tc.slow)
						if tc.dial != nil {
							if err := tc.dial(dialled.Add(1)); err != nil {
								return nil, err
							}
						}
						return network.Dial(ctx, n, addr)
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second) // net/http continues to dial for a request that was cancelled
				stop()
				f := rep.Figures()
				if f.Rows.Served != tc.served || f.Rows.Skipped != tc.skipped || f.Rows.Total != 3 {
					t.Errorf("%d served, %d skipped, want %d and %d: %+v", f.Rows.Served, f.Rows.Skipped, tc.served, tc.skipped, f.Errors)
				}
				records := slices.DeleteFunc(e.Records(), func(r *simulator.Record) bool { return r.Header.Get("X-Request-Id") == "" }) // the query about the vocabulary
				if len(records) != tc.sent {
					t.Fatalf("the engine had %d requests, want %d", len(records), tc.sent)
				}
				var last time.Duration
				for _, r := range records[1:] {
					at := r.Headers - records[0].Headers
					if at < 40*time.Millisecond {
						t.Errorf("a row was at the engine after %v, before it was due", at)
					}
					last = max(last, at)
				}
				if want := 40*time.Millisecond + tc.late; tc.sent > 1 && last != want {
					t.Errorf("the last row was at the engine after %v, want %v", last, want)
				}
				if s, ok := f.Stat(measure.Lateness); !ok || s.Max != 0 {
					t.Errorf("lateness %+v", s)
				}
				if s, ok := f.Stat(measure.WireLag); !ok || s.Max != tc.late.Seconds()*1e3 {
					t.Errorf("wire lag %+v, want at most %v", s, tc.late)
				}
			})
		})
	}
}

// TestPreparedSession: the span of a session whose first turn is prepared and then skipped does not end before it began.
func TestPreparedSession(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	rows := `{"timestamp": 0, "input_length": 512, "output_length": 3, "hash_ids": [1]}
{"timestamp": 40, "input_length": 512, "output_length": 3, "hash_ids": [2], "session_id": "a"}
`
	if err := os.WriteFile(trace, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		_, network, stop := serveVirtually(t, simulator.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		const lead = 50 * time.Millisecond
		kept := &keepSpans{InMemoryExporter: tracetest.NewInMemoryExporter()}
		cfg := Config{
			Trace: Trace{Name: trace}, Target: Target{URL: "http://engine", Model: "m"}, Prompt: Prompt{Endpoint: prompt.Completions},
			Schedule: Schedule{Prepare: 10 * time.Millisecond}, Lead: lead, Waiter: schedule.NewSleeper, DialContext: network.Dial,
			Progress: func(*Live) { time.AfterFunc(lead+35*time.Millisecond, cancel) },
		}
		cfg.Telemetry.SpanExporter = kept
		rep, err := Run(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		stop()
		if f := rep.Figures(); f.Rows.Served != 1 || f.Rows.Skipped != 1 {
			t.Errorf("%d served, %d skipped, want one of each", f.Rows.Served, f.Rows.Skipped)
		}
		sessions := 0
		for _, s := range kept.GetSpans() {
			if s.EndTime.Before(s.StartTime) {
				t.Errorf("span %s ends %v before it begins", s.Name, s.StartTime.Sub(s.EndTime))
			}
			if isRoot(s.Name) {
				sessions++
			}
		}
		if sessions != 1 {
			t.Errorf("%d spans of sessions, want 1", sessions)
		}
	})
}
