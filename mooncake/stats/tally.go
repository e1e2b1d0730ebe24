// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"maps"
	"math"
	"slices"
)

// maxTally bounds the distinct values that a tally tells apart.
const maxTally = 1 << 20

// tally counts integers of 0 or more and gives their quantiles, exact up to maxTally distinct values; beyond, values
// are rounded down to a power of two that keeps the table within the bound.
type tally struct {
	counts map[int64]int64
	n, sum int64
	shift  uint
}

func (t *tally) add(v int64) { t.addMany(v, 1) }

func (t *tally) addMany(v, times int64) {
	if times == 0 {
		return
	}
	if t.counts == nil {
		t.counts = make(map[int64]int64)
	}
	t.n += times
	t.sum += v * times
	t.counts[v>>t.shift<<t.shift] += times
	for len(t.counts) > maxTally {
		t.shift++
		coarse := make(map[int64]int64, len(t.counts))
		for v, n := range t.counts {
			coarse[v>>t.shift<<t.shift] += n
		}
		t.counts = coarse
	}
}

func (t *tally) mean() float64 { return quotient(t.sum, t.n) }

// quantiles returns the nearest-rank quantiles of the given percentages, ascending: the element of the sorted values
// at the index max(0, ceil(q/100*n)-1). All are 0 when there are no values.
func (t *tally) quantiles(percent ...float64) []int64 {
	out := make([]int64, len(percent))
	values := slices.Sorted(maps.Keys(t.counts))
	var below int64
	i := 0
	for _, v := range values {
		below += t.counts[v]
		for i < len(percent) && below >= nearestRank(percent[i], t.n) {
			out[i] = v
			i++
		}
	}
	return out
}

// nearestRank returns the 1-based rank of a percentile among n sorted values.
func nearestRank(percent float64, n int64) int64 {
	// The product is rounded as written: published figures were computed so, and where percent/100*n is an integer
	// that floats miss (99.9 % of 1000), another order of the operations gives the neighbour.
	return min(n, max(1, int64(math.Ceil(percent/100*float64(n)))))
}

// mode returns the most frequent value, the smallest of several, and its count.
func (t *tally) mode() (value, count int64) {
	for v, n := range t.counts {
		if n > count || n == count && v < value {
			value, count = v, n
		}
	}
	return value, count
}

// share returns the part of the values for which ok holds.
func (t *tally) share(ok func(int64) bool) float64 {
	var in int64
	for v, n := range t.counts {
		if ok(v) {
			in += n
		}
	}
	return quotient(in, t.n)
}

// largest returns the n largest values, descending, each as often as it was counted.
func (t *tally) largest(n int) []int64 {
	var out []int64
	for _, v := range slices.Backward(slices.Sorted(maps.Keys(t.counts))) {
		for range min(t.counts[v], int64(n-len(out))) {
			out = append(out, v)
		}
	}
	return out
}
