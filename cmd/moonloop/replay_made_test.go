// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSourceSteps: the results of --from and --transform are sent, in the order of the steps, and no temporary file remains.
func TestSourceSteps(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	azure := map[string]string{"empty/notes.txt": "", "azure.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,110,27\n2023-11-16 18:17:05.0319600,900,9\n"}
	for _, test := range []struct{ line, sees, said string }{
		{"DIR/azure.csv --from azure", "requests 3; some max_completion_tokens=27", ""},
		{"DIR/azure.csv --from azure --max-requests 1", "requests 1; body max_completion_tokens=10", ""},
		{"DIR/azure.csv --from azure --transform --max-input=1000 --transform --output-scale=2", "requests 2; some max_completion_tokens=54", ""},
		{"TRACE --transform --output-scale=3 --block-size 512", "requests 4; body max_completion_tokens=6", ""},
		{"DIR/azure.csv --from bailian", "", "error"},
		{"DIR/azure.csv --from azure --time-unit s", "", "--time-unit has no effect with --from"},
		{"DIR/empty --from azure", "", "there is no file in it whose name ends in .jsonl, "},
		{"TRACE --transform=--out=x", "", "--out cannot be part of a --transform"},
		{"TRACE --transform --scal=2", "", "unknown flag: --scal"},
	} {
		r := begin(t, aliasTrace, append(strings.Fields("replay --overhead 1 --url ENGINE --model sim"), strings.Fields(test.line)...), azure)()
		if test.said != "" {
			if r.status != exitUsage || len(r.seen) > 0 || !strings.Contains(r.said, test.said) {
				t.Errorf("%s: status %d, %d requests, said:\n%s", test.line, r.status, len(r.seen), r.said)
			}
			continue
		}
		r.good(t)
		r.see(t, test.sees, r.out)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("%d files are left; %v", len(left), err)
	}
}

// TestMadeTracesHaveTheNamesOfTheirSources: what a replay writes names the trace that the user gave, not the temporary file that was made from
// it. The command that repeats the run does, too.
func TestMadeTracesHaveTheNamesOfTheirSources(t *testing.T) {
	server, _ := startSimulator(t)
	t.Chdir(t.TempDir())
	const row = `{"timestamp": 0, "input_length": 99, "output_length": 1}` + "\n"
	if err := os.WriteFile("t.jsonl", []byte(row), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	args := []string{"replay", "t.jsonl", "--url", server.URL, "--out", "run", "--transform", "--output-scale=2"}
	if status := run(t.Context(), args, strings.NewReader(""), &out, &out); status != exitOK {
		t.Fatalf("exit status %d, %s", status, &out)
	}
	said := map[string][]byte{}
	files, err := filepath.Glob("run/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if said[name], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range said {
		if bytes.Contains(text, []byte("moonloop-replay-")) {
			t.Errorf("%s names the temporary trace: %.2000s", name, text)
		}
	}
	if !bytes.Contains(said["run/summary.json"], []byte(`moonloop replay t.jsonl --url`)) {
		t.Errorf("summary.json does not repeat the command: %s", said["run/summary.json"])
	}
}
