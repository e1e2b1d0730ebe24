// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat"

	"github.com/moonloop/moonloop/agent/judge"
)

// A twin is a replay next to the production that its trace was captured from: each row has the figures that production's own spans
// reported.

// Outcome is the result of a check against a tolerance.
type Outcome string

// The outcomes.
const (
	WithinTolerance  Outcome = "within"      // the whole interval lies within the tolerance
	OutsideTolerance Outcome = "outside"     // the whole interval lies outside
	OpenTolerance    Outcome = "cannot tell" // neither
)

// Check is one measure in the replay and in production, over the rows for which both are known.
type Check struct {
	Name       string   `json:"name"` // ttft.p50, ttft.p99, duration.p50, duration.p99, hit_rate or errors
	Unit       string   `json:"unit"` // ms, or % for hit rates and errors
	Rows       int      `json:"rows"`
	Production *float64 `json:"production"` // nil if unknown
	Replay     *float64 `json:"replay"`
	// Difference is replay / production − 1; for hit_rate and errors, the replay's share minus production's. Low and High are its 95 %
	// interval, from a moving-block bootstrap of the rows. The interval covers the scatter of the rows, not how another day of production
	// would differ.
	Difference float64 `json:"difference"`
	Low        float64 `json:"difference_low"`
	High       float64 `json:"difference_high"`
	Tolerance  float64 `json:"tolerance"`
	Outcome    Outcome `json:"outcome"`
}

// Distribution is a duration in production and in the replay.
type Distribution struct {
	Name string  `json:"name"`
	Rows int     `json:"rows"`
	KS   float64 `json:"ks"` // Kolmogorov-Smirnov distance, 0 to 1: the greatest difference between the two distribution functions
	// Production and Replay are the percentiles 1 to 99, in ms.
	Production []float64 `json:"production"`
	Replay     []float64 `json:"replay"`
}

// Part is the difference in a part of the rows: by time in the trace, or by prompt length.
type Part struct {
	By       string   `json:"by"`
	Class    string   `json:"class"`
	Rows     int      `json:"rows"`
	TTFT     *float64 `json:"ttft_ratio"` // median of replay / production over rows; nil if unknown
	Duration *float64 `json:"duration_ratio"`
	HitRate  *float64 `json:"hit_rate_difference"` // as a share
}

// Twin is the difference between a replay and the production that its trace was captured from.
type Twin struct {
	Dir           string         `json:"dir"`
	Verdict       string         `json:"verdict"`
	Rows          int            `json:"rows"`
	Failed        int            `json:"failed"`        // in the replay; production served every row
	OtherFinish   int            `json:"other_finish"`  // rows that ended for a different reason than in production
	KnownFinish   int            `json:"known_finish"`  // rows for which both reasons are known
	Checks        []Check        `json:"checks"`        // the most important first
	Distributions []Distribution `json:"distributions"` // ttft and duration, if known
	Parts         []Part         `json:"parts"`         // by time and by length
	Answer        Outcome        `json:"answer"`        // the worst of all checks; open if the verdict is not valid
	Why           string         `json:"why,omitempty"` // why the checks do not decide the answer: the verdict is not valid
	Speedup       float64        `json:"speedup"`       // of the replay: 1 means production's own times
}

// tolerances are the default tolerances of a twin, as shares.
var tolerances = []struct {
	name string
	most float64
}{{"ttft.p50", 0.1}, {"ttft.p99", 0.25}, {"duration.p50", 0.1}, {"duration.p99", 0.25}, {"hit_rate", 0.02}, {"errors", 0.01}}

// maxTolerance is the greatest tolerance, as a share.
const maxTolerance = 10

// ParseTolerances reads NAME=SHARE pairs, such as ttft.p50=0.2,hit_rate=0.01. They override the defaults.
func ParseTolerances(text string) (map[string]float64, error) {
	most := map[string]float64{}
	var names []string
	for _, t := range tolerances {
		most[t.name], names = t.most, append(names, t.name)
	}
	for pair := range strings.SplitSeq(text, ",") {
		if text == "" {
			break
		}
		name, value, _ := strings.Cut(pair, "=")
		v, err := strconv.ParseFloat(value, 64)
		if _, ok := most[name]; !ok {
			return nil, fmt.Errorf("%q is not a tolerance: there is no check %q: want one of %s, such as ttft.p50=0.2", pair, name, strings.Join(names, ", "))
		}
		if err != nil || !(v > 0 && v <= maxTolerance) {
			return nil, fmt.Errorf("%q is not a tolerance: want a share above 0 and at most %d, such as %s=0.2", pair, maxTolerance, name)
		}
		most[name] = v
	}
	return most, nil
}

// MinTwinRows is the number of rows with a value from production and from the replay that a check needs to decide.
const MinTwinRows = leastRows

// otherLoads are the transformations after which a trace no longer has production's times, or no longer as many requests as production had.
var otherLoads = []string{"time-scale", "max-gap", "scale", "draw", "merge"}

