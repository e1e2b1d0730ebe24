// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

// This file computes the figures of a run's steady state after the run has ended, because only then are its limits known.

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/report"
)

// Steady selects a part of the run for figures in addition to those of the whole run. The zero value selects none.
type Steady struct {
	// Auto selects the time from when the number of requests in flight first reached the run's median, until the last request was sent
	// (measure.Aggregate.Plateau), without ramps. From and To override it.
	Auto bool
	// From and To are the beginning and the end of the part; zero = the start of the schedule, and the time at which the last request was sent.
	From, To Mark
}

// Any reports whether a part is selected.
func (s Steady) Any() bool { return s != Steady{} }

// Mark is a position in the time from the start of the schedule until the last request was sent. The zero value means no position.
type Mark struct {
	Given bool
	Share float64       // of that time, 0 to 1
	After time.Duration // since its beginning; below 0, before its end
}

// ParseMark reads a share, such as 10%, a time since the beginning, such as 30s, or a time before the end, such as -30s.
func ParseMark(text string) (m Mark, err error) {
	m.Given = true
	if number, isShare := strings.CutSuffix(text, "%"); isShare {
		if m.Share, err = strconv.ParseFloat(number, 64); err == nil && !(m.Share >= 0 && m.Share <= 100) {
			err = errors.New("it is not from 0% to 100%")
		}
		m.Share /= 100
	} else {
		m.After, err = time.ParseDuration(text)
	}
	if err != nil {
		return Mark{}, fmt.Errorf("mark %q: %w; want a share such as 10%%, a time such as 30s, or a time before the end such as -30s", text, err)
	}
	return m, nil
}

func (m Mark) String() string {
	if m.Share > 0 {
		return fmt.Sprintf("%.10g%%", 100*m.Share)
	}
	return m.After.String()
}

// check finds what no run can have: a part that ends before it begins, as far as this is known without the length of the run, which is at
// most limit; 0 = unknown.
func (s Steady) check(limit time.Duration, bad badFunc) {
	from, to := s.From, s.To
	sameKind := (from.Share > 0) == (to.Share > 0) && (from.After < 0) == (to.After < 0)
	switch {
	case to == Mark{Given: true}:
		bad("steady-to %v: the schedule begins then, so the part would be empty; want a later time", to)
	case from.Given && to.Given && sameKind && (from.Share > to.Share || from.After > to.After || from == to):
		bad("steady-from %v: the part would end before it begins, or at once, at --steady-to %v; want an earlier beginning or a later end", from, to)
	case from.Share >= 1:
		bad("steady-from %v: the last request is sent then, so the part would be empty; want an earlier time", from)
	case limit > 0 && from.After >= limit:
		bad("steady-from %v: the run ends before, at --max-duration %v; want an earlier time, or a longer run", from, limit)
	}
}

// at returns the time of a mark between two times.
func (m Mark) at(from, to time.Duration) time.Duration {
	at := from + time.Duration(m.Share*float64(to-from))
	if m.After < 0 {
		at = to
	}
	return max(from, min(at+max(-longest, min(m.After, longest)), to))
}

// window computes the steady state of a run, from its figures, its start and the length of its ramps.
func (s Steady) window(whole *measure.Aggregate, zero, ramp time.Duration) (p measure.Plateau, err error) {
	p, ok := whole.Plateau()
	if !ok {
		return p, errors.New("it needs two or more requests that are sent at different times")
	}
	from, to := zero, p.To
	if s.Auto {
		from = max(p.From, zero+ramp)
	}
	if s.From.Given {
		from = s.From.at(zero, to)
	}
	if s.To.Given {
		p.To = s.To.at(zero, to)
	}
	if p.From = from; p.To <= p.From {
		return p, fmt.Errorf("it would begin at %.3f s and end at %.3f s of the schedule", (p.From - zero).Seconds(), (p.To - zero).Seconds())
	}
	return p, nil
}

// steady computes the figures of the steady state from the records; nil if none is selected, and, with a warning, if there is none.
func (e ending) steady() *report.Steady {
	ask, rec := e.plan.steady, e.recorder
	if !ask.Any() {
		return nil
	}
	p, err := ask.window(rec.figures, e.zero, e.plan.ramp)
	if err != nil {
		e.said.warn("the run has no steady state: %v", err)
		return nil
	}
	within := measure.NewAggregate(measure.Options{SLO: e.plan.limits.slo, Window: &p.Window})
	if err := report.Records(cmp.Or(e.plan.out, rec.spool), func(r *measure.Record) error { within.Add(r); return nil }); err != nil {
		e.said.warn("the steady state is unknown: %v", err)
		return nil
	}
	return report.NewSteady(within.Figures(), report.Window{
		Automatic: ask.Auto, From: clock.Millis(p.From - e.zero), To: clock.Millis(p.To - e.zero), Zero: clock.Millis(e.zero), Level: p.Level, Peak: p.Peak,
	})
}

// steadyFacts sets the facts about the selected steady state, for the verdict.
func (e ending) steadyFacts(s *report.Steady, facts *judge.Facts) {
	if !e.plan.steady.Any() {
		return
	}
	facts.Steady, facts.SteadyLatency = true, judge.Know(0)
	if s == nil {
		return
	}
	f := s.Figures()
	facts.SteadyRequests = f.Rows.Total
	latency, ok := f.Stat(measure.Latency)
	facts.SteadyLatency = judge.KnowIf(latency.P90/(s.Window.To-s.Window.From), ok)
}
