// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/study/referee"
)

// TestRefereePlanted: the referee finds that a client's times to first token are 3 ms too high. The client's export is made from the
// server's own timestamps, so no other clock is involved.
func TestRefereePlanted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	record, export, html := filepath.Join(dir, "truth.jsonl"), filepath.Join(dir, "export.jsonl"), filepath.Join(dir, "referee.html")
	url, stop := startSimulate(t, "--fast", "--record", record)
	for range 5 {
		if status, _ := ask(t, url, ""); status != 200 {
			t.Fatalf("status %d", status)
		}
	}
	if status, stderr := stop(); status != exitOK {
		t.Fatal(stderr)
	}
	all, err := readWhole(t.Context(), record, referee.ReadRecord)
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for i := range all {
		fmt.Fprintf(&lines, "{\"ttft_ms\":%v,\"start_ms\":%d}\n", all[i].TTFT()+3, i)
	}
	if err := os.WriteFile(export, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"--json", "--json=false"} {
		var stdout, stderr bytes.Buffer
		if status := run(t.Context(), []string{"referee", record, "--judge", "rate=1000,count=6", "--export", export, "--html", html, format}, nil, &stdout, &stderr); status != exitOK {
			t.Fatalf("exit status %d: %s", status, stderr.String())
		}
		if format != "--json" {
			for _, want := range []string{"5 requests arrived of 6, at ", "lines of JSON's TTFT is +3.000 ms off at p50", "1, 0"} {
				if !strings.Contains(stdout.String(), want) {
					t.Errorf("no %q in:\n%s", want, stdout.String())
				}
			}
			continue
		}
		var j referee.Judgement
		if err := json.Unmarshal(stdout.Bytes(), &j); err != nil {
			t.Fatal(err)
		}
		if len(j.Client.Errors) != 1 {
			t.Fatalf("%+v", j.Client)
		}
		if e := j.Client.Errors[0]; e.Name != "ttft" || e.N != 5 || math.Abs(e.P1-3) > 1e-6 || math.Abs(e.Max-3) > 1e-6 {
			t.Errorf("%+v, want 3 ms", e)
		}
	}
	page, err := os.ReadFile(html)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(page); !strings.Contains(text, "lines of JSON&#39;s TTFT is &#43;3.000 ms off") || !strings.Contains(text, `aria-label="Lateness of the requests`) {
		t.Error("the page does not have all that was found")
	}
}

