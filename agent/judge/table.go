// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package judge

import (
	_ "embed"
	"math"
	"strconv"
	"strings"
)

// rule maps a value to a class: a value of at most the field valid is Valid, a value above the field invalid is Invalid, and a value
// between them is Degraded.
type rule struct {
	metric string
	unit   string
	valid  float64
	// invalid is +Inf for a metric that can make a run degraded at worst.
	invalid float64
	// note is the bound above which a valid value is listed, too. It is not greater than valid; if it equals valid, no valid value is
	// listed.
	note  float64
	needs need
	value func(*Facts) Fact
}

//go:embed meanings.txt
var meanings string

// meaning returns the meaning of a value above the bound.
func (r *rule) meaning() string {
	_, rest, _ := strings.Cut("\n"+meanings, "\n"+r.metric+": ")
	text, _, _ := strings.Cut(rest, "\n")
	return text
}

// need is the evidence that a rule requires. Rules about facts (rows without a record, prompts of another length) require none, even in a
// small run. Rules about how often something happens by chance require so much evidence that a single event decides nothing.
type need struct {
	of     evidence
	enough float64
}

// evidence is a kind of evidence, and how much of it a run has.
type evidence struct {
	unit string
	have func(*Facts) float64
}

var (
	fact      = need{}
	scheduled = evidence{"scheduled requests", func(f *Facts) float64 { return float64(f.Scheduled) }}
	wired     = evidence{"requests on the wire", func(f *Facts) float64 { return float64(f.Wired) }}
	streams   = evidence{"streams", func(f *Facts) float64 { return float64(f.Streams) }}
	steady    = evidence{"steady requests", func(f *Facts) float64 {
		if !f.Steady {
			return math.Inf(1) // no evidence is needed: the value is then 0
		}
		return float64(f.SteadyRequests)
	}}
	seconds = evidence{"s", func(f *Facts) float64 { return f.Elapsed }}
)

// met reports whether a run has the evidence that a rule requires.
func (n need) met(f *Facts) bool { return n.of.have == nil || n.of.have(f) >= n.enough }

var never = math.Inf(1)

// rules is the whole table.
var rules = []rule{
	{"no_request_served", "", 0, 0, 0, fact, func(f *Facts) Fact { return Know(float64(1 - min(1, f.Served))) }},
	{"records_missing", "rows", 0, 0, 0, fact, func(f *Facts) Fact { return Know(math.Abs(float64(f.Rows - f.Records))) }},
	{"rows_rejected", "%", 0, 5, 0, fact, func(f *Facts) Fact { return f.RejectedShare }},
	{"lateness_p50", "ms", 1, 10, 1, need{scheduled, 10}, func(f *Facts) Fact { return f.LatenessP50 }},
	{"lateness_p99", "ms", 10, 250, 10, need{scheduled, 100}, func(f *Facts) Fact { return f.LatenessP99 }},
	{"lateness_max", "ms", 100, 2000, 100, fact, func(f *Facts) Fact { return f.LatenessMax }},
	{"lateness_explained", "ms", never, never, 10, fact, func(f *Facts) Fact { return f.LatenessExplained }},
	{"lateness_drift", "µs/s", 100, 1000, 100, need{scheduled, 10}, func(f *Facts) Fact { return f.Drift }},
	{"hiccup_share", "%", 10, 50, 1, need{seconds, 1}, func(f *Facts) Fact { return f.HiccupShare }},
	{"wire_lag_p99", "ms", 20, 2000, 20, need{wired, 100}, func(f *Facts) Fact { return f.WireLagP99 }},
	{"cap_wait_share", "%", 1, never, 1, fact, func(f *Facts) Fact { return f.CapWaitShare }},
	{"lookahead_stalls", "", 0, never, 0, fact, func(f *Facts) Fact { return f.LookAheadStalls }},
	{"coalesced_share", "%", 1, 20, 1, need{streams, 100}, func(f *Facts) Fact { return f.CoalescedShare }},
	{"unstamped_share", "%", 100, never, 0, fact, func(f *Facts) Fact { return f.UnstampedShare }},
	{"clock_step", "ms", 1, 50, 1, fact, func(f *Facts) Fact { return f.ClockStep }},
	{"cpu_share", "%", 70, 95, 70, need{seconds, 1}, func(f *Facts) Fact { return f.CPUShare }},
	{"gc_pause_max", "ms", 10, 250, 10, fact, func(f *Facts) Fact { return f.GCPauseMax }},
	{"gc_pause_share", "%", 1, 10, 1, need{seconds, 1}, func(f *Facts) Fact { return f.GCPauseShare }},
	{"throttled_share", "%", 1, 25, 0, need{seconds, 1}, func(f *Facts) Fact { return f.ThrottledShare }},
	{"prompt_tokens_different", "%", 0.1, 5, 0, fact, func(f *Facts) Fact { return f.PromptDifferent }},
	{"prompt_tokens_unknown", "%", 100, never, 0, fact, func(f *Facts) Fact { return f.PromptUnknown }},
	{"output_tokens_short", "%", 1, never, 0, fact, func(f *Facts) Fact { return f.OutputShort }},
	{"output_tokens_estimated", "%", 1, never, 0, fact, func(f *Facts) Fact { return f.EstimatedTokens }},
	{"output_tokens_unknown", "%", 1, never, 0, fact, func(f *Facts) Fact { return f.UncountedTokens }},
	{"retried_share", "%", 0.1, 5, 0, fact, func(f *Facts) Fact { return f.RetriedShare }},
	{"reconnected_share", "%", 1, never, 0, fact, func(f *Facts) Fact { return f.Reconnected }},
	{"failed_share", "%", 1, never, 0, fact, func(f *Facts) Fact { return f.FailedShare }},
	{"cut_off_share", "%", 1, never, 0, fact, func(f *Facts) Fact { return f.CutOffShare }},
	{"steady_latency_share", "%", 33, never, 33, need{steady, 100}, func(f *Facts) Fact {
		if !f.Steady { // then there is no steady state to be too short
			return Know(0)
		}
		return f.SteadyLatency
	}},
	{clocksMetric, "ms", 10, 250, 1, fact, func(f *Facts) Fact {
		if !f.Shards { // then there is one clock
			return Know(0)
		}
		return f.ClocksApart
	}},
	{"run_breaks", "", 0, never, 0, fact, func(f *Facts) Fact { return Know(float64(f.Breaks)) }},
	{"spans_lost", "%", 0, never, 0, fact, func(f *Facts) Fact { return f.SpansLost }},
	{"metric_exports_failed", "", 0, never, 0, fact, func(f *Facts) Fact { return f.MetricExportsFailed }},
}

// classify maps a known value to its class. Every value has exactly one, and a greater value never a better one.
func (r *rule) classify(v float64) Class {
	switch {
	case v > r.invalid:
		return Invalid
	case v > r.valid:
		return Degraded
	}
	return Valid
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

func withUnit(v, unit string) string {
	if unit == "" {
		return v
	}
	return v + " " + unit
}
