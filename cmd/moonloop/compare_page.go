// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/moonloop/moonloop/study"
)

// This file makes the page of a comparison: the answer, each metric's interval next to the range that does not matter, the rounds, and the
// rows that changed.

var comparisonTemplate = template.Must(template.New("compare").Parse(`
<section class="verdict {{.Class}}" aria-labelledby="answer"><h2 id="answer">{{.Metric}}: {{.Answer}}</h2>
{{range .Notes}}<p class="note">{{.}}</p>{{end}}</section>
<section id="metrics"><h2>B / A</h2>
<p class="note">Dot and line: ratio and its interval of 95 %. Grey band: differences below the minimum effect. The first metric decides; the others are for exploration.</p>
<figure>{{.Forest}}</figure></section>
{{if .Rounds}}<section id="rounds"><h2>Rounds</h2>
<p class="note">The ratio of each pair of runs, in the order of time.</p>
<figure>{{.Rounds}}</figure></section>{{end}}
{{if .Moved}}<section id="moved"><h2>Which rows moved</h2>
<p class="note">The median of the rows' own ratios. A burst is rows that are sent less than 100 ms apart.</p>
<figure>{{.Moved}}</figure></section>{{end}}
<section id="figures"><h2>Figures</h2>
<div class="scroll" tabindex="0" role="region" aria-label="Figures"><table>
<thead><tr><th scope="col">Metric</th><th scope="col" class="n">A</th><th scope="col" class="n">B</th><th scope="col" class="n">B / A</th><th scope="col" class="n">95 % interval</th><th scope="col" class="n">Noise floor</th><th scope="col" class="n">P</th><th scope="col">Answer</th></tr></thead>
<tbody>{{range .Table}}<tr>{{range $i, $v := .}}<td{{if and $i (lt $i 7)}} class="n"{{end}}>{{$v}}</td>{{end}}</tr>{{end}}</tbody>
</table></div></section>
{{with .LeftOut}}<section id="left-out"><h2>Left out</h2>
<div class="scroll" tabindex="0" role="region" aria-label="Left out"><table><tbody>{{range .}}<tr><td><code>{{.Dir}}</code></td><td class="wrap">{{.Reason}}</td></tr>{{end}}</tbody></table></div></section>{{end}}
`))

// verdictClass is the colour of an answer.
func verdictClass(a study.Answer) string {
	return map[study.Answer]string{study.Slower: "invalid", study.Faster: "valid", study.NoDifference: "valid", study.CannotTell: "degraded"}[a]
}

func comparisonPage(c *study.Comparison) template.HTML {
	p := c.Primary
	v := struct {
		Class, Metric, Answer string
		Notes                 []string
		Forest, Rounds, Moved template.HTML
		Table                 [][]string
		LeftOut               []study.LeftOut
	}{Class: verdictClass(p.Answer), Metric: p.Metric.String(), Answer: answerText(p), LeftOut: c.LeftOut}
	v.Notes = append(v.Notes, fmt.Sprintf("%d pairs of runs; minimum effect %.3g %%", p.Pairs, 100*c.Minimum))
	if !math.IsNaN(p.Floor) {
		v.Notes = append(v.Notes, fmt.Sprintf("noise floor: these rounds tell a difference of %.2g %% from noise", 100*p.Floor))
	}
	if c.FailedA > 0 || c.FailedB > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("failed requests: %.3g %% of A, %.3g %% of B; what fails has no latency", c.FailedA, c.FailedB))
	}
	if a := c.Again; a != nil && (a.Answer == study.Slower || a.Answer == study.Faster) {
		v.Notes = append(v.Notes, fmt.Sprintf("warning: A differs from A run again, by %.2g %%", 100*math.Abs(a.Ratio-1)))
	}
	for _, w := range c.Within {
		v.Notes = append(v.Notes, fmt.Sprintf("within one pair of runs, which is not evidence: %s and %s: B / A %.4f (%.4f to %.4f)", w.A, w.B, w.Ratio, w.Low, w.High))
	}
	var forest []estimate
	for i, r := range slices.Concat([]study.Result{p}, c.Exploratory) {
		answer := string(r.Answer)
		if i > 0 {
			answer += " (exploratory)"
		}
		row := []string{r.Metric.String(), "", "", "", "", "", "", answer}
		if r.Pairs > 0 {
			row[1], row[2], row[3] = fmt.Sprintf("%.4g %s", r.A, r.Unit), fmt.Sprintf("%.4g %s", r.B, r.Unit), fmt.Sprintf("%.4f", r.Ratio)
		}
		if r.Pairs > 1 {
			row[4], row[6] = intervalText(r.Decision), fmt.Sprintf("%.3f", r.P)
		}
		if !math.IsNaN(r.Floor) {
			row[5] = fmt.Sprintf("± %.2g %%", 100*r.Floor)
		}
		v.Table = append(v.Table, row)
		if r.Pairs > 0 {
			forest = append(forest, newEstimate(r.Metric.String(), r.Decision))
		}
	}
	v.Forest = drawEstimates(forest, c.Minimum)
	var rounds, moved []estimate
	for i, ratio := range p.Ratios {
		rounds = append(rounds, estimate{label: fmt.Sprint("pair ", i+1), ratio: ratio, low: ratio, high: ratio, class: "a"})
	}
	for _, m := range c.Moved {
		moved = append(moved, newEstimate(fmt.Sprintf("%s: %s (%d rows)", m.By, m.Class, m.Rows), m.Decision))
	}
	v.Rounds, v.Moved = drawEstimates(rounds, c.Minimum), drawEstimates(moved, c.Minimum)
	var b strings.Builder
	if err := comparisonTemplate.Execute(&b, v); err != nil {
		panic(err) // of our own types, into memory
	}
	return template.HTML(b.String()) //nolint:gosec // made by a template
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
	widest                             = 0.7 // of the log ratios in the drawing: a factor of 2
)

// drawEstimates draws ratios on a logarithmic axis, with 1 in its middle; empty without any.
func drawEstimates(list []estimate, minimum float64) template.HTML {
	if len(list) == 0 {
		return ""
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
	return template.HTML(b.String()) //nolint:gosec // numbers, and labels that are escaped
}
