// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake"
)

func arrivals(stamps ...float64) ArrivalStats {
	var a Arrivals
	for _, t := range stamps {
		a.Add(&mooncake.Row{Timestamp: mooncake.Some(t)})
	}
	return a.Stats()
}

// poisson returns n arrivals at the given rate per millisecond, passed through a clock.
func poisson(n int, rate float64, clock func(float64) float64) []float64 {
	rng := rand.New(rand.NewPCG(5, 6))
	out, t := make([]float64, n), 0.
	for i := range out {
		out[i] = clock(t)
		t += rng.ExpFloat64() / rate
	}
	return out
}

func ticks(ms float64) func(float64) float64 {
	return func(t float64) float64 { return math.Floor(t/ms) * ms }
}

func TestGrid(t *testing.T) {
	regular := make([]float64, 100)
	for i := range regular {
		regular[i] = float64(i) * 500
	}
	for name, test := range map[string]struct {
		stamps  []float64
		quantum float64
		coarse  bool
	}{
		"whole milliseconds":                {poisson(2000, .005, math.Floor), 0, false},
		"microseconds":                      {poisson(2000, .005, ticks(.001)), 0, false},
		"busy, 3 s clock":                   {poisson(2000, .003, ticks(3000)), 3000, true},
		"quiet, 1 s clock: most are alone":  {poisson(2000, .0003, ticks(1000)), 1000, true},
		"epoch, 3 s clock":                  {poisson(2000, .003, func(t float64) float64 { return 1.766e12 + ticks(3000)(t) }), 3000, true},
		"truncating 3 s clock":              {poisson(2000, .003, func(t float64) float64 { return math.Floor(ticks(3000)(t) * 0.9999999) }), 3000, true},
		"a metronome is not a coarse clock": {regular, 500, false},
		"one instant":                       {[]float64{5, 5, 5}, 0, false},
		"nothing":                           {nil, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			if g := arrivals(test.stamps...).Grid; g.Quantum != test.quantum || g.Coarse != test.coarse {
				t.Errorf("grid %+v, want %g ms, coarse %t", g, test.quantum, test.coarse)
			}
		})
	}
}

func TestSecondsAreSuspected(t *testing.T) {
	for name, test := range map[string]struct {
		stamps []float64
		want   bool
	}{
		"2 rows a second, in milliseconds":  {poisson(500, .002, math.Floor), false},
		"2 rows a second, in seconds":       {poisson(500, .002, func(t float64) float64 { return t / 1000 }), true},
		"2 rows a second, in whole seconds": {poisson(500, .002, func(t float64) float64 { return math.Floor(t / 1000) }), true},
		"too few rows to say":               {[]float64{0, 1, 2}, false},
		"no span":                           {make([]float64, 50), false},
	} {
		if got := arrivals(test.stamps...).Seconds; got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestArrivalsOutOfOrder(t *testing.T) {
	var a Arrivals
	for _, ts := range []float64{100, 50, 50, 300} {
		a.Add(&mooncake.Row{Timestamp: mooncake.Some(ts)})
	}
	a.Add(&mooncake.Row{})
	s := a.Stats()
	if s.First != 100 || s.Last != 300 || s.Span != 250 || s.Backward != 1 || s.Equal != 1 || s.Missing != 1 || s.Distinct != 3 || s.Rate != 20 {
		t.Errorf("%+v", s)
	}
}

func TestTallyStaysBounded(t *testing.T) {
	var exact, coarse tally
	const n = maxTally + maxTally/2
	for i := range int64(n) {
		coarse.add(i)
		exact.add(i / 2)
	}
	if exact.shift != 0 || coarse.shift != 1 || len(coarse.counts) > maxTally {
		t.Errorf("shifts %d and %d, %d values", exact.shift, coarse.shift, len(coarse.counts))
	}
	if got := coarse.quantiles(50)[0]; got < n/2-2 || got > n/2 {
		t.Errorf("median %d, want %d rounded down to a multiple of two", got, n/2)
	}
	if coarse.n != n || coarse.sum != n*(n-1)/2 {
		t.Errorf("%d values with sum %d", coarse.n, coarse.sum)
	}
}

// TestArrivalsAreSorted: figures that do not depend on the order of the rows are the same for shuffled rows. If there are too many to
// sort, they are undefined, with the reason.
func TestArrivalsAreSorted(t *testing.T) {
	stamps := poisson(3000, .003, ticks(3000))
	want := arrivals(stamps...)
	rand.New(rand.NewPCG(7, 8)).Shuffle(len(stamps), func(i, j int) { stamps[i], stamps[j] = stamps[j], stamps[i] })
	got := arrivals(stamps...)
	if got.Backward < 1000 || got.First != stamps[0] {
		t.Fatalf("the rows are in order: %+v", got)
	}
	got.First, got.Last, got.Equal, got.Backward = want.First, want.Last, want.Equal, want.Backward
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("shuffled rows (-ordered +shuffled):\n%s", diff)
	}

	a := Arrivals{most: len(stamps) - 1}
	for _, ts := range stamps {
		a.Add(&mooncake.Row{Timestamp: mooncake.Some(ts)})
	}
	s := a.Stats()
	for _, name := range []string{"gap_cv", "distinct_timestamps", "rows_per_timestamp", "timestamp_gap_ms", "grid"} {
		if !strings.Contains(s.Undefined[name], "not in order of time") {
			t.Errorf("%s: undefined because %q", name, s.Undefined[name])
		}
	}
	if s.Rate != want.Rate || s.GapMean != want.GapMean || s.Distinct != 0 {
		t.Errorf("%+v, want rate and mean gap of %+v, and no more", s, want)
	}
}
