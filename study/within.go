// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat"
)

// Within compares one run of A and one of B by their rows alone, with a moving-block bootstrap. It is weaker evidence: it knows the scatter
// of rows within a run, not the scatter between runs, so it attributes any difference between two runs to the engines. It decides nothing.
type Within struct {
	A     string  `json:"a"` // folders
	B     string  `json:"b"`
	Rows  int     `json:"rows"`  // that both served
	Block int     `json:"block"` // rows that are drawn together
	Ratio float64 `json:"ratio"`
	Low   float64 `json:"ratio_low"`
	High  float64 `json:"ratio_high"`
}

const (
	resamples = 500
	leastRows = 30 // fewer rows give too few blocks
)

// within compares the rows of a pair of runs; false if the metric is not a statistic of rows, or if there are too few rows.
//
// Blocks of neighbouring rows are drawn with replacement, the same ones for A and for B, so that rows that depend on each other, and
// what both runs have in common, stay together (Künsch, "The jackknife and the bootstrap for general stationary observations", Annals of
// Statistics 17, 1989). The length of a block is the square root of the number of rows, which is longer than the n^(1/3) of weak dependence
// (Hall, Horowitz and Jing, "On blocking rules for the bootstrap with dependent data", Biometrika 82, 1995), since queues reach far.
func within(a, b *Run, both [][2]row, m Metric) (Within, bool) {
	var as, bs []float64
	for i := range both {
		if x, y := both[i][0].value(m.Figure), both[i][1].value(m.Figure); x > 0 && y > 0 {
			as, bs = append(as, x), append(bs, y)
		}
	}
	n := len(as)
	statistic, ok := rowStatistic(m.Statistic)
	if !ok || n < leastRows {
		return Within{}, false
	}
	w := Within{A: a.Dir, B: b.Dir, Rows: n, Block: int(math.Sqrt(float64(n)))}
	w.Low, w.High = blockInterval(n, w.Block, []ranked{rank(as), rank(bs)}, func(of []float64) float64 { return of[1] / of[0] }, statistic)
	whole := slices.Repeat([]int32{1}, n)
	w.Ratio = statistic(rank(bs), whole, n) / statistic(rank(as), whole, n)
	return w, true
}

// blockInterval returns the 95 % interval of a value computed from statistics of several samples of the same rows.
func blockInterval(n, block int, samples []ranked, of func([]float64) float64, statistic func(ranked, []int32, int) float64) (low, high float64) {
	random := rand.New(rand.NewPCG(1, uint64(n))) //nolint:gosec // rows to draw, no secrets
	drawn := make([]float64, 0, resamples)
	times, values := make([]int32, n), make([]float64, len(samples))
	for range resamples {
		clear(times)
		for left := n; left > 0; {
			from := random.IntN(n - block + 1)
			for i := from; i < from+min(block, left); i++ {
				times[i]++
			}
			left -= block
		}
		for i, s := range samples {
			values[i] = statistic(s, times, n)
		}
		drawn = append(drawn, of(values))
	}
	slices.Sort(drawn)
	return stat.Quantile(level/2, stat.Empirical, drawn, nil), stat.Quantile(1-level/2, stat.Empirical, drawn, nil)
}

// ranked is a sample with the order of its values, so that resamples need not be sorted.
type ranked struct {
	values []float64
	order  []int32
}

func rank(values []float64) ranked {
	r := ranked{values, make([]int32, len(values))}
	for i := range r.order {
		r.order[i] = int32(i)
	}
	slices.SortFunc(r.order, func(i, j int32) int {
		switch {
		case values[i] < values[j]:
			return -1
		case values[i] > values[j]:
			return 1
		}
		return 0
	})
	return r
}

// rowStatistic returns a function that computes avg or a percentile, such as p99.9, of a sample in which the i-th value occurs
// times[i] times; n is the sum of times.
func rowStatistic(name string) (func(s ranked, times []int32, n int) float64, bool) {
	if name == "avg" {
		return func(s ranked, times []int32, n int) (mean float64) {
			for i, t := range times {
				mean += float64(t) * s.values[i] / float64(n)
			}
			return mean
		}, true
	}
	digits, ok := strings.CutPrefix(name, "p")
	p, err := strconv.ParseFloat(digits, 64)
	if !ok || err != nil || !(p > 0 && p < 100) {
		return nil, false
	}
	return func(s ranked, times []int32, n int) float64 {
		left := int(math.Ceil(p / 100 * float64(n)))
		for _, i := range s.order {
			if left -= int(times[i]); left <= 0 {
				return s.values[i]
			}
		}
		return s.values[s.order[len(s.order)-1]]
	}, true
}
