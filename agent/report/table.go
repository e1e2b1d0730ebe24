// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/moonloop/moonloop/agent/measure"
)

// width is what the table and the blocks below it keep to, in columns.
const width = 100

// Table writes the final table, AIPerf's columns in AIPerf's order, and the blocks below it. colour asks for ANSI
// colours; whether the writer is a terminal is the caller's to know.
func (r *Report) Table(w io.Writer, colour bool) error {
	p := palette(colour)
	var b strings.Builder
	b.WriteString(r.metrics(p))
	b.WriteString("\n")
	for _, block := range r.blocks(p) {
		writeBlock(&b, block)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("the report cannot be written: %w", err)
	}
	return nil
}

// consoleTitles are the short titles of lines that stand below the one that they refine.
var consoleTitles = map[measure.ID]string{
	measure.TTFTWire:        "  from the wire",
	measure.TTFTIntended:    "  from intended",
	measure.LatencyWire:     "  from the wire",
	measure.LatencyIntended: "  from intended",
}

// metrics renders the table of figures.
func (r *Report) metrics(p palette) string {
	t := table.NewWriter()
	t.SetStyle(plain)
	t.SetTitle("moonloop | LLM Metrics")
	t.AppendHeader(table.Row{"Metric", "avg", "min", "max", "p99", "p90", "p50", "std"})
	columns := []table.ColumnConfig{{Number: 1, WidthMax: 25, WidthMaxEnforcer: text.WrapSoft}}
	for n := 2; n <= 8; n++ {
		columns = append(columns, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	for id, s := range r.figures.All {
		d := id.Define()
		if !d.Console {
			continue
		}
		title := consoleTitles[id]
		if title == "" {
			title = d.Title + " (" + s.Unit + ")"
		}
		row := table.Row{title, "  " + grouped(s.Avg)}
		for _, v := range []float64{s.Min, s.Max, s.P99, s.P90, s.P50, s.Std} {
			if id.Single() {
				row = append(row, "  "+p.dim("N/A"))
				continue
			}
			row = append(row, "  "+grouped(v))
		}
		t.AppendRow(row)
	}
	var b strings.Builder
	for line := range strings.Lines(t.Render()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

// plain has rules above and below and no vertical lines: seven columns of numbers need the room.
var plain = func() table.Style {
	s := table.StyleLight
	s.Name = "moonloop"
	s.Format = table.FormatOptions{Header: text.FormatDefault, Row: text.FormatDefault}
	s.Options = table.Options{SeparateHeader: true}
	s.Box.PaddingLeft = ""
	s.Box.PaddingRight = "" // each number brings two spaces: padding would stand at the end of the line too
	s.Title.Align = text.AlignCenter
	return s
}()

// grouped writes a number with thousands separators and two decimals, from 100,000 on without decimals.
func grouped(v float64) string {
	decimals := 2
	if math.Abs(v) >= 1e5 {
		decimals = 0
	}
	s := strconv.FormatFloat(math.Abs(v), 'f', decimals, 64)
	whole, fraction, _ := strings.Cut(s, ".")
	if fraction != "" {
		fraction = "." + fraction
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if v < 0 {
		whole = "-" + whole
	}
	return whole + fraction
}

// integer writes a count with thousands separators.
func integer[T ~int | ~int64](n T) string {
	s := grouped(float64(n))
	whole, _, _ := strings.Cut(s, ".")
	return whole
}

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
