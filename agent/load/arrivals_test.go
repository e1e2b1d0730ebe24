// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/mooncake"
)

// TestArrivalGaps compares the gaps of each pattern with the mean and the coefficient of variation of its distribution.
func TestArrivalGaps(t *testing.T) {
	const n, seeds = 4000, 20
	for _, tc := range []struct {
		name string
		a    Arrivals
		cv   float64
	}{
		{"constant", Arrivals{Rate: 7, Pattern: Constant}, 0},
		{"poisson", Arrivals{Rate: 7, Pattern: Poisson}, 1},
		{"poisson by default", Arrivals{Rate: 0.01}, 1},
		{"gamma without a shape is poisson", Arrivals{Rate: 7, Pattern: Gamma}, 1},
		{"gamma in bursts", Arrivals{Rate: 7, Pattern: Gamma, Burstiness: 0.25}, 2},
		{"gamma, even", Arrivals{Rate: 7, Pattern: Gamma, Burstiness: 16}, 0.25},
	} {
		means, cvs := make([]float64, seeds), make([]float64, seeds)
		for seed := range seeds {
			a := newArrivals(tc.a, uint64(seed))
			before, sum, squares := a.next(), 0., 0.
			if before != 0 {
				t.Fatalf("%s: the first row goes at %v, want 0", tc.name, before)
			}
			for range n {
				at := a.next()
				gap := (at - before).Seconds() * tc.a.Rate
				if gap < 0 {
					t.Fatalf("%s: from %v back to %v", tc.name, before, at)
				}
				before, sum, squares = at, sum+gap, squares+gap*gap
			}
			means[seed] = sum / n
			cvs[seed] = math.Sqrt(max(0, squares/n-means[seed]*means[seed])) / means[seed]
		}
		// The standard error of a mean is cv/√n; that of a cv at these shapes is less than 5/√n. Each seed may be off by five standard
		// errors, and all seeds together by one. A wrong distribution cannot pass by chance.
		unit := 1 / math.Sqrt(n)
		for seed := range seeds {
			if math.Abs(means[seed]-1) > 5*tc.cv*unit+1e-9 || math.Abs(cvs[seed]-tc.cv) > 25*tc.cv*unit+1e-6 {
				t.Errorf("%s, seed %d: gaps of mean %.3f and cv %.3f, want 1 and %.3f", tc.name, seed, means[seed], cvs[seed], tc.cv)
			}
		}
		mean := func(of []float64) (m float64) {
			for _, v := range of {
				m += v / seeds
			}
			return m
		}
		if m, cv := mean(means), mean(cvs); math.Abs(m-1) > tc.cv*unit+1e-9 || math.Abs(cv-tc.cv) > 2*tc.cv*unit+1e-6 {
			t.Errorf("%s: over all seeds gaps of mean %.4f and cv %.4f, want 1 and %.3f", tc.name, m, cv, tc.cv)
		}
		if tc.cv > 0 && means[0] == means[1] {
			t.Errorf("%s: two seeds make the same schedule", tc.name)
		}
	}
}

// TestRamp compares the number of rows in the first seconds with the integral of the rate.
func TestRamp(t *testing.T) {
	const over = 10 * time.Second
	linear := func(from, to float64) func(s float64) float64 {
		return func(s float64) float64 {
			in := min(s, over.Seconds())
			return from*in + (to-from)*in*in/(2*over.Seconds()) + to*(s-in)
		}
	}
	for _, tc := range []struct {
		name  string
		a     Arrivals
		until func(s float64) float64 // rows in the first s seconds
	}{
		{"from 0", Arrivals{Rate: 100, RampUp: over}, linear(0, 100)},
		{"from another rate", Arrivals{Rate: 100, RampUp: over, RampFrom: 20}, linear(20, 100)},
		{"down", Arrivals{Rate: 20, RampUp: over, RampFrom: 100}, linear(100, 20)},
		{"from the same rate", Arrivals{Rate: 50, RampUp: over, RampFrom: 50, RampShape: RampExponential}, linear(50, 50)},
		{"exponential", Arrivals{Rate: 64, RampUp: over, RampFrom: 1, RampShape: RampExponential}, func(s float64) float64 {
			in, growth := min(s, over.Seconds()), math.Log(64)/over.Seconds()
			return (math.Exp(growth*in)-1)/growth + 64*(s-in)
		}},
	} {
		tc.a.Pattern = Constant
		a := newArrivals(tc.a, 0)
		at := make([]float64, 2000)
		for i := range at {
			at[i] = a.next().Seconds()
		}
		for s := 0.5; s <= 15; s += 0.5 {
			rows, _ := slices.BinarySearch(at, s)
			if want := tc.until(s); math.Abs(float64(rows)-want) > 1.000001 { // the first row goes at 0
				t.Errorf("%s: %d rows in the first %v s, want %.1f", tc.name, rows, s, want)
			}
		}
		if math.Abs(tc.a.At(tc.until(12)).Seconds()-12) > 1e-6 {
			t.Errorf("%s: At is not the inverse: %v", tc.name, tc.a.At(tc.until(12)))
		}
	}
}

