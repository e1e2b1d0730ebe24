// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Search finds how much load an engine can handle before it misses an objective. The load is a factor, for example of a trace's density; a
// higher load is never easier.
type Search struct {
	Objectives []Objective
	// MaxFailed is the share of requests, in percent, that may fail in a probe that meets the objectives: a failed request has no latency.
	MaxFailed float64
	// Start is the first load; Min and Max bound all loads. Whole means that loads are whole numbers.
	Start, Min, Max float64
	Whole           bool
	// Precision ends the search when both ends of the interval of the capacity are within this share of its middle; MaxProbes ends it anyway.
	Precision float64
	MaxProbes int
	// Budget bounds the duration of one call: no probe is started that would end after it, judged by the longest probe so far. 0 = no
	// bound.
	Budget time.Duration
	// Seed is the seed of the first probe. Each later probe uses the next one, so that it finds no cache entries of earlier probes.
	Seed uint64

	// Probe replays at a load and returns the run. A run whose verdict is not valid is not an error. Begin is called before each probe;
	// Tried receives its result, to store it. Both may be nil.
	Probe func(ctx context.Context, p Planned) (*Run, error)
	Begin func(Planned, *Capacity)
	Tried func(Trial) error
}

// Planned is a probe that is about to run.
type Planned struct {
	Number int // from 1
	Load   float64
	Seed   uint64
}

// Trial is a probe that has run.
type Trial struct {
	Number  int                `json:"probe"`
	Load    float64            `json:"load"`
	Seed    uint64             `json:"seed"`
	Dir     string             `json:"dir,omitempty"`
	Verdict string             `json:"verdict"`
	Reasons []string           `json:"reasons,omitempty"` // why the verdict is not valid
	Values  map[string]float64 `json:"values"`            // of the objectives, keyed by their texts
	Failed  float64            `json:"failed_percent"`
	// Rate is the number of requests served per second, Good the number of those that met the service level, and GoodShare the share of all
	// requests that met it.
	Rate      float64 `json:"requests_per_second"`
	Good      float64 `json:"goodput_per_second"`
	GoodShare float64 `json:"good_share"`
	Took      float64 `json:"seconds"`
	// Evidence: the probe says something about the engine. Met: it met all objectives. Missed is the objective that it missed by most, or
	// "failed requests".
	Evidence bool   `json:"evidence"`
	Met      bool   `json:"met"`
	Missed   string `json:"missed,omitempty"`
}

// SearchAnswer is how a search ended.
type SearchAnswer string

// The answers of a search.
const (
	CapacityFound SearchAnswer = "found"
	ClientLimit   SearchAnswer = "the client was the limit" // the engine can handle at least Capacity.Load
	MoreThanMax   SearchAnswer = "the engine can handle more than the highest load that may be tried"
	LessThanMin   SearchAnswer = "the engine cannot handle the lowest load that may be tried"
	TooShort      SearchAnswer = "the trace is too short for a verdict at this load" // it has too few requests
	NotYet        SearchAnswer = "cannot tell yet"                                   // the interval is wider than was asked for
)

// Capacity is the result of the trials.
type Capacity struct {
	Answer SearchAnswer
	// Load is the load at which half of the runs meet all objectives: the median of the loads that are possible after the trials. It lies
	// between Low and High with a probability of 95 %. With ClientLimit and MoreThanMax, Load is the greatest load that met the objectives;
	// with LessThanMin, the least that missed them; with TooShort, the load of the probe without a verdict. These have no interval.
	Load, Low, High float64
	// First is the objective that was missed by the greatest factor in the trial with the lowest load that missed any.
	First string
	// Knee is the load with the greatest goodput; 0 if no request met the service level.
	Knee   float64
	Trials []Trial
}

const (
	tries   = 3 // probes at one load that are no evidence, until the load counts as the client's limit
	step    = 2 // factor by which a search goes beyond the known loads
	failing = "failed requests"
	cutOff  = "requests cut off by the end of the run"

	cutOffShare = "cut_off_share" // the verdict's metric for them

	undecided = "undecided" // verdict of a run that is too small for one
)

