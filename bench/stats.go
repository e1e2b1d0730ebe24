// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"math"
	"slices"
	"strconv"
)

// percentile returns the value below which a share q, 0 to 1, of the values lies: the nearest rank, which is a value
// that was measured. Values need not be sorted; none gives NaN.
func percentile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[max(0, min(rank, len(sorted)-1))]
}

// spread is the median of a figure over the rounds, with its least and greatest.
type spread struct{ Median, Min, Max float64 }

// spreadOf leaves out rounds that have no figure (NaN). ok is false where none has one.
func spreadOf(rounds []float64) (s spread, ok bool) {
	known, _ := known(rounds)
	if len(known) == 0 {
		return spread{}, false
	}
	slices.Sort(known)
	middle := len(known) / 2
	s = spread{Median: known[middle], Min: known[0], Max: known[len(known)-1]}
	if len(known)%2 == 0 {
		s.Median = (known[middle-1] + known[middle]) / 2
	}
	return s, true
}

// String writes the median and, where the rounds differ, the least and the greatest.
func (s spread) String() string {
	if s.Min == s.Max {
		return figure(s.Median)
	}
	return figure(s.Median) + " (" + figure(s.Min) + "–" + figure(s.Max) + ")"
}

// figure writes a number with three significant digits.
func figure(v float64) string {
	switch {
	case math.IsInf(v, 0) || math.IsNaN(v):
		return "–"
	case v == 0:
		return "0"
	case math.Abs(v) >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	digits := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	return strconv.FormatFloat(v, 'f', min(digits, 4), 64)
}

// off returns by which share a figure leaves the truth.
func off(figure, truth float64) float64 { return math.Abs(figure-truth) / truth }

// align returns how late each request arrived at the engine, in ms and in the order given, against its ideal instant.
//
// The two clocks have no common zero, and a program may begin when it likes. So the zero is laid where the earliest
// request (against its ideal) is not late at all: a delay that all requests of a program share does not count, for
// nobody. A request that never arrived is NaN, and stays so.
func align(ideal, arrived []float64) []float64 {
	late := make([]float64, len(arrived))
	for i := range arrived {
		late[i] = arrived[i] - ideal[i]
	}
	there, _ := known(late)
	if len(there) == 0 {
		return nil
	}
	zero := slices.Min(there)
	for i := range late {
		late[i] -= zero
	}
	return late
}

// known leaves out what is not known, and says how much that is.
func known(values []float64) (kept []float64, missing int) {
	for _, v := range values {
		if math.IsNaN(v) {
			missing++
			continue
		}
		kept = append(kept, v)
	}
	return kept, missing
}

// even returns the ideal instants, in ms, of n requests at an even rate per second.
func even(n int, rate float64) []float64 {
	ideal := make([]float64, n)
	for i := range ideal {
		ideal[i] = 1e3 * float64(i) / rate
	}
	return ideal
}
