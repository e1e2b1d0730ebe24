// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/measure"
)

// Metric is a figure of summary.json and a statistic of it, such as time_to_first_token and p50.
type Metric struct {
	Figure    string
	Statistic string
}

// shortNames are the usual short names of figures.
var shortNames = map[string]string{
	"ttft": "time_to_first_token", "itl": "inter_token_latency", "tpot": "time_per_output_token", "latency": "request_latency", "e2e": "request_latency",
	"throughput": "output_token_throughput",
}

// exploratory are the metrics that are compared in addition to the primary one.
var exploratory = []string{
	"ttft.p50", "ttft.p90", "ttft.p99", "itl.p50", "itl.p99", "latency.p50", "latency.p99", "throughput",
}

// ParseMetric reads FIGURE.STATISTIC, such as ttft.p50 or inter_token_latency.p99. A figure of one number needs no statistic. It returns an
// error, which says what exists, if no run can have the figure or the statistic.
func ParseMetric(text string) (Metric, error) {
	figure, statistic, given := strings.Cut(text, ".")
	if figure == "" || given && statistic == "" {
		return Metric{}, fmt.Errorf("%q is not a metric: it must be a figure of %s and its statistic, such as ttft.p50 or request_latency.p99", text, summaryFile)
	}
	if !given {
		statistic = "avg"
	}
	if long, ok := shortNames[figure]; ok {
		figure = long
	}
	m := Metric{figure, statistic}
	_, err := m.unit()
	return m, err
}

// unit returns the unit of the figure; an error if a summary has no such figure, or not this statistic of it.
func (m Metric) unit() (string, error) {
	for id, d := range measure.Definitions() {
		if d.Tag != m.Figure {
			continue
		}
		if names := statistics(id); !slices.Contains(names, m.Statistic) {
			return "", fmt.Errorf("%s has no statistic %s: want %s", m.Figure, m.Statistic, strings.Join(names, ", "))
		}
		return d.Unit, nil
	}
	return "", fmt.Errorf("there is no figure %s: want %s, or the whole name of another figure of %s, such as %s; agent/report/summary.schema.json lists them",
		m.Figure, strings.Join(slices.Sorted(maps.Keys(shortNames)), ", "), summaryFile, measure.RequestThroughput)
}

// statistics returns the statistics that a summary has of a figure.
func statistics(id measure.ID) (names []string) {
	for _, field := range reflect.VisibleFields(reflect.TypeFor[measure.Stat]()) {
		if name := field.Tag.Get("json"); field.Type.Kind() != reflect.String && !strings.Contains(name, ",omitempty") {
			names = append(names, name)
		}
		if id.Single() && len(names) == 1 {
			break // a single number is an average
		}
	}
	return names
}

// String returns FIGURE.STATISTIC.
func (m Metric) String() string { return m.Figure + "." + m.Statistic }

// Result is the comparison of one metric.
type Result struct {
	Metric Metric
	Unit   string
	// MoreIsBetter is true for throughputs: a smaller value is "slower".
	MoreIsBetter bool
	A, B         float64   // medians of the runs that count as evidence
	Ratios       []float64 // B / A of each pair
	Floor        float64   // noise floor, as a share: see [Comparison].Again; NaN if unknown
	Decision
}

// LeftOut is a run that does not count as evidence, with the reason.
type LeftOut struct {
	Dir    string `json:"dir"`
	Reason string `json:"reason"`
}

