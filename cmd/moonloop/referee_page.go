// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"html/template"
	"math"
	"strings"

	"github.com/moonloop/moonloop/study"
	"github.com/moonloop/moonloop/study/referee"
)

// This file makes the page of a judgement: the answer, lateness over the time of the schedule, and the generator's figures compared with
// the truth.

// refereeAnswer returns the judgement with its figures.
func refereeAnswer(j *referee.Judgement) *answer {
	lateness := part{ID: "lateness", Title: "Lateness", Table: grid{latenessHeader, latenessRows(j), len(latenessHeader)}}
	if over := drawLateness(j); over != "" {
		lateness.Drawings = []drawing{{SVG: over}}
		lateness.Note = "Each dot is a request: when it was due, and how much later it arrived, both in ms. Each section of the time axis shows the request that was most late, and up to three others."
	}
	errors := part{ID: "figures", Table: grid{errorHeader, errorRows(j), len(errorHeader)}}
	if c := j.Client; c != nil {
		errors.Title = "What " + c.Tool + " says"
		errors.Note = "Each dot is a percentile from 1 to 99: on the horizontal axis as the engine recorded it, on the vertical axis as " + c.Tool + " reports it, in ms. On the dashed line, both are the same."
		for i := range c.Errors {
			claimed, is := c.Errors[i].Ranks()
			if claimed[0] > 0 && is[0] > 0 { // the axes are logarithmic
				errors.Drawings = append(errors.Drawings, drawing{c.Errors[i].Name, drawPercentiles("Percentiles of the engine against those of the load generator", study.Distribution{Production: is, Replay: claimed})})
			}
		}
	}
	return &answer{
		Sentence: refereeSentence(j), Notes: j.Notes,
		Parts: []part{{ID: "facts", Title: "How it was judged", Table: grid{Rows: refereeFacts(j)}}, lateness, errors},
	}
}

// stretches is the number of sections of the time axis.
const stretches = 400

// drawLateness draws the lateness of requests over the times at which they were due. Of each section of the time axis, it draws at most four
// requests, including the one that was most late. The result is empty if no request was late.
func drawLateness(j *referee.Judgement) template.HTML {
	end, most := 0.0, 0.0
	j.Points(func(due, late float64) { end, most = max(end, due), max(most, late) })
	if !(end > 0 && most > 0) || !finite(end) || !finite(most) {
		return ""
	}
	const width, height, left, foot = 1000.0, 320.0, 60.0, 30.0
	x := func(due float64) float64 { return left + (width-left-10)*due/end }
	y := func(late float64) float64 { return height - foot - (height-foot-14)*late/most }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="Lateness of the requests over the time at which they were due">`, width, height)
	for i := range 5 {
		at := most * float64(i) / 4
		fmt.Fprintf(&b, `<line class="axis" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/><text class="soft" x="%.1f" y="%.1f" text-anchor="end">%.3g</text>`,
			left, width-10, y(at), y(at), left-8, y(at)+4, at)
		due := end * float64(i) / 4
		fmt.Fprintf(&b, `<text class="soft" x="%.1f" y="%.1f" text-anchor="middle">%.4g</text>`, min(x(due), width-30), height-8, due)
	}
	type dot struct{ due, late float64 }
	var part [4]dot
	in, seen := -1, 0
	flush := func() {
		for _, d := range part[:min(seen, len(part))] {
			fmt.Fprintf(&b, `<circle class="a" cx="%.1f" cy="%.1f" r="2"/>`, x(d.due), y(d.late))
		}
	}
	j.Points(func(due, late float64) {
		if s := int(math.Min(due/end*stretches, stretches-1)); s != in {
			flush()
			in, seen = s, 0
		}
		switch {
		case seen < len(part):
			part[seen] = dot{due, late}
			if late > part[0].late {
				part[0], part[seen] = part[seen], part[0]
			}
		case late > part[0].late:
			part[0] = dot{due, late}
		}
		seen++
	})
	flush()
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // numbers
}
