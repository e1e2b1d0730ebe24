// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"testing"
	"time"

	"github.com/moonloop/moonloop/study"
)

// TestReportText: the line about a window says each thing once, and nothing about sent rows if there are none.
func TestReportText(t *testing.T) {
	from := time.Date(2027, 1, 31, 12, 5, 0, 0, time.UTC)
	for _, tc := range []struct {
		about  string
		report Report
		want   string
	}{
		{"no rows", Report{From: from}, "12:05:00  0 rows: none sent"},
		{
			"all dropped",
			Report{From: from, Rows: 5, Dropped: map[string]int64{DropRate: 3, DropLate: 2}},
			"12:05:00  5 rows: none sent · dropped: late 2, rate 3",
		},
		{"none has ended", Report{From: from, Rows: 4, InFlight: 4}, "12:05:00  4 rows: in flight 4"},
		{"skipped before they were sent", Report{From: from, Rows: 2, Outcomes: map[string]int64{"skipped": 2}}, "12:05:00  2 rows: skipped 2"},
		{
			"sent",
			Report{
				From: from, Rows: 9, Outcomes: map[string]int64{"served": 6, "failed": 1}, Dropped: map[string]int64{DropLag: 1}, InFlight: 1,
				Lag: &Lag{P50: 1, P99: 34.5, Max: 42}, Rates: Rates{Seconds: 3, Equal: 2}, Twin: &study.Twin{Answer: study.OutsideTolerance},
			},
			"12:05:00  9 rows: failed 1, served 6 · lag p99 34.5 ms, max 42.0 ms · 2 of 3 seconds as in production · dropped: lag 1 · in flight 1 · twin: outside",
		},
	} {
		if got := tc.report.String(); got != tc.want {
			t.Errorf("%s:\ngot  %s\nwant %s", tc.about, got, tc.want)
		}
	}
	totals := Totals{Rows: 5, Dropped: map[string]int64{DropRate: 5}}
	if got := totals.String(); got != "none sent · dropped: rate 5" {
		t.Errorf("totals: %s", got)
	}
}
