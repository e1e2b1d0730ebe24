// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moonloop/moonloop/study/referee"
)

// runID is the id of all runs of the agent; followed by the row's number it is the X-Request-Id.
const runID = "run"

// moonloop is our own agent with one combination of settings.
type moonloop struct {
	label string
	args  []string
	sink  bool // exports spans and metrics to a sink
}

func (m *moonloop) name() string { return m.label }

// stream makes a trace of the load and replays it.
func (m *moonloop) stream(ctx context.Context, b *bench, dir, url string, w work) (*process, error) {
	return m.replayRows(ctx, b, dir, url, referee.Even(w.streams, float64(w.streams)/w.within.Seconds()), w.tokens, 2*time.Minute)
}

// replayRows makes and replays a trace of rows of one unshared block each, with these arrival times in ms.
func (m *moonloop) replayRows(ctx context.Context, b *bench, dir, url string, at []float64, tokens int, limit time.Duration) (*process, error) {
	var rows strings.Builder
	for i, ms := range at {
		fmt.Fprintf(&rows, `{"timestamp": %s, "input_length": 512, "output_length": %d, "hash_ids": [%d]}`+"\n",
			strconv.FormatFloat(ms, 'f', -1, 64), tokens, i)
	}
	trace := filepath.Join(dir, "trace.jsonl")
	if err := os.WriteFile(trace, []byte(rows.String()), 0o644); err != nil {
		return nil, err
	}
	return m.replay(ctx, b, dir, url, trace, limit)
}

// replay replays a trace to its end, or stops the agent at the limit. Exit status 3, an invalid measurement, is a result, not a failure.
func (m *moonloop) replay(ctx context.Context, b *bench, dir, url, trace string, limit time.Duration, more ...string) (*process, error) {
	args := slices.Concat([]string{
		"replay", trace, "--url", url, "--model", "m", "--endpoint", "completions", "--out", filepath.Join(dir, "out"),
		"--force", "--run-id", runID, "--progress", "none",
	}, m.args, more)
	if m.sink {
		s, err := b.serve(ctx, dir, "sink", b.self, "-sink")
		if err != nil {
			return nil, err
		}
		defer s.stop() //nolint:errcheck // it only throws away
		args = append(args, "--otlp-endpoint", s.url)
	}
	p, err := run(ctx, limit, how{dir: dir, name: "agent", core: b.clientCore}, b.moonloop, args...)
	if err != nil && p != nil && p.status() == 3 {
		err = nil
	}
	return p, err
}

// line has the fields of a line of requests.jsonl that the bench uses.
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

// summary has the fields of summary.json that the bench uses.
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
	Rows struct{ Served, Failed int }
	Fid  struct {
		Chunks  struct{ Gaps, Coalesced float64 }
		Machine struct {
			Elapsed    float64 `json:"elapsed_ms"`
			HiccupTime float64 `json:"hiccup_time_ms"`
			HiccupMax  float64 `json:"hiccup_max_ms"`
			GCPauseMax float64 `json:"gc_pause_max_ms"`
		}
	} `json:"fidelity"`
}

// why returns the names of the metrics that made a verdict worse than valid, with their values if those are wanted.
func (s *summary) why(values bool) string {
	var reasons []string
	for _, r := range s.Verdict.Reasons {
		switch {
		case r.Class == "valid":
		case values:
			reasons = append(reasons, fmt.Sprintf("%s %s %s", r.Metric, figure(r.Value), r.Unit))
		default:
			reasons = append(reasons, r.Metric)
		}
	}
	return strings.Join(reasons, ", ")
}

// readOut reads the agent's results from its folder.
func readOut(dir string) (s *summary, lines []line, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "out", "summary.json"))
	if err != nil {
		return nil, nil, err
	}
	lines, err = readLines[line](filepath.Join(dir, "out", "requests.jsonl"))
	return s, lines, errors.Join(err, json.Unmarshal(text, &s))
}

// read reads the agent's results. It uses TTFT from the wire, because the agent's own work before that is not the engine's latency.
func (m *moonloop) read(dir string, t *truth) (*report, error) {
	s, lines, err := readOut(dir)
	if err != nil {
		return nil, err
	}
	r := &report{verdict: s.Verdict.Class, why: s.why(false), coalesced: s.Fid.Chunks.Coalesced / s.Fid.Chunks.Gaps, longestPause: s.Fid.Machine.GCPauseMax}
	by := t.byID()
	for _, l := range lines {
		if l.Result.Outcome == "served" {
			r.wireLags = append(r.wireLags, l.Result.Wire-l.Result.Intended-l.Result.Lateness)
			r.add(one{l.Result.First - l.Result.Wire, l.Result.ITL, l.Result.Gaps}, by[runID+"-"+strconv.Itoa(l.Result.Row)])
		}
	}
	return r, nil
}
