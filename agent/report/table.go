// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/moonloop/moonloop/agent/measure"
)

// Width is the usual width of the table and the blocks below it, in columns.
const Width = 100

// minWidth is the minimum width of both.
const minWidth = 60

// Table writes the final table, with AIPerf's columns and their order unless Layout says otherwise, and the blocks below it, at most width
// columns wide (60 at least). If there is no room for all columns, some are left out, beginning with std, min, avg and p90, in this order.
// colour asks for ANSI colours; the caller knows whether the writer is a terminal, and how wide.
func (r *Report) Table(w io.Writer, width int, colour bool) error {
	p := palette(colour)
	width = min(max(width, minWidth), Width)
	var b strings.Builder
	if r.Layout == LayoutTraceReplay {
		b.WriteString(r.serving())
	} else {
		b.WriteString(r.metrics(p, width))
	}
	b.WriteString("\n")
	r.blocks(&b, width, p)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("the report cannot be written: %w", err)
	}
	return nil
}

// consoleTitles are the short titles of lines that refine the line above.
var consoleTitles = map[measure.ID]string{
	measure.TTFTWire:        "  from the wire",
	measure.TTFTIntended:    "  from intended",
	measure.LatencyWire:     "  from the wire",
	measure.LatencyIntended: "  from intended",
}

// figureColumn is a column of the table; columns with lower ranks are left out first if there is no room for all.
type figureColumn struct {
	name string
	rank int
	of   func(s *measure.Stat) float64
}

// figureColumns are the default columns, without chosen Percentiles.
var figureColumns = []figureColumn{
	{"avg", 3, func(s *measure.Stat) float64 { return s.Avg }},
	{"min", 2, func(s *measure.Stat) float64 { return s.Min }},
	{"max", 5, func(s *measure.Stat) float64 { return s.Max }},
	{"p99", 7, func(s *measure.Stat) float64 { return s.P99 }},
	{"p90", 4, func(s *measure.Stat) float64 { return s.P90 }},
	{"p50", 6, func(s *measure.Stat) float64 { return s.P50 }},
	{"std", 1, func(s *measure.Stat) float64 { return s.Std }},
}

// percentileColumns are the percentiles that a figure has.
var percentileColumns = map[string]func(s *measure.Stat) float64{
	"1": func(s *measure.Stat) float64 { return s.P1 }, "5": func(s *measure.Stat) float64 { return s.P5 },
	"10": func(s *measure.Stat) float64 { return s.P10 }, "25": func(s *measure.Stat) float64 { return s.P25 },
	"50": func(s *measure.Stat) float64 { return s.P50 }, "75": func(s *measure.Stat) float64 { return s.P75 },
	"90": func(s *measure.Stat) float64 { return s.P90 }, "95": func(s *measure.Stat) float64 { return s.P95 },
	"99": func(s *measure.Stat) float64 { return s.P99 }, "99.9": func(s *measure.Stat) float64 { return s.P999 },
}

// Percentiles are the percentiles in a table, instead of p99, p90 and p50. Only [ParsePercentiles] makes them.
type Percentiles []string

// ParsePercentiles reads percentiles such as "50,95,99.9". A figure has 1, 5, 10, 25, 50, 75, 90, 95, 99 and 99.9.
func ParsePercentiles(list string) (p Percentiles, err error) {
	for word := range strings.SplitSeq(list, ",") {
		f, err := strconv.ParseFloat(strings.TrimSpace(word), 64)
		name := strconv.FormatFloat(f, 'f', -1, 64)
		switch {
		case err != nil || percentileColumns[name] == nil:
			return nil, fmt.Errorf("percentile %q: want some of 1, 5, 10, 25, 50, 75, 90, 95, 99 and 99.9", word)
		case !slices.Contains(p, name):
			p = append(p, name)
		}
	}
	return p, nil
}

// columns returns the columns of the table. Chosen percentiles are kept even if there is no room for all.
func (r *Report) columns() []figureColumn {
	if len(r.Percentiles) == 0 {
		return figureColumns
	}
	columns := slices.Clone(figureColumns[:3])
	for _, name := range r.Percentiles {
		columns = append(columns, figureColumn{"p" + name, 7, percentileColumns[name]})
	}
	return append(columns, figureColumns[len(figureColumns)-1])
}

// metrics renders the table of figures, with as many columns as fit.
func (r *Report) metrics(p palette, width int) string {
	for least := 1; ; least++ {
		rendered := r.metricsFrom(p, least)
		if least == 7 || text.LongestLineLen(rendered) <= width {
			return rendered
		}
	}
}

// metricsFrom renders the columns of rank least and above. A figure with a single value has it in the first of them.
func (r *Report) metricsFrom(p palette, least int) string {
	shown := r.columns()
	t := table.NewWriter()
	t.SetStyle(plain)
	t.SetTitle("moonloop | LLM Metrics" + wordsWhen(r.Steady != nil, " of the Steady State") + wordsWhen(r.NoSteady, " of the Whole Run"))
	header := table.Row{"Metric"}
	columns := []table.ColumnConfig{{Number: 1, WidthMax: 25, WidthMaxEnforcer: text.WrapSoft}}
	for _, c := range shown {
		if c.rank >= least {
			header = append(header, c.name)
			columns = append(columns, table.ColumnConfig{Number: len(header), Align: text.AlignRight, AlignHeader: text.AlignRight})
		}
	}
	t.AppendHeader(header)
	t.SetColumnConfigs(columns)
	for id, s := range r.Shown().All {
		d := id.Define()
		if !d.Console {
			continue
		}
		title := consoleTitles[id]
		if title == "" {
			title = d.Title + " (" + s.Unit + ")"
		}
		row := table.Row{title}
		for _, c := range shown {
			switch {
			case c.rank < least:
			case !id.Single():
				row = append(row, "  "+grouped(c.of(&s)))
			case len(row) == 1:
				row = append(row, "  "+grouped(s.Avg))
			default:
				row = append(row, "  "+p.dim("N/A"))
			}
		}
		t.AppendRow(row)
	}
	var b strings.Builder
	for line := range strings.Lines(t.Render()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

// plain has rules above and below and no vertical lines, because seven columns of numbers need the room.
var plain = func() table.Style {
	s := table.StyleLight
	s.Name = "moonloop"
	s.Format = table.FormatOptions{Header: text.FormatDefault, Row: text.FormatDefault}
	s.Options = table.Options{SeparateHeader: true}
	s.Box.PaddingLeft = ""
	s.Box.PaddingRight = "" // each number begins with two spaces: padding would also add to the end of the line
	s.Title.Align = text.AlignCenter
	return s
}()

// grouped writes a number with thousands separators and two decimals, from 100,000 on without decimals.
func grouped(v float64) string {
	decimals := 2
	if math.Abs(v) >= 1e5 {
		decimals = 0
	}
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	for i := strings.IndexByte(s+".", '.') - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// integer writes a count with thousands separators.
func integer(n int64) string { return humanize.Comma(n) }

// palette colours text, or not.
type palette bool

func (p palette) paint(code, s string) string {
	if !p {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p palette) dim(s string) string    { return p.paint("2", s) }
func (p palette) bold(s string) string   { return p.paint("1", s) }
func (p palette) green(s string) string  { return p.paint("1;32", s) }
func (p palette) yellow(s string) string { return p.paint("1;33", s) }
func (p palette) red(s string) string    { return p.paint("1;31", s) }