// Comparison compares the runs B with the runs A.
type Comparison struct {
	Primary     Result
	Exploratory []Result // their P is corrected by [Holm]
	Minimum     float64  // the smallest effect of interest, as a share
	LeftOut     []LeftOut
	// Again is the comparison of A with further runs of A, for the primary metric; nil unless such runs were given. Any answer other than
	// NoDifference or CannotTell means that something unrelated to B changes between the runs of a round.
	//
	// [Result].Floor is the smallest difference that the pairs of A and B could tell from noise if B were A: half the width of the interval
	// that they would give if they scattered as A against A does. Without further runs of A, successive runs of A are used instead, which
	// is less exact.
	Again *Decision
	// Moved shows how much each class of rows changed. Empty if no folder has the rows of its run.
	Moved []Moved
	// Within is what each pair shows by itself, if there are too few pairs to decide. It is weaker, and not evidence.
	Within []Within
	// FailedA and FailedB are the median shares of requests that failed, in percent. They are reported because failures can make a run look
	// fast.
	FailedA, FailedB float64
}

// Compare pairs the runs of A and B in order, and decides by the pairs: by the primary metric, and, for exploration, by others, with P
// corrected for their number. A pair does not count if the verdict of one of its runs is not valid, or if one of them found a warmer cache
// than the other: LeftOut has that run, and the runs without a partner. Minimum is the smallest difference that matters, as a share. Again
// are further runs of A, one in each round, which calibrate the noise floor; nil = none.
//
// It returns an error if runs, also those that do not count, did not replay the same trace in the same way, or lack the primary metric.
func Compare(a, b, again []*Run, primary Metric, minimum float64) (*Comparison, error) {
	if err := sameWorkload(slices.Concat(a, b, again)); err != nil {
		return nil, err
	}
	c := &Comparison{Minimum: minimum}
	left, right, out := pairs(a, b)
	c.LeftOut = out
	var twins [2][]*Run // A against A
	if again != nil {
		twins[0], twins[1], out = pairs(a, again)
		for _, l := range out {
			if !slices.ContainsFunc(a, func(r *Run) bool { return r.Dir == l.Dir }) || len(again) < len(a) {
				l.Reason = "from the noise floor only: " + l.Reason // its partner is still compared with B
				c.LeftOut = append(c.LeftOut, l)
			}
		}
	} else {
		for i := 1; i < len(left); i += 2 {
			twins[0], twins[1] = append(twins[0], left[i-1]), append(twins[1], left[i])
		}
	}
	var err error
	if c.Primary, err = decide(left, right, primary, minimum); err != nil {
		return nil, err
	}
	c.Primary.Floor = floor(twins, primary, c.Primary.Pairs)
	if again != nil {
		r, err := decide(twins[0], twins[1], primary, minimum)
		if err != nil {
			return nil, err
		}
		c.Again = &r.Decision
	}
	c.FailedA, c.FailedB = failed(left), failed(right)
	var ps []float64
	for _, name := range exploratory {
		m, _ := ParseMetric(name) // our own names can be parsed
		if m == primary {
			continue
		}
		r, err := decide(left, right, m, minimum)
		if err != nil || r.Pairs == 0 {
			continue // a trace of single tokens has no inter-token latency
		}
		r.Floor = floor(twins, m, r.Pairs)
		c.Exploratory, ps = append(c.Exploratory, r), append(ps, r.P)
	}
	corrected, err := Holm(ps)
	if err != nil {
		return nil, err
	}
	for i := range c.Exploratory {
		r := &c.Exploratory[i]
		if r.P = corrected[i]; r.P > level && (r.Answer == Slower || r.Answer == Faster) {
			r.Answer = CannotTell
		}
	}
	return c, c.addRows(left, right, primary)
}

// warmer is the maximum difference between the shares of prompt tokens that two runs of a pair found in a cache that others had filled. An
// engine whose blocks are smaller than the trace's can also have more tokens in its cache than predicted, but by less than this.
const warmer = 0.02

