// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/xuri/excelize/v2"
)

// TestExports: a replay writes a workbook and a Parquet file, a report writes a workbook, and both name what they wrote. A replay replaces
// no file without --force, and says at the start if it cannot write a file.
func TestExports(t *testing.T) {
	engine, e := startSimulator(t)
	files := map[string]string{"trace.jsonl": rowOfSix + rowOfSix, "old.xlsx": "mine"}
	replay := func(args ...string) (int, string, string) {
		return settingsRun(t, files, append([]string{"trace.jsonl", "--url", engine.URL, "--endpoint", "completions", "--progress", "none"}, args...)...)
	}
	status, stdout, stderr := replay("--out", "out", "--xlsx", "run.xlsx", "--parquet", "requests.parquet")
	if status != exitOK && status != exitInvalid || !strings.HasSuffix(stdout, "results in out\nrun.xlsx\nrequests.parquet\n") {
		t.Fatalf("exit status %d:\n%s\n%s", status, stdout, stderr)
	}
	book, err := excelize.OpenFile("run.xlsx")
	if err != nil {
		t.Fatal(err)
	}
	if rows, err := book.GetRows("requests"); err != nil || len(rows) != 3 {
		t.Errorf("%d rows, want a header and two: %v", len(rows), err)
	}
	if err := book.Close(); err != nil {
		t.Error(err)
	}
	var out strings.Builder
	if status := run(t.Context(), []string{"report", "out", "--xlsx", "again.xlsx", "--slice", "10ms"}, strings.NewReader(""), &out, &out); status != exitOK || !strings.HasSuffix(out.String(), "again.xlsx\n") {
		t.Errorf("report: exit status %d, %s", status, &out)
	}
	// One that cannot be written does not prevent the other.
	if status := run(t.Context(), []string{"report", "out", "--xlsx", "gone/x.xlsx", "--parquet", "other.parquet"}, strings.NewReader(""), &out, &out); status != exitUsage {
		t.Errorf("exit status %d, %s", status, &out)
	}
	if _, err := os.Stat("other.parquet"); err != nil {
		t.Error(err)
	}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"exists":          {[]string{"--out", "out", "--xlsx", "old.xlsx"}, "--xlsx old.xlsx: file already exists; name another file"},
		"no results":      {[]string{"--parquet", "p"}, "give --out DIR, too"},
		"standard output": {[]string{"--out", "out", "--xlsx", "-"}, "standard output cannot"},
	} {
		before := len(e.Records())
		status, _, stderr := replay(tc.args...)
		if status != exitUsage || !strings.Contains(stderr, tc.want) || len(e.Records()) != before {
			t.Errorf("%s: exit status %d, want %q:\n%s", name, status, tc.want, stderr)
		}
		if text, err := os.ReadFile("old.xlsx"); err != nil || string(text) != "mine" {
			t.Errorf("%s: old.xlsx is %q, %v", name, text, err)
		}
	}
}
