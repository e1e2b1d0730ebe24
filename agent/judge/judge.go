// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package judge decides whether the figures of a run can be trusted.
//
// It does not judge the engine: goals do that. It judges whether the client, its machine and its telemetry did what the trace
// required. Only then do the figures describe the engine.
//
// # The table
//
// Each metric is valid up to the first bound, degraded up to the second, and invalid above it. The class of the run is the worst of
// these. An unknown metric is listed, and does not change the verdict. A metric with less data than it needs is not judged; then the
// run is too small to judge, unless another metric makes it worse. For example, the 99th percentile of three requests is their maximum,
// and the share of one hiccup in 50 ms is chance. So a percentile needs so many values that one lies beyond it (a median needs ten,
// five on either side). A share of events that happen by chance, such as coalesced gaps, needs a count so large that a single case does
// not exceed the first bound. (Streams are counted, because the gaps of a stream are coalesced together.) A share of time needs a run in
// which a single delay of 100 ms, which every machine has, does not make it invalid. Shares of facts, such as failed requests, need
// nothing: metrics without a need are judged in every run. Lateness is judged by the part that hiccups of the machine, measured in the
// same run, do not explain; hiccups are judged by their own share of the time. The last column gives the reason for the bounds. They are
// the same for every run, so that verdicts can be compared.
//
//	metric                   valid ≤     invalid >   needs                     because
//	no_request_served        0           0                                     a run without a served request has no figures
//	records_missing          0 rows      0 rows                                every row ends as exactly one record; anything else is a defect of the tool
//	rows_rejected            0 %         5 %                                   a row that is missing takes its load and its blocks with it; above 5 % it is another workload
//	lateness_p50             1 ms        10 ms       10 scheduled requests     a timer on an idle machine is good to 0.1 ms; past 10 ms bursts have another shape
//	lateness_p99             10 ms       250 ms      100 scheduled requests    10 ms is a scheduling quantum of a busy machine; 250 ms is as long as a good time to first token
//	lateness_max             100 ms      2000 ms                               one straggler does not spoil a run; 2 s means that the client stood still
//	lateness_explained       always      never                                 a note: the machine was held up, not the tool
//	lateness_drift           100 µs/s    1000 µs/s   10 scheduled requests     100 µs/s is 0.36 s after an hour, 1000 µs/s is 3.6 s; 0 where it adds up to at most 1 ms over the run
//	hiccup_share             10 %        50 %        1 s                       below 10 % nine requests in ten meet none; above 50 % the client's timestamps are arbitrary
//	wire_lag_p99             20 ms       2000 ms     100 requests on the wire  20 ms is a handshake, a large image or the upload of a long prompt; past 2 s the engine sees other arrivals than the trace's
//	cap_wait_share           1 %         never                                 a cap is asked for, so it never makes a run invalid, but the arrivals are no longer the trace's
//	lookahead_stalls         0           never                                 its effect on the send times is in the lateness
//	coalesced_share          1 %         20 %        100 streams               above 1 % the low percentiles of the gaps are not the engine's, above 20 % the gaps are not
//	unstamped_share          100 %       never                                 a note: such gaps are good to about 1 ms on a machine with idle time
//	clock_step               1 ms        50 ms                                 1 ms is a clock that is being slewed over a short run; 50 ms distorts a time to first token
//	cpu_share                70 %        95 %        1 s                       above 70 % reads begin to batch, above 95 % the client is the bottleneck
//	gc_pause_max             10 ms       250 ms                                the bounds of lateness_p99: a pause delays whatever falls into it
//	gc_pause_share           1 %         10 %        1 s                       1 % touches one request in a hundred
//	throttled_share          1 %         25 %        1 s                       as hiccup_share, but stricter, because it can be cured
//	prompt_tokens_different  0.1 %       5 %                                   with token ids or after calibration none differs; above 5 % it is another workload
//	prompt_tokens_unknown    100 %       never                                 a note: unknown is not wrong
//	output_tokens_short      1 %         never                                 an engine without ignore_eos cannot do better, so the run is labelled and not refused
//	output_tokens_estimated  1 %         never                                 a chunk may hold several tokens, so throughputs and per-token latencies are estimates
//	output_tokens_unknown    1 %         never                                 as output_tokens_short: the figures of the rest stand, but throughputs are too low
//	retried_share            0.1 %       5 %                                   retries are off by default; requests that were sent twice are not in the latencies
//	reconnected_share        1 %         never                                 as failed_share, because without retries they would have failed; the engine had no load that the trace does not have
//	failed_share             1 %         never                                 1 % is what a run may fail by default; the figures of the rest stand, whatever the share
//	cut_off_share            1 %         never                                 as failed_share: the slowest requests are missing from the latencies, but the figures of the rest stand
//	steady_latency_share     33 %        never       100 steady requests       a state is steady when what was in flight has been replaced a few times
//	shard_clocks             10 ms       250 ms                                the bounds of lateness_p99: a request may be this much later than those of other shards
//	run_breaks               0           never                                 what was in flight is lost, and the engine may have forgotten what it had cached; the figures of each part stand
//	spans_lost               0 %         never                                 a trace rebuilt from the spans is incomplete, but the figures come from the run itself and stand
//	metric_exports_failed    0           never                                 cumulative metrics catch up with the next export; the report does not depend on them
package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Class says how far a run can be trusted.
type Class uint8

