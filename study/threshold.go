// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study

import "math"

// threshold is an estimate of the load at which a noisy test begins to fail, from tests that passed or failed: a posterior over the
// threshold and over the width of the region in which both outcomes occur. This is the method of adaptive psychometric tests (Watson and
// Pelli, Perception & Psychophysics 33(2), 1983; for the unknown width Kontsevich and Tyler, Vision Research 39, 1999). A bisection that
// trusts each test never recovers from one wrong answer; this method returns to the loads in doubt.
type threshold struct {
	logs   []float64              // of the possible thresholds, evenly spaced
	weight [len(widths)][]float64 // by width and threshold; the sum is 1
}

// widths are the standard deviations, in logarithms of the load, of the load at which a run fails.
var widths = [...]float64{0.01, 0.02, 0.04, 0.08}

const (
	grain = 0.0025 // distance between thresholds, in logarithms
	// lapse is the share of tests whose result does not depend on the load, for example because the machine was disturbed unnoticed.
	lapse = 0.02
)

func newThreshold(low, high float64) *threshold {
	t := &threshold{}
	n := max(2, int(math.Ceil(math.Log(high/low)/grain))+1)
	for i := range n {
		t.logs = append(t.logs, math.Log(low)+math.Log(high/low)*float64(i)/float64(n-1))
	}
	for w := range t.weight {
		t.weight[w] = make([]float64, n)
		for i := range t.weight[w] {
			t.weight[w][i] = 1 / float64(n*len(widths))
		}
	}
	return t
}

// learn adds the result of a test.
func (t *threshold) learn(load float64, passed bool) {
	sum, x := 0.0, math.Log(load)
	for w, width := range widths {
		for i, at := range t.logs {
			p := lapse/2 + (1-lapse)*0.5*math.Erfc((x-at)/(width*math.Sqrt2))
			if !passed {
				p = 1 - p
			}
			t.weight[w][i] *= p
			sum += t.weight[w][i]
		}
	}
	for w := range t.weight {
		for i := range t.weight[w] {
			t.weight[w][i] /= sum // above 0, since no test is certain
		}
	}
}

// quantile returns the load below which the threshold lies with this probability.
func (t *threshold) quantile(q float64) float64 {
	sum := 0.0
	for i, at := range t.logs {
		for w := range t.weight {
			sum += t.weight[w][i]
		}
		if sum >= q {
			return math.Exp(at)
		}
	}
	return math.Exp(t.logs[len(t.logs)-1])
}
