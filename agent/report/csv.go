// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"

	"github.com/moonloop/moonloop/agent/measure"
)

// CSV writes summary.csv in the layout of AIPerf's export: the distributions with a column per statistic, an empty
// line, the single numbers. Our further columns (p999, count, sum) come after AIPerf's.
func (r *Report) CSV(w io.Writer) error {
	var distributions, singles [][]string
	for id, s := range r.figures.All {
		name := id.Define().Title + " (" + s.Unit + ")"
		if id.Single() {
			singles = append(singles, []string{name, decimal(s.Avg)})
			continue
		}
		line := []string{name}
		for _, v := range statistics(s) {
			line = append(line, decimal(v))
		}
		distributions = append(distributions, append(line, strconv.FormatInt(s.Count, 10), decimal(s.Sum)))
	}
	c := csv.NewWriter(w)
	header := []string{"Metric", "avg", "min", "max", "p1", "p5", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "std", "p999", "count", "sum"}
	err := c.WriteAll(append([][]string{header}, distributions...))
	if err == nil {
		_, err = io.WriteString(w, "\n")
	}
	if err == nil {
		err = c.WriteAll(append([][]string{{"Metric", "Value"}}, singles...))
	}
	if err != nil {
		return fmt.Errorf("summary.csv cannot be written: %w", err)
	}
	return nil
}

func statistics(s measure.Stat) []float64 {
	return []float64{s.Avg, s.Min, s.Max, s.P1, s.P5, s.P10, s.P25, s.P50, s.P75, s.P90, s.P95, s.P99, s.Std, s.P999}
}

func decimal(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
