// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/internal/simulator"
)

// TestWarmUpByTime: warm-up requests follow one another, as many at once as configured, until their time or their number is reached. Those
// in flight may then end within the grace, and the schedule begins after that.
func TestWarmUpByTime(t *testing.T) {
	const reply = 3 * time.Second
	at := func(seconds ...int) (all []time.Duration) {
		for _, s := range seconds {
			all = append(all, time.Duration(s)*time.Second)
		}
		return all
	}
	for _, tc := range []struct {
		name     string
		schedule Schedule
		want     []time.Duration // arrivals of the warm-up
		rows     time.Duration   // when the schedule begins
		told     report.Warmup
	}{
		{"for a time", Schedule{WarmupFor: 10 * time.Second}, at(0, 3, 6, 9), 12 * time.Second, report.Warmup{Sent: 4, Lasted: 12_000}},
		{"as many at once as the run", Schedule{WarmupFor: 4 * time.Second, Concurrency: 2}, at(0, 0, 3, 3), 6 * time.Second, report.Warmup{Sent: 4, Lasted: 6000}},
		{"as many at once as configured for the warm-up", Schedule{WarmupFor: 4 * time.Second, Concurrency: 2, WarmupConcurrency: 3}, at(0, 0, 0, 3, 3, 3), 6 * time.Second, report.Warmup{Sent: 6, Lasted: 6000}},
		{"the number is over first", Schedule{WarmupFor: time.Minute, Warmup: 2}, at(0, 3), 6 * time.Second, report.Warmup{Sent: 2, Lasted: 6000}},
		{"the time is over first", Schedule{WarmupFor: 4 * time.Second, Warmup: 20}, at(0, 3), 6 * time.Second, report.Warmup{Sent: 2, Lasted: 6000}},
		{"a grace that is too short", Schedule{WarmupFor: 4 * time.Second, WarmupGrace: time.Second}, at(0, 3), 5 * time.Second, report.Warmup{Sent: 2, GivenUp: 1, Lasted: 5000}},
		{"at a rate", Schedule{Warmup: 4, WarmupArrivals: load.Arrivals{Rate: 1, Pattern: load.Constant}}, at(0, 1, 2, 3), 6 * time.Second, report.Warmup{Sent: 4, Lasted: 6000}},
		{"at a rate, for a time", Schedule{WarmupFor: 2500 * time.Millisecond, WarmupArrivals: load.Arrivals{Rate: 1, Pattern: load.Constant}}, at(0, 1, 2), 5 * time.Second, report.Warmup{Sent: 3, Lasted: 5000}},
		{"at a rate, with a maximum in flight", Schedule{Warmup: 4, WarmupConcurrency: 2, WarmupArrivals: load.Arrivals{Rate: 1, Pattern: load.Constant}}, at(0, 1, 3, 4), 7 * time.Second, report.Warmup{Sent: 4, Lasted: 7000}},
		{"more and more at once", Schedule{Warmup: 4, WarmupConcurrency: 3, WarmupConcurrencyRampUp: 2 * time.Second}, at(0, 1, 2, 3), 6 * time.Second, report.Warmup{Sent: 4, Lasted: 6000}},
		{"at most one without a first token", Schedule{Warmup: 3, WarmupConcurrency: 3, WarmupPrefillConcurrency: 1}, at(0, 3, 6), 9 * time.Second, report.Warmup{Sent: 3, Lasted: 9000}},
		{
			"more and more without a first token",
			Schedule{Warmup: 3, WarmupConcurrency: 3, WarmupPrefillConcurrency: 2, WarmupPrefillRampUp: time.Second},
			at(0, 1, 3), 6 * time.Second,
			report.Warmup{Sent: 3, Lasted: 6000},
		},
		{"a grace that is enough", Schedule{Warmup: 2, WarmupGrace: 5 * time.Second}, at(0, 3), 6 * time.Second, report.Warmup{Sent: 2, Lasted: 6000}},
	} {
		rep, got := inVirtualTime(t, simulator.Config{Latency: simulator.Latency{Prefill: reply}}, Config{Schedule: tc.schedule, Lead: time.Nanosecond}, rows(3, 10_000)...)
		names, arrived := order(got)
		var warm []time.Duration
		zero := time.Duration(-1)
		for i, name := range names {
			if strings.HasPrefix(name, "-") {
				warm = append(warm, arrived[i])
			} else if zero < 0 {
				zero = arrived[i] - time.Nanosecond
			}
		}
		if !slices.Equal(warm, tc.want) || zero != tc.rows {
			t.Errorf("%s: warm-up requests came at %v and rows from %v on, want %v and %v", tc.name, warm, zero, tc.want, tc.rows)
		}
		if rep.Warmup == nil || *rep.Warmup != tc.told || rep.Figures().Rows.Served != 3 || rep.Figures().Rows.Total != 3 {
			t.Errorf("%s: the report says %+v, want %+v; %+v", tc.name, rep.Warmup, tc.told, rep.Figures().Rows)
		}
		if warned := strings.Join(rep.Warnings, "\n"); strings.Contains(warned, "were cancelled") != (tc.told.GivenUp > 0) {
			t.Errorf("%s: warnings %s", tc.name, warned)
		}
	}
}

// TestWarmUpOfAnEngineThatRefuses: a warm-up by time ends early if every request fails, because it is no use to send thousands a second.
func TestWarmUpOfAnEngineThatRefuses(t *testing.T) {
	refusing := simulator.Config{Faults: simulator.Faults{Rates: map[simulator.Fault]float64{"server-error": 1}}}
	rep, _ := inVirtualTime(t, refusing, Config{Schedule: Schedule{WarmupFor: time.Hour}}, rows(1, 0)...)
	if w := rep.Warmup; w == nil || w.Sent != maxColdFailures || w.Failed != w.Sent || !w.Ended {
		t.Errorf("%+v", w)
	}
	if !slices.ContainsFunc(rep.Warnings, func(s string) bool { return strings.Contains(s, "the warm-up ended after 0.0 s") }) {
		t.Errorf("warnings %q", rep.Warnings)
	}
}

// TestWarmUpThatSendsNothing: rows that are too short to send are no warm-up, and the next ones are not tried for as long as it may last.
func TestWarmUpThatSendsNothing(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	r := e.replay(t, Config{Schedule: Schedule{WarmupFor: time.Minute}, Prompt: Prompt{TooShort: prompt.Skip}}, `{"timestamp": 0, "input_length": 3, "output_length": 2}`)
	if r.err != nil {
		t.Fatal(r.err)
	}
	if w := r.report.Warmup; w == nil || w.Sent != maxColdFailures || w.Failed != w.Sent || !w.Ended {
		t.Errorf("%+v", w)
	}
	if warned := strings.Join(r.report.Warnings, "\n"); !strings.Contains(warned, "warm-up requests failed, for example: "+measure.SkipTooShort) {
		t.Errorf("warnings %s", warned)
	}
}
