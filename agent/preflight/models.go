// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package preflight

// This file decides which model each row requests, and reports rows that their models cannot serve.

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/mooncake"
)

const (
	// maxNamed is the maximum number of models in a message, maxLines that of rows.
	maxNamed = 8
	maxLines = 3
)

// chooseModel decides which model is requested for rows that name none, and reports problems with the models that rows name.
func (p *preflight) chooseModel(ctx context.Context) (fallback string, err error) {
	listed, err := p.reach(ctx)
	if away := p.unreachable(ctx, err); away != nil {
		return "", away
	}
	var named []load.ModelRows
	needed := p.OneModel == "" && len(p.Trace.Models) == 0 // rows without a model need one
	for _, m := range p.Trace.Models {
		if m.Name != "" {
			named = append(named, m)
		} else if p.OneModel == "" {
			needed = true
		}
	}
	switch {
	case err != nil && needed:
		return "", fmt.Errorf("engine %s: list its models: %w", p.engine(), p.withListCures(err))
	case err != nil: // an engine may serve a model without listing it
		if status := failure(err).Status; status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
			p.Warn("engine %s does not list its models: %v", p.engine(), p.withListCures(err))
		}
	case needed && len(listed) == 0:
		return "", fmt.Errorf("engine %s names no model; name one with --model", p.engine())
	case needed:
		fallback = listed[0]
	}
	expected := listed
	if p.OneModel != "" {
		expected = []string{p.OneModel}
	}
	others := slices.DeleteFunc(named, func(m load.ModelRows) bool { return slices.Contains(expected, m.Name) })
	switch {
	case len(others) == 0:
	case p.OneModel != "":
		p.Note("other models in %s: every row goes to the one that the command line names", p.rowsOf(others, ""))
	case len(listed) > 0:
		p.Warn("models in %s: these rows may fail; it lists %s; --model NAME sends every row to one model",
			p.rowsOf(others, " that the engine does not list"), names(listed))
	}
	return fallback, nil
}

// countModels lists the models of the rows in the look-ahead, those with the most rows first, and finds the most frequent one.
func (p *preflight) countModels() {
	rows, most := make(map[string]int), 0
	p.found.Model = p.found.Builder.Model(new(mooncake.Row))
	for _, m := range p.Trace.Models {
		name := p.found.Builder.Model(&mooncake.Row{Model: m.Name})
		if rows[name] == 0 {
			p.models = append(p.models, name)
		}
		if rows[name] += m.Rows; rows[name] > most {
			p.found.Model, most = name, rows[name]
		}
	}
	if len(p.models) == 0 { // only payloads
		p.models = []string{p.found.Model}
	}
	slices.SortStableFunc(p.models, func(a, b string) int { return cmp.Compare(rows[b], rows[a]) })
}

// rowsOf describes how many rows of the look-ahead have one of these models, what these models have in common, and their names.
func (p *preflight) rowsOf(models []load.ModelRows, which string) string {
	n := 0
	var list []string
	for _, m := range models {
		n += m.Rows
		list = append(list, m.Name)
	}
	rows := fmt.Sprintf("%d rows", n)
	switch {
	case !p.Trace.Whole:
		rows = fmt.Sprintf("%d of the first %d rows", n, p.Trace.Rows)
	case n == 1:
		rows = "1 row"
	}
	return fmt.Sprintf("%s%s (%s)", rows, which, names(list))
}

// names formats a list of models, of which it names the first few.
func names(list []string) string {
	var quoted []string
	for _, name := range list[:min(len(list), maxNamed)] {
		quoted = append(quoted, fmt.Sprintf("%.64q", name))
	}
	text := strings.Join(quoted, ", ")
	if more := len(list) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// tooLong warns about rows of the look-ahead that need more tokens than the engine's context has.
func (p *preflight) tooLong() {
	n, seen := 0, 0
	var first []string
	var least int64
	for line, row := range p.Ahead {
		seen++
		limit := p.contextOf(p.found.Builder.Model(row))
		if limit == 0 || !row.InputLength.Set || row.Kind() != mooncake.KindLength {
			continue
		}
		out := p.found.Builder.OutputTokens(row)
		if row.InputLength.V+out <= limit {
			continue
		}
		if n++; len(first) < maxLines {
			first = append(first, fmt.Sprintf("line %d: %d + %d", line, row.InputLength.V, out))
		}
		if least == 0 || limit < least {
			least = limit
		}
	}
	if n == 0 {
		return
	}
	rows := "rows need"
	if n == 1 {
		rows = "row needs"
	}
	within := ""
	if !p.Trace.Whole {
		within = fmt.Sprintf(" of the first %d", seen)
	}
	p.Warn("%d%s %s more tokens than the engine's context of %d has (max_model_len; n_ctx of a slot in llama.cpp), prompt and reply together (%s): the engine will refuse them, "+
		"cut their replies, or drop a part of their prompts; "+
		"serve the model with a longer context, or shorten the replies with --max-output-length", n, within, rows, least, strings.Join(first, "; "))
}
