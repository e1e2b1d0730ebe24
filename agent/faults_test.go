// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/internal/simulator"
)

// TestFaultRecords checks what a row's record says after each fault of the engine. The row counts as served only if its reply is complete,
// and the lengths of prompt and reply are compared with the requested ones. Package send has the table of every fault on the wire.
func TestFaultRecords(t *testing.T) {
	for _, tc := range []struct {
		fault           simulator.Fault
		outcome, reason string
		prompt, output  string // agreement
	}{
		{"crlf", "served", "", "equal", "equal"},
		{"tiny-writes", "served", "", "equal", "equal"},
		{"joined-tokens", "served", "", "equal", "equal"},
		{"no-usage", "served", "", "unknown", "unknown"},
		{"usage-zero", "served", "", "equal", "equal"},
		{"short-output", "served", "", "equal", "different"}, // although the finish reason is length
		{"short-prompt", "served", "", "different", "equal"},
		{"rate-limit", "failed", "rate_limited", "unknown", "unknown"},
		{"not-found", "failed", "404", "unknown", "unknown"},
		{"html", "failed", "protocol", "unknown", "unknown"},
		{"refuse", "failed", "transport", "unknown", "unknown"},
		{"cut", "failed", "transport", "unknown", "unknown"},
		{"stream-error", "failed", "stream_error", "unknown", "unknown"},
		{"stream-error-done", "failed", "stream_error", "unknown", "unknown"},
		{"other-finish", "failed", "abort", "unknown", "unknown"},
		{"silent-end", "failed", "incomplete", "unknown", "unknown"},
		{"done-only", "failed", "incomplete", "unknown", "unknown"},
		{"stall", "failed", "idle_timeout", "unknown", "unknown"},
		{"endless-line", "failed", "limit", "unknown", "unknown"},
		{"choice-unfinished", "failed", "incomplete", "unknown", "unknown"},
	} {
		t.Run(string(tc.fault)+": "+tc.outcome+" "+tc.reason, func(t *testing.T) {
			e := newEngine(t, simulator.Config{Faults: simulator.Faults{Rates: map[simulator.Fault]float64{tc.fault: 1}}})
			cfg := Config{Prompt: ids, Target: Target{Model: "m"}}
			if tc.fault == "stall" {
				cfg.Target.IdleTimeout = 100 * time.Millisecond
			}
			r := e.replay(t, cfg, `{"timestamp": 0, "input_length": 100, "output_length": 8, "hash_ids": [1]}`)
			if r.err != nil || len(r.results) != 1 {
				t.Fatalf("error %v, results %+v", r.err, r.results)
			}
			got := r.results[0].Result
			if got.Outcome != tc.outcome || got.Reason != tc.reason {
				t.Errorf("%s %s, %s", got.Outcome, got.Reason, got.Message)
			}
			for _, a := range []struct{ what, got, want string }{{"prompt", got.Prompt, tc.prompt}, {"output", got.Output, tc.output}} {
				if a.got == "" {
					a.got = "unknown"
				}
				if a.got != a.want {
					t.Errorf("%s agreement %s, want %s", a.what, a.got, a.want)
				}
			}
		})
	}
}

// TestWholeWithoutUsage: replies that are not streamed and have no usage are served, and have no number of output tokens: the report says of how
// many this is so, and no figure counts each of them as one token.
func TestWholeWithoutUsage(t *testing.T) {
	e := newEngine(t, simulator.Config{Faults: simulator.Faults{Rates: map[simulator.Fault]float64{"no-usage": 1}}})
	r := e.replay(t, Config{Prompt: Prompt{Endpoint: prompt.Completions, Form: prompt.Tokens, NoStream: true}, Target: Target{Model: "m"}},
		`{"timestamp": 0, "input_length": 100, "output_length": 8, "hash_ids": [1]}`, `{"timestamp": 5, "input_length": 100, "output_length": 8, "hash_ids": [2]}`)
	if r.err != nil {
		t.Fatal(r.err)
	}
	f := r.report.Figures()
	if f.Rows.Served != 2 || f.Tokens.Uncounted != 2 || f.Tokens.Estimated != 0 {
		t.Errorf("%+v, %+v", f.Rows, f.Tokens)
	}
	for id, s := range f.All {
		switch id {
		case measure.TotalOutput, measure.TokenThroughput, measure.TotalThroughput, measure.OutputLength, measure.RequestTokenThroughput, measure.TPOTWithFirst:
			t.Errorf("%s: %+v", id, s)
		}
	}
	var b strings.Builder
	if err := r.report.Table(&b, report.Width, false); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{
		"200 input tokens ", "the number of output tokens is not known: 2; no figure of output tokens includes them", "output_tokens_unknown 100 % > 1 %",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the report does not say %q:\n%s", want, &b)
		}
	}
	if strings.Contains(text, "output tokens counted in chunks") {
		t.Errorf("the report estimates tokens:\n%s", &b)
	}
}
