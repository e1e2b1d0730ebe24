// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/internal/testprogram"
)

// faultRow is a line of requests.jsonl, with the fields that the tests of faults use. Instants and durations are in milliseconds.
type faultRow struct {
	Result struct {
		Row      int64    `json:"row"`
		Outcome  string   `json:"outcome"`
		Reason   string   `json:"reason"`
		Wire     *float64 `json:"wire"`
		First    *float64 `json:"first"`
		Lateness float64  `json:"lateness_ms"`
		Replays  int      `json:"replays"`
	} `json:"result"`
}

// servedRecord is the engine's record of a request, with the fields that these tests use.
type servedRecord struct {
	Header      map[string][]string `json:"header"`
	BodyRead    int64               `json:"body_read_ns"`
	PrefillDone int64               `json:"prefill_done_ns"`
}

// faultRun is a replay through the proxy, with the records of all parties.
type faultRun struct {
	process *process
	dir     string
	proxy   *faultProxy
	sink    *spanSink
	rows    []faultRow
}

// proxied replays a trace through a proxy against an engine of its own.
func proxied(t *testing.T, binary, dir, trace string, off bool, flags ...string) *faultRun {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	engine := start(t, dir, "engine", nil, binary, "simulate", "--listen", "127.0.0.1:0",
		"--prefill", "5ms", "--prefill-per-token", "1us", "--decode", "5ms", "--cache-blocks", "0",
		"--record", filepath.Join(dir, "engine.jsonl"), "--record-writes=false")
	run := &faultRun{dir: dir, sink: startSpanSink(t)}
	run.proxy = startFaultProxy(t, engine.find(t, listening), off)
	args := append([]string{
		"replay", trace, "--url", run.proxy.url, "--model", "sim", "--endpoint", "completions", "--prompt", "tokens",
		"--seed", "1", "--out", filepath.Join(dir, "out"), "--progress", "lines", "--max-error-rate", "1",
	}, flags...)
	run.process = start(t, dir, "replay", toSink(run.sink.url), binary, args...)
	if code := run.process.wait(t, 10*time.Minute); code != 0 && code != 3 {
		t.Errorf("exit status %d\n%s", code, run.process.tail())
	}
	engine.stop(t)
	run.rows = readLines[faultRow](t, filepath.Join(dir, "out", "requests.jsonl"))
	return run
}

// check compares each record and each span with the proxy's log.
func (r *faultRun) check(t *testing.T, n int) {
	t.Helper()
	equal(t, "records", len(r.rows), n)
	equal(t, "rows with a span", len(r.sink.rows), n)
	equal(t, "rows that the proxy saw", len(r.proxy.seen), n)
	wrong, failed := map[string]int{}, 0
	counts := map[string]int{}
	for _, row := range r.rows {
		id := row.Result.Row
		log := r.proxy.seen[id]
		want, fault := "", ""
		if f := faultOf(id); f != nil && !r.proxy.off {
			want, fault = f.class, f.name
		}
		counts[fault]++
		if want != "" {
			failed++
		}
		if len(log) == 0 || log[0] != fault {
			t.Fatalf("row %d: the proxy's log says %q, its table %q", id, log, fault)
		}
		outcome := map[bool]string{true: "served", false: "failed"}[want == ""]
		if row.Result.Outcome != outcome || row.Result.Reason != want {
			wrong[fmt.Sprintf("%s: record is %s %s, must be %s %s", fault, row.Result.Outcome, row.Result.Reason, outcome, want)]++
		}
		if spans := r.sink.rows[id]; len(spans) != 1 || spans[0] != want {
			wrong[fmt.Sprintf("%s: spans say %q, must say %q once", fault, spans, want)]++
		}
		// A connection that dies before the first byte of the reply may cause one request to be sent again whole, and no more.
		if len(log) > 1 && fault != "refuse" && fault != "reset" {
			wrong[fmt.Sprintf("%q came %d times", fault, len(log))]++
		}
	}
	for what, times := range wrong {
		t.Errorf("%d times %s", times, what)
	}
	equal(t, "records and spans of a different class than the proxy's log", len(wrong), 0)
	note(t, "requests that failed, each in its class", failed)
	for _, f := range proxyFaults {
		// n consecutive rows have n/100 of each fault, rounded.
		if met := counts[f.name]; !r.proxy.off && (met < n/100 || met > n/100+1) {
			t.Errorf("%d of %d requests met %q, want 1 %%", met, n, f.name)
		}
	}
}

