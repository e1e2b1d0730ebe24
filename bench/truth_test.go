// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// twoRequests is an engine's record, in the order in which requests ended: request b arrived first. Its tokens are 20 ms apart, those of
// request a 30 ms.
const twoRequests = `{"seq":2,"header":{"X-Request-Id":["a"]},"headers_ns":5000000,"body_read_ns":6000000,"ended_ns":90000000,"time":"2026-01-01T00:00:01.005Z","output_tokens":3,"writes":[[16000000,0],[26000000,1],[56000000,1],[86000000,1],[86000001,0]]}
{"seq":1,"header":{"X-Request-Id":["b"]},"headers_ns":1000000,"body_read_ns":2000000,"ended_ns":52000000,"time":"2026-01-01T00:00:01.001Z","output_tokens":2,"writes":[[12000000,1],[32000000,1]]}
`

func makeTruth(t *testing.T) *truth {
	t.Helper()
	name := filepath.Join(t.TempDir(), "truth.jsonl")
	if err := os.WriteFile(name, []byte(twoRequests), 0o600); err != nil {
		t.Fatal(err)
	}
	saw, err := readTruth(name)
	if err != nil {
		t.Fatal(err)
	}
	return saw
}

func TestTruth(t *testing.T) {
	saw := makeTruth(t)
	second := time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC)
	if got := saw.first(); !got.Equal(second.Add(time.Millisecond)) {
		t.Errorf("first request at %v", got)
	}
	if got := saw.last(); !got.Equal(second.Add(90 * time.Millisecond)) {
		t.Errorf("last byte at %v", got)
	}
	for _, c := range []struct {
		what      string
		got, want []float64
	}{
		{"TTFT: from the body's end to the first write with a token", saw.ttfts(), []float64{10, 20}},
		{"gaps: writes without tokens do not count", saw.gaps(), []float64{20, 30, 30}},
		{"mean gaps", saw.itls(), []float64{20, 30}},
		{"tokens, rate, most open", []float64{float64(saw.tokens()), saw.peakRate(), float64(saw.mostOpen())}, []float64{5, 5, 2}},
	} {
		if diff := cmp.Diff(c.want, c.got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.what, diff)
		}
	}
	if _, err := readTruth(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing file is accepted")
	}
}

