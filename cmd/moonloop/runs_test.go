// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/study"
)

// Each run has its folder and its name. The seed is the same, or, with --runs-fresh, different for each. Existing results are not
// replaced: they are found before the first run. A folder of runs can be one side of a comparison.
func TestRuns(t *testing.T) {
	t.Parallel()
	server, engine := startSimulator(t)
	dir := t.TempDir()
	trace, out := filepath.Join(dir, "trace.jsonl"), filepath.Join(dir, "out")
	if err := os.WriteFile(trace, []byte(`{"timestamp": 0, "input_length": 600, "output_length": 4, "hash_ids": [1, 2]}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"replay", trace, "--url", server.URL, "--progress", "none", "--run-id", "night"}
	stdout, stderr, err := command(t, newRootCommand(), "", append(args, "--runs", "3", "--out", out)...)
	measured := func(err error) bool { return err == nil || statusOf(err) == exitInvalid } // which happens on a busy machine
	if !measured(err) || !strings.Contains(stdout, "over 3 runs") || !strings.Contains(stdout, "run-3: ") || strings.Contains(stdout, "undecided") || !strings.Contains(stderr, "may have them in its cache") {
		t.Fatalf("%v\n%s\n%s", err, stdout, stderr)
	}
	runs, err := study.ReadRuns(out)
	if err != nil || len(runs) != 3 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	seeds := func(out string) (list []float64) {
		for _, name := range []string{"run-1", "run-2"} {
			b, err := os.ReadFile(filepath.Join(out, name, "summary.json"))
			if err != nil {
				t.Fatal(err)
			}
			var s struct {
				Run      struct{ ID string }
				Schedule struct{ Seed float64 }
			}
			if err := json.Unmarshal(b, &s); err != nil || s.Run.ID != "night-"+name[4:] {
				t.Errorf("%+v, %v", s, err)
			}
			list = append(list, s.Schedule.Seed)
		}
		return list
	}
	if s := seeds(out); s[0] != s[1] {
		t.Errorf("seeds %v", s)
	}
	var file struct{ Figures []study.Spread }
	if b, err := os.ReadFile(filepath.Join(out, runsFile)); err != nil || json.Unmarshal(b, &file) != nil || len(file.Figures) < 20 {
		t.Errorf("%d figures, %v", len(file.Figures), err)
	}
	for _, s := range file.Figures {
		if s.Metric == "request_count.avg" && (s.Runs != 3 || s.Mean != 1 || s.SD != 0) {
			t.Errorf("%+v", s)
		}
	}

	fresh := filepath.Join(dir, "fresh")
	if _, stderr, err := command(t, newRootCommand(), "", append(args, "--runs", "2", "--runs-fresh", "--out", fresh)...); !measured(err) || strings.Contains(stderr, "in its cache") {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if s := seeds(fresh); s[0] == s[1] {
		t.Errorf("seeds %v", s)
	}

	before := len(engine.Records())
	if err := os.RemoveAll(filepath.Join(out, "run-1")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := command(t, newRootCommand(), "", append(args, "--runs", "3", "--out", out)...); !errors.Is(err, os.ErrExist) || len(engine.Records()) != before {
		t.Errorf("%v, %d requests", err, len(engine.Records())-before)
	}
	// The worst run decides.
	if _, _, err := command(t, newRootCommand(), "", append(args, "--runs", "2", "--out", filepath.Join(dir, "strict"), "--strict-verdict")...); statusOf(err) != exitInvalid {
		t.Errorf("%v", err)
	}
}

func TestWorse(t *testing.T) {
	order := []error{nil, exitWith(exitGoals), exitWith(exitInvalid), errors.New("unreadable"), exitWith(exitInterrupted)}
	for i, a := range order {
		for j, b := range order {
			if got := worse(a, b); !errors.Is(got, order[max(i, j)]) && got != nil {
				t.Errorf("%v and %v: %v", a, b, got)
			}
		}
	}
}

// What several runs cannot share is refused before anything is sent.
func TestRunsRefused(t *testing.T) {
	dir := t.TempDir()
	for _, more := range [][]string{
		nil,
		{"--out", dir, "--save-prompts", filepath.Join(dir, "p")},
		{"--out", dir, "--xlsx", filepath.Join(dir, "x.xlsx")},
		{"--out", dir, "--start-at", "2100-01-01T00:00:00Z"},
	} {
		if _, _, err := command(t, newRootCommand(), "", append([]string{"replay", "t.jsonl", "--url", "http://localhost:1", "--runs", "2"}, more...)...); err == nil || !strings.Contains(err.Error(), "--runs") {
			t.Errorf("%v: %v", more, err)
		}
	}
	if _, stderr, _ := command(t, newRootCommand(), "", "replay", filepath.Join(dir, "none.jsonl"), "--url", "http://localhost:1", "--runs-fresh"); !strings.Contains(stderr, "without --runs") {
		t.Error(stderr)
	}
}
