// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

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

// TestOfFloor: every goal that the floor decides holds at ofFloor times the floor's figure, does not hold above it, and its text has the
// factor.
func TestOfFloor(t *testing.T) {
	factor := fmt.Sprint(ofFloor)
	for what, aim := range map[string]func(times float64) (text string, holds bool){
		"reachable": func(times float64) (string, bool) {
			text, most := reachable("", 1, 2)
			return text, times*2 <= most
		},
		"gap errors": func(times float64) (string, bool) {
			var tab table
			for name, figure := range map[string]float64{"floor": 2, "ours": 2 * times} {
				tab.add(name, num("gap error ms p1", -figure), num("gap error ms p99", figure))
			}
			aimGapErrors(&tab, "ours", "floor")
			return tab.Targets[0], !strings.Contains(tab.Targets[0], "does not hold")
		},
		"coalesced gaps": func(times float64) (string, bool) {
			var tab table
			tab.add(stampedBare.label, num("coalesced %", 20))
			tab.add("ours", num("coalesced %", 20*times+1))
			aimCoalesced(&tab, "ours", "ours")
			return tab.Targets[0], !strings.Contains(tab.Targets[0], "does not hold")
		},
		"own fault": func(times float64) (string, bool) {
			var tab table
			tab.add(stampedBare.label, (&report{wireLags: []float64{2}}).reasons()...)
			tab.add("ours", (&report{wireLags: []float64{2 * times}, why: "wire_lag_p99"}).reasons()...)
			aimOwnFault(&tab, "ours", "ours", true)
			return factor, !strings.Contains(tab.Targets[0], "does not hold")
		},
	} {
		text, at := aim(ofFloor)
		if _, above := aim(ofFloor + 0.01); !at || above || !strings.Contains(text, factor) {
			t.Errorf("%s: holds at %s times the floor: %t, and above: %t, with the text %q", what, factor, at, above, text)
		}
	}
}

// TestOwnFault: what a busy loop does to a verdict is not held against the client, unless the floor did better.
func TestOwnFault(t *testing.T) {
	for reasons, want := range map[string][3]bool{ // quiet; beside busy loops, with a wire lag as the floor's; with a longer one
		"–":                                     {false, false, false},
		"hiccup_share":                          {false, false, false},
		"hiccup_share, coalesced_share":         {true, false, false},
		"wire_lag_p99, hiccup_share":            {true, false, true},
		"coalesced_share, hiccup_share, unsent": {true, true, true},
	} {
		for i, lag := range []float64{1, 1, 2} {
			busy := i > 0
			var tab table
			tab.add(stampedBare.label, (&report{wireLags: []float64{1}}).reasons()...)
			tab.add("ours", (&report{wireLags: []float64{lag}, why: reasons}).reasons()...)
			aimOwnFault(&tab, "ours", "ours", busy)
			if got := strings.Contains(tab.Targets[0], "does not hold"); got != want[i] {
				t.Errorf("%q, busy %t, wire lag %v: own fault %t, want %t", reasons, busy, lag, got, want[i])
			}
		}
	}
}
