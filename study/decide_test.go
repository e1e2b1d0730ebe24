// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// rounds makes pairs of runs on one machine: a drift that both runs of a round share (an AR(1) series), and noise of each.
func rounds(random *rand.Rand, n int, ratio float64) (a, b []float64) {
	drift := 0.0
	for range n {
		drift = 0.8*drift + 0.05*random.NormFloat64()
		a = append(a, 200*math.Exp(drift+0.01*random.NormFloat64()))
		b = append(b, 200*ratio*math.Exp(drift+0.01*random.NormFloat64()))
	}
	return a, b
}

func TestDecide(t *testing.T) {
	ones := []float64{1, 1, 1, 1, 1, 1}
	for name, c := range map[string]struct {
		a, b    []float64
		minimum float64
		answer  Answer
		p       float64
	}{
		"slower":               {ones, []float64{1.05, 1.06, 1.04, 1.05, 1.06, 1.04}, 0.02, Slower, 2.0 / 64},
		"faster":               {[]float64{1.05, 1.06, 1.04, 1.05, 1.06, 1.04}, ones, 0.02, Faster, 2.0 / 64},
		"found, but too small": {ones, []float64{1.005, 1.006, 1.004, 1.005, 1.006, 1.004}, 0.02, NoDifference, 2.0 / 64},
		"equal":                {ones, ones, 0.02, NoDifference, 1},
		"five cannot decide":   {ones[:5], []float64{2, 2.1, 2, 2.1, 2}, 0.02, CannotTell, 2.0 / 32},
		"scattered":            {ones, []float64{1.5, 0.7, 1.3, 0.6, 1.4, 0.8}, 0.02, CannotTell, -1},
		"one pair":             {ones[:1], ones[:1], 0.02, CannotTell, 1},
		"no pairs":             {nil, nil, 0.02, CannotTell, 1},
		"ends of the range":    {[]float64{5e-324, 5e-324}, []float64{math.MaxFloat64, math.MaxFloat64}, 0.02, CannotTell, 0.5},
	} {
		d, err := Decide(c.a, c.b, c.minimum, 1)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d.Answer != c.answer || c.p >= 0 && d.P != c.p || (d.More > 0) != (d.Answer == CannotTell) {
			t.Errorf("%s: %+v; want %q with P %v", name, d, c.answer, c.p)
		}
	}
}

// TestDecideMore follows the advice, with a margin: four times the recommended rounds are enough to decide.
func TestDecideMore(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	a, b := rounds(random, 6, 1.01)
	d, err := Decide(a, b, 0.002, 1)
	if err != nil || d.Answer != CannotTell || d.More >= MaxMore {
		t.Fatalf("%+v, %v; want that it cannot tell, and a number of rounds", d, err)
	}
	a, b = rounds(random, 6+4*d.More, 1.01)
	if d, err = Decide(a, b, 0.002, 1); err != nil || d.Answer != Slower {
		t.Errorf("after the rounds: %+v, %v; want slower", d, err)
	}
}

func TestDecideRefuses(t *testing.T) {
	one := []float64{1}
	for want, c := range map[string]struct {
		a, b    []float64
		minimum float64
	}{
		"needs its partner":                    {one, nil, 0.02},
		"at most 10000":                        {make([]float64, MaxPairs+1), make([]float64, MaxPairs+1), 0.02},
		"minimum effect 0:":                    {one, one, 0},
		"minimum effect NaN:":                  {one, one, math.NaN()},
		"minimum effect 1:":                    {one, one, 1},
		"pair 1: value 0 of A":                 {[]float64{0}, one, 0.02},
		"pair 2: value -1 of B":                {[]float64{1, 1}, []float64{1, -1}, 0.02},
		"pair 1: value NaN of A: must be a nu": {[]float64{math.NaN()}, one, 0.02},
		"pair 1: value +Inf of B":              {one, []float64{math.Inf(1)}, 0.02},
	} {
		if _, err := Decide(c.a, c.b, c.minimum, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v; want %q", err, want)
		}
	}
}

// TestSignFlipDrawn compares the drawn patterns with the exact ones, and checks their seed.
func TestSignFlipDrawn(t *testing.T) {
	a, b := make([]float64, MaxPairs), make([]float64, MaxPairs)
	for i := range a {
		a[i], b[i] = 1, 1.1
	}
	d, err := Decide(a[:17], b[:17], 0.02, 1)
	if err != nil || d.Answer != Slower || d.P <= 0 || d.P > 0.001 {
		t.Errorf("17 equal differences: %+v, %v; want slower, with a P above 0 and of at most 0.001", d, err)
	}
	again, _ := Decide(a[:17], b[:17], 0.02, 1)
	if again != d {
		t.Errorf("the same seed: %+v, then %+v", d, again)
	}
	if d, err := Decide(a, b, 0.02, 1); err != nil || d.Answer != Slower {
		t.Errorf("the maximum number of pairs: %+v, %v; want slower", d, err)
	}
}

func TestHolm(t *testing.T) {
	got, err := Holm([]float64{0.04, 0.01, 0.03, 0.9})
	if diff := cmp.Diff([]float64{0.09, 0.04, 0.09, 0.9}, got, cmpopts.EquateApprox(0, 1e-12)); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := Holm([]float64{0.1, math.NaN()}); err == nil {
		t.Error("a P that is not a number is accepted")
	}
}