// detour returns the median, in ms, of what agent, proxy and sockets add to the engine's own time to first token, over the first rows whose
// requests had no fault.
func (r *faultRun) detour(t *testing.T, rows int64) float64 {
	t.Helper()
	engine := map[int64]servedRecord{}
	for _, record := range readLines[servedRecord](t, filepath.Join(r.dir, "engine.jsonl")) {
		if id := record.Header["X-Request-Id"]; len(id) == 1 {
			if row, ok := rowOf(id[0]); ok {
				engine[row] = record
			}
		}
	}
	var added []float64
	for _, row := range r.rows {
		id := row.Result.Row
		record, ok := engine[id]
		if log := r.proxy.seen[id]; !ok || id >= rows || len(log) != 1 || log[0] != "" || row.Result.First == nil || row.Result.Wire == nil {
			continue
		}
		own := float64(record.PrefillDone-record.BodyRead) / float64(time.Millisecond)
		added = append(added, *row.Result.First-*row.Result.Wire-own)
	}
	if len(added) == 0 {
		t.Fatal("no untouched request")
	}
	slices.Sort(added)
	return added[len(added)/2]
}

// TestAcceptanceFaultProxy replays the public trace through a proxy that breaks one request in a hundred in each of its ways, after a
// control run without faults. Every record and span must have the class in the proxy's log, and the requests in between must not be
// affected.
func TestAcceptanceFaultProxy(t *testing.T) {
	trace, dir := setting(t, "MOONLOOP_TRACE"), artefacts(t)
	flags := []string{"--speedup", setting(t, "MOONLOOP_SPEEDUP"), "--idle-timeout", "10s", "--first-token-timeout", "20s"}
	const controlled = 2000 // rows of the control run
	control := proxied(t, testprogram.File(t, "moonloop"), filepath.Join(dir, "control"), trace, true, append(flags, "--max-requests", strconv.Itoa(controlled))...)
	run := proxied(t, testprogram.File(t, "moonloop"), filepath.Join(dir, "faults"), trace, false, flags...)
	n := len(readLines[traceRow](t, trace))
	equal(t, "rows of the trace", n, 12031)
	equal(t, "spans, session and phases included, as the run says", int(at[float64](t, at[map[string]any](t, readSummary(t, run.dir), "telemetry"), "spans_accepted")), run.sink.spans)
	run.check(t, n)
	before, with := control.detour(t, controlled), run.detour(t, controlled)
	note(t, "median detour of the first token without faults, ms", fmt.Sprintf("%.3f", before))
	below(t, "median detour of untouched requests among faults, ms", with, 1.5*before+2)
	note(t, "exit status", run.process.code)
	note(t, "peak memory, MiB", fmt.Sprintf("%.0f", run.process.peakMiB()))
}

// TestFaultProxy does the same with 300 rows of its own, in seconds.
func TestFaultProxy(t *testing.T) {
	if testing.Short() {
		t.Skip("two replays by process")
	}
	dir, binary := t.TempDir(), testprogram.File(t, "moonloop")
	trace := filepath.Join(dir, "trace.jsonl")
	const n = 300
	var rows strings.Builder
	for i := range n {
		fmt.Fprintf(&rows, `{"timestamp": %d, "input_length": %d, "output_length": %d, "hash_ids": [0, %d]}`+"\n", 10*i, 600+i%300, 2+i%9, i+1)
	}
	if err := os.WriteFile(trace, []byte(rows.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--idle-timeout", "3s", "--first-token-timeout", "5s"}
	control := proxied(t, binary, filepath.Join(dir, "control"), trace, true, flags...)
	run := proxied(t, binary, filepath.Join(dir, "faults"), trace, false, flags...)
	control.check(t, n)
	run.check(t, n)
	// Three seconds on a busy machine say little about latency, but would show if faults delayed the others.
	if before, with := control.detour(t, n), run.detour(t, n); with > 5*before+100 {
		t.Errorf("median detour of untouched requests %.3f ms among faults, %.3f ms without", with, before)
	}
}
