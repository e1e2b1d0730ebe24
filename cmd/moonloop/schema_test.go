// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/internal/testschema"
	"github.com/moonloop/moonloop/mooncake"
)

// TestSchemasHoldWhatIsWritten validates the output of verbs against the schemas that the program prints.
func TestSchemasHoldWhatIsWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	made, scaled, out := filepath.Join(dir, "made.jsonl"), filepath.Join(dir, "scaled.jsonl"), filepath.Join(dir, "out")
	e, err := simulator.New(simulator.Config{Models: []string{"sim"}})
	if err != nil {
		t.Fatal(err)
	}
	engine := httptest.NewServer(e)
	defer func() { engine.Close(); _ = e.Close() }()
	for _, args := range [][]string{
		{"generate", "--rows", "60", "--turns", "3", "--sessions", "--rate", "500", "--user", "20,0.2", "--think", "0.01,0.1", "--out", made},
		{"transform", made, "--scale", "0.5", "--time-scale", "0.5", "--out", scaled},
		{"replay", made, "--url", engine.URL, "--out", out, "--steady-state", "--slo", "ttft=5s", "--progress", "none", "--max-error-rate", "1", "--save-prompts", filepath.Join(dir, "saved.jsonl")},
	} {
		var stdout, stderr bytes.Buffer
		if status := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr); status == exitUsage {
			t.Fatalf("%s: exit status %d\n%s", args[0], status, &stderr)
		}
	}
	read := func(name string) []byte {
		t.Helper()
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	check := testschema.Checker(t, mooncake.RowSchema(), true)
	rows, sidecars := 0, []string{"../../examples/demo.meta.json"}
	for _, name := range []string{made, scaled, filepath.Join(out, report.RequestsFile), filepath.Join(dir, "saved.jsonl"), "../../examples/demo.jsonl", "../../examples/agents.jsonl"} {
		for line := range bytes.Lines(read(name)) {
			rows++
			if err := check(line); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, line)
			}
		}
		if !strings.Contains(name, "examples") {
			sidecars = append(sidecars, mooncake.MetaName(name))
		}
	}
	for _, name := range sidecars {
		if err := testschema.Check(t, mooncake.SidecarSchema(), true, read(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := testschema.Check(t, report.SummarySchema(), true, read(filepath.Join(out, report.SummaryJSON))); err != nil {
		t.Error(err)
	}
	if rows < 400 {
		t.Errorf("%d rows were checked", rows)
	}
}

func TestHelpSchema(t *testing.T) {
	for name, schema := range schemas {
		var stdout, stderr bytes.Buffer
		if status := run(t.Context(), []string{"help", "schema", name}, strings.NewReader(""), &stdout, &stderr); status != exitOK || stdout.String() != schema() {
			t.Errorf("%s: exit status %d, %s%.100s", name, status, &stderr, &stdout)
		}
	}
	for _, args := range [][]string{{"help", "schema"}, {"help", "schema", "rows"}, {"help", "schema", "row", "summary"}} {
		var stdout, stderr bytes.Buffer
		if status := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr); status != exitUsage || !strings.Contains(stderr.String(), "row, sidecar, summary") {
			t.Errorf("%v: exit status %d, %s", args, status, &stderr)
		}
	}
}
