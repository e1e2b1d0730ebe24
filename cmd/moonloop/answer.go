// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"errors"
	"html/template"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/agent/report/page"
	"github.com/moonloop/moonloop/internal/term"
)

// This file has what verbs that answer a question have in common: an answer with notes and tables, as text, Markdown, JSON or a page.

// answerFlags choose the form of an answer.
type answerFlags struct {
	json, markdown bool
	html           string
}

func (f *answerFlags) register(fs *pflag.FlagSet) {
	add(fs, &f.json, "json", false)
	add(fs, &f.markdown, "markdown", false)
	add(fs, &f.html, "html", "", aFile)
}

func (f *answerFlags) check() error {
	if f.json && f.markdown {
		return errors.New("--json and --markdown are two forms of one output: give one of the two")
	}
	return nil
}

// answer is what a verb found out.
type answer struct {
	Sentence string
	Class    string // of the page: valid, degraded or invalid
	Notes    []string
	Parts    []part
}

// part is a table of the answer, and a section of its page.
type part struct {
	ID, Title string
	Note      string    // of the page alone
	Drawings  []drawing // likewise
	Table     grid
	Below     []string // notes about the table
}

// drawing is a picture. Drawings with a name are shown side by side.
type drawing struct {
	Name string
	SVG  template.HTML
}

// grid is a table of texts. The header may be missing.
type grid struct {
	Header  []string
	Rows    [][]string
	Numbers int // columns of numbers after the first one
}

// render returns the table as text. It escapes what would move the cursor.
func (g grid) render(markdown bool) string {
	t := term.NewTable()
	if g.Header != nil {
		t.AppendHeader(cellsOf(g.Header))
	}
	for _, r := range g.Rows {
		t.AppendRow(cellsOf(r))
	}
	if markdown {
		return t.RenderMarkdown()
	}
	return t.Render()
}

func cellsOf(texts []string) table.Row {
	row := make(table.Row, len(texts))
	for i, t := range texts {
		row[i] = term.Plain(t)
	}
	return row
}

// text returns the answer as text or Markdown. Tables without a row are left out.
func (a *answer) text(markdown bool) string {
	var b strings.Builder
	if a.Sentence != "" {
		b.WriteString(term.Plain(a.Sentence) + "\n\n")
	}
	notes := a.Notes
	for _, p := range a.Parts {
		if len(p.Table.Rows) > 0 {
			b.WriteString(p.Table.render(markdown) + "\n\n")
		}
		notes = append(slices.Clip(notes), p.Below...)
	}
	for _, n := range notes {
		b.WriteString(term.Plain(n) + "\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// write writes an answer in the chosen forms. value is its JSON.
func (f *answerFlags) write(out io.Writer, product, subject string, value any, text func(markdown bool) string, body func() template.HTML) error {
	if f.html != "" {
		if err := page.SaveDocument(f.html, product, subject, body()); err != nil {
			return err
		}
	}
	if f.json {
		return output(out, value)
	}
	return output(out, text(f.markdown))
}

//go:embed answer.html
var answerHTML string

var answerTemplate = sync.OnceValue(func() *template.Template { return template.Must(template.New("answer").Parse(answerHTML)) })

// page returns the body of the page of an answer.
func (a *answer) page() template.HTML {
	var b strings.Builder
	if err := answerTemplate().Execute(&b, a); err != nil {
		panic(err) // cannot happen: our own types, written to memory
	}
	return template.HTML(b.String()) //nolint:gosec // made by a template
}