// ReadTwin compares the replay in a folder with the production that its rows were captured from. It is an error if no row has a value from
// production, or if the replay's schedule was not production's, because latencies then cannot agree.
func ReadTwin(dir string, most map[string]float64) (*Twin, error) {
	run, err := readRun(dir)
	if err != nil {
		return nil, err
	}
	if run == nil {
		return nil, fmt.Errorf("%s has no %s: no replay wrote its results there; name the folder given to `moonloop replay --out`", dir, summaryFile)
	}
	rows, err := readRows(dir)
	if err != nil {
		return nil, err
	}
	t := &Twin{Dir: dir, Verdict: run.Verdict, Rows: len(rows), Speedup: 1}
	if mode, _ := run.schedule["mode"].(string); mode != "" && mode != "timestamps" {
		return nil, fmt.Errorf("the replay in %s followed the schedule %q, not the times of production, so latencies cannot be compared; replay the trace at its timestamps", dir, mode)
	}
	if s, ok := run.schedule["speedup"].(float64); ok {
		t.Speedup = s
	}
	if t.Speedup != 1 {
		return nil, fmt.Errorf("the replay in %s was sent at %g times the speed of production, so latencies cannot be compared; replay the trace without --speedup", dir, t.Speedup)
	}
	passes, _ := run.schedule["loop_passes"].(float64)
	if fresh, _ := run.schedule["loop_fresh"].(bool); !fresh && (passes > 1 || run.schedule["loop_for_ms"] != nil) {
		return nil, fmt.Errorf("the replay in %s sent the trace in a loop, so later passes found in the cache what earlier ones had left there, unlike production; replay the trace without --loop, or with --loop-fresh", dir)
	}
	if i := slices.IndexFunc(run.steps, func(step string) bool { return slices.Contains(otherLoads, step) }); i >= 0 {
		return nil, fmt.Errorf("the trace that was replayed in %s does not have the load of production, because it was transformed (%s), so latencies cannot be compared; replay the trace as it was captured", dir, run.steps[i])
	}
	if !slices.ContainsFunc(rows, row.observed) {
		return nil, fmt.Errorf("%s: no row says what production observed (observed.ttft_ms, observed.duration_ms, observed.cached_tokens); replay a trace that `moonloop capture`, `compile` or `convert` made of production's telemetry", dir)
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.intended, b.intended) })
	t.compare(rows, most)
	return t, nil
}

// compare compares rows. They are in the order of their times.
func (t *Twin) compare(rows []row, most map[string]float64) {
	ended := 0
	for _, r := range rows {
		if r.failed {
			t.Failed++
		}
		if r.served || r.failed {
			ended++
		}
		if r.served && r.finish != "" && r.seenFinish != "" {
			if t.KnownFinish++; r.finish != r.seenFinish {
				t.OtherFinish++
			}
		}
	}
	t.durations("ttft", rows, func(r *row) (float64, float64) { return r.seenTTFT, r.ttft }, most)
	t.durations("duration", rows, func(r *row) (float64, float64) { return r.seenTime, r.latency }, most)
	t.hits(rows, most["hit_rate"])
	t.errors(ended, most["errors"])
	t.parts(rows)
	t.answer()
}

// durations adds the checks and the distribution of a duration.
func (t *Twin) durations(name string, rows []row, of func(*row) (production, replay float64), most map[string]float64) {
	var before, after []float64
	for i := range rows {
		if x, y := of(&rows[i]); x > 0 && y > 0 {
			before, after = append(before, x), append(after, y)
		}
	}
	n := len(before)
	samples := []ranked{rank(before), rank(after)}
	whole := slices.Repeat([]int32{1}, n)
	for _, percentile := range []string{"p50", "p99"} {
		c := Check{Name: name + "." + percentile, Unit: "ms", Rows: n, Tolerance: most[name+"."+percentile], Outcome: OpenTolerance}
		if n > 0 {
			statistic, _ := rowStatistic(percentile)
			x, y := statistic(samples[0], whole, n), statistic(samples[1], whole, n)
			c.Production, c.Replay, c.Difference = &x, &y, y/x-1
			c.Low, c.High = blockInterval(n, int(math.Sqrt(float64(n))), samples, func(v []float64) float64 { return v[1]/v[0] - 1 }, statistic)
			c.judge()
		}
		t.Checks = append(t.Checks, c)
	}
	if n == 0 {
		return
	}
	slices.Sort(before)
	slices.Sort(after)
	d := Distribution{Name: name, Rows: n, KS: stat.KolmogorovSmirnov(before, nil, after, nil)}
	for p := 1; p < 100; p++ {
		d.Production = append(d.Production, stat.Quantile(float64(p)/100, stat.Empirical, before, nil))
		d.Replay = append(d.Replay, stat.Quantile(float64(p)/100, stat.Empirical, after, nil))
	}
	t.Distributions = append(t.Distributions, d)
}

