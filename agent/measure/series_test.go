// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"math"
	"testing"
	"time"
)

func TestPeakConcurrency(t *testing.T) {
	for _, test := range []struct {
		name      string
		intervals [][2]int64 // ms
		want      int64
	}{
		{"none", nil, 0},
		{"one after the other: departures first", [][2]int64{{0, 10}, {10, 20}, {20, 30}}, 1},
		{"two overlap, the third begins as the first ends", [][2]int64{{0, 10}, {5, 20}, {10, 30}}, 2},
		{"records come in the order of their ends, not starts", [][2]int64{{50, 60}, {0, 100}, {55, 120}}, 3},
		{"shorter than a bin, and still there", [][2]int64{{7, 7}, {7, 7}}, 2},
		{"an end before the start lasts one bin", [][2]int64{{9, 3}}, 1},
	} {
		s := series{width: time.Millisecond, limit: 1 << 10}
		for _, i := range test.intervals {
			s.interval(time.Duration(i[0])*ms, time.Duration(i[1])*ms)
		}
		if got := s.peak(); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}

// Sixteen bins of 1 ms; an instant at 100 ms needs bins of 8 ms. Earlier counts are kept.
func TestSeriesWidens(t *testing.T) {
	s := series{width: time.Millisecond, limit: 16}
	for at := range 16 {
		s.add(time.Duration(at)*ms, 1)
	}
	s.add(100*ms, 5)
	if s.width != 8*ms || len(s.bins) > 16 {
		t.Fatalf("width %v, %d bins", s.width, len(s.bins))
	}
	// 0…7 ms and 8…15 ms have a bin each; 100 ms is in bin 12.
	if s.bins[0] != 8 || s.bins[1] != 8 || s.bins[12] != 5 {
		t.Errorf("bins %v", s.bins)
	}
	s.add(-ms, 1)
	if s.early != 1 || s.bins[0] != 9 {
		t.Errorf("before zero: %d early, first bin %d", s.early, s.bins[0])
	}
}

// Instants before the run's zero come from a clock that went wrong: they are counted, and nothing panics.
func TestSeriesBeforeZero(t *testing.T) {
	var first series
	first.width, first.limit = time.Millisecond, 16
	first.add(-time.Hour, 1)
	if first.early != 1 || len(first.bins) != 1 || first.bins[0] != 1 {
		t.Errorf("an instant: %d early, bins %v", first.early, first.bins)
	}
	whole := series{width: time.Millisecond, limit: 16}
	whole.interval(-5*ms, -3*ms)
	whole.interval(-5*ms, 2*ms)
	if whole.early != 2 || whole.peak() != 2 {
		t.Errorf("intervals: %d early, peak %d; want 2 and 2", whole.early, whole.peak())
	}
}

// A peak that was seen at fine resolution is kept, and so are the ends of long intervals.
func TestPeakSurvivesWidening(t *testing.T) {
	s := series{width: time.Millisecond, limit: 16}
	for range 5 {
		s.interval(2*ms, 3*ms)
	}
	s.interval(10*ms, time.Second) // bins of 64 ms from here on
	if got := s.peak(); got != 5 {
		t.Errorf("peak %d, want the 5 short ones", got)
	}
	for range 6 {
		s.interval(100*ms, 900*ms)
	}
	if got := s.peak(); got != 7 {
		t.Errorf("peak %d, want 1 + 6 long ones", got)
	}
}

// A server may claim any number of tokens for a chunk. Bins hold the sum, also when they are merged.
func TestSeriesHoldsHugeClaims(t *testing.T) {
	s := series{width: time.Second, limit: 4}
	for at := range 4 {
		s.add(time.Duration(at)*time.Second, math.MaxInt32)
		s.add(time.Duration(at)*time.Second, math.MaxInt32)
	}
	if got := s.most(); got != 2*math.MaxInt32 {
		t.Errorf("the fullest second has %d", got)
	}
	if s.add(4*time.Second, 1); s.most() != 4*math.MaxInt32 {
		t.Errorf("the fullest two seconds have %d", s.most())
	}
}

// y = 2x + 1 exactly: slope 2, error 0. Then (0,0) (1,1) (2,1) (3,2): means 1.5 and 1, Sxx 5, Sxy 3, Syy 2, so slope
// 0.6, residual 2 − 0.6·3 = 0.2, error √(0.2/2/5) = 0.1414.
func TestDriftByHand(t *testing.T) {
	var line ols
	for x := range 20 {
		line.add(float64(x), 2*float64(x)+1)
	}
	d := line.drift()
	near(t, "slope", d.Slope, 2, 1e-12)
	near(t, "error", d.StdErr, 0, 1e-6)
	near(t, "sure", d.Sure(), 2, 1e-6)
	near(t, "span", d.Span, 19, 0)
	near(t, "growth", d.Growth(), 2*19e-3, 1e-9) // µs/s · s = µs

	var o ols
	for _, p := range [][2]float64{{0, 0}, {1, 1}, {2, 1}, {3, 2}} {
		o.add(p[0], p[1])
	}
	d = o.drift()
	near(t, "slope", d.Slope, 0.6, 1e-12)
	near(t, "error", d.StdErr, math.Sqrt(0.2/2/5), 1e-12)
	if !math.IsNaN(d.Sure()) {
		t.Error("four rows prove nothing")
	}
	d.Count = 10
	near(t, "sure", d.Sure(), 0.6-2*math.Sqrt(0.02), 1e-12)
	d.Slope = -5
	near(t, "a lateness that shrinks", d.Sure(), 0, 0)
}
