// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestPercentile(t *testing.T) {
	ten := []float64{10, 1, 9, 2, 8, 3, 7, 4, 6, 5}
	for _, c := range []struct {
		values []float64
		q      float64
		want   float64
		why    string
	}{
		{ten, 0.5, 5, "half of ten values are at most the fifth"},
		{ten, 0.99, 10, "one in ten is above the ninth"},
		{ten, 0.01, 1, "the least"},
		{ten, 0, 1, "never before the first"},
		{ten, 1, 10, "never behind the last"},
		{[]float64{7}, 0.5, 7, "a single one"},
		{nil, 0.5, nan, "none"},
	} {
		if got := percentile(c.values, c.q); !cmp.Equal(got, c.want, cmpopts.EquateNaNs()) {
			t.Errorf("%s: %v, want %v", c.why, got, c.want)
		}
	}
	if ten[0] != 10 {
		t.Error("the caller's values were sorted")
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		rounds []float64
		want   string
		why    string
	}{
		{[]float64{3, 1, 2}, "2.00 (1.00–3.00)", "odd"},
		{[]float64{4, 1, 2, 3}, "2.50 (1.00–4.00)", "even: between the two in the middle"},
		{[]float64{nan, 2, nan}, "2.00", "rounds without a figure are left out"},
		{[]float64{0.0123}, "0.0123", "three digits"},
		{[]float64{1234.5}, "1234", "no decimals above a hundred"},
		{[]float64{-0.00123}, "-0.0012", "four decimals at most"},
		{[]float64{0}, "0", "zero"},
	} {
		s, ok := spreadOf(c.rounds)
		if !ok || s.String() != c.want {
			t.Errorf("%s: %q, want %q", c.why, s, c.want)
		}
	}
	if _, ok := spreadOf([]float64{nan}); ok {
		t.Error("a figure without rounds")
	}
}

func TestAlign(t *testing.T) {
	for _, c := range []struct {
		ideal, arrived, want []float64
		why                  string
	}{
		{even(3, 1000), []float64{50, 51, 52}, []float64{0, 0, 0}, "a delay of all is none"},
		{even(3, 1000), []float64{50, 51.5, 52}, []float64{0, 0.5, 0}, "one late"},
		{even(3, 1000), []float64{50.7, 51, 52}, []float64{0.7, 0, 0}, "the first may be the late one: it is not the zero"},
		{even(3, 1000), []float64{50, nan, 53}, []float64{0, nan, 1}, "one never came"},
		{[]float64{0, 0, 10}, []float64{5, 6, 15}, []float64{0, 1, 0}, "a burst"},
		{even(2, 1000), []float64{nan, nan}, nil, "none came"},
	} {
		if diff := cmp.Diff(c.want, align(c.ideal, c.arrived), cmpopts.EquateNaNs(), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.why, diff)
		}
	}
}

func TestOff(t *testing.T) {
	if got := off(105, 100); math.Abs(got-0.05) > 1e-9 {
		t.Errorf("105 of 100: %v", got)
	}
	if got := off(95, 100); math.Abs(got-0.05) > 1e-9 {
		t.Errorf("95 of 100: %v", got)
	}
}

func TestHighest(t *testing.T) {
	if got := highest([]step{{0, 1}, {2, 1}, {2, -1}, {1, 1}, {3, -1}, {9, -1}}); got != 2 {
		t.Errorf("%d open at once, want 2: the one that ends at 2 leaves before the other comes", got)
	}
}
