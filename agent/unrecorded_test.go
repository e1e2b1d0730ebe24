// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"regexp"
	"slices"
	"testing"

	"github.com/moonloop/moonloop/internal/simulator"
)

// TestUnrecordedRequests: each request has a trace context of its own. Those that are in no trace of the run's say "not sampled", so
// that a capture beside the engine does not take what the engine would record of them for production.
func TestUnrecordedRequests(t *testing.T) {
	recorded := regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-01$`)
	unrecorded := regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-00$`)
	for _, tc := range []struct {
		name      string
		telemetry bool
		rows      *regexp.Regexp
	}{{"with telemetry", true, recorded}, {"without", false, unrecorded}} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := Config{Schedule: Schedule{Warmup: 3}} // chat, which is calibrated
			if tc.telemetry {
				cfg.Telemetry.SpanExporter = new(received)
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
		})
	}
}
