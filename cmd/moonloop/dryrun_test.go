// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDryRun: a dry run prints what would be sent, needs no engine, and writes no file.
func TestDryRun(t *testing.T) {
	dir := t.TempDir()
	trace, out := filepath.Join(dir, "trace.jsonl"), filepath.Join(dir, "out")
	if err := os.WriteFile(trace, []byte(aliasTrace), 0o600); err != nil {
		t.Fatal(err)
	}
	dry := func(args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		args = append([]string{"replay", trace, "--out", out, "--request-rate", "2", "--arrival", "constant"}, args...)
		if status := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr); status != exitOK || stderr.Len() > 0 {
			t.Fatalf("status %d, said:\n%s", status, &stderr)
		}
		return stdout.String()
	}
	text := dry("--dry-run")
	for _, line := range []string{
		"2   1.000  1,300       2              1,024", "1.500", "1.000     2    2.00  ████", "Rows        4 to send",
		"Tokens      3,700 input, 8 output",
		"Cache       an infinite cache would serve 1,536 of the input tokens: 41.5 %",
		"Schedule    request rate, the last row at 1.500 s, 2.00 rows/s on average, at most 2 in a second (from 0 s on)",
		"At once     unknown: it depends on how long the engine takes", "nothing was sent",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("%q is not in:\n%s", line, text)
		}
	}
	var offsets []float64
	lines := strings.Split(strings.TrimSpace(dry("--dry-run=json")), "\n")
	for _, line := range lines[:len(lines)-1] {
		var p plannedRow
		if err := json.Unmarshal([]byte(line), &p); err != nil || p.Offset == nil {
			t.Fatalf("%s: %v", line, err)
		}
		offsets = append(offsets, *p.Offset)
	}
	if diff := cmp.Diff([]float64{0, 0.5, 1, 1.5}, offsets); diff != "" {
		t.Errorf("offsets (-want +got):\n%s", diff)
	}
	if !strings.Contains(lines[len(lines)-1], `"rows":4,`) {
		t.Errorf("the last line is not a forecast: %s", lines[len(lines)-1])
	}
	if told := dry("--dry-run=json", "--request-cancellation-rate", "25", "--request-cancellation-delay", "0.5"); !strings.Contains(told, `"disconnect_share":0.25,"disconnect_after_ms":500`) {
		t.Errorf("the cancellation of AIPerf is not in:\n%s", told)
	}
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("--out was written: %v", err)
	}
}
