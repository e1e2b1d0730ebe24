// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"math"
	"slices"
	"strconv"

	"github.com/moonloop/moonloop/study/referee"
)

// spread is the median of a figure over the rounds, with its least and greatest value.
type spread struct{ Median, Min, Max float64 }

// spreadOf returns the spread of a figure, without rounds that have none (NaN). ok is false if no round has one.
func spreadOf(rounds []float64) (s spread, ok bool) {
	known, _ := referee.Known(rounds)
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

// String writes the median and, if the rounds differ, the least and the greatest value.
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

// off returns the relative error of a figure.
func off(figure, truth float64) float64 { return math.Abs(figure-truth) / truth }
