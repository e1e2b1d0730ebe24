// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/semconv"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// shown are the fields of a dashboard's file that these tests read.
type shown struct {
	UID         string `json:"uid"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Templating  struct {
		List []struct {
			Name, Type, Query string
		} `json:"list"`
	} `json:"templating"`
	Annotations struct {
		List []struct{ Expr string } `json:"list"`
	} `json:"annotations"`
	Panels []struct {
		Type, Title, Description string
		Datasource               struct{ UID string }
		GridPos                  struct{ H, W, X, Y int }
		FieldConfig              struct {
			Defaults struct{ Unit string }
		}
		Targets []struct{ Expr, LegendFormat string }
	} `json:"panels"`
}

func read(t *testing.T) map[string]shown {
	t.Helper()
	files, err := filepath.Glob("../examples/grafana/*.json")
	if err != nil || len(files) != len(boards) {
		t.Fatalf("%d files of %d dashboards: %v", len(files), len(boards), err)
	}
	all := map[string]shown{}
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var d shown
		if err := json.Unmarshal(content, &d); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[name] = d
	}
	return all
}

// The files in the repository are the same as those that the code writes.
func TestFilesAreFresh(t *testing.T) {
	dir := t.TempDir()
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	for name := range read(t) {
		want, err := os.ReadFile(filepath.Join(dir, filepath.Base(name)))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is stale (%v): run go generate in dashboards", name, err)
		}
	}
}

// names returns the series in which metrics may be stored: those of the code's constants, in Prometheus' spelling.
func names(t *testing.T) map[string]bool {
	t.Helper()
	found := componentMetrics()
	for _, m := range append(allMetrics(), ofTheCollector...) {
		for _, name := range []string{counter(m), gauge(m), histogram(m)} {
			found[name] = true
		}
	}
	return found
}

// queries returns all queries of a dashboard, with Grafana's variables filled in.
func queries(d shown) (all []string) {
	fill := strings.NewReplacer("$__rate_interval", "1m", "$run", "run-1", "$model", "model-1", "$instance", "collector:8888", "$datasource", "ds")
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, fill.Replace(target.Expr))
		}
	}
	for _, a := range d.Annotations.List {
		if a.Expr != "" {
			all = append(all, fill.Replace(a.Expr))
		}
	}
	return all
}

var promQL = parser.NewParser(parser.Options{})

// Prometheus can parse every query, and each names only metrics that the code records.
func TestQueries(t *testing.T) {
	known := names(t)
	parsed := 0
	for file, d := range read(t) {
		for _, q := range queries(d) {
			expr, err := promQL.ParseExpr(q)
			if err != nil {
				t.Errorf("%s: %s: %v", file, q, err)
				continue
			}
			parsed++
			checkOutcomes(t, file, expr)
			parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
				if v, ok := n.(*parser.VectorSelector); ok && !known[v.Name] {
					t.Errorf("%s: %s: nothing records %s", file, q, v.Name)
				}
				return nil
			})
		}
	}
	if parsed < 95 {
		t.Errorf("only %d queries", parsed)
	}
}

// checkOutcomes fails if a query is about other requests than the report: latencies are of served requests, and shares are of requests that
// were served or failed.
func checkOutcomes(t *testing.T, where string, expr parser.Expr) {
	t.Helper()
	check := func(n parser.Node, name string, want ...string) {
		parser.Inspect(n, func(n parser.Node, _ []parser.Node) error {
			if v, ok := n.(*parser.VectorSelector); ok && v.Name == name && !slices.Equal(outcomes(v), want) {
				t.Errorf("%s: %s is about requests that are %v, want %v", where, v, outcomes(v), want)
			}
			return nil
		})
	}
	check(expr, histogram(semconv.ClientOperationDuration), semconv.OutcomeServed)
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if share, ok := n.(*parser.BinaryExpr); ok && share.Op == parser.DIV {
			check(share.RHS, counter(semconv.Requests), semconv.OutcomeServed, semconv.OutcomeFailed)
		}
		return nil
	})
}

// outcomes returns the outcomes of the requests that a selector selects.
func outcomes(v *parser.VectorSelector) (all []string) {
	for _, outcome := range []string{
		semconv.OutcomeServed, semconv.OutcomeFailed, semconv.OutcomeCancelled, semconv.OutcomeSkipped, semconv.OutcomeDisconnected,
	} {
		if !slices.ContainsFunc(v.LabelMatchers, func(m *labels.Matcher) bool { return m.Name == label(semconv.Outcome) && !m.Matches(outcome) }) {
			all = append(all, outcome)
		}
	}
	return all
}

// What a user of Grafana expects from a dashboard: a data source to choose, a title, a description and a unit for each panel, and panels
// that neither overlap nor leave the grid.
func TestPanels(t *testing.T) {
	for file, d := range read(t) {
		if d.UID == "" || d.Description == "" || !strings.HasPrefix(d.Title, "moonloop / ") {
			t.Errorf("%s: uid %q, title %q, description %q", file, d.UID, d.Title, d.Description)
		}
		if !slices.ContainsFunc(d.Templating.List, func(v struct{ Name, Type, Query string }) bool { return v.Type == "datasource" }) {
			t.Errorf("%s: no variable for the data source", file)
		}
		var used [300][24]string
		for _, p := range d.Panels {
			if p.Type == "row" {
				continue
			}
			if p.Title == "" || p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 || p.Datasource.UID != source {
				t.Errorf("%s: panel %q: description %q, unit %q, %d queries, data source %q", file, p.Title, p.Description, p.FieldConfig.Defaults.Unit, len(p.Targets), p.Datasource.UID)
			}
			g := p.GridPos
			if g.X+g.W > 24 {
				t.Errorf("%s: panel %q leaves the grid", file, p.Title)
				continue
			}
			for y := g.Y; y < g.Y+g.H; y++ {
				for x := g.X; x < g.X+g.W; x++ {
					if used[y][x] != "" {
						t.Fatalf("%s: panels %q and %q overlap", file, p.Title, used[y][x])
					}
					used[y][x] = p.Title
				}
			}
			for _, target := range p.Targets {
				if strings.Contains(target.Expr, "rate(") && !regexp.MustCompile(`rate\([^)]*\[\$__rate_interval\]`).MatchString(target.Expr) {
					t.Errorf("%s: panel %q: a rate needs $__rate_interval: %s", file, p.Title, target.Expr)
				}
			}
		}
	}
}

// Every variable that a query uses exists in the dashboard.
func TestVariables(t *testing.T) {
	variable := regexp.MustCompile(`\$\{?([a-z]\w*)`)
	for file, d := range read(t) {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				for _, m := range variable.FindAllStringSubmatch(target.Expr, -1) {
					if !slices.ContainsFunc(d.Templating.List, func(v struct{ Name, Type, Query string }) bool { return v.Name == m[1] }) {
						t.Errorf("%s: panel %q uses $%s, which does not exist", file, p.Title, m[1])
					}
				}
			}
		}
	}
}

// Prometheus can load the alert rules, and the metrics that they name are recorded.
func TestAlerts(t *testing.T) {
	content, err := os.ReadFile("../examples/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(content, false, model.UTF8Validation, promQL, slog.Default())
	if errs != nil {
		t.Fatal(errs)
	}
	known, rules := names(t), 0
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			rules++
			expr, err := promQL.ParseExpr(r.Expr)
			if err != nil {
				t.Fatal(err)
			}
			checkOutcomes(t, r.Alert, expr)
			parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
				if v, ok := n.(*parser.VectorSelector); ok && !known[v.Name] {
					t.Errorf("%s: nothing records %s", r.Alert, v.Name)
				}
				return nil
			})
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Labels["severity"] == "" {
				t.Errorf("%s has no summary, description or severity", r.Alert)
			}
		}
	}
	if rules < 15 {
		t.Errorf("%d rules", rules)
	}
}
