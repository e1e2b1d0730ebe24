// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package referee

import (
	"math"
	"slices"
)

// Percentile returns the least of the values such that at least a share q of them, 0 to 1, is not above it: the nearest rank, which is a
// value that was measured.
// Values need not be sorted. Without any, the result is NaN.
func Percentile(values []float64, q float64) float64 {
	return nearestRank(slices.Sorted(slices.Values(values)), q)
}

func nearestRank(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[max(0, min(rank, len(sorted)-1))]
}

// Known removes unknown values (NaN), and returns how many it removed.
func Known(values []float64) (kept []float64, missing int) {
	for _, v := range values {
		if math.IsNaN(v) {
			missing++
			continue
		}
		kept = append(kept, v)
	}
	return kept, missing
}

// Align returns how late each request arrived, compared with its ideal time, in the given unit and order.
//
// The two clocks have no common zero, and a program may begin at any time. So the zero is chosen so that the request with the
// smallest delay is not late at all: a delay that all requests of a program share does not count. A request that never arrived is NaN, and
// stays so. Nil if none arrived.
func Align(ideal, arrived []float64) []float64 {
	late, _ := align(ideal, arrived)
	return late
}

// align also returns where the zero of the ideal instants is, on the clock of the arrivals.
func align(ideal, arrived []float64) (late []float64, zero float64) {
	zero = math.Inf(1)
	late = make([]float64, len(arrived))
	for i := range arrived {
		late[i] = arrived[i] - ideal[i]
		if late[i] < zero { // not NaN
			zero = late[i]
		}
	}
	if math.IsInf(zero, 1) {
		return nil, math.NaN()
	}
	for i := range late {
		late[i] -= zero
	}
	return late, zero
}

// Even returns the ideal instants, in ms, of n requests at an even rate per second.
func Even(n int, rate float64) []float64 {
	ideal := make([]float64, n)
	for i := range ideal {
		ideal[i] = 1e3 * float64(i) / rate
	}
	return ideal
}

// differences returns the gaps between neighbours.
func differences(at []float64) (gaps []float64) {
	for i := 1; i < len(at); i++ {
		gaps = append(gaps, at[i]-at[i-1])
	}
	return gaps
}
