// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"encoding/json"
	"fmt"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/internal/jsonrows"
)

// This file is about the table of figures. It follows [measure.Definition]: a new figure needs no line here.

// figure is a figure of summary.json. If it has a single value, only Avg is set.
type figure struct {
	Unit string   `json:"unit"`
	Avg  *float64 `json:"avg"`
	Min  *float64 `json:"min"`
	Max  *float64 `json:"max"`
	P50  *float64 `json:"p50"`
	P90  *float64 `json:"p90"`
	P99  *float64 `json:"p99"`

	Count int64 `json:"count"`
}

// row is a line of the table.
type row struct {
	Name string
	figure
}

// rows returns the figures of the final table, and the lateness.
func (r *Run) rows() (rows []row) {
	for id, d := range measure.Definitions() {
		if f := r.figures[id]; f.Avg != nil && (d.Console || id == measure.Lateness) {
			rows = append(rows, row{d.Title, f})
		}
	}
	return rows
}

// Recorded returns the figures that the records of a killed run show, in the form of summary.csv; nil for a run that has ended.
func (r *Run) Recorded() *Sheet {
	if !r.killed {
		return nil
	}
	s := newSheet([]column[row]{
		{"Metric", func(f row) any { return f.Name + " (" + f.Unit + ")" }},
		{"avg", func(f row) any { return f.Avg }},
		{"min", func(f row) any { return f.Min }},
		{"max", func(f row) any { return f.Max }},
		{"p50", func(f row) any { return f.P50 }},
		{"p90", func(f row) any { return f.P90 }},
		{"p99", func(f row) any { return f.P99 }},
		{"count", func(f row) any { return f.Count }},
	}, r.rows())
	note := make([]any, len(s.Header))
	note[0] = fmt.Sprintf("The run did not end: these are figures of the %d requests recorded until then.", r.requests)
	s.Rows = append(s.Rows, note)
	return s
}

// summaryFigures returns the figures of a summary that the final table has: those of its steady state, if there is one. An error names
// the tag of the figure.
func summaryFigures(summary []byte) (map[measure.ID]figure, error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(summary, &values); err != nil {
		return nil, err
	}
	if part, found := values["steady_state"]; found {
		values = nil
		if err := json.Unmarshal(part, &values); err != nil {
			return nil, err
		}
	}
	figures := map[measure.ID]figure{}
	for id, d := range measure.Definitions() {
		value, found := values[d.Tag]
		if !found {
			continue
		}
		var f figure
		if err := json.Unmarshal(value, &f); err != nil {
			return nil, fmt.Errorf("%s: %w", d.Tag, jsonrows.Explain(err))
		}
		figures[id] = f
	}
	return figures, nil
}

// recorded returns the figures that the records show.
func (r *Run) recorded() map[measure.ID]figure {
	figures := map[measure.ID]figure{}
	for id, h := range map[measure.ID]*histogram{
		measure.TTFT: &r.ttft, measure.TTFTWire: &r.ttftWire, measure.TTFTIntended: &r.ttftIntended,
		measure.ITL: &r.itl, measure.InterChunk: &r.gaps,
		measure.Latency: &r.latency, measure.LatencyIntended: &r.latencyIntended,
		measure.Lateness: &r.late,
	} {
		if h.empty() {
			continue
		}
		q := func(q float64) *float64 { v := h.millis(q); return &v }
		avg := h.h.Mean() / perMilli
		figures[id] = figure{Unit: "ms", Avg: &avg, Min: q(0), Max: q(1), P50: q(0.5), P90: q(0.9), P99: q(0.99), Count: h.h.TotalCount()}
	}
	return figures
}
