// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"iter"
	"maps"
	"math"
	"math/bits"
	"slices"
)

const (
	// maxTally is the maximum number of distinct values that a tally counts separately.
	maxTally = 1 << 20
	// smallTally is the value below which values are counted without a map, like most lengths and gaps: 1 MiB at most.
	smallTally = 1 << 17
)

// tally counts integers of 0 or more and computes their quantiles, which are exact for up to maxTally distinct values. Beyond that, values
// are rounded down to multiples of a power of two, so that the table keeps its limit.
type tally struct {
	small  []int64         // how often each value occurred, by value; nil once values are rounded
	kinds  int             // distinct values in small
	counts map[int64]int64 // of all other values
	n, sum int64
	shift  uint
}

func (t *tally) add(v int64) { t.addMany(v, 1) }

func (t *tally) addMany(v, times int64) {
	if times == 0 {
		return
	}
	t.n += times
	t.sum += v * times
	if v >= 0 && v < smallTally && t.shift == 0 {
		if v >= int64(len(t.small)) {
			t.small = append(t.small, make([]int64, max(64, 1<<bits.Len64(uint64(v)))-len(t.small))...)
		}
		if t.small[v] == 0 {
			t.kinds++
		}
		t.small[v] += times
	} else {
		if t.counts == nil {
			t.counts = make(map[int64]int64)
		}
		t.counts[v>>t.shift<<t.shift] += times
	}
	for t.kinds+len(t.counts) > maxTally {
		t.shift++
		coarse := make(map[int64]int64, t.kinds+len(t.counts))
		for v, n := range t.all() {
			coarse[v>>t.shift<<t.shift] += n
		}
		t.small, t.kinds, t.counts = nil, 0, coarse
	}
}

// of returns the count of a value.
func (t *tally) of(v int64) int64 {
	if v >= 0 && v < int64(len(t.small)) {
		return t.small[v]
	}
	return t.counts[v]
}

// all yields each value and its count.
func (t *tally) all() iter.Seq2[int64, int64] {
	return func(yield func(v, n int64) bool) {
		for v, n := range t.small {
			if n > 0 && !yield(int64(v), n) {
				return
			}
		}
		for v, n := range t.counts {
			if !yield(v, n) {
				return
			}
		}
	}
}

// ascending yields each value and its count, in ascending order.
func (t *tally) ascending() iter.Seq2[int64, int64] {
	return func(yield func(v, n int64) bool) {
		for v, n := range t.small {
			if n > 0 && !yield(int64(v), n) {
				return
			}
		}
		for _, v := range slices.Sorted(maps.Keys(t.counts)) { // above the small ones
			if !yield(v, t.counts[v]) {
				return
			}
		}
	}
}

// with returns a tally with one more value.
func (t *tally) with(v int64) tally {
	more := *t
	more.small, more.counts = slices.Clone(t.small), maps.Clone(t.counts)
	more.add(v)
	return more
}

func (t *tally) mean() float64 { return quotient(t.sum, t.n) }

// quantiles returns the nearest-rank quantiles of the given percentages, ascending: the element of the sorted values at the index max(0,
// ceil(q/100*n)-1). All are 0 if there are no values.
func (t *tally) quantiles(percent ...float64) []int64 {
	out := make([]int64, len(percent))
	var below int64
	i := 0
	for v, n := range t.ascending() {
		below += n
		for i < len(percent) && below >= nearestRank(percent[i], t.n) {
			out[i] = v
			i++
		}
	}
	return out
}

// nearestRank returns the 1-based rank of a percentile among n sorted values.
func nearestRank(percent float64, n int64) int64 {
	// The product is rounded in this order, because published figures were computed so. Where percent/100*n is an integer that floats miss
	// (99.9 % of 1000), another order of the operations gives the neighbour.
	return min(n, max(1, int64(math.Ceil(percent/100*float64(n)))))
}

// mode returns the most frequent value (the smallest, if there are several) and its count.
func (t *tally) mode() (value, count int64) {
	for v, n := range t.all() {
		if n > count || n == count && v < value {
			value, count = v, n
		}
	}
	return value, count
}

// share returns the part of the values for which ok holds.
func (t *tally) share(ok func(int64) bool) float64 {
	var in int64
	for v, n := range t.all() {
		if ok(v) {
			in += n
		}
	}
	return quotient(in, t.n)
}

// largest returns the n largest values, descending, each repeated by its count.
func (t *tally) largest(n int) []int64 {
	var out []int64
	add := func(v, times int64) {
		for range min(times, int64(n-len(out))) {
			out = append(out, v)
		}
	}
	for _, v := range slices.Backward(slices.Sorted(maps.Keys(t.counts))) {
		add(v, t.counts[v])
	}
	for v, times := range slices.Backward(t.small) {
		add(int64(v), times)
	}
	return out
}