// TestRefereeTurns: a replay whose turns wait for replies, as they do by default, is not late by these waits, and one that does not wait is
// judged by its times.
func TestRefereeTurns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	trace, out := filepath.Join(dir, "trace.jsonl"), filepath.Join(dir, "out")
	var rows strings.Builder
	for i := range 9 { // three turns of three sessions; each reply takes some 300 ms
		fmt.Fprintf(&rows, `{"timestamp":%d,"input_length":40,"output_length":30,"session_id":"s%d"}`+"\n", 10*i, i%3)
	}
	if err := os.WriteFile(trace, []byte(rows.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, open := range []bool{false, true} {
		record := filepath.Join(dir, fmt.Sprint(open, ".jsonl"))
		url, stop := startSimulate(t, "--record", record)
		var stdout, stderr bytes.Buffer
		args := []string{"replay", trace, "--url", url, "--out", out, "--force", "--overhead", "1", "--session-mode", "full", fmt.Sprint("--open-loop=", open)}
		if status := run(t.Context(), args, nil, &stdout, &stderr); status != exitOK && status != exitInvalid { // the machine may be busy
			t.Fatalf("exit status %d: %s", status, stderr.String())
		}
		if status, stderr := stop(); status != exitOK {
			t.Fatal(stderr)
		}
		stdout.Reset()
		args = []string{"referee", record, "--judge", trace, "--json", "--export", filepath.Join(out, "requests.jsonl")}
		if status := run(t.Context(), args, nil, &stdout, &stderr); status != exitOK {
			t.Fatalf("exit status %d: %s", status, stderr.String())
		}
		var j referee.Judgement
		if err := json.Unmarshal(stdout.Bytes(), &j); err != nil {
			t.Fatal(err)
		}
		if j.Turns == nil || j.Turns.Known != 6 || j.Turns.Waits == open || (j.Turns.AtReply == 6) == open {
			t.Errorf("open loop %t: %+v", open, j.Turns)
		}
		// Half of the requests are late by less than a reply takes. Judged by their times, six of nine would be late by that or more.
		if j.Lateness.P50 > 250 || j.Client.Lateness.P50 > 250 {
			t.Errorf("open loop %t: %+v late, by its own account %+v", open, j.Lateness, j.Client.Lateness)
		}
	}
}

// TestSimulateJudges: when the simulated engine stops, it judges its client by a trace.
func TestSimulateJudges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	trace, record := filepath.Join(dir, "trace.jsonl"), filepath.Join(dir, "truth.jsonl")
	rows := "{\"timestamp\":0,\"input_length\":13,\"output_length\":2}\n{\"timestamp\":1,\"input_length\":13,\"output_length\":2}\n"
	if err := os.WriteFile(trace, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, in := io.Pipe()
	var stderr bytes.Buffer
	status := make(chan int, 1)
	go func() {
		code := run(ctx, []string{"simulate", "--listen", "127.0.0.1:0", "--fast", "--judge", trace, "--record", record, "--json"}, nil, in, &stderr)
		_ = in.Close()
		status <- code
	}()
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		ask(t, strings.TrimSpace(strings.TrimPrefix(first, "listening on ")), "")
	}
	cancel()
	var j referee.Judgement
	if err := json.NewDecoder(lines).Decode(&j); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, lines)
	if code := <-status; code != exitOK {
		t.Fatalf("exit status %d: %s", code, stderr.String())
	}
	if j.Asked != 2 || j.Requests != 3 || j.Extra != 1 || j.Lateness == nil || j.PairedBy != "order" {
		t.Errorf("%+v", j)
	}
	if content, err := os.ReadFile(record); err != nil || bytes.Count(content, []byte("\n")) != 3 {
		t.Errorf("the record has %d lines: %v", bytes.Count(content, []byte("\n")), err)
	}
}

// TestSimulateRuns: with --run, the engine runs as long as a command. A command that fails is an error.
func TestSimulateRuns(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]struct {
		status int
		text   string
	}{
		"echo {url}":         {exitOK, "http://127.0.0.1:"},
		"exit 3":             {exitGoals, "the command of --run failed: exit status 3"},
		"echo {url}; exit 0": {exitOK, "0 requests"},
	} {
		var stdout, stderr bytes.Buffer
		status := run(t.Context(), []string{"simulate", "--listen", "127.0.0.1:0", "--fast", "--run", command}, nil, &stdout, &stderr)
		if status != want.status || !strings.Contains(stderr.String(), want.text) {
			t.Errorf("%s: exit status %d\n%s", command, status, stderr.String())
		}
	}
}

func TestRefereeRefuses(t *testing.T) {
	dir := t.TempDir()
	record, trace := filepath.Join(dir, "truth.jsonl"), filepath.Join(dir, "trace.jsonl")
	files := map[string]string{
		record: `{"seq":1,"headers_ns":5,"body_read_ns":6,"time":"2026-01-01T00:00:00Z"}` + "\n",
		trace:  `{"input_length":13,"output_length":2}` + "\n",
	}
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for command, want := range map[string]string{
		"referee " + record:                                        "nothing says what the load generator was asked for",
		"referee --judge rate=1":                                   "takes one file",
		"referee " + record + " --judge " + trace:                  "row 0 has no timestamp",
		"referee " + record + " --judge rate=1 --speedup 2":        "--speedup divides the times of a trace",
		"referee " + trace + " --judge rate=1":                     "no headers_ns",
		"referee " + record + " --judge rate=1 --export " + trace:  "its form is not known",
		"referee " + record + " --judge rate=1 --skip 1":           "the engine saw no request",
		"simulate --listen 127.0.0.1:0 --html x.html":              "give --judge",
		"simulate --record-writes=false --judge rate=1 --export x": "--record-writes=false",
	} {
		var stdout, stderr bytes.Buffer
		if status := run(t.Context(), strings.Fields(command), nil, &stdout, &stderr); status != exitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: exit status %d, %q, want %q", command, status, stderr.String(), want)
		}
	}
}