// Validate reports what is wrong with the search.
func (s *Search) Validate() error {
	switch {
	case len(s.Objectives) == 0:
		return errors.New("no objective is given: name one, such as ttft.p99<2s")
	case !(s.Min > 0 && s.Min < s.Max) || math.IsInf(s.Max, 0):
		return fmt.Errorf("the bounds of the load are %g and %g: must be above 0, and the first below the second", s.Min, s.Max)
	case !(s.Start >= s.Min && s.Start <= s.Max):
		return fmt.Errorf("the search starts at %g: must lie between %g and %g", s.Start, s.Min, s.Max)
	case !(s.Precision > 0 && s.Precision < 1):
		return fmt.Errorf("the precision is %g: must be a share between 0 and 1", s.Precision)
	case s.MaxProbes < 1:
		return fmt.Errorf("at most %d probes: must be 1 or more", s.MaxProbes)
	}
	for _, o := range s.Objectives {
		if err := o.check(); err != nil {
			return fmt.Errorf("objective %s: %w", o, err)
		}
	}
	return nil
}

// Run continues the search from the trials of an earlier call. If a probe returns an error, Run ends, and returns the error
// together with the results so far.
func (s *Search) Run(ctx context.Context, before []Trial) (*Capacity, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	began, longest := time.Now(), 0.0
	trials := slices.Clone(before)
	for {
		c, next := s.judge(trials)
		for _, t := range trials {
			longest = max(longest, t.Took)
		}
		left := s.Budget.Seconds() - time.Since(began).Seconds()
		if next == 0 || len(trials) >= s.MaxProbes || s.Budget > 0 && longest > left {
			return c, nil
		}
		if err := ctx.Err(); err != nil {
			return c, context.Cause(ctx)
		}
		p := Planned{Number: len(trials) + 1, Load: next, Seed: s.Seed + uint64(len(trials))}
		if s.Begin != nil {
			s.Begin(p, c)
		}
		at := time.Now()
		run, err := s.Probe(ctx, p)
		if err == nil {
			err = ctx.Err() // an interrupted run is not a trial
		}
		if err != nil {
			return c, err
		}
		t, err := s.trial(p, run)
		if err != nil {
			return c, err
		}
		t.Took = time.Since(at).Seconds()
		trials = append(trials, t)
		if s.Tried != nil {
			if err := s.Tried(t); err != nil {
				return c, err
			}
		}
	}
}

// enginesOwn are the reasons of a verdict that are about the engine, not about the measurement.
var enginesOwn = []string{"failed_share", "no_request_served", cutOffShare}

// trial makes a trial from a run.
func (s *Search) trial(p Planned, r *Run) (Trial, error) {
	t := Trial{
		Number: p.Number, Load: p.Load, Seed: p.Seed, Dir: r.Dir, Verdict: r.Verdict, Reasons: r.Reasons, Values: map[string]float64{},
		Failed: r.figures["request_error_rate"]["avg"], Rate: r.figures["request_throughput"]["avg"], Good: r.figures["goodput"]["avg"],
		GoodShare: r.figures["good_request_fraction"]["avg"],
	}
	t.Evidence = r.Verdict == ValidVerdict || len(r.Reasons) > 0 && !slices.ContainsFunc(r.Reasons, func(reason string) bool { return !slices.Contains(enginesOwn, reason) })
	t.Met = true
	worst := 1.0
	switch {
	case t.Failed > s.MaxFailed:
		t.Met, t.Missed = false, failing
	case slices.Contains(r.Reasons, cutOffShare): // the figures lack the slowest requests, so they cannot show that objectives are met
		t.Met, t.Missed = false, cutOff
	}
	for _, o := range s.Objectives {
		v, ok, err := r.value(o)
		if err != nil {
			return t, err
		}
		if !ok && t.Met {
			return t, fmt.Errorf("objective %s: the probe has no figure %s in its %s: name one that is there, such as time_to_first_token, or a short name such as ttft", o, o.Metric.Figure, summaryFile)
		}
		if !ok {
			continue // nothing was served
		}
		t.Values[o.String()] = v
		if excess := o.excess(v); excess > worst {
			t.Met = false
			if worst = excess; t.Missed != failing && t.Missed != cutOff {
				t.Missed = o.String()
			}
		}
	}
	return t, nil
}

