// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study

import "math"

// threshold is an estimate of the load at which a noisy test begins to fail, from tests that passed or failed: a posterior over the
// threshold and over the width of the region in which both outcomes occur. This is the method of adaptive psychometric tests (Watson and
// Pelli, Perception & Psychophysics 33(2), 1983; for the unknown width Kontsevich and Tyler, Vision Research 39, 1999). A bisection that
// trusts each test never recovers from one wrong answer; this method returns to the loads in doubt. Two tests that pass and fail at loads
// close to each other say little about the threshold if the region is wide, so the width must be learned, too.
type threshold struct {
	logs   []float64              // of the possible thresholds, evenly spaced
	weight [len(widths)][]float64 // by width and threshold; the sum is 1
}

// widths are the standard deviations, in logarithms of the load, of the load at which a run fails.
// If they ended below the true one, two tests that agree by chance would make the posterior too narrow.
var widths = [...]float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.4}

// doubtful are the quantiles of the threshold that are considered for the next test.
var doubtful = [...]float64{0.1, 0.3, 0.5, 0.7, 0.9}

const (
	grain = 0.0025 // distance between thresholds, in logarithms
	// lapse is the share of tests whose result does not depend on the load, for example because the machine was disturbed unnoticed.
	lapse = 0.02
	// certain is a distance from the threshold, in widths, beyond which a test has the expected result, unless it is a lapse.
	certain = 4
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

// passes returns the probability that a test passes at a distance, in logarithms, above the threshold.
func passes(distance, width float64) float64 {
	switch z := distance / width; {
	case z < -certain:
		return 1 - lapse/2
	case z > certain:
		return lapse / 2
	default:
		return lapse/2 + (1-lapse)*0.5*math.Erfc(z/math.Sqrt2)
	}
}

// learn adds the result of a test.
func (t *threshold) learn(load float64, passed bool) {
	sum, x := 0.0, math.Log(load)
	for w, width := range widths {
		for i, at := range t.logs {
			p := passes(x-at, width)
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

// uncertainty returns what a test at a load is expected to leave unknown: the entropy of the threshold, plus that of the width.
func (t *threshold) uncertainty(load float64) (left float64) {
	x := math.Log(load)
	var results [2]float64 // the probabilities of a pass and of a fail
	var byWidth [len(widths)][2]float64
	for i, at := range t.logs {
		var sums [2]float64
		for w, width := range widths {
			weight, p := t.weight[w][i], passes(x-at, width)
			for result, share := range [2]float64{weight * p, weight * (1 - p)} {
				sums[result] += share
				byWidth[w][result] += share
			}
		}
		for result, sum := range sums {
			left += entropy(sum)
			results[result] += sum
		}
	}
	for _, shares := range byWidth {
		left += entropy(shares[0]) + entropy(shares[1])
	}
	return left - 2*(entropy(results[0])+entropy(results[1])) // given the result
}

// entropy returns what a probability adds to an entropy.
func entropy(p float64) float64 {
	if p == 0 {
		return 0
	}
	return -p * math.Log(p)
}
