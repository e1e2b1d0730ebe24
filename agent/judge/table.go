// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"math"
	"strconv"
)

// rule maps one fact to a class: valid up to and including valid, invalid above invalid, degraded between.
type rule struct {
	metric string
	unit   string
	valid  float64
	// invalid is +Inf for what can make a run degraded and no more.
	invalid float64
	// note: above it a valid value is named all the same. It is at most valid; equal means never.
	note  float64
	needs need
	value func(*Facts) Fact
	text  string // what a value past the bound means
	why   string // why the bounds are where they are
}

// need is what a rule's value must rest on to be evidence. Rules about what has happened (rows without a record, prompts of
// another length) need nothing: they are facts however small the run is. Rules about how often something happens by chance
// need so much of it that one event alone decides nothing.
type need struct {
	of     evidence
	enough float64
}

// evidence is something that a run has much or little of.
type evidence struct {
	unit string
	have func(*Facts) float64
}

var (
	fact      = need{}
	scheduled = evidence{"scheduled requests", func(f *Facts) float64 { return float64(f.Scheduled) }}
	wired     = evidence{"requests on the wire", func(f *Facts) float64 { return float64(f.Wired) }}
	streams   = evidence{"streams", func(f *Facts) float64 { return float64(f.Streams) }}
	seconds   = evidence{"s", func(f *Facts) float64 { return f.Elapsed }}
)

// met reports whether a run has what a rule needs.
func (n need) met(f *Facts) bool { return n.of.have == nil || n.of.have(f) >= n.enough }

// String writes the need for people: "100 scheduled requests".
func (n need) String() string {
	if n.of.have == nil {
		return ""
	}
	return number(n.enough) + " " + n.of.unit
}

var never = math.Inf(1)

