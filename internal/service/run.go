// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/report"
)

// State is the state of a run; see the package's documentation.
type State string

// The states.
const (
	Starting    State = "starting"
	Running     State = "running"
	Stopping    State = "stopping"
	Finished    State = "finished"
	Stopped     State = "stopped"
	Failed      State = "failed"
	Interrupted State = "interrupted"
)

// Run is a run as the API shows it and run.json stores it. Files is only in answers.
type Run struct {
	ID      string    `json:"id"`
	State   State     `json:"state"`
	Error   string    `json:"error,omitempty"` // why there is no result, or why the run was stopped
	Created time.Time `json:"created"`
	Started time.Time `json:"started,omitzero"` // when requests began to be sent
	Ended   time.Time `json:"ended,omitzero"`

	Trace   string         `json:"trace"`
	URL     string         `json:"url"`
	Options map[string]any `json:"options,omitempty"`

	Progress *Progress `json:"progress,omitempty"`
	// Verdict is the verdict in summary.json; ExitStatus is the exit status that `moonloop replay` would have had.
	Verdict    json.RawMessage `json:"verdict,omitempty"`
	ExitStatus *int            `json:"exit_status,omitempty"`
	Missed     []string        `json:"goals_missed,omitempty"`
	Warnings   []string        `json:"warnings,omitempty"`
	Notes      []string        `json:"notes,omitempty"`

	Files []File `json:"files,omitempty"`
}

// ended reports whether the state is final.
func (r *Run) ended() bool {
	return r.State != Starting && r.State != Running && r.State != Stopping
}

// Progress describes a run at one moment: counts since its start, and latencies of the requests that ended in the last ten seconds.
type Progress struct {
	Elapsed      float64  `json:"elapsed_seconds"` // below 0 before the first request is due
	Left         *float64 `json:"left_seconds,omitempty"`
	Part         float64  `json:"part"` // share of the run that is over, 0 to 1
	Rows         int64    `json:"rows,omitempty"`
	Due          int64    `json:"due"`
	Sent         int64    `json:"sent"`
	InFlight     int64    `json:"in_flight"`
	Served       int64    `json:"served"`
	Failed       int64    `json:"failed"`
	Cancelled    int64    `json:"cancelled"`
	Disconnected int64    `json:"disconnected"`
	Skipped      int64    `json:"skipped"`
	Chunks       int64    `json:"chunks"`

	Lateness quantiles `json:"lateness_ms"`
	TTFT     quantiles `json:"time_to_first_token_ms"`
	Gap      quantiles `json:"chunk_gap_ms"`

	Prompt    int64            `json:"prompt_tokens"`
	Cached    int64            `json:"cached_tokens"`
	Predicted int64            `json:"predicted_cached_tokens"`
	Errors    []measure.Reason `json:"errors,omitempty"`
}

type quantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

func newProgress(v agent.View) *Progress {
	millis := func(q agent.Quantiles) quantiles {
		return quantiles{float64(q.P50.Microseconds()) / 1e3, float64(q.P99.Microseconds()) / 1e3}
	}
	p := &Progress{
		Elapsed: float64(v.Elapsed.Milliseconds()) / 1e3, Part: v.Part(), Rows: v.Rows, Due: v.Due, Sent: v.Sent, InFlight: v.InFlight,
		Served: v.Served, Failed: v.Failed, Cancelled: v.Cancelled, Disconnected: v.Disconnected, Skipped: v.Skipped, Chunks: v.Chunks,
		Lateness: millis(v.Lateness), TTFT: millis(v.TTFT), Gap: millis(v.Gap),
		Prompt: v.Prompt, Cached: v.Cached, Predicted: v.Predicted,
		Errors: v.Errors,
	}
	if left, known := v.Left(); known {
		p.Left = new(float64(left.Milliseconds()) / 1e3)
	}
	return p
}

// maxTexts bounds the warnings and the notes of a run.
const maxTexts = 100

// run is a run of this service, in progress or ended. mu guards the fields after it.
type run struct {
	cancel context.CancelFunc // ends the run; nil if it had ended before this service started
	done   chan struct{}      // closed when the run's state is final

	mu      sync.Mutex
	it      Run
	live    *agent.Live    // nil unless the run is in progress
	metrics *lastingReader // likewise
}

// past returns a run that ended before this service started.
func past(it Run) *run {
	r := &run{it: it, done: make(chan struct{})}
	close(r.done)
	return r
}

// look returns the present state of the run.
func (r *run) look() Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	it := r.it
	it.Warnings, it.Notes = slices.Clone(it.Warnings), slices.Clone(it.Notes)
	if r.live != nil && !it.ended() {
		it.Progress = newProgress(r.live.Look())
	}
	return it
}

// stop ends a run early, with a reason. It reports whether the run was in progress.
func (r *run) stop(why string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.it.ended() {
		return false
	}
	if r.it.State != Stopping {
		r.it.State, r.it.Error = Stopping, why
		r.cancel()
	}
	return true
}

// add appends a text, unless the list has maxTexts texts already.
func (r *run) add(list *[]string, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(*list) < maxTexts {
		*list = append(*list, text)
	}
}

// started records that requests are being sent.
func (r *run) started(live *agent.Live) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live, r.it.Started = live, time.Now()
	if r.it.State == Starting {
		r.it.State = Running
	}
}

// scraped returns the metrics of a run in progress; nil if the run has ended, or has no metrics yet.
func (r *run) scraped() *lastingReader {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live == nil {
		return nil
	}
	return r.metrics
}

// conclude records how a run ended, and returns the run.
func (r *run) conclude(rep *report.Report, err error, public func(string) string) Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	it := &r.it
	if r.live != nil {
		it.Progress = newProgress(r.live.Look())
		it.Progress.Left = nil
	}
	r.live, r.metrics = nil, nil
	it.Ended = time.Now()
	if rep != nil {
		it.Missed, it.Warnings = rep.Missed, make([]string, len(rep.Warnings))
		for i, text := range rep.Warnings {
			it.Warnings[i] = public(text)
		}
		it.ExitStatus = &rep.ExitStatus
		verdict, encodeErr := json.Marshal(rep.Verdict)
		it.Verdict, err = verdict, errors.Join(err, encodeErr)
	}
	switch {
	case it.State == Stopping:
		it.State = Stopped
	case err == nil:
		it.State = Finished
	default:
		it.State = Failed
	}
	if err != nil && (it.State == Failed || rep != nil) {
		it.Error = public(err.Error())
	}
	return *it
}

// sentence describes in one line how a run ended.
func (r *Run) sentence() string {
	text := fmt.Sprintf("run %s %s", r.ID, r.State)
	if r.ExitStatus != nil {
		text += fmt.Sprintf(", exit status %d", *r.ExitStatus)
	}
	if r.Error != "" {
		text += ": " + r.Error
	}
	return text
}
