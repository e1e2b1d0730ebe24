// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// byTraffic matches the metrics that count production and replays under one name.
var byTraffic = regexp.MustCompile(`^otelcol_exporter_mooncake_(request_spans|tokens|rows)_total$`)

// TestQuestions checks the queries of docs/promql.md with Prometheus' parser, and their metrics against the code. test/acceptance runs
// them.
func TestQuestions(t *testing.T) {
	page, err := os.ReadFile("../docs/promql.md")
	if err != nil {
		t.Fatal(err)
	}
	known := names(t)
	rows := regexp.MustCompile("(?m)^\\| ([^|]*\\?) \\| `([^`|]+)` \\| (.+) \\|$").FindAllSubmatch(page, -1)
	for _, row := range rows {
		expr, err := promQL.ParseExpr(string(row[2]))
		if err != nil {
			t.Errorf("%s %s: %v", row[1], row[2], err)
			continue
		}
		checkOutcomes(t, string(row[1]), expr)
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			v, ok := n.(*parser.VectorSelector)
			if !ok {
				return nil
			}
			if !known[v.Name] {
				t.Errorf("%s nothing records %s", row[1], v.Name)
			}
			if byTraffic.MatchString(v.Name) && !slices.ContainsFunc(v.LabelMatchers, func(m *labels.Matcher) bool { return m.Name == "traffic" }) {
				t.Errorf("%s the query mixes production with replays: %s", row[1], v)
			}
			return nil
		})
	}
	if tables := regexp.MustCompile(`(?m)^\| .+\|$`).FindAll(page, -1); len(rows) < 70 || len(rows)+9 != len(tables) {
		t.Errorf("%d questions in the %d lines of 9 tables, each with a head: is a line of another form?", len(rows), len(tables))
	}
}