func TestReadAIPerf(t *testing.T) {
	r, err := readAIPerf([]byte(`
{"metadata":{"x_request_id":"a"},"metrics":{"time_to_first_token":{"value":21,"unit":"ms"},"inter_token_latency":{"value":30.5,"unit":"ms"},"inter_chunk_latency":{"value":[0,61],"unit":"ms"}},"error":null}
{"metadata":{"x_request_id":"stranger"},"metrics":{"time_to_first_token":{"value":11},"inter_token_latency":{"value":20},"inter_chunk_latency":{"value":[20]}}}
{"metadata":{"x_request_id":"b"},"metrics":{},"error":{"code":500}}
`), makeTruth(t))
	if err != nil {
		t.Fatal(err)
	}
	want := &report{
		ttft: []float64{21, 11}, itl: []float64{30.5, 20}, gaps: []float64{0, 61, 20},
		ttftErrors: []float64{1}, gapErrors: []float64{-30, 31}, coalesced: 1.0 / 3, verdict: "–",
	}
	if diff := cmp.Diff(want, r, cmp.AllowUnexported(report{}), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadGuideLLM(t *testing.T) {
	r, err := readGuideLLM([]byte(`{"benchmarks":[{"requests":{"successful":[{"time_to_first_token_ms":10,"inter_token_latency_ms":20},{"time_to_first_token_ms":20,"inter_token_latency_ms":33}],"errored":[{}]}}]}`), makeTruth(t))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]float64{{10, 20}, {20, 33}}, [][]float64{r.ttft, r.itl}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// TTFT equals the engine's; the p99 of ITL is 33, the engine's is 30.
	if got := r.worstError(makeTruth(t)); got < 0.0999 || got > 0.1001 {
		t.Errorf("the worst relative error is %v, want 0.1", got)
	}
}

// TestPeerReports: a report without a successful request is an error.
func TestPeerReports(t *testing.T) {
	for _, p := range peers {
		for _, text := range []string{"", `{"benchmarks":[]}`, "\""} {
			if p.report == nil || p.program == "aiperf" && len(text) > 1 { // for AIPerf, such a line is the line of a request
				continue
			}
			dir := t.TempDir()
			name := filepath.Join(dir, p.file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
			if _, err := p.read(dir, makeTruth(t)); err == nil {
				t.Errorf("%s: %q is accepted", p.program, text)
			}
		}
	}
}

// TestPeerFilled: the command line and the files of every peer have all that they need, and no name in braces is left.
func TestPeerFilled(t *testing.T) {
	dir := t.TempDir()
	b := &bench{peers: dir, clientCore: -1}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, p := range peers {
		if len(p.args) == 0 {
			continue
		}
		echo := "#!/bin/sh\nprintf '%s\\n' \"$@\"; env\n"
		if err := os.WriteFile(filepath.Join(dir, "bin", p.program), []byte(echo), 0o700); err != nil {
			t.Fatal(err)
		}
		out := t.TempDir()
		program, err := p.run(t.Context(), b, out, "http://engine", "{rate}", "100", "{lasts}", "2000", "{streams}", "7", "{tokens}", "9")
		if err != nil {
			t.Fatal(err)
		}
		text := content(program.log)
		for name := range p.files {
			text += content(filepath.Join(out, name))
		}
		if !strings.Contains(text, "http://engine") || regexp.MustCompile(`\{[a-z]+\}`).MatchString(text) {
			t.Errorf("%s is called with\n%s", p.program, text)
		}
	}
}

func TestUsed(t *testing.T) {
	zero := time.Unix(100, 0)
	samples := []sample{{at: zero, cpu: 10 * time.Millisecond}, {at: zero.Add(time.Second), cpu: 30 * time.Millisecond}}
	for at, want := range map[time.Duration]time.Duration{
		-time.Second: 10 * time.Millisecond, 0: 10 * time.Millisecond, time.Second / 2: 20 * time.Millisecond,
		time.Second: 30 * time.Millisecond, time.Minute: 30 * time.Millisecond,
	} {
		if got := used(samples, zero.Add(at)); got != want {
			t.Errorf("used at %v: %v, want %v", at, got, want)
		}
	}
}

func TestTables(t *testing.T) {
	out := "=== RUN   TestX\n    x_test.go:12: replay; medians\n                    spans/s\n        otlp, file (stock)   100000 (1 to 2)  5.2 (4 to 6)\n        fast.yaml            75000 (1 to 2) 4.8 (4 to 5)\n        \n    x_test.go:12: production\n            spans/s\n        fast.yaml  7 (1 to 2)  0.5 (0 to 1)\n--- PASS: TestX (1.00s)\nPASS\n"
	block := tables(out)
	if !strings.Contains(block, "replay; medians") || strings.Contains(block, "PASS") {
		t.Errorf("got %q", block)
	}
	want := []map[string]spansMedian{{"otlp, file (stock)": {100000, 5.2}, "fast.yaml": {75000, 4.8}}, {"fast.yaml": {7, 0.5}}}
	if diff := cmp.Diff(want, loads(block), cmp.AllowUnexported(spansMedian{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadVegeta(t *testing.T) {
	const two = "1000002000000,200,1,2,3,,,bench,2,POST,http://engine,\n1000000500000,200,1,2,3,,,bench,0,POST,http://engine,\n"
	at, err := readVegeta(two)
	if err != nil || len(at) != 3 || at[0] != -1.5 || !isUnknown(at[1]) || at[2] != 0 {
		t.Errorf("%v: %v", at, err)
	}
	for _, bad := range []string{"1,200\n", "x,200,1,2,3,,,bench,0,POST\n", "1,200,1,2,3,,,bench,-1,POST\n", "\"\n"} {
		if at, err := readVegeta(bad); err == nil {
			t.Errorf("%q is read as %v", bad, at)
		}
	}
}
