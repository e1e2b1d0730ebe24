// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/study"
)

// This file makes the page of a comparison: the answer, each metric's interval next to the range that does not matter, the rounds, and the
// rows that changed.

func comparisonAnswer(c *study.Comparison) *answer {
	p := c.Primary
	a := &answer{
		Sentence: p.Metric.String() + ": " + answerText(p),
		Class:    map[study.Answer]string{study.Slower: "invalid", study.Faster: "valid", study.NoDifference: "valid", study.CannotTell: "degraded"}[p.Answer],
		Notes:    []string{fmt.Sprintf("%s; minimum effect %.3g %%", term.Counted(int64(p.Pairs), "pairs of runs"), 100*c.Minimum)},
	}
	note := func(format string, args ...any) { a.Notes = append(a.Notes, fmt.Sprintf(format, args...)) }
	if !math.IsNaN(p.Floor) {
		note("noise floor: these rounds tell a difference of %.2g %% from noise", 100*p.Floor)
	}
	if c.FailedA > 0 || c.FailedB > 0 {
		note("failed requests: %.3g %% of A, %.3g %% of B; failed requests have no latency", c.FailedA, c.FailedB)
	}
	if x := c.Again; x != nil && (x.Answer == study.Slower || x.Answer == study.Faster) {
		note("warning: A differs from A run again, by %.2g %%", 100*math.Abs(x.Ratio-1))
	}
	for _, w := range c.Within {
		note("within one pair of runs, which is not evidence: %s and %s: B / A %.4f (%.4f to %.4f)", w.A, w.B, w.Ratio, w.Low, w.High)
	}
	var forest, rounds, moved []estimate
	for _, r := range slices.Concat([]study.Result{p}, c.Exploratory) {
		if r.Pairs > 0 {
			forest = append(forest, newEstimate(r.Metric.String(), r.Decision))
		}
	}
	for i, ratio := range p.Ratios {
		rounds = append(rounds, estimate{label: fmt.Sprint("pair ", i+1), ratio: ratio, low: ratio, high: ratio, class: "a"})
	}
	for _, m := range c.Moved {
		moved = append(moved, newEstimate(fmt.Sprintf("%s: %s (%s)", m.By, m.Class, term.Counted(int64(m.Rows), "rows")), m.Decision))
	}
	var left grid
	for _, l := range c.LeftOut {
		left.Rows = append(left.Rows, []string{l.Dir, l.Reason})
	}
	a.Parts = []part{
		{ID: "metrics", Title: "B / A", Drawings: drawEstimates(forest, c.Minimum), Note: "Dot and line: ratio and its interval of 95 %. Grey band: differences below the minimum effect. The first metric decides; the others are for exploration."},
		{ID: "rounds", Title: "Rounds", Drawings: drawEstimates(rounds, c.Minimum), Note: "The ratio of each pair of runs, in the order of time."},
		{ID: "moved", Title: "Which rows moved", Drawings: drawEstimates(moved, c.Minimum), Note: "The median of the rows' own ratios. A burst is rows that are sent less than 100 ms apart."},
		{ID: "figures", Title: "Figures", Table: comparisonGrid(c)},
		{ID: "left-out", Title: "Left out", Table: left},
	}
	return a
}

// estimate is a line of a drawing: a ratio and its interval.
type estimate struct {
	label, class     string
	ratio, low, high float64
}

func newEstimate(label string, d study.Decision) estimate {
	e := estimate{label, map[study.Answer]string{study.Slower: "bad", study.Faster: "good", study.NoDifference: "good", study.CannotTell: "open"}[d.Answer], d.Ratio, d.Low, d.High}
	if d.Pairs < 2 {
		e.low, e.high = e.ratio, e.ratio
	}
	return e
}

// Sizes of a drawing, in the units of its view.
const (
	drawnWidth, drawnLabels, drawnLine = 1000.0, 330.0, 24.0
	widest                             = 0.7 // the greatest logarithm of a ratio in the drawing: a factor of 2
)

// drawEstimates draws ratios on a logarithmic axis, with 1 in its middle. It returns nil if there are no ratios.
func drawEstimates(list []estimate, minimum float64) []drawing {
	if len(list) == 0 {
		return nil
	}
	reach := 1.5 * math.Log1p(minimum)
	for _, e := range list {
		for _, v := range []float64{e.low, e.high, e.ratio} {
			if l := math.Abs(math.Log(v)); !math.IsInf(l, 0) {
				reach = max(reach, 1.1*l)
			}
		}
	}
	reach = min(reach, widest)
	x := func(ratio float64) float64 {
		middle, half := (drawnLabels+drawnWidth)/2, (drawnWidth-drawnLabels)/2-70
		return middle + half*max(-1, min(1, math.Log(ratio)/reach))
	}
	height := drawnLine * (float64(len(list)) + 1.5)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="Ratios and their intervals">`, drawnWidth, height)
	foot := height - 1.2*drawnLine
	fmt.Fprintf(&b, `<rect class="band" x="%.1f" y="0" width="%.1f" height="%.1f"/>`, x(1-minimum), x(1+minimum)-x(1-minimum), foot)
	fmt.Fprintf(&b, `<line class="zero" x1="%.1f" x2="%.1f" y1="0" y2="%.1f"/>`, x(1), x(1), foot)
	for i, e := range list {
		y := drawnLine * (float64(i) + 0.6)
		fmt.Fprintf(&b, `<text x="0" y="%.1f">%s</text>`, y+4, template.HTMLEscapeString(e.label))
		fmt.Fprintf(&b, `<line class="%s" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/><circle class="%s" cx="%.1f" cy="%.1f" r="4.5"/>`,
			e.class, x(e.low), x(e.high), y, y, e.class, x(e.ratio), y)
		fmt.Fprintf(&b, `<text class="soft" x="%g" y="%.1f" text-anchor="end">%+.2f %%</text>`, drawnWidth, y+4, 100*(e.ratio-1))
	}
	for _, at := range []float64{-reach, -reach / 2, 0, reach / 2, reach} {
		fmt.Fprintf(&b, `<text class="soft" x="%.1f" y="%.1f" text-anchor="middle">%.3f</text>`, x(math.Exp(at)), height-6, math.Exp(at))
	}
	b.WriteString("</svg>")
	return []drawing{{SVG: template.HTML(b.String())}} //nolint:gosec // numbers, and labels that are escaped
}