// pairs pairs the runs of two sides in order. It leaves out a pair with a run that does not count, and a pair of which only one run hit
// what an earlier run had left in the cache, because its difference would be that of the caches.
func pairs(a, b []*Run) (left, right []*Run, out []LeftOut) {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) {
			run := slices.Concat(a[min(i, len(a)):], b[min(i, len(b)):])[0]
			out = append(out, LeftOut{run.Dir, "the other side has no run to pair it with"})
			continue
		}
		whole := true
		for _, pair := range [][2]*Run{{a[i], b[i]}, {b[i], a[i]}} {
			run, other := pair[0], pair[1]
			switch {
			case run.Verdict != ValidVerdict:
				whole = false
				out = append(out, LeftOut{run.Dir, "its verdict is " + judge.Text(run.Verdict) + "; its pair " + other.Dir + " is left out, too"})
			case run.warm > other.warm+warmer:
				whole = false
				out = append(out, LeftOut{run.Dir, fmt.Sprintf("it found a warm cache: %.1f %% of its prompt tokens were there from an earlier run, and %.1f %% of those of its pair %s, which is left out, too; give each run a --seed of its own, or empty the cache before each", 100*run.warm, 100*other.warm, other.Dir)})
			}
		}
		if whole {
			left, right = append(left, a[i]), append(right, b[i])
		}
	}
	return left, right, out
}

// floor returns the noise floor of n pairs, computed from pairs of runs without a difference. The mean of the differences within these
// pairs is known: 0.
func floor(twins [2][]*Run, m Metric, n int) float64 {
	var squares float64
	count := 0
	for i, run := range twins[0] {
		x, y := run.figures[m.Figure][m.Statistic], twins[1][i].figures[m.Figure][m.Statistic]
		if x > 0 && y > 0 {
			difference := math.Log(y) - math.Log(x)
			squares += difference * difference
			count++
		}
	}
	if count == 0 || n == 0 {
		return math.NaN()
	}
	return math.Expm1(student(count, level) * math.Sqrt(squares/float64(count)/float64(n)))
}

// decide compares one metric.
func decide(a, b []*Run, m Metric, minimum float64) (Result, error) {
	r := Result{Metric: m, Floor: math.NaN()}
	values := func(runs []*Run) ([]float64, error) {
		list := make([]float64, len(runs))
		for i, run := range runs {
			v, ok := run.figures[m.Figure][m.Statistic]
			switch {
			case run.figures[m.Figure] == nil:
				return nil, fmt.Errorf("%s has no figure %s in its %s: name one that is there, such as time_to_first_token, or a short name such as ttft", run.Dir, m.Figure, summaryFile)
			case !ok:
				return nil, fmt.Errorf("%s: figure %s has no statistic %s: must be avg, min, max, std or a percentile that its %s has, such as p50", run.Dir, m.Figure, m.Statistic, summaryFile)
			case v <= 0:
				return nil, fmt.Errorf("%s: %s is %v, and a ratio needs values above 0: choose another metric", run.Dir, m, v)
			}
			list[i], r.Unit = v, run.units[m.Figure]
		}
		return list, nil
	}
	as, err := values(a)
	if err != nil {
		return r, err
	}
	bs, err := values(b)
	if err != nil {
		return r, err
	}
	r.MoreIsBetter = strings.Contains(r.Unit, "/sec")
	x, y := as, bs
	if r.MoreIsBetter {
		x, y = bs, as // a loss of B is a gain of A
	}
	if r.Decision, err = Decide(x, y, minimum, 0); err != nil {
		return r, err
	}
	if r.MoreIsBetter && r.Pairs > 0 {
		r.Ratio, r.Low, r.High = 1/r.Ratio, 1/r.High, 1/r.Low
		r.Low90, r.High90 = 1/r.High90, 1/r.Low90
	}
	for i := range as {
		r.Ratios = append(r.Ratios, bs[i]/as[i])
	}
	if len(as) > 0 {
		r.A, r.B = median(as), median(bs)
	}
	return r, nil
}

// failed returns the median share of failed requests in percent; 0 without runs.
func failed(runs []*Run) float64 {
	if len(runs) == 0 {
		return 0
	}
	rates := make([]float64, len(runs))
	for i, run := range runs {
		rates[i] = run.figures["request_error_rate"]["avg"]
	}
	return median(rates)
}

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
