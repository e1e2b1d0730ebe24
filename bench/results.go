// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

var nan = math.NaN()

// results is everything that a run of the bench found out, and, of scenarios that it did not run, what is on the page.
type results struct {
	Machine machine
	Tables  []*table
	// Sections are the parts of the page by scenario, this run's and those of runs before.
	Sections map[string]string
}

// table is a scenario's figures: a row for each contender, a column for each figure, in a cell a value for each round.
type table struct {
	Scenario string
	Measured string // when
	Title    string
	About    string // what was run, what the columns mean
	Columns  []string
	Rows     []*row
	Targets  []target
	Notes    []string
	Block    string // text that is shown as it is, such as another program's table
}

type row struct {
	Name  string
	Cells map[string][]float64 // NaN: the round has none
	Words map[string][]string  // verdicts
}

// target is what a figure was to reach.
type target struct {
	Text  string
	Holds bool
	Known bool   // it could be measured
	Found string // what was measured
}

// row returns the row of a name, a new one when there is none yet.
func (t *table) row(name string) *row {
	for _, r := range t.Rows {
		if r.Name == name {
			return r
		}
	}
	r := &row{Name: name, Cells: map[string][]float64{}, Words: map[string][]string{}}
	t.Rows = append(t.Rows, r)
	return r
}

// add enters a round of a row; columns appear in the order of names.
func (t *table) add(name string, figures ...cell) {
	r := t.row(name)
	for _, f := range figures {
		if !slices.Contains(t.Columns, f.column) {
			t.Columns = append(t.Columns, f.column)
		}
		if f.word != "" {
			r.Words[f.column] = append(r.Words[f.column], f.word)
			continue
		}
		r.Cells[f.column] = append(r.Cells[f.column], f.value)
	}
}

// cell is a figure, or a word, of one round.
type cell struct {
	column string
	value  float64
	word   string
}

func num(column string, v float64) cell { return cell{column: column, value: v} }
func word(column, w string) cell        { return cell{column: column, word: w} }

// median is a row's median in a column; NaN where there is none.
func (t *table) median(name, column string) float64 {
	if s, ok := spreadOf(t.row(name).Cells[column]); ok {
		return s.Median
	}
	return nan
}

// aim enters a target. A value that was not measured makes it unknown.
func (t *table) aim(text string, holds bool, values ...float64) {
	found := make([]string, len(values))
	known := true
	for i, v := range values {
		known = known && !math.IsNaN(v)
		found[i] = figure(v)
	}
	t.Targets = append(t.Targets, target{text, holds, known, strings.Join(found, ", ")})
}

func (t *table) note(format string, args ...any) {
	n := fmt.Sprintf(format, args...)
	if !slices.Contains(t.Notes, n) {
		t.Notes = append(t.Notes, n)
	}
}

// show writes a cell: the median with least and greatest, or the words with their counts.
func (r *row) show(column string) string {
	if s, ok := spreadOf(r.Cells[column]); ok {
		return s.String()
	}
	var order []string
	counts := map[string]int{}
	for _, w := range r.Words[column] {
		if counts[w]++; counts[w] == 1 {
			order = append(order, w)
		}
	}
	for i, w := range order {
		if len(order) > 1 {
			order[i] = fmt.Sprintf("%s %d×", w, counts[w])
		}
	}
	if len(order) == 0 {
		return "–"
	}
	return strings.Join(order, ", ")
}

// markdown is the whole of RESULTS.md.
func (r *results) markdown() string {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "# Results of the bench\n\nWritten by the harness; do not edit. Repeat it with `%s`, which docs/performance.md explains.\n\n", m.Command)
	fmt.Fprintf(&b, "| | |\n|---|---|\n| date | %s |\n| CPU | %s, %d cores |\n| memory | %s |\n| kernel | Linux %s |\n| Go | %s |\n| load before | %s |\n",
		m.Date, m.CPU, m.Cores, m.Memory, m.Kernel, m.Go, m.Load)
	for _, p := range m.Programs {
		fmt.Fprintf(&b, "| program | %s |\n", p)
	}
	for _, s := range m.Skipped {
		fmt.Fprintf(&b, "| skipped | %s |\n", s)
	}
	b.WriteString("\nA cell is the median of the rounds, with the least and the greatest. Contenders take turns within a round. Engine and client have\none core each, the same for all, and each run has a new engine, whose own record is the truth.\n")
	b.WriteString("Each table says when it was measured: a run of some scenarios leaves those of the others.\n")
	for _, s := range scenarios {
		var own strings.Builder
		for _, t := range r.Tables {
			if t.Scenario == s.name {
				t.markdown(&own)
			}
		}
		if own.Len() > 0 {
			r.Sections[s.name] = own.String()
		}
		b.WriteString(r.Sections[s.name])
	}
	return b.String()
}

// keep takes over the sections of the last run's raw results, if there are any.
func (r *results) keep(raw string) {
	r.Sections = map[string]string{}
	text, err := os.ReadFile(raw)
	if err != nil {
		return
	}
	var last struct{ Sections map[string]string }
	if json.Unmarshal(text, &last) == nil && last.Sections != nil { // those of an older bench had none
		r.Sections = last.Sections
	}
}

func (t *table) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n\nMeasured %s.\n", t.Title, t.About, t.Measured)
	if len(t.Rows) > 0 {
		fmt.Fprintf(b, "\n| | %s |\n|---|%s\n", strings.Join(t.Columns, " | "), strings.Repeat("---:|", len(t.Columns)))
		for _, r := range t.Rows {
			fmt.Fprintf(b, "| %s |", r.Name)
			for _, c := range t.Columns {
				fmt.Fprintf(b, " %s |", r.show(c))
			}
			b.WriteByte('\n')
		}
	}
	if t.Block != "" {
		fmt.Fprintf(b, "\n```\n%s\n```\n", strings.Trim(t.Block, "\n"))
	}
	if len(t.Targets)+len(t.Notes) > 0 {
		b.WriteByte('\n')
	}
	for _, g := range t.Targets {
		state := "does not hold"
		switch {
		case !g.Known:
			state = "was not measured"
		case g.Holds:
			state = "holds"
		}
		fmt.Fprintf(b, "- Target: %s: **%s** (%s)\n", g.Text, state, g.Found)
	}
	for _, n := range t.Notes {
		fmt.Fprintf(b, "- %s\n", n)
	}
}

// MarshalJSON leaves out what JSON has no number for.
func (r *row) MarshalJSON() ([]byte, error) {
	cells := make(map[string][]*float64, len(r.Cells))
	for column, rounds := range r.Cells {
		for _, v := range rounds {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				cells[column] = append(cells[column], nil)
				continue
			}
			cells[column] = append(cells[column], &v)
		}
	}
	return json.Marshal(map[string]any{"name": r.Name, "rounds": cells, "words": r.Words})
}

// write writes the page and the rounds behind it.
func (r *results) write(page, raw string) error {
	content := r.markdown()
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(raw), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(raw, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(page, []byte(content), 0o644)
}