// The classes, from good to bad.
const (
	Valid     Class = iota // the figures are the engine's
	Undecided              // no fault was found, but the run is too small to exclude one
	Degraded               // usable, if the reasons are taken into account
	Invalid                // not a measurement of what was asked
)

var classNames = [...]string{"valid", "undecided", "degraded", "invalid"}

// String returns the class for people, in lower case. Undecided is "too few to judge".
func (c Class) String() string {
	if c == Undecided {
		return "too few to judge"
	}
	return classNames[c]
}

// Text returns the text for people for the class that a word names, such as "too few to judge" for "undecided". It returns any other text
// as it is.
func Text(word string) string {
	if i := slices.Index(classNames[:], word); i >= 0 {
		return Class(i).String() //nolint:gosec // an index of classNames
	}
	return word
}

// Word returns the class as one word: valid, undecided, degraded or invalid.
func (c Class) Word() string { return classNames[c] }

// Words returns the words of all classes, from good to bad.
func Words() []string { return classNames[:] }

// MarshalText writes the class as one word: valid, undecided, degraded or invalid.
func (c Class) MarshalText() ([]byte, error) { return []byte(classNames[c]), nil }

// UnmarshalText reads what MarshalText writes.
func (c *Class) UnmarshalText(text []byte) error {
	i := slices.Index(classNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("class %q: want valid, undecided, degraded or invalid", text)
	}
	*c = Class(i) //nolint:gosec // an index of classNames
	return nil
}

// Reason is one metric that is not valid, or valid and worth a note.
type Reason struct {
	Metric string  `json:"metric"`
	Value  float64 `json:"value"`
	// Bound is the greatest value of the next better class. If the class is valid, it is the greatest value without a note.
	Bound float64 `json:"bound"`
	Unit  string  `json:"unit,omitempty"`
	Class Class   `json:"class"`
	Text  string  `json:"text"`
	// Shard is the shard that has the value, if the run has several; empty = all shards together.
	Shard string `json:"shard,omitempty"`
}

// String returns the reason as one line: "lateness_p99 312 ms > 250 ms: one request in a hundred …".
func (r Reason) String() string {
	if shard := r.Shard; shard != "" {
		r.Shard = ""
		return "shard " + shard + ": " + r.String()
	}
	return fmt.Sprintf("%s %s > %s: %s", r.Metric, withUnit(number(r.Value), r.Unit), withUnit(number(r.Bound), r.Unit), r.Text)
}

// Lack describes data that the run has too little of to judge some metrics.
type Lack struct {
	Metrics []string `json:"metrics"`
	Have    float64  `json:"have"`
	Need    float64  `json:"need"`
	Of      string   `json:"of"` // the unit of Have and Need, such as s or requests
}

// String returns the lack as one line: "3 of the 100 scheduled requests that lateness_p99 needs".
func (l Lack) String() string {
	verb := "needs"
	if len(l.Metrics) > 1 {
		verb = "need"
	}
	return fmt.Sprintf("%s of the %s %s that %s %s", number(l.Have), number(l.Need), l.Of, strings.Join(l.Metrics, ", "), verb)
}

// Verdict is the judgement of a run.
type Verdict struct {
	Class   Class    `json:"class"`
	Reasons []Reason `json:"reasons"` // worst first, notes last
	// TooFew lists the metrics that were measured but not judged.
	TooFew []Lack `json:"too_few,omitempty"`
	// Unknown lists the metrics that were not measured.
	Unknown []string `json:"unknown,omitempty"`
}

// String returns the class and a line for each reason.
func (v Verdict) String() string {
	var b strings.Builder
	b.WriteString(v.Class.String())
	for _, r := range v.Reasons {
		b.WriteString("\n  " + r.Class.String() + ": " + r.String())
	}
	for _, l := range v.TooFew {
		b.WriteString("\n  too few: " + l.String())
	}
	return b.String()
}

// lacks records that a rule has too little data.
func (v *Verdict) lacks(r *rule, have float64) {
	v.Class = max(v.Class, Undecided)
	i := slices.IndexFunc(v.TooFew, func(l Lack) bool { return l.Of == r.needs.of.unit && l.Need == r.needs.enough })
	if i < 0 {
		i, v.TooFew = len(v.TooFew), append(v.TooFew, Lack{nil, have, r.needs.enough, r.needs.of.unit})
	}
	v.TooFew[i].Metrics = append(v.TooFew[i].Metrics, r.metric)
}

// Judge applies the table of the package comment.
func Judge(f Facts) Verdict {
	v := Verdict{Reasons: []Reason{}}
	for i := range rules {
		r := &rules[i]
		fact := r.value(&f)
		if r.unit == "%" {
			fact.V *= 100
		}
		class := r.classify(fact.V)
		switch {
		case !fact.Known:
			v.Unknown = append(v.Unknown, r.metric)
		case !r.needs.met(&f):
			v.lacks(r, r.needs.of.have(&f))
		case class > Valid || fact.V > r.note && r.note < r.valid:
			bound := [...]float64{Valid: r.note, Degraded: r.valid, Invalid: r.invalid}[class]
			v.Reasons = append(v.Reasons, Reason{Metric: r.metric, Value: fact.V, Bound: bound, Unit: r.unit, Class: class, Text: r.meaning()})
			v.Class = max(v.Class, class)
		}
	}
	slices.SortStableFunc(v.Reasons, func(a, b Reason) int { return cmp.Compare(b.Class, a.Class) })
	return v
}
