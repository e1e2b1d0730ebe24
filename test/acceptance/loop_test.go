// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAcceptanceLoop closes the loop on the public trace: replay → spans → receiver → exporter → compile gives exactly the file that was
// replayed.
func TestAcceptanceLoop(t *testing.T) {
	trace := readLines[traceRow](t, setting(t, "MOONLOOP_TRACE"))
	dir := artefacts(t)
	otelcol, sim := startDistribution(t, dir), startEngine(t, dir)
	p := replay(t, dir, sim.url, tracesTo(otelcol.address), "--endpoint", "completions", "--prompt", "tokens", "--run-id", "loop")
	sim.stop(t)
	checkRun(t, p, dir)
	accepted(t, dir, len(trace))

	out := filepath.Join(dir, "loop.jsonl")
	otelcol.compile(t, dir, out, "--format", "mooncake")
	original, err := os.ReadFile(setting(t, "MOONLOOP_TRACE"))
	if err != nil {
		t.Fatal(err)
	}
	checkCompiled(t, dir, "the trace after the loop", filepath.Join(dir, "loop.run-loop.jsonl"), original)
	if _, err := os.Stat(out); !os.IsNotExist(err) {
		t.Errorf("%s: %v; a replay alone must give no trace of production", out, err)
	}
}

// TestAcceptanceLoopInCompany does the same while three others send to the same Collector: the engine, whose spans are below the replay's
// and have their own token counts, an application in production, and a second replay.
func TestAcceptanceLoopInCompany(t *testing.T) {
	trace := readLines[traceRow](t, setting(t, "MOONLOOP_TRACE"))
	dir := artefacts(t)
	otelcol, sim := startDistribution(t, dir), startEngine(t, dir)

	engineSpans := sendEngineSpans(t, otelcol.address, sim.record)
	production := sendProduction(t, otelcol.address)
	const second = 3000
	beside := filepath.Join(dir, "beside")
	if err := os.Mkdir(beside, 0o755); err != nil {
		t.Fatal(err)
	}
	other := start(t, beside, "replay", tracesTo(otelcol.address), setting(t, "MOONLOOP_BIN"), "replay", setting(t, "MOONLOOP_TRACE"),
		"--url", sim.url, "--model", "sim", "--speedup", setting(t, "MOONLOOP_SPEEDUP"), "--seed", "2", "--token-events", "array",
		"--endpoint", "completions", "--prompt", "tokens", "--max-requests", fmt.Sprint(second), "--run-id", "beside",
		"--out", filepath.Join(beside, "out"), "--progress", "lines")
	replay(t, dir, sim.url, tracesTo(otelcol.address), "--endpoint", "completions", "--prompt", "tokens", "--token-events", "array",
		"--run-id", "loop")
	other.wait(t, 10*time.Minute)
	sim.stop(t)
	sent := production()
	note(t, "spans of the engine", engineSpans())
	accepted(t, dir, len(trace))
	accepted(t, beside, second)

	out := filepath.Join(dir, "production.jsonl")
	otelcol.compile(t, dir, out, "--format", "mooncake")
	original, err := os.ReadFile(setting(t, "MOONLOOP_TRACE"))
	if err != nil {
		t.Fatal(err)
	}
	checkCompiled(t, dir, "the trace after the loop", filepath.Join(dir, "production.run-loop.jsonl"), original)
	lines := bytes.SplitAfter(original, []byte("\n"))
	checkCompiled(t, dir, "the second replay's trace", filepath.Join(dir, "production.run-beside.jsonl"), bytes.Join(lines[:second], nil))

	rows := readLines[traceRow](t, out)
	equal(t, "rows of production", len(rows), len(sent))
	for i, row := range rows {
		if i < len(sent) && (row.InputLength != sent[i].InputLength || row.OutputLength != sent[i].OutputLength) {
			t.Errorf("row %d of production: %v, must be %v", i, row, sent[i])
			break
		}
	}
}

// accepted compares the run's own count with the number of rows: every span must have been acknowledged.
func accepted(t *testing.T, dir string, rows int) {
	t.Helper()
	telemetry := at[map[string]any](t, readSummary(t, dir), "telemetry")
	ended := at[float64](t, telemetry, "spans_ended")
	equal(t, "spans lost, as the run says", ended-at[float64](t, telemetry, "spans_accepted"), 0)
	if ended < float64(rows) {
		t.Errorf("%g spans ended, must be %d or more", ended, rows)
	}
}

// checkCompiled compares a compiled trace with what was replayed: digest, timestamps, and the bytes of the file.
func checkCompiled(t *testing.T, dir, what, name string, original []byte) {
	t.Helper()
	want := filepath.Join(dir, "want.jsonl")
	if err := os.WriteFile(want, original, 0o644); err != nil {
		t.Fatal(err)
	}
	inspect := func(name string) any {
		p := start(t, dir, "inspect", nil, setting(t, "MOONLOOP_BIN"), "inspect", "--json", name)
		if code := p.wait(t, time.Minute); code != 0 {
			t.Fatalf("inspect %s: exit status %d\n%s", name, code, p.tail())
		}
		return readAnalysis(t, p.out)
	}
	for _, digest := range []string{"seq_digest", "tree_digest", "arrival_digest"} {
		equal(t, digest+" of "+what, at[string](t, inspect(name), "digests", digest), at[string](t, inspect(want), "digests", digest))
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	rows, trace := readLines[traceRow](t, name), readLines[traceRow](t, want)
	equal(t, "rows of "+what, len(rows), len(trace))
	same := 0
	for i := range rows {
		if i < len(trace) && rows[i].Timestamp == trace[i].Timestamp {
			same++
		}
	}
	equal(t, "the very timestamps in "+what, same, len(trace))
	equal(t, what+" is the original, byte for byte", strings.TrimSpace(string(got)) == strings.TrimSpace(string(original)), true)
}
