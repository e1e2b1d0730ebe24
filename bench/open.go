// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"slices"
	"time"
)

// step is a change of a number at an instant.
type step struct {
	at   time.Duration
	plus int
}

// highest returns the greatest sum; at one instant ends come before beginnings.
func highest(steps []step) (most int) {
	slices.SortFunc(steps, func(a, b step) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.plus, b.plus)) })
	sum := 0
	for _, s := range steps {
		sum += s.plus
		most = max(most, sum)
	}
	return most
}
