// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sqlEngines are those of docs/sql.md, with the command that runs their queries there.
var sqlEngines = []struct{ name, command string }{
	{"duckdb", "duckdb"},
	{"clickhouse", "clickhouse local --queries-file /dev/stdin"},
	{"spark", "spark-sql -f /dev/stdin"},
}

// sqlAnswer is what ask.py prints of a query.
type sqlAnswer struct {
	Columns []string
	Rows    [][]any
}

// TestAcceptanceSQL runs every query of docs/sql.md with its engine, on the public trace as Parquet and as JSON lines, and compares the
// answers with the output of inspect: these engines count independently.
func TestAcceptanceSQL(t *testing.T) {
	home, moonloop, trace, dir := setting(t, "MOONLOOP_SQL"), setting(t, "MOONLOOP_BIN"), setting(t, "MOONLOOP_TRACE"), artefacts(t)
	trace, err := filepath.Abs(trace)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(trace, filepath.Join(dir, "demo.jsonl")); err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(home, "bin", "python")
	run := func(program, stdin string, args ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir, cmd.Stdin, cmd.Env = dir, strings.NewReader(stdin), append(os.Environ(), "PYSPARK_PYTHON="+python, "SPARK_LOCAL_IP=127.0.0.1")
		out, err := cmd.Output()
		if err != nil {
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				t.Fatalf("%s %v: %v\n%s", program, args, err, exit.Stderr)
			}
			t.Fatal(err)
		}
		return out
	}
	run(moonloop, "", "transform", "demo.jsonl", "--out", "demo.parquet")
	var inspected struct {
		Traces []struct {
			Rows   int64
			Input  struct{ Sum float64 } `json:"input_length"`
			Output struct{ Sum float64 } `json:"output_length"`
			Blocks struct {
				References float64
				Top        []struct{ ID, References float64 }
			}
			Caches []struct {
				Rate float64 `json:"token_hit_rate"`
			}
		}
	}
	for _, name := range []string{"demo.jsonl", "demo.parquet"} {
		if err := json.Unmarshal(run(moonloop, "", "inspect", name, "--json"), &inspected); err != nil {
			t.Fatal(err)
		}
	}
	want := inspected.Traces[0]
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "sql.md"))
	if err != nil {
		t.Fatal(err)
	}
	ask, err := filepath.Abs(filepath.Join("sql", "ask.py"))
	if err != nil {
		t.Fatal(err)
	}
	for _, engine := range sqlEngines {
		t.Run(engine.name, func(t *testing.T) {
			var queries []string
			for _, block := range regexp.MustCompile(`(?s)\n`+regexp.QuoteMeta(engine.command)+` <<'SQL'\n(.*?)\nSQL\n`).FindAllSubmatch(page, -1) {
				queries = append(queries, string(block[1]))
			}
			asked, err := json.Marshal(queries)
			if err != nil {
				t.Fatal(err)
			}
			var all []sqlAnswer
			if err := json.Unmarshal(run(python, string(asked), ask, engine.name), &all); err != nil {
				t.Fatal(err)
			}
			if len(all) != 5 {
				t.Fatalf("%d queries on the page", len(all))
			}
			value := func(query int, row int, column string) float64 {
				t.Helper()
				at := slices.Index(all[query].Columns, column)
				if at < 0 || row >= len(all[query].Rows) {
					t.Fatalf("query %d has %d rows and the columns %v; want %s of row %d", query, len(all[query].Rows), all[query].Columns, column, row)
				}
				v, _ := all[query].Rows[row][at].(float64)
				return v
			}
			same := func(what string, got, want float64) {
				t.Helper()
				if math.Abs(got-want) > 1e-9*math.Abs(want) {
					t.Errorf("%s: %s says %v, inspect %v", what, engine.name, got, want)
				}
			}
			for _, query := range []int{0, 4} {
				same("rows", value(query, 0, "rows"), float64(want.Rows))
				same("input tokens", value(query, 0, "input_tokens"), want.Input.Sum)
				same("blocks", value(query, 0, "blocks"), want.Blocks.References)
			}
			same("output tokens", value(0, 0, "output_tokens"), want.Output.Sum)
			rate := want.Caches[len(want.Caches)-1].Rate
			same("token hit rate", value(1, 0, "token_hit_rate"), rate)
			same("rows of the most frequent block", value(2, 0, "rows"), want.Blocks.Top[0].References)
			same("depth of the most frequent block", value(2, 0, "depth"), 1)
			var requests, tokens float64
			for minute := range all[3].Rows {
				requests, tokens = requests+value(3, minute, "requests"), tokens+value(3, minute, "input_tokens")
			}
			same("requests of all minutes", requests, float64(want.Rows))
			same("tokens of all minutes", tokens, want.Input.Sum)
			t.Logf("%d queries: %d rows, hit rate %.6f, as inspect says", len(all), want.Rows, rate)
		})
	}
}
