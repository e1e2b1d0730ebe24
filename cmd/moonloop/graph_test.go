// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/mooncake"
)

// place is the position of a row in a graph whose rows are known by their index.
type place struct {
	Timestamp, Delay, Tools mooncake.Opt[float64]
	InGraph                 bool
	WaitFor                 []int
	Evidence                []mooncake.Evidence
}

func places(t *testing.T, name string) (all []place) {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	index := map[string]int{}
	for line := range bytes.Lines(content) {
		r, err := mooncake.ParseRow(line)
		if err != nil {
			t.Fatal(err)
		}
		p := place{Timestamp: r.Timestamp, Delay: r.Delay, Tools: r.ToolWait, InGraph: r.WaitFor != nil, Evidence: r.Evidence}
		for _, id := range r.WaitFor {
			at, known := index[id]
			if !known {
				t.Fatalf("%s: row %d waits for %q, which is not a row before it", name, len(all), id)
			}
			p.WaitFor = append(p.WaitFor, at)
		}
		index[r.RequestID] = len(all)
		all = append(all, p)
	}
	return all
}

// TestGraphComesBack: a capture of a replay has the graph of the trace that was replayed: which row waits for which, for how long, and how
// certain that is.
func TestGraphComesBack(t *testing.T) {
	t.Parallel()
	trace, err := filepath.Abs(filepath.Join("..", "..", "examples", "agents.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	c := startCapture(t, folder)
	e, err := simulator.New(simulator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	engine := httptest.NewServer(e)
	defer engine.Close()
	replay := exec.CommandContext(t.Context(), "moonloop", "replay", trace, "--url", engine.URL, "--model", "simulated", "--speedup", "50",
		"--run-id", "again", "--out", filepath.Join(folder, "run"), "--progress", "none")
	replay.Env = append(slices.Clone(c.Env), "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+c.grpc, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_METRICS_EXPORTER=none")
	out, err := replay.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != exitInvalid) { // a machine too busy to measure times
		t.Fatalf("replay: %v\n%s", err, out)
	}
	if out, status := c.end(t, os.Interrupt); status != exitOK {
		t.Fatalf("capture: exit status %d\n%s%s", status, out, &c.stderr)
	}
	want := places(t, trace)
	if diff := cmp.Diff(want, places(t, filepath.Join(folder, "prod.run-again.jsonl"))); diff != "" {
		t.Errorf("the graph (-want +got):\n%s", diff)
	}
	edges := 0
	for _, p := range want {
		edges += len(p.WaitFor)
	}
	if edges < 8 {
		t.Errorf("nothing was tested: the example has %d edges", edges)
	}
}
