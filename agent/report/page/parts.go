// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package page

// This file shows the figures of parts of the requests: of each engine, if there are several, and of each class.

import (
	"cmp"
	"strconv"

	"github.com/moonloop/moonloop/agent/measure"
)

// partFigures are the figures of a part in summary.json.
type partFigures struct {
	Rows         measure.Rows `json:"rows"`
	PromptTokens int64        `json:"prompt_tokens"`
	CachedTokens int64        `json:"cached_tokens"`
	Good         *int64       `json:"good_requests"`
	TTFT         figure       `json:"time_to_first_token"`
	ITL          figure       `json:"inter_token_latency"`
	Latency      figure       `json:"request_latency"`
}

// partsTable is a table with a line for each engine, or for each class.
type partsTable struct {
	Kind, Title string
	Rows        []partRow
}

// partRow is a line of the table. Figures that were not measured are nil.
type partRow struct {
	Name, Priority string
	partFigures
	GoodShare, CachedShare *float64 // in percent
}

func newPartRow(name string, f partFigures) partRow {
	for _, s := range []*figure{&f.TTFT, &f.ITL, &f.Latency} {
		if s.Count == 0 {
			*s = figure{}
		}
	}
	row := partRow{Name: name, partFigures: f}
	if f.Good != nil {
		row.GoodShare = shareOf(*f.Good, f.Rows.Judged())
	}
	row.CachedShare = shareOf(f.CachedTokens, f.PromptTokens)
	return row
}

// parts returns the tables of a run.
func (r *Run) parts() (tables []partsTable) {
	engines, classes := partsTable{Kind: "Engine", Title: "Engines"}, partsTable{Kind: "Class", Title: "Classes"}
	for _, s := range r.summary.Servers {
		engines.Rows = append(engines.Rows, newPartRow(s.Server, s.partFigures))
	}
	for _, c := range r.summary.Classes {
		row := newPartRow(cmp.Or(c.Class, "(none)"), c.partFigures)
		if c.Priority != nil {
			row.Priority = strconv.FormatInt(*c.Priority, 10)
		}
		classes.Rows = append(classes.Rows, row)
	}
	for _, t := range []partsTable{engines, classes} {
		if len(t.Rows) > 0 {
			tables = append(tables, t)
		}
	}
	return tables
}
