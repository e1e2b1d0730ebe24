// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"regexp"
	"slices"
	"testing"

	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/semconv"
)

// TestUnrecordedRequests: each request has a trace context of its own. Requests that are in no trace of the run have the flag "not
// sampled", so that a capture of the engine's telemetry does not count them as production.
func TestUnrecordedRequests(t *testing.T) {
	recorded := regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-01$`)
	unrecorded := regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-00$`)
	for _, tc := range []struct {
		name      string
		telemetry bool
		rows      *regexp.Regexp
	}{{"with telemetry", true, recorded}, {"without telemetry", false, unrecorded}} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := Config{Schedule: Schedule{Warmup: 3}} // chat, which is calibrated
			spans := new(received)
			if tc.telemetry {
				cfg.Telemetry.SpanExporter = spans
			}
			r := newEngine(t, simulator.Config{}).replay(t, cfg,
				`{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]}`,
				`{"timestamp": 1, "input_length": 600, "output_length": 1, "hash_ids": [1, 3]}`)
			if r.err != nil {
				t.Fatal(r.err)
			}
			if len(r.sent) != 2 || len(r.warmups) != 3 || len(r.other) < 2 {
				t.Fatalf("%d rows, %d warm-ups, %d requests of calibration", len(r.sent), len(r.warmups), len(r.other))
			}
			var seen []string
			for _, kind := range []struct {
				name string
				sent []*simulator.Record
				want *regexp.Regexp
			}{{"row", r.sent, tc.rows}, {"warm-up", r.warmups, unrecorded}, {"calibration", r.other, unrecorded}} {
				for _, rec := range kind.sent {
					parent := rec.Header.Get("Traceparent")
					if !kind.want.MatchString(parent) {
						t.Errorf("%s: traceparent %q, want %s", kind.name, parent, kind.want)
					}
					if seen = append(seen, parent[:min(len(parent), 35)]); slices.Contains(seen[:len(seen)-1], seen[len(seen)-1]) {
						t.Errorf("%s: trace %s is another request's, too", kind.name, parent)
					}
				}
			}
			// If a gateway drops these headers, a capture recognises such requests by the ids of their responses.
			for _, kind := range []struct {
				span string
				sent int
			}{{"calibration", len(r.other)}, {"warmup", len(r.warmups)}} {
				ids := make(map[string]bool)
				for _, s := range spans.named(kind.span) {
					for _, kv := range s.Attributes() {
						if kv.Key == semconv.GenAIResponseID {
							ids[kv.Value.AsString()] = true
						}
						if kv.Key == semconv.Row {
							t.Errorf("%s: its span has a row", kind.span)
						}
					}
					if run, _ := s.Resource().Set().Value(semconv.RunID); run.AsString() != "run" || s.EndTime().Before(s.StartTime()) {
						t.Errorf("%s: span of run %q from %v to %v", kind.span, run.AsString(), s.StartTime(), s.EndTime())
					}
				}
				want := kind.sent
				if !tc.telemetry {
					want = 0
				}
				if len(ids) != want || len(spans.named(kind.span)) != want {
					t.Errorf("%s: %d spans with %d responses' ids, want %d", kind.span, len(spans.named(kind.span)), len(ids), want)
				}
			}
		})
	}
}
