// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/moonloop/moonloop/agent/measure"
)

// Objective is a bound that a figure of a whole run must meet, such as ttft.p99<2s. For a service level per request, see [measure.SLO].
type Objective struct {
	Metric  Metric
	AtLeast bool // the figure must be above the bound, not below it
	// Bound is in the unit of the figure: ms for a latency, % for a share.
	Bound float64
	unit  string // of the bound as given: "ms", "%", or "" for a bare number
}

// ParseObjectives reads FIGURE.STATISTIC<BOUND or >BOUND, separated by commas, such as "ttft.p99<2s,itl.p95<50ms,goodput>10". A bound is a
// duration, a number with %, or a number in the figure's unit. An error names the objective.
func ParseObjectives(text string) ([]Objective, error) {
	var all []Objective
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		bad := func(why string) error {
			return fmt.Errorf("objective %q: %s; want a figure, < or >, and a bound, such as ttft.p99<2s", part, why)
		}
		at := strings.IndexAny(part, "<>")
		if at < 0 {
			return nil, bad("it has no < or >")
		}
		m, err := ParseMetric(strings.TrimSpace(part[:at]))
		if err != nil {
			return nil, fmt.Errorf("objective %q: %w", part, err)
		}
		o := Objective{Metric: m, AtLeast: part[at] == '>'}
		bound := strings.TrimSpace(strings.TrimPrefix(part[at+1:], "="))
		if d, err := time.ParseDuration(bound); err == nil && bound != "0" {
			o.Bound, o.unit = float64(d)/float64(time.Millisecond), "ms"
		} else {
			if share, ok := strings.CutSuffix(bound, "%"); ok {
				bound, o.unit = strings.TrimSpace(share), "%"
			}
			if o.Bound, err = strconv.ParseFloat(bound, 64); err != nil {
				return nil, bad("its bound is neither a duration nor a number")
			}
		}
		if !(o.Bound > 0) || math.IsInf(o.Bound, 0) {
			return nil, bad("its bound is not above 0")
		}
		if err := o.check(); err != nil {
			return nil, fmt.Errorf("objective %q: %w", part, err)
		}
		all = append(all, o)
	}
	return all, nil
}

// check returns an error if no run can have the figure, its statistic, or a bound in this unit.
func (o Objective) check() error {
	unit, err := o.Metric.unit()
	if err == nil && o.unit != "" && o.unit != unit {
		err = fmt.Errorf("the figure is in %s: give its bound without a unit", unit)
	}
	return err
}

// String writes the objective as ParseObjectives reads it.
func (o Objective) String() string {
	sign := "<"
	if o.AtLeast {
		sign = ">"
	}
	return o.Metric.short() + sign + strconv.FormatFloat(o.Bound, 'g', -1, 64) + o.unit
}

// excess returns the value as a share of the bound, or the reverse for a lower bound: above 1, the objective is missed.
func (o Objective) excess(value float64) float64 {
	if o.AtLeast {
		return o.Bound / value
	}
	return value / o.Bound
}

// short returns the metric with the usual short name of the figure.
func (m Metric) short() string {
	for _, name := range []string{"ttft", "itl", "tpot", "latency", "throughput"} {
		if shortNames[name] == m.Figure {
			m.Figure = name
		}
	}
	if m.Statistic == "avg" {
		return m.Figure
	}
	return m.String()
}

// ServiceLevel returns the service level of a request that is as fast as the objectives require of the run: it has their bounds of
// latencies, the lowest if there are several of one latency. It is zero without such a bound.
func ServiceLevel(objectives []Objective) (s measure.SLO) {
	for _, o := range objectives {
		one, err := measure.ParseSLO(fmt.Sprintf("%s=%gms", o.Metric.Figure, o.Bound))
		if err != nil || o.AtLeast {
			continue // a figure that a single request does not have
		}
		for _, pair := range [][2]*time.Duration{{&s.TTFT, &one.TTFT}, {&s.TTST, &one.TTST}, {&s.ITL, &one.ITL}, {&s.TPOT, &one.TPOT}, {&s.E2E, &one.E2E}} {
			if *pair[0] == 0 || *pair[1] > 0 && *pair[1] < *pair[0] {
				*pair[0] = *pair[1]
			}
		}
	}
	return s
}

// value returns a run's value for the objective. ok is false if the run does not have it, such as a latency if no request was served.
func (r *Run) value(o Objective) (v float64, ok bool, err error) {
	v, ok = r.figures[o.Metric.Figure][o.Metric.Statistic]
	if ok && math.IsNaN(v) {
		return 0, false, errors.New("objective " + o.String() + ": the figure is not a number")
	}
	return v, ok, nil
}
