// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
)

// This file draws the result of a search: the goodput over the load, and below it how close each objective is to its bound. It draws SVG
// itself, because libraries need fonts or a browser, and this is two axes and some dots.

const (
	pictureWidth, panelHeight = 760.0, 170.0
	marginLeft, marginTop     = 70.0, 46.0
	marginRight, panelGap     = 190.0, 46.0
)

// panel is one pair of axes.
type panel struct {
	Top, Bottom, Left, Right float64
	Title                    string
	Marks                    []mark // of the vertical axis
	LabelX                   float64
	Lines                    []line
	HasBound                 bool
	Bound                    float64
	most                     float64
}

type mark struct {
	At   float64
	Text string
}

type line struct {
	Path, Colour, Name string
	Dots               []dot
	NameY              float64
}

type dot struct {
	X, Y   float64
	Colour string
	Title  string
}

var colours = []string{"#2a6fbb", "#b5651d", "#6b4fa0", "#3a7d44", "#8a2d52"}

const (
	metColour, missedColour = "#2e8b57", "#c0392b"
)

// WriteSVG draws the trials over the load: goodput, and each objective's value as a share of its bound. The parameter what names the load.
func (c *Capacity) WriteSVG(w io.Writer, what string, objectives []Objective) error {
	curve := c.Curve()
	left, right := math.Inf(1), 0.0
	for _, t := range c.Trials {
		left, right = min(left, t.Load), max(right, t.Load)
	}
	if right == 0 {
		left, right = 0.5, 2
	}
	if left == right {
		left, right = left/1.5, right*1.5
	}
	left, right = left/1.06, right*1.06
	x := func(load float64) float64 {
		return marginLeft + (pictureWidth-marginLeft-marginRight)*math.Log(load/left)/math.Log(right/left)
	}
	good := newPanel(marginTop, "goodput, requests/s")
	near := newPanel(marginTop+panelHeight+panelGap, "objectives, % of the bound")
	for _, t := range curve {
		good.most = max(good.most, t.Good)
	}
	near.most = 200 // values far above would flatten the rest
	near.HasBound, near.Bound = true, near.y(100)
	add := func(p *panel, name string, at func(Trial) (float64, bool)) {
		l := line{Name: name, Colour: colours[len(p.Lines)%len(colours)], NameY: p.Top + 14 + 18*float64(len(p.Lines))}
		var path strings.Builder
		for _, t := range curve {
			v, ok := at(t)
			if !ok {
				continue
			}
			d := dot{X: x(t.Load), Y: p.y(min(v, p.most)), Colour: missedColour, Title: fmt.Sprintf("probe %d, load %.4g: %.4g", t.Number, t.Load, v)}
			if t.Met {
				d.Colour = metColour
			}
			verb := " L"
			if path.Len() == 0 {
				verb = "M"
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", verb, d.X, d.Y)
			l.Dots = append(l.Dots, d)
		}
		l.Path = path.String()
		p.Lines = append(p.Lines, l)
	}
	add(good, "", func(t Trial) (float64, bool) { return t.Good, true })
	for _, o := range objectives {
		add(near, o.String(), func(t Trial) (float64, bool) {
			v, ok := t.Values[o.String()]
			return 100 * o.excess(v), ok
		})
	}
	for _, p := range []*panel{good, near} {
		p.label()
	}
	picture := struct {
		Width, Height, Left, Right, Bottom float64
		Headline, What, Met, Missed        string
		Panels                             []*panel
		Loads                              []mark
		Low, High, Mid                     float64 // x of the interval's ends, and of the load found
	}{
		Width: pictureWidth, Height: near.Bottom + 48, Left: marginLeft, Right: pictureWidth - marginRight, Bottom: near.Bottom,
		Headline: c.Headline(what), What: what, Met: metColour, Missed: missedColour, Panels: []*panel{good, near},
	}
	for _, at := range loads(left, right) {
		picture.Loads = append(picture.Loads, mark{x(at), fmt.Sprintf("%.3g", at)})
	}
	if c.High > 0 && len(curve) > 0 {
		picture.Low, picture.High, picture.Mid = x(max(c.Low, left)), x(min(c.High, right)), x(min(max(c.Load, left), right))
	}
	if err := picturePage.Execute(w, picture); err != nil {
		return fmt.Errorf("the picture of the search: %w", err)
	}
	return nil
}

func newPanel(top float64, title string) *panel {
	return &panel{Top: top, Bottom: top + panelHeight, Title: title, LabelX: marginLeft - 8, Left: marginLeft, Right: pictureWidth - marginRight}
}

func (p *panel) y(v float64) float64 {
	return p.Bottom - (p.Bottom-p.Top)*v/max(p.most, math.SmallestNonzeroFloat64)
}

// label adds round numbers to the vertical axis.
func (p *panel) label() {
	by := roundStep(p.most / 4)
	for v := 0.0; v <= p.most*1.0001 && by > 0; v += by {
		p.Marks = append(p.Marks, mark{p.y(v), fmt.Sprintf("%.4g", v)})
	}
}

// roundStep returns the smallest of 1, 2 and 5 times a power of ten that is at least v.
func roundStep(v float64) float64 {
	if !(v > 0) {
		return 0
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v {
			return m * power
		}
	}
	return 10 * power
}

// loads returns round numbers for the horizontal axis, about five.
func loads(left, right float64) (at []float64) {
	by := roundStep((right - left) / 6)
	for v := math.Ceil(left/by) * by; v <= right; v += by {
		at = append(at, v)
	}
	return at
}

// always returns the reasons that all probes have in common, as an addition to a sentence: a lower load did not help against them.
func (c *Capacity) always() string {
	var common []string
	for i, t := range c.Trials {
		if i == 0 {
			common = slices.Clone(t.Reasons)
		}
		common = slices.DeleteFunc(common, func(reason string) bool { return !slices.Contains(t.Reasons, reason) })
	}
	if len(common) == 0 {
		return ""
	}
	return ", always because of " + strings.Join(common, ", ")
}

// Headline returns the answer as the beginning of a sentence. The parameter what names the load, such as "× the density of the trace".
func (c *Capacity) Headline(what string) string {
	switch c.Answer {
	case CapacityFound:
		return fmt.Sprintf("%.3g %s (%.3g to %.3g)", c.Load, what, c.Low, c.High)
	case ClientLimit:
		if c.Load == 0 {
			return "cannot tell: " + string(c.Answer) + " at every load" + c.always()
		}
		return fmt.Sprintf("at least %.3g %s: beyond it, %s", c.Load, what, c.Answer)
	case TooShort:
		return fmt.Sprintf("cannot tell: %s, %.3g %s", c.Answer, c.Load, what)
	case MoreThanMax:
		return fmt.Sprintf("at least %.3g %s, the highest load that was allowed", c.Load, what)
	case LessThanMin:
		return fmt.Sprintf("less than %.3g %s, the lowest load that was allowed", c.Load, what)
	case NotYet:
		if len(c.Curve()) == 0 {
			return "cannot tell yet: no probe counts"
		}
		return fmt.Sprintf("cannot tell yet: between %.3g and %.3g %s", c.Low, c.High, what)
	}
	return string(c.Answer)
}

//go:embed curve.svg
var pictureSVG string

var picturePage = template.Must(template.New("").Parse(pictureSVG))
