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

var refereeTemplate = template.Must(template.New("referee").Parse(`
<section class="verdict" aria-labelledby="answer"><h2 id="answer">{{.Answer}}</h2>
{{range .Notes}}<p class="note">{{.}}</p>{{end}}</section>
{{define "facts"}}<div class="scroll" tabindex="0" role="region" aria-label="{{.Title}}"><table>
{{with .Header}}<thead><tr>{{range $i, $v := .}}<th scope="col"{{if $i}} class="n"{{end}}>{{$v}}</th>{{end}}</tr></thead>{{end}}
<tbody>{{range .Rows}}<tr>{{range $i, $v := .}}<td{{if and $i $.Header}} class="n"{{else}} class="wrap"{{end}}>{{$v}}</td>{{end}}</tr>{{end}}</tbody>
</table></div>{{end}}
{{if .Lateness.Rows}}<section id="lateness"><h2>Lateness</h2>
{{if .Over}}<p class="note">Each dot is a request: when it was due, and how much later it arrived, both in ms. A stretch of the time has its latest requests and some others.</p>
<figure>{{.Over}}</figure>{{end}}
{{template "facts" .Lateness}}</section>{{end}}
{{if .Errors.Rows}}<section id="figures"><h2>What {{.Tool}} says</h2>
<p class="note">Each dot is a percentile from 1 to 99: to the right as the engine recorded it, upwards as {{.Tool}} says, in ms. On the dashed line, both are the same.</p>
<div class="charts">{{range .Drawings}}<figure><figcaption>{{.Name}}</figcaption>{{.SVG}}</figure>{{end}}</div>
{{template "facts" .Errors}}</section>{{end}}
<section id="facts"><h2>How it was judged</h2>{{template "facts" .Facts}}</section>
`))

func refereePage(j *referee.Judgement) template.HTML {
	type drawn struct {
		Title  string
		Header []string
		Rows   [][]string
	}
	type drawing struct {
		Name string
		SVG  template.HTML
	}
	v := struct {
		Answer, Tool            string
		Notes                   []string
		Facts, Lateness, Errors drawn
		Over                    template.HTML
		Drawings                []drawing
	}{
		Answer: refereeAnswer(j), Notes: j.Notes,
		Facts:    drawn{"How it was judged", nil, refereeFacts(j)},
		Lateness: drawn{"Lateness", latenessHeader, latenessRows(j)},
		Errors:   drawn{"Figures", errorHeader, errorRows(j)},
		Over:     drawLateness(j),
	}
	if c := j.Client; c != nil {
		v.Tool = c.Tool
		for i := range c.Errors {
			claimed, is := c.Errors[i].Ranks()
			if claimed[0] > 0 && is[0] > 0 { // the axes are logarithmic
				v.Drawings = append(v.Drawings, drawing{c.Errors[i].Name, drawPercentiles("Percentiles of the engine against those of the load generator", study.Distribution{Production: is, Replay: claimed})})
			}
		}
	}
	var b strings.Builder
	if err := refereeTemplate.Execute(&b, v); err != nil {
		panic(err) // of our own types, into memory
	}
	return template.HTML(b.String()) //nolint:gosec // made by a template
}

// stretches is the number of sections of the time axis.
const stretches = 400

// drawLateness draws each request's lateness over the time at which it was due; of each section at most four requests, including the
// latest. Empty without lateness.
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