// judge returns the capacity that the trials show, and the next load; 0 if no more probes are needed.
func (s *Search) judge(trials []Trial) (*Capacity, float64) {
	post := newThreshold(s.Min, s.Max)
	met, missed, limit := 0.0, math.Inf(1), math.Inf(1)
	highest := 0.0           // load of a trial that is evidence
	bad := map[float64]int{} // trials that are none, by load
	c := &Capacity{Answer: NotYet, Trials: trials}
	best := 0.0
	for _, t := range trials {
		if !t.Evidence {
			bad[t.Load]++
			continue
		}
		highest = max(highest, t.Load)
		post.learn(t.Load, t.Met)
		if t.Met {
			met = max(met, t.Load)
		} else if t.Load < missed {
			missed, c.First = t.Load, t.Missed
		}
		if t.Good > best {
			best, c.Knee = t.Good, t.Load
		}
	}
	for load, n := range bad {
		if n >= tries && (load > highest || met == 0) { // below a load that the client can handle, it was disturbed
			limit = min(limit, load)
		}
	}
	c.Load, c.Low, c.High = post.quantile(0.5), post.quantile(0.025), post.quantile(0.975)
	next := c.Load
	if len(trials) == 0 {
		return c, s.Start
	}
	if last := trials[len(trials)-1]; last.Verdict == undecided {
		c.Answer, c.Load, c.Low, c.High = TooShort, last.Load, 0, 0
		return c, 0
	} else if !last.Evidence && last.Load < limit && bad[last.Load] < tries {
		return c, last.Load // once more, with another seed
	}
	// Go at most one step beyond the loads that met or missed the objectives, because a run under too much load takes long.
	if math.IsInf(missed, 1) {
		next = max(met, s.Min/step) * step
		if met == 0 {
			next = s.Start
		}
	} else if met == 0 {
		next = missed / step
	}
	next = s.allowed(next)
	switch {
	case missed <= s.Min && s.sure(trials, s.Min, false):
		c.Answer, c.Load, c.Low, c.High = LessThanMin, s.Min, 0, 0
		return c, 0
	case met >= s.Max && s.sure(trials, s.Max, true):
		c.Answer, c.Load, c.Low, c.High = MoreThanMax, s.Max, 0, 0
		return c, 0
	case !math.IsInf(limit, 1) && limit <= missed && (next >= limit || math.IsInf(missed, 1)):
		// The client is the limit, unless the engine reaches its own limit at a lower load: look between the greatest load that met and the
		// limit.
		next = math.Sqrt(max(met, s.Min) * limit)
		if s.Whole {
			next = math.Floor(next)
		}
		if met > 0 && (limit/met <= 1+2*s.Precision || next <= met) || met == 0 && next <= s.Min*(1+s.Precision) {
			c.Answer, c.Load, c.Low, c.High = ClientLimit, met, 0, 0
			return c, 0
		}
	case met > 0 && !math.IsInf(missed, 1) && s.narrow(c):
		c.Answer = CapacityFound
		return c, 0
	case met > 0 && !math.IsInf(missed, 1):
		next = s.telling(post, next, met*step, func(load float64) bool { return load < limit && bad[load] < tries })
	}
	return c, next
}

// telling returns the load, at most this, whose probe tells most about the capacity, of those that the client can handle; another load if it
// can handle none.
func (s *Search) telling(post *threshold, other, most float64, handles func(load float64) bool) float64 {
	best, least := other, math.Inf(1)
	for _, q := range doubtful {
		load := s.allowed(min(post.quantile(q), most))
		if left := post.uncertainty(load); handles(load) && left < least {
			best, least = load, left
		}
	}
	return best
}

// allowed returns the nearest load that may be tried.
func (s *Search) allowed(load float64) float64 {
	load = min(max(load, s.Min), s.Max)
	if s.Whole {
		load = math.Max(1, math.Round(load))
	}
	return load
}

// narrow reports whether the interval is as narrow as requested; for whole loads, whether no other whole load lies within it.
func (s *Search) narrow(c *Capacity) bool {
	return c.High/c.Low <= (1+s.Precision)/(1-s.Precision) || s.Whole && math.Floor(c.Low) == math.Floor(c.High)
}

// sure reports whether two trials at a load had the same outcome, so that no bound rests on one trial.
func (s *Search) sure(trials []Trial, load float64, met bool) bool {
	n := 0
	for _, t := range trials {
		if t.Evidence && t.Load == load && t.Met == met {
			n++
		}
	}
	return n >= 2
}

// Curve returns the trials that are evidence, by load.
func (c *Capacity) Curve() []Trial {
	list := slices.DeleteFunc(slices.Clone(c.Trials), func(t Trial) bool { return !t.Evidence })
	slices.SortStableFunc(list, func(a, b Trial) int { return cmp.Compare(a.Load, b.Load) })
	return list
}
