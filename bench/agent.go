// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// runID names every run of the agent; with the row it is the X-Request-Id.
const runID = "run"

// moonloop is our own agent, in one of its settings.
type moonloop struct {
	label string
	args  []string
	sink  bool // with spans and metrics to a sink
}

func (m *moonloop) name() string { return m.label }

// stream makes a trace of the load and replays it.
func (m *moonloop) stream(ctx context.Context, b *bench, dir, url string, w work) (*process, error) {
	trace := filepath.Join(dir, "trace.jsonl")
	at := make([]float64, w.streams)
	for i := range at {
		at[i] = float64(i) * millis(w.within) / float64(w.streams)
	}
	if err := writeTrace(trace, at, w.tokens); err != nil {
		return nil, err
	}
	return m.replay(ctx, b, dir, url, trace, 2*time.Minute)
}

// with calls body with the arguments of a replay, and with a sink that runs where the setting has one.
func (m *moonloop) with(ctx context.Context, b *bench, dir, url, trace string, more []string, body func(args []string) error) error {
	args := append([]string{
		"replay", trace, "--url", url, "--model", "m", "--endpoint", "completions", "--out", filepath.Join(dir, "out"),
		"--force", "--run-id", runID, "--progress", "none",
	}, m.args...)
	args = append(args, more...)
	if m.sink {
		s, err := b.startSink(ctx, dir)
		if err != nil {
			return err
		}
		defer s.stop() //nolint:errcheck // it only throws away
		args = append(args, "--otlp-endpoint", s.url)
	}
	return body(args)
}

// replay replays a trace to its end. Exit status 3, an invalid measurement, is a result and no failure.
func (m *moonloop) replay(ctx context.Context, b *bench, dir, url, trace string, limit time.Duration, more ...string) (p *process, err error) {
	err = m.with(ctx, b, dir, url, trace, more, func(args []string) error {
		p, err = run(ctx, limit, how{dir: dir, name: "agent", core: b.clientCore}, b.moonloop, args...)
		if err != nil && p != nil && p.status() == 3 {
			return nil
		}
		return err
	})
	return p, err
}

// replayFor replays a trace for a time, and ends the agent then if it has not ended.
func (m *moonloop) replayFor(ctx context.Context, b *bench, dir, url, trace string, long time.Duration, more ...string) (p *process, err error) {
	err = m.with(ctx, b, dir, url, trace, more, func(args []string) error {
		if p, err = start(ctx, how{dir: dir, name: "agent", core: b.clientCore}, b.moonloop, args...); err != nil {
			return err
		}
		select {
		case <-p.done:
			if s := p.status(); s != 0 && s != 3 {
				return fmt.Errorf("agent: %w: …%s", p.err, p.tail())
			}
		case <-time.After(long):
			_ = p.signal(syscall.SIGKILL)
			<-p.done
		}
		return nil
	})
	return p, err
}

// writeTrace writes rows of one block each, of their own, that arrive at the given ms.
func writeTrace(name string, at []float64, tokens int) error {
	var b strings.Builder
	for i, ms := range at {
		fmt.Fprintf(&b, `{"timestamp": %s, "input_length": 512, "output_length": %d, "hash_ids": [%d]}`+"\n",
			strconv.FormatFloat(ms, 'f', -1, 64), tokens, i)
	}
	return os.WriteFile(name, []byte(b.String()), 0o644)
}

// line is what the bench reads of a line of requests.jsonl.
type line struct {
	Result struct {
		Outcome     string
		Row         int
		Intended    float64
		Lateness    float64   `json:"lateness_ms"`
		Wire, First float64   // ms of the run
		ITL         float64   `json:"itl_ms"`
		Gaps        []float64 `json:"gaps_ms"`
	} `json:"result"`
}

// summary is what the bench reads of summary.json.
type summary struct {
	Verdict struct {
		Class   string
		Reasons []struct {
			Metric string
			Class  string
			Value  float64
			Unit   string
		}
	}
	Rows struct{ Total, Served, Failed int }
	Fid  struct {
		Chunks struct {
			Gaps, Coalesced float64
			Kernel          int `json:"kernel_stamped_requests"`
		}
		Machine struct {
			Elapsed     float64 `json:"elapsed_ms"`
			Hiccups     int
			HiccupTime  float64 `json:"hiccup_time_ms"`
			HiccupMax   float64 `json:"hiccup_max_ms"`
			CPU         float64 `json:"cpu_share"`
			GCPauseMax  float64 `json:"gc_pause_max_ms"`
			GCPauseTime float64 `json:"gc_pause_time_ms"`
		}
	} `json:"fidelity"`
	Telemetry struct {
		Ended    int `json:"spans_ended"`
		Accepted int `json:"spans_accepted"`
		Dropped  int `json:"span_events_dropped"`
	}
}

// why names what made a verdict worse than valid.
func (s *summary) why() string {
	var reasons []string
	for _, r := range s.Verdict.Reasons {
		if r.Class != "valid" {
			reasons = append(reasons, fmt.Sprintf("%s %s %s", r.Metric, figure(r.Value), r.Unit))
		}
	}
	return strings.Join(reasons, ", ")
}

func readSummary(dir string) (*summary, error) {
	text, err := os.ReadFile(filepath.Join(dir, "out", "summary.json"))
	if err != nil {
		return nil, err
	}
	s := &summary{}
	return s, json.Unmarshal(text, s)
}

// readLines reads requests.jsonl, in the order of rows.
func readLines(dir string) (lines []line, err error) {
	file, err := os.Open(filepath.Join(dir, "out", "requests.jsonl"))
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it is only read
	for d := json.NewDecoder(bufio.NewReaderSize(file, 1<<20)); d.More(); {
		var l line
		if err := d.Decode(&l); err != nil {
			return nil, err
		}
		lines = append(lines, l)
	}
	slices.SortFunc(lines, func(a, b line) int { return a.Result.Row - b.Result.Row })
	return lines, nil
}

// read takes TTFT from the wire: what the agent itself did before is not the engine's.
func (m *moonloop) read(dir string, t *truth) (*report, error) {
	s, err := readSummary(dir)
	if err != nil {
		return nil, err
	}
	lines, err := readLines(dir)
	if err != nil {
		return nil, err
	}
	r := &report{verdict: s.Verdict.Class, coalesced: s.Fid.Chunks.Coalesced / s.Fid.Chunks.Gaps}
	by := t.byID()
	for _, l := range lines {
		if l.Result.Outcome != "served" {
			continue
		}
		r.add(one{l.Result.First - l.Result.Wire, l.Result.ITL, l.Result.Gaps}, by[runID+"-"+strconv.Itoa(l.Result.Row)])
	}
	return r, nil
}