// hits adds the check of the hit rates, over the prompt tokens of the rows for which both counts are known.
func (t *Twin) hits(rows []row, most float64) {
	var prompt, before, after []float64
	for _, r := range rows {
		if r.served && r.seenCached >= 0 && r.cached >= 0 && r.input > 0 {
			prompt, before, after = append(prompt, float64(r.input)), append(before, float64(r.seenCached)), append(after, float64(r.cached))
		}
	}
	c := Check{Name: "hit_rate", Unit: "%", Rows: len(prompt), Tolerance: most, Outcome: OpenTolerance}
	if n := len(prompt); n > 0 {
		mean, _ := rowStatistic("avg")
		whole := slices.Repeat([]int32{1}, n)
		samples := []ranked{rank(prompt), rank(before), rank(after)}
		all := mean(samples[0], whole, n)
		x, y := 100*mean(samples[1], whole, n)/all, 100*mean(samples[2], whole, n)/all
		c.Production, c.Replay, c.Difference = &x, &y, (y-x)/100
		c.Low, c.High = blockInterval(n, int(math.Sqrt(float64(n))), samples, func(v []float64) float64 { return (v[2] - v[1]) / v[0] }, mean)
		c.judge()
	}
	t.Checks = append(t.Checks, c)
}

// errors adds the check of failed requests. A trace has only requests that production served, so production's share is 0 here.
// Rows that ended are those that were served or failed.
func (t *Twin) errors(ended int, most float64) {
	share := float64(t.Failed) / float64(max(1, ended))
	production, replay := 0.0, 100*share
	c := Check{Name: "errors", Unit: "%", Rows: ended, Production: &production, Replay: &replay, Difference: share, Low: share, High: share, Tolerance: most, Outcome: OpenTolerance}
	c.judge()
	t.Checks = append(t.Checks, c)
}

// judge sets the outcome: the interval is within the tolerance, outside it, or neither.
func (c *Check) judge() {
	switch {
	case c.Rows < MinTwinRows:
	case c.Low >= -c.Tolerance && c.High <= c.Tolerance:
		c.Outcome = WithinTolerance
	case c.Low > c.Tolerance || c.High < -c.Tolerance:
		c.Outcome = OutsideTolerance
	}
}

// answer sets the answer: the worst result of the checks that have one.
func (t *Twin) answer() {
	t.Answer = WithinTolerance
	for _, c := range t.Checks {
		switch {
		case c.Rows == 0:
			continue
		case c.Outcome == OutsideTolerance:
			t.Answer = OutsideTolerance
		case c.Outcome == OpenTolerance && t.Answer != OutsideTolerance:
			t.Answer = OpenTolerance
		}
	}
	if t.Verdict != ValidVerdict {
		t.Answer, t.Why = OpenTolerance, "the replay's verdict is "+judge.Text(t.Verdict)+", so its times do not count"
	}
}

// parts adds the differences by quarters of the time and by classes of input length.
func (t *Twin) parts(rows []row) {
	type part struct {
		rows                  int
		ttft, duration        []float64
		prompt, before, after float64
	}
	all := map[class]*part{}
	last := 0.0
	for _, r := range rows {
		if r.intended > last {
			last = r.intended
		}
	}
	for i := range rows {
		r := &rows[i]
		quarter := 0
		if r.intended > 0 {
			quarter = min(3, int(4*r.intended/last))
		}
		length, found := slices.BinarySearch(dimensions[1].first, r.input)
		if !found {
			length--
		}
		for _, in := range []class{{0, quarter}, {1, max(length, 0)}} {
			p := all[in]
			if p == nil {
				p = &part{}
				all[in] = p
			}
			p.rows++
			if r.seenTTFT > 0 && r.ttft > 0 {
				p.ttft = append(p.ttft, r.ttft/r.seenTTFT)
			}
			if r.seenTime > 0 && r.latency > 0 {
				p.duration = append(p.duration, r.latency/r.seenTime)
			}
			if r.served && r.seenCached >= 0 && r.cached >= 0 {
				p.prompt, p.before, p.after = p.prompt+float64(r.input), p.before+float64(r.seenCached), p.after+float64(r.cached)
			}
		}
	}
	middle := func(v []float64) *float64 {
		if len(v) == 0 {
			return nil
		}
		m := median(v)
		return &m
	}
	for _, in := range slices.SortedFunc(maps.Keys(all), func(x, y class) int { return cmp.Or(x.by-y.by, x.part-y.part) }) {
		p := all[in]
		one := Part{By: "input tokens", Class: in.text(), Rows: p.rows, TTFT: middle(p.ttft), Duration: middle(p.duration)}
		if in.by == 0 {
			one.By, one.Class = "quarter of the time", strconv.Itoa(in.part+1)
		}
		if p.prompt > 0 {
			d := (p.after - p.before) / p.prompt
			one.HitRate = &d
		}
		t.Parts = append(t.Parts, one)
	}
}
