// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study

import (
	"maps"
	"math"
	"slices"
)

// Spread is the scatter of one metric over several runs.
type Spread struct {
	Metric string  `json:"metric"` // FIGURE.STATISTIC
	Unit   string  `json:"unit"`
	Runs   int     `json:"runs"` // runs that have the metric
	Mean   float64 `json:"mean"`
	// SD is the sample standard deviation, divided by Runs − 1, as for a sample of all possible runs; 0 for one run. CV is SD ÷ |Mean|; 0 if
	// Mean is 0.
	SD  float64 `json:"sd"`
	CV  float64 `json:"cv"`
	Min float64 `json:"min"`
	Max float64 `json:"max"`
}

// spreadStatistics are the statistics used for each figure, if it has them.
var spreadStatistics = []string{"avg", "p50", "p90", "p99"}

// Spreads returns the scatter of each figure over runs, by name. A run that lacks a figure does not count for this figure.
func Spreads(runs []*Run) (list []Spread) {
	units := map[string]string{}
	for _, r := range runs {
		maps.Copy(units, r.units)
	}
	for _, figure := range slices.Sorted(maps.Keys(units)) {
		for _, statistic := range spreadStatistics {
			s := Spread{Metric: Metric{figure, statistic}.String(), Unit: units[figure], Min: math.Inf(1), Max: math.Inf(-1)}
			squares := 0.0 // Welford
			for _, r := range runs {
				v, ok := r.figures[figure][statistic]
				if !ok {
					continue
				}
				s.Runs++
				d := v - s.Mean
				s.Mean += d / float64(s.Runs)
				squares += d * (v - s.Mean)
				s.Min, s.Max = min(s.Min, v), max(s.Max, v)
			}
			if s.Runs == 0 {
				continue
			}
			if s.Runs > 1 {
				s.SD = math.Sqrt(squares / float64(s.Runs-1))
			}
			if s.Mean != 0 {
				s.CV = s.SD / math.Abs(s.Mean)
			}
			list = append(list, s)
		}
	}
	return list
}
