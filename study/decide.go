// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package study answers questions over several runs. It sends no request.
//
// Requests within a run depend on each other: one slow prefill delays all requests that wait for it. So a run is one observation, and a
// decision is based on pairs of runs, never on pooled rows. A pair is a round: a run of A and a run of B, one after the other, of the same
// trace.
package study

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Answer is the conclusion from the pairs, for a metric of which less is better.
type Answer string

// The answers.
const (
	Slower       Answer = "slower"
	Faster       Answer = "faster"
	NoDifference Answer = "no difference found" // the interval of 90 % lies within ± the minimum effect
	CannotTell   Answer = "cannot tell"
)

const (
	// MinPairs is the minimum number of pairs for a decision: the sign-flip test of five pairs cannot reach a p of 0.05.
	MinPairs = 6
	// MaxPairs limits the work of a decision.
	MaxPairs = 10_000
	// MaxMore is the maximum of Decision.More.
	MaxMore = 10_000

	level      = 0.05    // of each test; the interval of a difference covers 1 − level, that of equivalence 1 − 2 × level
	exactPairs = 16      // up to this many, every pattern of signs is tried
	flips      = 1 << 16 // with more pairs, about this many random signs are drawn, in at least 1,024 patterns
)

// Decision is the result of the pairs for one metric. Ratios are B's value divided by A's: 1.05 is 5 % more.
type Decision struct {
	Answer    Answer
	Pairs     int
	Ratio     float64 // geometric mean; NaN without pairs
	Low, High float64 // interval of 95 % for Ratio; 0 and +Inf where fewer than two pairs leave it open
	// Low90 and High90 are the interval of 90 %, which decides on NoDifference: it lies within the margins exactly if two one-sided
	// tests of 5 % reject a difference of the minimum effect or more (Schuirmann, "A comparison of the two one-sided tests
	// procedure and the power approach", Journal of Pharmacokinetics and Biopharmaceutics 15, 1987).
	Low90, High90 float64
	P             float64 // two-sided, of the sign-flip test; 1 without pairs
	// More is how many further rounds would decide if they scattered like these; 0 unless Answer is CannotTell. MaxMore means "this many or
	// more", or that the scatter is unknown.
	More int
}