// rules is the whole judgement. A row without a note names only what is not valid.
var rules = []rule{
	{
		"no_request_served", "", 0, 0, 0, fact,
		func(f *Facts) Fact { return truth(f.Served == 0) },
		"no request was served, there is nothing to measure",
		"a run without a served request has no figures",
	},
	{
		"records_missing", "rows", 0, 0, 0, fact,
		func(f *Facts) Fact { return Know(math.Abs(float64(f.Rows - f.Records))) },
		"rows and records do not match: a row has no record, or more than one",
		"every row ends as exactly one record; anything else is a defect of the tool",
	},
	{
		"rows_rejected", "%", 0, 5, 0, fact,
		func(f *Facts) Fact { return percent(f.RejectedShare) },
		"so many of the trace's rows could not be used: the load and what it shares are those of the rest",
		"a row that is missing takes its load and its blocks with it; above 5 % it is another workload",
	},
	{
		"lateness_p50", "ms", 1, 10, 1,
		need{scheduled, 10},
		func(f *Facts) Fact { return f.LatenessP50 },
		"half of the requests went out at least this late",
		"a timer on an idle machine is good for 0.1 ms; past 10 ms bursts have another shape",
	},
	{
		"lateness_p99", "ms", 10, 250, 10,
		need{scheduled, 100},
		func(f *Facts) Fact { return f.LatenessP99 },
		"one request in a hundred went out at least this late",
		"10 ms is a scheduling quantum of a busy machine; 250 ms is as long as a good time to first token",
	},
	{
		"lateness_max", "ms", 100, 2000, 100, fact,
		func(f *Facts) Fact { return f.LatenessMax },
		"the latest request went out this late",
		"one straggler does not spoil a run; 2 s means that the client stood still",
	},
	{
		"lateness_explained", "ms", never, never, 10, fact,
		func(f *Facts) Fact { return f.LatenessExplained },
		"hiccups of the machine explain this much of the 99th percentile of lateness; it is judged by hiccup_share",
		"a note: the machine was held up, not the tool",
	},
	{
		"lateness_drift", "µs/s", 100, 1000, 100,
		need{scheduled, 10},
		func(f *Facts) Fact { return f.Drift },
		"lateness grows over the run: the client cannot keep up",
		"100 µs/s is 0.36 s after an hour, 1000 µs/s is 3.6 s; 0 where it adds up to at most 1 ms over the run",
	},
	{
		"hiccup_share", "%", 10, 50, 1,
		need{seconds, 1},
		func(f *Facts) Fact { return percent(f.HiccupShare) },
		"the machine held this process up for this part of the time",
		"below 10 % nine requests in ten meet none; above 50 % the client's instants are chance",
	},
	{
		"wire_lag_p99", "ms", 20, 2000, 20,
		need{wired, 100},
		func(f *Facts) Fact { return f.WireLagP99 },
		"one request in a hundred took this long from dispatch to the wire (connection, upload)",
		"20 ms is a handshake or the upload of a long prompt; past 2 s the engine sees other arrivals than the trace's",
	},
	{
		"cap_wait_share", "%", 1, never, 1, fact,
		func(f *Facts) Fact { return percent(f.CapWaitShare) },
		"so many requests waited for the concurrency cap: the schedule was not held",
		"a cap is asked for, so it never makes a run invalid, but the arrivals are no longer the trace's",
	},
	{
		"lookahead_stalls", "", 0, never, 0, fact,
		func(f *Facts) Fact { return f.LookAheadStalls },
		"more rows than allowed were held back at once, for their session or a slot: the trace was not read on, and rows after them were late",
		"what it did to the instants is in the lateness",
	},
	{
		"coalesced_share", "%", 1, 20, 1,
		need{streams, 100},
		func(f *Facts) Fact { return percent(f.CoalescedShare) },
		"so many gaps between chunks are unknown: chunks sent apart were read together",
		"above 1 % the low percentiles of the gaps are not the engine's, above 20 % the gaps are not",
	},
	{
		"unstamped_share", "%", 100, never, 0, fact,
		func(f *Facts) Fact { return percent(f.UnstampedShare) },
		"so many streams were stamped after the read, not by the kernel: gaps carry the client's scheduling delay",
		"a note: such gaps are good to about 1 ms on a machine with idle time",
	},
	{
		"clock_step", "ms", 1, 50, 1, fact,
		func(f *Facts) Fact { return f.ClockStep },
		"the wall clock moved against the monotonic clock, and kernel stamps with it",
		"1 ms is a clock that is being slewed over a short run; 50 ms bends a time to first token",
	},
	{
		"cpu_share", "%", 70, 95, 70,
		need{seconds, 1},
		func(f *Facts) Fact { return percent(f.CPUShare) },
		"the client used this much of its processors",
		"above 70 % reads begin to batch, above 95 % the client is the bottleneck",
	},
	{
		"gc_pause_max", "ms", 10, 250, 10, fact,
		func(f *Facts) Fact { return f.GCPauseMax },
		"the garbage collector stopped the client for this long",
		"the bounds of lateness_p99: a pause delays whatever falls into it",
	},
	{
		"gc_pause_share", "%", 1, 10, 1,
		need{seconds, 1},
		func(f *Facts) Fact { return percent(f.GCPauseShare) },
		"the garbage collector stopped the client for this part of the time",
		"1 % touches one request in a hundred",
	},
	{
		"throttled_share", "%", 1, 25, 0,
		need{seconds, 1},
		func(f *Facts) Fact { return percent(f.ThrottledShare) },
		"the container's CPU quota held the client back for this part of the time: raise the limit",
		"as hiccup_share, but stricter, because it can be cured",
	},
	{
		"prompt_tokens_different", "%", 0.1, 5, 0, fact,
		func(f *Facts) Fact { return percent(f.PromptDifferent) },
		"so many prompts had another number of tokens at the server than the row asks for",
		"with token ids or after calibration none differs; above 5 % it is another workload",
	},
	{
		"prompt_tokens_unknown", "%", 100, never, 0, fact,
		func(f *Facts) Fact { return percent(f.PromptUnknown) },
		"for so many requests the row or the server gives no number of prompt tokens, so they are unproven",
		"a note: unknown is not wrong",
	},
	{
		"output_tokens_short", "%", 1, never, 0, fact,
		func(f *Facts) Fact { return percent(f.OutputShort) },
		"so many replies were shorter than the row asks for: the decode load is lower than the trace's",
		"an engine without ignore_eos cannot do better, so the run is labelled and not refused",
	},
	{
		"output_tokens_estimated", "%", 1, never, 0, fact,
		func(f *Facts) Fact { return percent(f.EstimatedTokens) },
		"for so many replies the server gave no usage: their tokens are counted in chunks",
		"a chunk may hold several tokens, so throughputs and per-token latencies are estimates",
	},
	{
		"retried_share", "%", 0.1, 5, 0, fact,
		func(f *Facts) Fact { return percent(f.RetriedShare) },
		"so many requests were sent more than once (retries, or connections that died): load that the trace does not have",
		"retries are off by default; what was sent twice is out of the latencies",
	},
	{
		"failed_share", "%", 1, never, 0, fact,
		func(f *Facts) Fact { return percent(f.FailedShare) },
		"so many of the requests failed: the figures describe the rest",
		"1 % is what a run may fail by default; the figures of the rest stand, whatever the share",
	},
	{
		"spans_lost", "%", 0, never, 0, fact,
		func(f *Facts) Fact { return percent(f.SpansLost) },
		"so many spans did not reach the collector",
		"a trace rebuilt from the spans is incomplete, but the figures come from the run itself and stand",
	},
	{
		"metric_exports_failed", "", 0, never, 0, fact,
		func(f *Facts) Fact { return f.MetricExportsFailed },
		"metrics did not reach the collector",
		"cumulative metrics catch up with the next export; the report does not depend on them",
	},
}

func truth(bad bool) Fact {
	if bad {
		return Know(1)
	}
	return Know(0)
}

func percent(f Fact) Fact { return Fact{f.V * 100, f.Known} }

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

// bound writes a bound for people.
func (r *rule) bound(v float64) string { return withUnit(number(v), r.unit) }

func number(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }

func withUnit(v, unit string) string {
	if unit == "" {
		return v
	}
	return v + " " + unit
}
