// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/study"
)

// newTwinCommand returns the command that compares a replay with the production from which its trace was captured.
func newTwinCommand() *cobra.Command {
	var form answerFlags
	var most map[string]float64
	cmd := &cobra.Command{
		Use:   "twin DIR",
		Short: "Tell whether a replay behaves like the production its trace was captured from",
		Args:  oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := form.check(); err != nil {
				return err
			}
			t, err := study.ReadTwin(args[0], most)
			if err != nil {
				return err
			}
			a := twinAnswer(t)
			if err := form.write(cmd.OutOrStdout(), "moonloop twin", args[0], t, a.text, a.page); err != nil {
				return err
			}
			return exitWith(map[study.Outcome]int{study.OutsideTolerance: exitGoals, study.OpenTolerance: exitInvalid}[t.Answer])
		},
	}
	f := cmd.Flags()
	most, _ = study.ParseTolerances("")
	textVar(f, &most, "tolerance", "", "", study.ParseTolerances).rule = tolerances
	form.register(f)
	return cmd
}

func oneFolder(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return hintError{fmt.Errorf("%s takes one folder, but %d were given", cmd.Name(), len(args)), "name the folder that moonloop replay --out wrote"}
}

// twinSentence returns the answer in a sentence.
func twinSentence(t *study.Twin) string {
	switch {
	case t.Why != "":
		return "cannot tell: " + t.Why
	case t.Answer == study.WithinTolerance:
		return "the replay behaves like production"
	case t.Answer == study.OpenTolerance:
		return "cannot tell: too few rows, or they scatter too much"
	}
	var names []string
	for _, c := range t.Checks {
		if c.Outcome == study.OutsideTolerance {
			names = append(names, fmt.Sprintf("%s by %s", c.Name, differenceText(c, c.Difference)))
		}
	}
	return "the replay differs from production: " + strings.Join(names, ", ")
}

func differenceText(c study.Check, d float64) string {
	if c.Unit == "%" {
		return fmt.Sprintf("%+.3g points", 100*d)
	}
	return fmt.Sprintf("%+.3g %%", 100*d)
}

// twinCells returns the cells of a check.
func twinCells(c study.Check) []string {
	cells := []string{c.Name, "", "", "", "", "± " + strings.TrimPrefix(differenceText(c, c.Tolerance), "+"), strconv.Itoa(c.Rows), string(c.Outcome)}
	if c.Rows == 0 {
		cells[7] = "not known"
		return cells
	}
	cells[1], cells[2] = fmt.Sprintf("%.4g %s", *c.Production, c.Unit), fmt.Sprintf("%.4g %s", *c.Replay, c.Unit)
	cells[3], cells[4] = differenceText(c, c.Difference), fmt.Sprintf("%+.3g to %+.3g", 100*c.Low, 100*c.High)
	return cells
}

var twinHeader = []string{"measure", "production", "replay", "difference", "95 % interval", "tolerance", "rows", "outcome"}

// partCells returns the cells of a part of the rows.
func partCells(p study.Part) []string {
	cells := []string{p.By, p.Class, strconv.Itoa(p.Rows), "", "", ""}
	if p.TTFT != nil {
		cells[3] = fmt.Sprintf("%.3f", *p.TTFT)
	}
	if p.Duration != nil {
		cells[4] = fmt.Sprintf("%.3f", *p.Duration)
	}
	if p.HitRate != nil {
		cells[5] = fmt.Sprintf("%+.2f points", 100**p.HitRate)
	}
	return cells
}

var partHeader = []string{"rows by", "", "rows", "TTFT, replay / production", "duration", "hit rate"}

// twinNotes returns the facts for which there is no tolerance.
func twinNotes(t *study.Twin) (notes []string) {
	for _, d := range t.Distributions {
		notes = append(notes, fmt.Sprintf("%s: the distributions are at most %.1f %% of the requests apart (Kolmogorov-Smirnov)", d.Name, 100*d.KS))
	}
	if t.KnownFinish > 0 {
		notes = append(notes, fmt.Sprintf("%d of %d requests ended for a different reason than in production", t.OtherFinish, t.KnownFinish))
	}
	return append(notes, fmt.Sprintf("verdict of the replay: %s; production's times are what its spans say, and have no error bars", judge.Text(t.Verdict)))
}

// twinAnswer returns the answer with its figures.
func twinAnswer(t *study.Twin) *answer {
	checks, parts := grid{Header: twinHeader}, grid{Header: partHeader}
	for _, c := range t.Checks {
		checks.Rows = append(checks.Rows, twinCells(c))
	}
	for _, p := range t.Parts {
		parts.Rows = append(parts.Rows, partCells(p))
	}
	var drawings []drawing
	for _, d := range t.Distributions {
		drawings = append(drawings, drawing{d.Name, drawPercentiles("Percentiles of production against those of the replay", d)})
	}
	return &answer{
		Sentence: twinSentence(t), Notes: twinNotes(t),
		Class: map[study.Outcome]string{study.WithinTolerance: "valid", study.OutsideTolerance: "invalid", study.OpenTolerance: "degraded"}[t.Answer],
		Parts: []part{
			{ID: "checks", Title: "Measures", Table: checks},
			{
				ID: "distributions", Title: "Percentile against percentile", Drawings: drawings,
				Note: "A dot for each percentile from 1 to 99, in ms, on logarithmic axes: production on the horizontal one, the replay on the vertical one. On the dashed line both are equal.",
			},
			{ID: "parts", Title: "By time and length", Table: parts},
		},
	}
}

// drawPercentiles draws percentiles against percentiles. The label names the measure.
func drawPercentiles(label string, d study.Distribution) template.HTML {
	low, high := math.Inf(1), 0.0
	for i := range d.Production {
		low, high = min(low, d.Production[i], d.Replay[i]), max(high, d.Production[i], d.Replay[i])
	}
	low, high = low/1.1, high*1.1
	const width, height, margin = 500.0, 320.0, 46.0
	x := func(v float64) float64 { return margin + (width-2*margin)*math.Log(v/low)/math.Log(high/low) }
	y := func(v float64) float64 {
		return height - margin - (height-1.5*margin)*math.Log(v/low)/math.Log(high/low)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, width, height, label)
	fmt.Fprintf(&b, `<line class="zero" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, x(low), y(low), x(high), y(high))
	for i := range 4 {
		at := low * math.Pow(high/low, float64(i)/3)
		fmt.Fprintf(&b, `<line class="axis" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, x(low), x(high), y(at), y(at))
		fmt.Fprintf(&b, `<text class="soft" x="%.1f" y="%.1f" text-anchor="middle">%.3g</text><text class="soft" x="%.1f" y="%.1f" text-anchor="end">%.3g</text>`,
			x(at), height-margin+18, at, margin-6, y(at)+4, at)
	}
	for i := range d.Production {
		fmt.Fprintf(&b, `<circle class="a" cx="%.1f" cy="%.1f" r="3"/>`, x(d.Production[i]), y(d.Replay[i]))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // numbers
}
