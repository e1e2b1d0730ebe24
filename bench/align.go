// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"math"
	"slices"
)

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
