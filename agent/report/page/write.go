// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"math"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/dustin/go-humanize"

	"github.com/moonloop/moonloop/internal/atomicfile"
)

var (
	//go:embed assets/page.html
	pageHTML string
	//go:embed assets/page.css
	pageCSS string
	//go:embed assets/page.js
	pageJS string
	//go:embed assets/uplot/uPlot.iife.min.js
	uplotJS string
	//go:embed assets/uplot/uPlot.min.css
	uplotCSS string
)

var pageTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"number": number, "comma": humanize.Comma, "figure": func(v *float64) string {
			if v == nil {
				return "–"
			}
			return number(*v)
		},
		"digest": func(d string) string { return d[:min(len(d), 12)] },
		"ms": func(ms float64) string {
			if ms < 0 { // not known
				return "–"
			}
			return number(ms)
		},
		"s":     func(ms float64) string { return number(ms / 1000) },
		"flags": unbroken,
	}).Parse(pageHTML))
})

var commandFlag = regexp.MustCompile(`--[a-z][a-z0-9-]*(=[a-z0-9.]+)?`)

// unbroken escapes a text, and keeps a browser from breaking a line at the hyphens of a command's flag.
func unbroken(text string) template.HTML {
	escaped := template.HTMLEscapeString(text)
	return template.HTML(commandFlag.ReplaceAllString(escaped, `<span class="flag">$0</span>`)) //nolint:gosec // escaped
}

// File is the name of the page in the folder of a run.
const File = "report.html"

// Save writes the page to a file. An existing file is replaced when the page is complete.
func (r *Run) Save(name string) error { return save(name, r.Write) }

// save writes a file. An existing file is replaced when the new one is complete.
func save(name string, write func(io.Writer) error) error {
	if err := atomicfile.Write(name, atomicfile.Anything, write); err != nil {
		return fmt.Errorf("%s cannot be written: %w; name another file", filepath.Base(name), err)
	}
	return nil
}

// Write writes the page: about 100 kB, and about 25 bytes for each request of the samples.
func (r *Run) Write(w io.Writer) error {
	if err := CheckTraceURL(r.TraceURL); err != nil {
		return err
	}
	r.explain()
	data, err := json.Marshal(r.charts())
	if err != nil {
		return fmt.Errorf("the data of the charts cannot be written: %w", err)
	}
	style := uplotCSS + pageCSS
	v := r.view()
	v.Policy = "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; style-src '" + hash(style) +
		"'; script-src '" + hash(uplotJS) + "' '" + hash(pageJS) + "'"
	v.Style = template.CSS(style)    //nolint:gosec // our own
	v.Library = template.JS(uplotJS) //nolint:gosec // as published
	v.Script = template.JS(pageJS)   //nolint:gosec // our own
	v.Data = template.JS(data)       //nolint:gosec // JSON with <, > and & escaped
	if err := pageTemplate().Execute(w, v); err != nil {
		return fmt.Errorf("the page cannot be written: %w", err)
	}
	return nil
}

// hash returns the expression (sha256-…) by which a Content-Security-Policy allows an inline style or script.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// CheckTraceURL returns an error for an address of traces that browsers should not follow, or that is the same for all traces.
func CheckTraceURL(address string) error {
	if address == "" {
		return nil
	}
	u, err := url.Parse(strings.ReplaceAll(address, "{trace_id}", "0"))
	switch {
	case err == nil && u.User != nil:
		return errors.New("an address of traces must not contain a user or password: everybody who has the page could read them")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || !strings.Contains(address, "{trace_id}"):
		return fmt.Errorf("%q is not an address of a trace: it must begin with http:// or https:// and contain {trace_id}, "+
			"for example http://localhost:16686/trace/{trace_id}", address)
	}
	return nil
}

// charts is the data of the page's script.
type charts struct {
	Series  *series           `json:"series"`
	Curves  map[string]*curve `json:"curves"`
	Points  points            `json:"points"`
	Steady  []float64         `json:"steady,omitempty"`  // beginning and end of the steady state, s
	Breaks  []float64         `json:"breaks,omitempty"`  // where the run was cut short and resumed, s
	Sampled string            `json:"sampled,omitempty"` // unless empty, says that the points are a sample, and of how many requests
}

// points are columns of equal length; a value is -1 if it is not known.
type points struct {
	Row       []int64   `json:"row"`
	TTFT      []float64 `json:"ttft"`
	Uncached  []int64   `json:"uncached"`
	Predicted []int64   `json:"predicted"`
	Cached    []int64   `json:"cached"`
}

func (r *Run) charts() charts {
	c := charts{
		Series: r.line.series(), Steady: r.summary.Steady.shaded(), Breaks: r.summary.marks(),
		Curves: map[string]*curve{
			"ttft": r.ttft.curve(), "ttft_wire": r.ttftWire.curve(), "ttft_intended": r.ttftIntended.curve(),
			"latency": r.latency.curve(), "latency_intended": r.latencyIntended.curve(),
			"itl": r.itl.curve(), "gap": r.gaps.curve(), "late": r.late.curve(),
		},
	}
	for _, p := range r.points.points {
		c.Points.Row = append(c.Points.Row, p.Row)
		c.Points.TTFT = append(c.Points.TTFT, round(p.TTFT))
		c.Points.Uncached = append(c.Points.Uncached, p.Uncached)
		c.Points.Predicted = append(c.Points.Predicted, p.Predicted)
		c.Points.Cached = append(c.Points.Cached, p.Cached)
	}
	if n := int64(len(r.points.points)); n < r.points.seen {
		c.Sampled = fmt.Sprintf("a sample of %s of %s requests", humanize.Comma(n), humanize.Comma(r.points.seen))
	}
	return c
}

// number formats a number with three significant digits, or as a whole number with commas from 1,000 on.
func number(v float64) string {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case v == 0:
		return "0"
	case math.Abs(v) >= 999.5:
		return humanize.Comma(int64(math.Round(v)))
	}
	return strconv.FormatFloat(round3(v), 'f', -1, 64)
}

func round3(v float64) float64 {
	scale := math.Pow(10, 2-math.Floor(math.Log10(math.Abs(v))))
	if math.IsInf(scale, 0) {
		return 0
	}
	return math.Round(v*scale) / scale
}