// Decide compares A with B by one value of each run, such as its median time to first token: a[i] and b[i] are a pair, and less is better.
// Minimum is the smallest difference that matters, as a share: 0.02 is 2 %. A difference that the test finds, but whose whole 90 % interval
// is smaller than that, counts as no difference. Values must be finite and above 0. The seed matters only with more than 16 pairs; the same
// seed gives the same P.
//
// The effect is the mean of the log ratios. Its interval is Student's for paired differences (Student, "The probable error
// of a mean", Biometrika 6, 1908). The test flips the signs of the log ratios (Fisher, "The Design of Experiments", 1935,
// section 21), and where patterns are drawn, P is (hits + 1) / (draws + 1) (Phipson and Smyth, "Permutation P-values should
// never be zero", 2010). [Decision].Low90 says when A and B count as equal. With an interval of 95 % in its place, the level would be
// 2.5 %, and 1.6 times as many pairs would be needed instead of six.
func Decide(a, b []float64, minimum float64, seed uint64) (Decision, error) {
	switch {
	case len(a) != len(b):
		return Decision{}, fmt.Errorf("%d values of A and %d of B: each needs its partner", len(a), len(b))
	case len(a) > MaxPairs:
		return Decision{}, fmt.Errorf("%d pairs: at most %d can be compared", len(a), MaxPairs)
	case !(minimum > 0 && minimum < 1): // NaN, too
		return Decision{}, fmt.Errorf("minimum effect %v: must be above 0 and below 1 (0.02 is 2 %%)", minimum)
	}
	logs := make([]float64, len(a))
	for i := range a {
		for _, v := range []struct {
			of    string
			value float64
		}{{"A", a[i]}, {"B", b[i]}} {
			if !(v.value > 0) || math.IsInf(v.value, 0) {
				return Decision{}, fmt.Errorf("pair %d: value %v of %s: must be a number above 0; leave the pair out", i+1, v.value, v.of)
			}
		}
		logs[i] = math.Log(b[i]) - math.Log(a[i]) // the quotient itself may overflow
	}
	n := len(logs)
	d := Decision{Answer: CannotTell, Pairs: n, Ratio: math.NaN(), High: math.Inf(1), High90: math.Inf(1), P: 1, More: MaxMore}
	if n == 0 {
		return d, nil
	}
	mean, margin := stat.Mean(logs, nil), math.Log1p(minimum)
	d.Ratio = math.Exp(mean)
	if n == 1 {
		return d, nil
	}
	deviation := stat.StdDev(logs, nil)
	half, equal := halfWidth(deviation, n, level), halfWidth(deviation, n, 2*level)
	d.Low, d.High, d.P = math.Exp(mean-half), math.Exp(mean+half), signFlip(logs, seed)
	d.Low90, d.High90 = math.Exp(mean-equal), math.Exp(mean+equal)
	switch {
	case n < MinPairs:
	case math.Abs(mean)+equal <= margin:
		d.Answer = NoDifference
	case d.P > level || math.Abs(mean) <= half:
	case mean > 0:
		d.Answer = Slower
	default:
		d.Answer = Faster
	}
	if d.Answer != CannotTell {
		d.More = 0
		return d, nil
	}
	// Either the interval excludes 0, or it lies within the margins, whichever needs fewer rounds.
	decides := func(n int) bool {
		return halfWidth(deviation, n, level) < math.Abs(mean) || halfWidth(deviation, n, 2*level) < margin-math.Abs(mean)
	}
	for d.More = max(1, MinPairs-n); d.More < MaxMore && !decides(n+d.More); d.More++ {
	}
	return d, nil
}

// halfWidth returns half the width of Student's interval for the mean of n values. The interval misses the mean with the given probability.
func halfWidth(deviation float64, n int, miss float64) float64 {
	return student(n-1, miss) * deviation / math.Sqrt(float64(n))
}

// student returns the value beyond which, on both sides together, the given share of Student's distribution lies.
func student(freedom int, miss float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(freedom)}.Quantile(1 - miss/2)
}

// signFlip returns the share of all patterns of signs whose sum is at least as far from 0 as the actual one.
func signFlip(values []float64, seed uint64) float64 {
	var own, size float64
	for _, v := range values {
		own += v
		size += math.Abs(v)
	}
	bound := math.Abs(own) - 1e-12*size // sums in another order differ in their last bits
	far := func(signs func(i int) bool) bool {
		var sum float64
		for i, v := range values {
			if signs(i) {
				v = -v
			}
			sum += v
		}
		return math.Abs(sum) >= bound
	}
	hits := 0
	if n := len(values); n <= exactPairs {
		for pattern := range 1 << n {
			if far(func(i int) bool { return pattern>>i&1 == 1 }) {
				hits++
			}
		}
		return float64(hits) / float64(int(1)<<n)
	}
	draws := max(1024, flips/len(values))
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // patterns of a test, no secrets
	for range draws {
		if far(func(int) bool { return random.Uint64()&1 == 1 }) {
			hits++
		}
	}
	return float64(hits+1) / float64(draws+1)
}

// Holm corrects the P values of several metrics that are tested together, and keeps their order (Holm, "A simple sequentially rejective
// multiple test procedure", Scandinavian Journal of Statistics 6, 1979). Each must be from 0 to 1.
func Holm(p []float64) ([]float64, error) {
	order := make([]int, len(p))
	for i, v := range p {
		if !(v >= 0 && v <= 1) {
			return nil, errors.New("a P is not from 0 to 1")
		}
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(p[i], p[j]) })
	out, greatest := make([]float64, len(p)), 0.0
	for rank, i := range order {
		greatest = max(greatest, min(1, float64(len(p)-rank)*p[i]))
		out[i] = greatest
	}
	return out, nil
}