// TestArrivals: rows keep their order, their window and their limit, and get the arrival times of the process.
func TestArrivals(t *testing.T) {
	type got struct {
		Index  int64
		Offset time.Duration
		Timed  bool
	}
	fixed := Arrivals{Rate: 10, Pattern: Constant}
	for _, tc := range []struct {
		name  string
		opt   Options
		lines []string
		want  []got
	}{
		{
			name: "the order is that of timestamps", lines: []string{at(9), at(3), at(500000)},
			want: []got{{1, 0, true}, {0, 100 * ms, true}, {2, 200 * ms, true}},
		},
		{
			name: "the order is that of the file, if it is asked for", opt: Options{FileOrder: true}, lines: []string{at(9), at(3)},
			want: []got{{0, 0, true}, {1, 100 * ms, true}},
		},
		{
			name: "no timestamps are needed", lines: []string{`{"input_length": 600, "output_length": 1}`, `{"input_length": 600, "output_length": 1}`},
			want: []got{{0, 0, true}, {1, 100 * ms, true}},
		},
		{
			name: "a speed-up changes nothing", opt: Options{Speedup: 4}, lines: []string{at(9), at(3)},
			want: []got{{1, 0, true}, {0, 100 * ms, true}},
		},
		{
			name: "the window is in the trace's time", opt: Options{Start: 10 * ms, End: 20 * ms},
			lines: []string{at(100), at(109), at(110), at(120), at(121)},
			want:  []got{{2, 0, true}, {3, 100 * ms, true}},
		},
		{
			name: "a limit", opt: Options{MaxRows: 2}, lines: []string{at(1), at(2), at(3)},
			want: []got{{0, 0, true}, {1, 100 * ms, true}},
		},
		{
			name: "a turn that has a delay follows the turn before, one that has a timestamp arrives", opt: Options{Sessions: mooncake.SessionFull},
			lines: []string{turn(0, "a"), delayed(50, "a"), turn(5, "b"), turn(6, "a")},
			want:  []got{{0, 0, true}, {1, 0, false}, {2, 100 * ms, true}, {3, 200 * ms, true}},
		},
		{
			name: "open loop: every turn arrives", opt: Options{Sessions: mooncake.SessionFull, OpenSessions: true},
			lines: []string{turn(0, "a"), delayed(50, "a"), turn(5, "b")},
			want:  []got{{0, 0, true}, {1, 100 * ms, true}, {2, 200 * ms, true}},
		},
		{
			name: "all at once", opt: Options{Arrivals: Arrivals{Rate: math.Inf(1)}}, lines: []string{at(9), at(3), at(500000)},
			want: []got{{1, 0, true}, {0, 0, true}, {2, 0, true}},
		},
	} {
		if !tc.opt.Arrivals.Any() {
			tc.opt.Arrivals = fixed
		}
		s, err := stream(t, tc.opt, tc.lines...)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		all, err := items(t, s)
		if err != nil || !s.Info().Scheduled {
			t.Errorf("%s: scheduled %v: %v", tc.name, s.Info().Scheduled, err)
		}
		var is []got
		for _, it := range all {
			is = append(is, got{it.Index, it.Offset, it.Timed})
		}
		if diff := cmp.Diff(tc.want, is); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

// offsetsOf returns when each row is due, by its index, and requires that rows come in that order.
func offsetsOf(t *testing.T, opt Options, lines ...string) map[int64]time.Duration {
	t.Helper()
	s, err := stream(t, opt, lines...)
	if err != nil {
		t.Fatal(err)
	}
	all, err := items(t, s)
	if err != nil || !slices.IsSortedFunc(all, func(a, b *schedule.Item) int { return int(a.Offset - b.Offset) }) {
		t.Fatalf("not in order: %v", err)
	}
	of := make(map[int64]time.Duration)
	for _, it := range all {
		of[it.Index] = it.Offset
	}
	return of
}

// TestArrivalsOfShards: the shards together make the schedule that one process makes.
func TestArrivalsOfShards(t *testing.T) {
	var lines []string
	for i := range 300 {
		lines = append(lines, at(float64(i/9)))
	}
	offsets := func(opt Options) map[int64]time.Duration {
		opt.Arrivals, opt.Seed = Arrivals{Rate: 50, Pattern: Gamma, Burstiness: 0.5}, 7
		return offsetsOf(t, opt, lines...)
	}
	whole, parts := offsets(Options{}), make(map[int64]time.Duration)
	for i := range 3 {
		part := offsets(Options{Shard: i, Shards: 3})
		if len(part) != 100 {
			t.Errorf("shard %d has %d rows", i, len(part))
		}
		maps.Copy(parts, part)
	}
	if diff := cmp.Diff(whole, parts); diff != "" {
		t.Errorf("the shards' schedule is different (-whole +shards):\n%s", diff)
	}
}

func TestArrivalsRefused(t *testing.T) {
	for _, tc := range []struct {
		a    Arrivals
		want string
	}{
		{Arrivals{Rate: -1}, "request rate -1"},
		{Arrivals{Rate: math.NaN()}, "request rate NaN"},
		{Arrivals{Rate: math.Inf(-1)}, "request rate -Inf"},
		{Arrivals{Rate: 1, Pattern: "random"}, `arrival "random": want constant, poisson or gamma`},
		{Arrivals{Rate: 1, Burstiness: 2}, "only gamma"},
		{Arrivals{Rate: 1, Pattern: Gamma, Burstiness: math.NaN()}, "burstiness NaN"},
		{Arrivals{RampUp: time.Second}, "needs a request rate"},
		{Arrivals{Rate: math.Inf(1), RampUp: time.Second}, "needs a request rate"},
		{Arrivals{Rate: 1, RampUp: time.Second, RampShape: RampExponential}, "never leaves 0"},
		{Arrivals{Rate: 1, RampUp: time.Second, RampShape: "stairs"}, "want linear or exponential"},
		{Arrivals{Rate: 1, RampUp: -1}, "ramp-up -1ns"},
		{Arrivals{Users: 2}, "users 2: they need a request rate"},
		{Arrivals{Users: 2, Rate: math.Inf(1)}, "users 2: they need a request rate"},
		{Arrivals{Users: -2, Rate: 1}, "users -2: want 0 to 100000"},
		{Arrivals{Users: math.MaxInt, Rate: 1}, "want 0 to 100000"},
		{Arrivals{Users: 2, Rate: 1, Pattern: Poisson}, "each sends at equal intervals"},
	} {
		if _, err := stream(t, Options{Arrivals: tc.a}, at(0)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.a, err, tc.want)
		}
	}
	var lines []string
	for i := range 3200 {
		lines = append(lines, at(float64(i)))
	}
	s, err := stream(t, Options{Arrivals: Arrivals{Rate: MinRate, Pattern: Constant}}, lines...)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := items(t, s); err == nil || len(all) != 3154 || !strings.Contains(err.Error(), "line 3155: at 1e-06 requests per second the row is due more than 100 years") {
		t.Errorf("%d items, %v", len(all), err)
	}
	if _, err := stream(t, Options{Arrivals: Arrivals{Rate: 1}, Spread: SpreadEven}, at(0)); err == nil || !strings.Contains(err.Error(), "no timestamps to spread") {
		t.Errorf("a spread together with a rate: %v", err)
	}
}
