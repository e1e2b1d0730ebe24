// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// received are the spans that a receiver has, message by message.
type received struct {
	mu    sync.Mutex
	spans []sdktrace.ReadOnlySpan
	check func([]sdktrace.ReadOnlySpan) // called with all spans so far after each message; may be nil
}

func (r *received) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = append(r.spans, spans...)
	if r.check != nil {
		r.check(r.spans)
	}
	return nil
}

func (*received) Shutdown(context.Context) error { return nil }

// named returns the spans of a name.
func (r *received) named(name string) (found []sdktrace.ReadOnlySpan) {
	for _, s := range r.spans {
		if s.Name() == name {
			found = append(found, s)
		}
	}
	return found
}

// TestSpansOfEveryEnding: however a request ends, its span has the same attributes of the request as the span of a served one. Attributes
// of a request that was not made are absent.
func TestSpansOfEveryEnding(t *testing.T) {
	const row = `{"timestamp": 0, "session_id": "a", "input_length": 100, "output_length": 8, "hash_ids": [1]}`
	keys := func(t *testing.T, name string, cfg Config, lines ...string) []string {
		t.Helper()
		simulated := simulator.Config{Latency: simulator.Latency{Decode: time.Millisecond}}
		if name != "" {
			simulated = simulator.Config{Faults: simulator.Faults{Rates: map[simulator.Fault]float64{simulator.Fault(name): 1}}}
		}
		got := new(received)
		cfg.Telemetry.SpanExporter, cfg.Prompt.Endpoint, cfg.Target.Model = got, ids.Endpoint, "m"
		virtually(t, simulated, func(t bubble, e engine) {
			if r := e.replay(t, cfg, lines...); r.err != nil {
				t.Fatal(r.err)
			}
		})
		spans := got.named("text_completion m")
		if len(spans) != len(lines) {
			t.Fatalf("%d request spans of %d rows", len(spans), len(lines))
		}
		var keys []string
		last := slices.IndexFunc(spans, func(s sdktrace.ReadOnlySpan) bool { // of the rows: spans come in the order in which they end
			return slices.Contains(s.Attributes(), attribute.Int(semconv.Row, len(lines)-1))
		})
		if last < 0 {
			t.Fatal("no span of the last row")
		}
		for _, kv := range spans[last].Attributes() {
			key := string(kv.Key)
			if !slices.ContainsFunc([]string{"gen_ai.response.", "gen_ai.usage.", "http.", semconv.RequestResendCount, semconv.ChunksCoalesced, semconv.WireUnknown}, func(of string) bool {
				return strings.HasPrefix(key, of)
			}) {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		return keys
	}
	served := keys(t, "", Config{}, row)
	for _, want := range []string{semconv.GenAIRequestStream, semconv.GenAIRequestMaxTokens, semconv.GenAIRequestModel, semconv.Row} {
		if !slices.Contains(served, want) {
			t.Errorf("a served request has no %s", want)
		}
	}
	without := func(keys ...string) []string {
		return slices.DeleteFunc(slices.Clone(served), func(k string) bool { return slices.Contains(keys, k) })
	}
	and := func(have []string, more ...string) []string {
		return slices.Sorted(slices.Values(append(slices.Clone(have), more...)))
	}
	failed := and(served, semconv.ErrorType)
	second := strings.Replace(row, `"timestamp": 0`, `"timestamp": 1`, 1)
	for _, tc := range []struct {
		name, fault string
		cfg         Config
		rows        []string
		want        []string
	}{
		{"429", "rate-limit", Config{}, []string{row}, failed},
		{"500", "server-error", Config{}, []string{row}, failed},
		{"refused", "refuse", Config{}, []string{row}, failed},
		{"cut", "cut", Config{}, []string{row}, failed},
		{"idle", "stall", Config{Target: Target{IdleTimeout: 50 * time.Millisecond}}, []string{row}, failed},
		{"first token late", "stall", Config{Target: Target{FirstTokenTimeout: 50 * time.Millisecond, IdleTimeout: time.Second}}, []string{row}, failed},
		{"cancelled", "stall", Config{Schedule: Schedule{MaxDuration: 200 * time.Millisecond, Grace: time.Millisecond}}, []string{row}, failed},
		{"not streamed", "", Config{Prompt: Prompt{NoStream: true}}, []string{row}, without(semconv.GenAIRequestStream)},
		{"not streamed, failed", "server-error", Config{Prompt: Prompt{NoStream: true}}, []string{row}, and(without(semconv.GenAIRequestStream), semconv.ErrorType)},
		{
			"skipped: no request was made", "server-error",
			Config{Trace: Trace{Sessions: mooncake.SessionFull}},
			[]string{row, second},
			and(without(semconv.GenAIRequestStream, semconv.GenAIRequestMaxTokens, semconv.ScheduleLateness, semconv.LatenessClass), semconv.OutcomeReason),
		},
		{
			"unsendable: no request could be made", "",
			Config{Trace: Trace{Sessions: mooncake.SessionDelta}, Prompt: Prompt{Overhead: 1}},
			[]string{strings.Replace(row, `"hash_ids"`, `"extra": {"prompt": "x"}, "hash_ids"`, 1)},
			and(without(semconv.GenAIRequestStream, semconv.GenAIRequestMaxTokens, semconv.CachePredictedTokens), semconv.ErrorType),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, keys(t, tc.fault, tc.cfg, tc.rows...)); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRowsSkippedAtTheEnd: a row that a run skips because it ends has its turn, in its record and on its span, and its span is in the trace of
// its session if that has begun.
func TestRowsSkippedAtTheEnd(t *testing.T) {
	const row = `{"timestamp": %d, "session_id": "%s", "input_length": 10, "output_length": 2}`
	lines := []string{
		fmt.Sprintf(row, 0, "a"), fmt.Sprintf(row, 10, "a"), fmt.Sprintf(row, 60_000, "a"), fmt.Sprintf(row, 60_001, "b"),
		fmt.Sprintf(row, 60_002, "a"), fmt.Sprintf(row, 60_003, "b"), `{"timestamp": 60004, "input_length": 10, "output_length": 2}`,
	}
	turns := []int{0, 1, 2, 0, 3, 1, 0}
	for reason, stop := range map[string]func(*Config, func()){
		measure.SkipInterrupted: func(c *Config, cancel func()) { c.Progress = func(*Live) { time.AfterFunc(time.Second, cancel) } },
		measure.SkipDuration:    func(c *Config, _ func()) { c.Schedule.MaxDuration = time.Second },
	} {
		t.Run(reason, func(t *testing.T) {
			virtually(t, simulator.Config{}, func(t bubble, e engine) {
				got := new(received)
				cfg := Config{Prompt: ids, Trace: Trace{Sessions: mooncake.SessionFull}, Target: Target{Model: "m"}}
				cfg.Telemetry.SpanExporter = got
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stop(&cfg, cancel)
				r := e.replayContext(ctx, t, cfg, lines...)
				if r.err != nil {
					t.Fatal(r.err)
				}
				for row, res := range r.results {
					if is := res.Result; is.Turn != turns[row] || is.Reason != map[bool]string{true: reason}[row > 1] {
						t.Errorf("row %d: %s %s, turn %d; want turn %d", row, is.Outcome, is.Reason, is.Turn, turns[row])
					}
				}
				roots := make(map[trace.TraceID]bool)
				for _, s := range got.spans {
					if isRoot(s.Name()) {
						roots[s.SpanContext().TraceID()] = true
					}
				}
				spans := got.named("text_completion m")
				for _, s := range spans {
					row, turn, session := int64(-1), int64(0), ""
					for _, kv := range s.Attributes() {
						switch kv.Key {
						case semconv.Row:
							row = kv.Value.AsInt64()
						case semconv.Turn:
							turn = kv.Value.AsInt64()
						case semconv.Session:
							session = kv.Value.AsString()
						}
					}
					if below := s.Parent().IsValid() && roots[s.SpanContext().TraceID()]; row < 0 || turn != int64(turns[row]) || below != (session == "a") {
						t.Errorf("row %d of session %q: turn %d, below its session: %v", row, session, turn, below)
					}
				}
				if len(spans) != len(lines) || len(roots) != 1 {
					t.Errorf("%d spans of %d rows, %d sessions", len(spans), len(lines), len(roots))
				}
			})
		})
	}
}

// TestSessionsWhileTheyRun: whenever the process is killed, the receiver has the parent of each span that it has: the request, or its
// session's root. Nothing waits for the end of the run, and the counts are exact.
func TestSessionsWhileTheyRun(t *testing.T) {
	e := newEngine(t, simulator.Config{Latency: simulator.Latency{Prefill: 5 * time.Millisecond, Decode: time.Millisecond}})
	const sessions, turns = 8, 3
	var lines []string
	for turn := range turns {
		for i := range sessions {
			hashes := []string{fmt.Sprint(100 * i), fmt.Sprint(100*i + 1), fmt.Sprint(100*i + 2)}[:turn+1]
			lines = append(lines, fmt.Sprintf(`{"session_id": "s%d", "timestamp": %d, "input_length": %d, "output_length": 3, "hash_ids": [%s]}`,
				i, 120*turn+i, 512*(turn+1), strings.Join(hashes, ", ")))
		}
	}
	lines = append(lines, `{"timestamp": 370, "input_length": 100, "output_length": 3, "hash_ids": [7777]}`)
	for _, batch := range []int{1, 3, 512} {
		t.Run(fmt.Sprint("messages of ", batch), func(t *testing.T) {
			early := make(map[trace.TraceID]bool) // roots that arrived before their session's last turn
			got := &received{check: func(spans []sdktrace.ReadOnlySpan) {
				have := make(map[trace.SpanID]bool)
				requests := make(map[trace.TraceID]int)
				for _, s := range spans {
					have[s.SpanContext().SpanID()] = true
					if strings.HasPrefix(s.Name(), "text_completion") {
						requests[s.SpanContext().TraceID()]++
					}
				}
				for _, s := range spans {
					if s.Parent().IsValid() && !have[s.Parent().SpanID()] {
						t.Errorf("%s has come, its parent has not", s.Name())
					}
					if isRoot(s.Name()) && requests[s.SpanContext().TraceID()] < turns {
						early[s.SpanContext().TraceID()] = true
					}
				}
			}}
			cfg := Config{Prompt: ids}
			cfg.Telemetry.SpanExporter, cfg.Telemetry.BatchSpans, cfg.Telemetry.Linger = got, batch, time.Millisecond
			r := e.replay(t, cfg, lines...)
			if r.err != nil {
				t.Fatal(r.err)
			}
			tel := r.report.Telemetry
			// The last one is the span of the request for the vocabulary.
			if want := int64(4*len(lines) + sessions + 1); tel.SpansEnded != want || tel.SpansAccepted != want || int64(len(got.spans)) != want {
				t.Errorf("%d spans ended, %d accepted, %d came; want %d", tel.SpansEnded, tel.SpansAccepted, len(got.spans), want)
			}
			roots := make(map[trace.TraceID]bool)
			for _, s := range got.spans {
				if isRoot(s.Name()) {
					roots[s.SpanContext().TraceID()] = true
				}
			}
			// On a busy machine one message may have all spans; with a few spans in each message, the order is certain.
			if len(roots) != sessions || len(early) != sessions && batch < 512 {
				t.Errorf("%d sessions have roots, %d of which came before the session was over; want %d", len(roots), len(early), sessions)
			}
		})
	}
}

// isRoot reports whether a span of this name is the root of a session.
func isRoot(name string) bool { return strings.HasPrefix(name, semconv.SpanSession+" ") }
