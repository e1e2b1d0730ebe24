// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// 1, 2, …, 10 ms: avg 5.5, sum 55, population variance (100 − 1)/12 = 8.25. Nearest rank: p1 and p5 are number
// ceil(0.5) = 1, p10 number 1, p25 number ceil(2.5) = 3, p50 number 5, p75 number ceil(7.5) = 8, p90 number 9, the rest 10.
func TestStatByHand(t *testing.T) {
	h := newHistogram(scaleMillis)
	for _, v := range []float64{7, 3, 10, 1, 5, 9, 2, 8, 6, 4} {
		h.record(v)
	}
	got := h.stat("ms")
	want := Stat{Unit: "ms", Avg: 5.5, Min: 1, Max: 10, P1: 1, P5: 1, P10: 1, P25: 3, P50: 5, P75: 8, P90: 9, P95: 10, P99: 10, P999: 10, Std: math.Sqrt(8.25), Count: 10, Sum: 55}
	near(t, "avg", got.Avg, want.Avg, 1e-12)
	near(t, "std", got.Std, want.Std, 1e-12)
	for name, pair := range map[string][2]float64{
		"min": {got.Min, want.Min}, "max": {got.Max, want.Max}, "sum": {got.Sum, want.Sum},
		"p1": {got.P1, want.P1}, "p5": {got.P5, want.P5}, "p10": {got.P10, want.P10}, "p25": {got.P25, want.P25},
		"p50": {got.P50, want.P50}, "p75": {got.P75, want.P75}, "p90": {got.P90, want.P90}, "p95": {got.P95, want.P95},
		"p99": {got.P99, want.P99}, "p999": {got.P999, want.P999},
	} {
		near(t, name, pair[0], pair[1], 0.0005*pair[1]) // three significant digits
	}
	if got.Count != 10 || got.Clamped != 0 || got.Unit != "ms" {
		t.Errorf("count %d, clamped %d, unit %q", got.Count, got.Clamped, got.Unit)
	}
}

func near(t *testing.T, name string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got-want) <= within) {
		t.Errorf("%s = %v, want %v", name, got, want)
	}
}

// TestPercentilesAgainstSorting: on a long-tailed sample, each percentile is within 0.05 % of the value at nearest rank.
func TestPercentilesAgainstSorting(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 3, 7, 100, 1001, 20000} {
		h := newHistogram(scaleMillis)
		all := make([]float64, n)
		for i := range all {
			all[i] = math.Exp(rng.NormFloat64()*3) / 10
			h.record(all[i])
		}
		slices.Sort(all)
		for _, q := range []float64{1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 100} {
			rank := max(1, int(math.Ceil(q*float64(n)/100-1e-9)))
			want := all[rank-1]
			near(t, "percentile", h.percentile(q), want, want*0.0005+1e-6)
		}
	}
}

func TestOutOfRangeIsCountedAndKept(t *testing.T) {
	h := newHistogram(scaleMillis)
	day := 24 * 3600 * 1000.0
	for _, v := range []float64{-5, 10, 2 * day, math.NaN(), 0} {
		h.record(v)
	}
	s := h.stat("ms")
	// −5 and two days are clamped, but are among the four values; NaN is counted as clamped, but is no value; 0 is in range.
	if s.Clamped != 3 || s.Count != 4 {
		t.Errorf("clamped %d of %d, want 3 of 4", s.Clamped, s.Count)
	}
	if s.Min != -5 || s.Max != 2*day || s.Sum != 2*day+5 {
		t.Errorf("min %v max %v sum %v are not exact", s.Min, s.Max, s.Sum)
	}
	near(t, "p1", s.P1, 0, 0)              // −5 is at the bottom of the range
	near(t, "p999", s.P999, day, day*.001) // two days at its top
}

func TestEmptyHistogram(t *testing.T) {
	h := newHistogram(scaleCount)
	if got, want := h.stat("tokens"), (Stat{Unit: "tokens"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
