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

// sqlBlocks are the queries of docs/sql.md that are asked of DuckDB.
var sqlBlocks = regexp.MustCompile(`(?s)\nduckdb <<'SQL'\n(.*?)\nSQL\n`)

// sqlAnswer is what ask.py prints.
type sqlAnswer struct {
	Columns []string
	Rows    [][]any
}

// TestAcceptanceSQL runs every query of docs/sql.md with DuckDB, on the public trace as Parquet and as it is, and holds the answers to what inspect
// says of it: DuckDB counts without us.
func TestAcceptanceSQL(t *testing.T) {
	home, moonloop, trace, dir := setting(t, "MOONLOOP_SQL"), setting(t, "MOONLOOP_BIN"), setting(t, "MOONLOOP_TRACE"), artefacts(t)
	trace, err := filepath.Abs(trace)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(trace, filepath.Join(dir, "demo.jsonl")); err != nil {
		t.Fatal(err)
	}
	run := func(program, stdin string, args ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
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
	var all []sqlAnswer
	for _, block := range sqlBlocks.FindAllSubmatch(page, -1) {
		var a sqlAnswer
		if err := json.Unmarshal(run(filepath.Join(home, "bin", "python"), string(block[1]), ask), &a); err != nil || len(a.Rows) == 0 {
			t.Fatalf("%d rows, %v\n%s", len(a.Rows), err, block[1])
		}
		all = append(all, a)
	}
	if len(all) != 5 {
		t.Fatalf("%d queries on the page", len(all))
	}
	value := func(query int, row int, column string) float64 {
		t.Helper()
		at := slices.Index(all[query].Columns, column)
		if at < 0 {
			t.Fatalf("query %d has the columns %v, and not %s", query, all[query].Columns, column)
		}
		v, _ := all[query].Rows[row][at].(float64)
		return v
	}
	same := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9*math.Abs(want) {
			t.Errorf("%s: DuckDB says %v, inspect %v", what, got, want)
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
	var requests, tokens float64
	for minute := range all[3].Rows {
		requests, tokens = requests+value(3, minute, "requests"), tokens+value(3, minute, "input_tokens")
	}
	same("requests of all minutes", requests, float64(want.Rows))
	same("tokens of all minutes", tokens, want.Input.Sum)
	t.Logf("%d rows, hit rate %.6f, by DuckDB and by inspect", want.Rows, rate)
}
