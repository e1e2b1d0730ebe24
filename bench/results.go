// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

var nan = math.NaN()

// results has the results of a run of the bench, and for scenarios that did not run, those already on the page.
type results struct {
	Command string      // how to repeat it
	Facts   [][2]string // conditions that figures depend on: name and value
	Tables  []*table
	// Sections are the parts of the page, one for each scenario, from this run or earlier ones.
	Sections map[string]string `json:"-"`
}

// table has a scenario's figures: a row for each contender, a column for each figure, and in each cell a value for each round.
type table struct {
	Scenario string
	Measured string // when
	Title    string
	About    string // what was run, what the columns mean
	Columns  []string
	Rows     []*row
	Targets  []string // the goals of figures, and whether they were met
	Notes    []string
	Block    string // text that is copied unchanged, such as another program's table
}

type row struct {
	Name  string
	Cells map[string][]any // by column: figures, or words such as verdicts, for the rounds that have one
}

// row returns the row with this name, and adds it if there is none.
func (t *table) row(name string) *row {
	i := slices.IndexFunc(t.Rows, func(r *row) bool { return r.Name == name })
	if i < 0 {
		i = len(t.Rows)
		t.Rows = append(t.Rows, &row{name, map[string][]any{}})
	}
	return t.Rows[i]
}

// add adds a round's values to a row. Columns appear in the order in which they are first added.
func (t *table) add(name string, cells ...cell) {
	r := t.row(name)
	for _, c := range cells {
		if !slices.Contains(t.Columns, c.column) {
			t.Columns = append(t.Columns, c.column)
		}
		if v, isFigure := c.value.(float64); !isFigure || !math.IsNaN(v) && !math.IsInf(v, 0) { // otherwise the round has no value
			r.Cells[c.column] = append(r.Cells[c.column], c.value)
		}
	}
}

// cell is the value of one round: a figure or a word.
type cell struct {
	column string
	value  any
}

func num(column string, v float64) cell { return cell{column, v} }
func word(column, w string) cell        { return cell{column, w} }

// spread returns the spread of a row's figures in a column; ok is false if there are none.
func (t *table) spread(name, column string) (s spread, ok bool) {
	return spreadOf(t.row(name).figures(column))
}

func (r *row) figures(column string) (figures []float64) {
	for _, v := range r.Cells[column] {
		if f, ok := v.(float64); ok {
			figures = append(figures, f)
		}
	}
	return figures
}

// median returns a row's median in a column; NaN if there is none.
func (t *table) median(name, column string) float64 {
	if s, ok := t.spread(name, column); ok {
		return s.Median
	}
	return nan
}

// aim adds a goal and the measured value. If there is no value, the result is unknown.
func (t *table) aim(text string, holds bool, values ...float64) {
	t.conclude("Target: "+text, "holds", "does not hold", holds, values...)
}

// ask adds a question, to which no is as good an answer as yes.
func (t *table) ask(text string, is bool, values ...float64) {
	t.conclude("Question: "+text, "yes", "no", is, values...)
}

func (t *table) conclude(text, yes, no string, is bool, values ...float64) {
	state := no
	if is {
		state = yes
	}
	found := make([]string, len(values))
	for i, v := range values {
		if found[i] = figure(v); math.IsNaN(v) {
			state = "was not measured"
		}
	}
	t.Targets = append(t.Targets, fmt.Sprintf("%s: **%s** (%s)", text, state, strings.Join(found, ", ")))
}

func (t *table) note(format string, args ...any) {
	n := fmt.Sprintf(format, args...)
	if !slices.Contains(t.Notes, n) {
		t.Notes = append(t.Notes, n)
	}
}

// show writes a cell: the median with the least and the greatest value, or the words with their counts.
func (r *row) show(column string) string {
	if s, ok := spreadOf(r.figures(column)); ok {
		return s.String()
	}
	var order []string
	counts := map[string]int{}
	for _, v := range r.Cells[column] {
		w := fmt.Sprint(v)
		if counts[w]++; counts[w] == 1 {
			order = append(order, w)
		}
	}
	for i, w := range order {
		if len(order) > 1 {
			order[i] = fmt.Sprintf("%s %d×", w, counts[w])
		}
	}
	return cmp.Or(strings.Join(order, ", "), "–")
}

// markdown returns RESULTS.md as a whole.
func (r *results) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Results of the bench\n\nWritten by the harness; do not edit. Repeat it with `%s`, which docs/performance.md explains.\n\n| | |\n|---|---|\n", r.Command)
	for _, fact := range r.Facts {
		fmt.Fprintf(&b, "| %s | %s |\n", fact[0], fact[1])
	}
	b.WriteString("\nA cell is the median of the rounds, with minimum and maximum. Contenders take turns within a round. Engine and client have\none core each, the same for all, and each run has a new engine, whose own record is the truth.\n")
	b.WriteString("Each table says when it was measured: a run of some scenarios does not change the tables of the others.\n")
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
		if r.Sections[s.name] != "" {
			fmt.Fprintf(&b, "\n%s%s -->\n%s", sectionMark, s.name, r.Sections[s.name])
		}
	}
	return b.String()
}

// sectionMark comes before the name of a scenario, where its section begins on the page.
const sectionMark = "<!-- scenario: "

// keep copies the sections from the page, if there is one.
func (r *results) keep(page string) {
	r.Sections = map[string]string{}
	_, all, _ := strings.Cut(content(page), "\n"+sectionMark)
	for section := range strings.SplitSeq(all, "\n"+sectionMark) {
		if name, text, ok := strings.Cut(section, " -->\n"); ok {
			r.Sections[name] = strings.TrimRight(text, "\n") + "\n"
		}
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
	for _, n := range slices.Concat(t.Targets, t.Notes) {
		fmt.Fprintf(b, "- %s\n", n)
	}
}

// write writes the page, and the raw values of all rounds.
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
