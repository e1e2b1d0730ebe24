// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/measure"
)

// head and tail are the sections of summary.json before and after the figures.
type head struct {
	SchemaVersion string        `json:"schema_version"`
	Run           Run           `json:"run"`
	Start         string        `json:"start_time"`
	End           string        `json:"end_time"`
	Cancelled     bool          `json:"was_cancelled"`
	Verdict       judge.Verdict `json:"verdict"`
}

type tail struct {
	SLO       string       `json:"slo,omitempty"`
	Rows      measure.Rows `json:"rows"`
	Errors    []errorEntry `json:"error_summary"`
	Skips     []errorEntry `json:"skip_summary"`
	Trace     Trace        `json:"trace"`
	Schedule  Schedule     `json:"schedule"`
	Fidelity  fidelity     `json:"fidelity"`
	Telemetry Telemetry    `json:"telemetry"`
	Warnings  []string     `json:"warnings"`
	Missed    []string     `json:"goals_missed"`
}

// errorEntry has the shape of AIPerf's error_summary.
type errorEntry struct {
	Details struct {
		Type    string `json:"type"`
		Message string `json:"message,omitempty"`
	} `json:"error_details"`
	Count int64 `json:"count"`
}

// fidelity is how well the replay did what the trace asked.
type fidelity struct {
	Schedule struct {
		measure.Schedule
		WindowWidth     float64 `json:"window_ms"`
		PeakWidth       float64 `json:"peak_concurrency_resolution_ms"`
		PeakTokensWidth float64 `json:"peak_output_token_throughput_window_ms"`
	} `json:"schedule"`
	Tokens      measure.Tokens      `json:"tokens"`
	Cache       cache               `json:"cache"`
	Replies     *measure.Replies    `json:"replies,omitempty"` // of rows that have some
	Chunks      measure.Chunks      `json:"chunks"`
	Connections measure.Connections `json:"connections"`
	Machine     Machine             `json:"machine"`
}

type cache struct {
	measure.Cache
	Realisation *float64 `json:"realisation"` // null when unknown
}

// single is a figure that is one number, as AIPerf writes it.
type single struct {
	Unit string  `json:"unit"`
	Avg  float64 `json:"avg"`
}

// JSON returns the content of summary.json, indented: the sections of the run, then each figure under its tag, then
// what is behind the figures.
func (r *Report) JSON() ([]byte, error) {
	var figures bytes.Buffer
	for id, s := range r.figures.All {
		var v any = s
		if id.Single() {
			v = single{s.Unit, s.Avg}
		}
		b, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("figure %s cannot be written: %w", id, err)
		}
		fmt.Fprintf(&figures, ",%q:%s", id.String(), b)
	}
	first, err := json.Marshal(head{
		SchemaVersion, r.Run, stamp(r.Run.Start), stamp(r.Run.End), r.Run.Interrupted, r.Verdict,
	})
	if err != nil {
		return nil, fmt.Errorf("summary cannot be written: %w", err)
	}
	last, err := json.Marshal(r.tail())
	if err != nil {
		return nil, fmt.Errorf("summary cannot be written: %w", err)
	}
	// One object of three: the figures sit beside the sections, as in AIPerf's file, in a stable order.
	joined := append(append(first[:len(first)-1], figures.Bytes()...), ',')
	joined = append(joined, last[1:]...)
	var out bytes.Buffer
	if err := json.Indent(&out, joined, "", "  "); err != nil {
		return nil, fmt.Errorf("summary cannot be written: %w", err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

func (r *Report) tail() tail {
	f := r.figures
	t := tail{
		SLO: f.SLO.String(), Rows: f.Rows, Errors: entries(f.Errors), Skips: entries(f.Skips),
		Trace: r.Trace, Schedule: r.Schedule, Telemetry: r.Telemetry, Warnings: r.Warnings, Missed: r.Missed,
		Fidelity: fidelity{
			Tokens: f.Tokens, Cache: cache{Cache: f.Cache}, Chunks: f.Chunks, Connections: f.Connections, Machine: r.Machine,
		},
	}
	if f.Replies.Needed > 0 {
		t.Fidelity.Replies = &f.Replies
	}
	if f.Cache.Realisation >= 0 {
		t.Fidelity.Cache.Realisation = &f.Cache.Realisation
	}
	s := &t.Fidelity.Schedule
	s.Schedule = f.Schedule
	s.WindowWidth, s.PeakWidth, s.PeakTokensWidth = millis(f.Schedule.WindowWidth), millis(f.Schedule.PeakWidth), millis(f.Schedule.PeakTokensWidth)
	if t.Missed == nil {
		t.Missed = []string{}
	}
	if t.Warnings == nil {
		t.Warnings = []string{}
	}
	return t
}

func entries(reasons []measure.Reason) []errorEntry {
	list := make([]errorEntry, len(reasons))
	for i, r := range reasons {
		list[i].Details.Type, list[i].Details.Message, list[i].Count = r.Reason, r.Example, r.Count
	}
	return list
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
