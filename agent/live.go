// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/internal/term"
)

// Live is a view of a running replay. It is safe for concurrent use.
type Live struct {
	clk    clock.Clock
	zero   time.Duration
	chunks func() int64 // output chunks so far
	// watched says whether somebody watches: following a run second by second costs some time for every token.
	watched bool

	mu   sync.Mutex
	view View

	// The scheduler waits for mu, so mu must not be held while the gaps of a long reply are counted.
	pulsing sync.Mutex // locked before mu if both are needed
	pulse   pulse
}

// View is a snapshot of a run.
type View struct {
	Trace, Engine, Model, RunID string

	Elapsed  time.Duration // since the schedule's zero; negative before it
	Due      int64         // rows that have been due
	Sent     int64
	InFlight int64
	Served   int64
	Failed   int64
	Skipped  int64
	// Cancelled is the number of requests that were in flight when the run was stopped.
	Cancelled int64
	// Disconnected is the number of requests whose connections were closed on purpose.
	Disconnected int64
	Rows         int64 // rows that the run will have at its end; 0 if unknown
	Chunks       int64 // output chunks that arrived
	// Offset is the replay time of the row sent last, End that of the trace's last row; 0 if unknown.
	Offset, End time.Duration
	Stopped     bool // no further rows will be sent

	// Cached and Predicted are prompt tokens of the requests for which both are known; Prompt is the sum of their prompt tokens. Cached is
	// what the engine had cached, Predicted what an infinite cache would have had.
	Cached, Predicted, Prompt int64
	// Errors are the failure reasons of failed requests, most frequent first.
	Errors []measure.Reason

	// Lateness, TTFT (from the wire) and Gap (between chunks) cover the requests that ended in the last ten seconds.
	Lateness, TTFT, Gap Quantiles
	// Seconds are the last whole seconds, oldest first.
	Seconds []Second
}

// ended returns the number of requests that have ended, however they did.
func (v View) ended() int64 { return v.Served + v.Failed + v.Cancelled + v.Disconnected }

// done returns the number of rows that are over: their requests have ended, or they were skipped.
func (v View) done() int64 { return v.ended() + v.Skipped }

// Part returns the part of the run that is over, from 0 to 1: of the trace's time, or, if its end is unknown, of the rows.
func (v View) Part() float64 {
	switch {
	case v.Rows > 0 && v.done() >= v.Rows: // the last rows may have been skipped
		return 1
	case v.End > 0:
		return min(1, v.Offset.Seconds()/v.End.Seconds())
	case v.Rows > 0:
		return min(1, float64(v.done())/float64(v.Rows))
	}
	return 0
}

// Left returns the time until the last row is due, if it can be estimated; else false.
func (v View) Left() (time.Duration, bool) {
	switch done := v.done(); {
	case v.Elapsed < 0 || v.Stopped:
		return 0, false
	case v.End > 0:
		return max(v.End-v.Elapsed, 0), v.End > v.Elapsed
	case v.Rows > 0 && done > 0:
		return time.Duration(float64(v.Elapsed) * float64(max(v.Rows-done, 0)) / float64(done)), true
	}
	return 0, false
}

// String returns a line: the position in the run, its expected end, and its state.
func (v View) String() string {
	at := v.Elapsed.Round(time.Second).String()
	switch {
	case v.Elapsed < 0:
		at = "starting"
	case v.Stopped:
		at += ", ending"
	default:
		if left, known := v.Left(); known {
			at += fmt.Sprintf(", %s left", left.Round(time.Second))
		}
	}
	skipped := ""
	if v.Skipped > 0 {
		skipped = fmt.Sprintf(" · skipped %d", v.Skipped)
	}
	if v.Cancelled > 0 {
		skipped += fmt.Sprintf(" · cancelled %d", v.Cancelled)
	}
	if v.Disconnected > 0 {
		skipped += fmt.Sprintf(" · disconnected %d", v.Disconnected)
	}
	return fmt.Sprintf("%s  failed %d · late %s · TTFT %s · in flight %d · served %d of %d sent%s",
		at, v.Failed, term.Duration(v.Lateness.P50), term.Duration(v.TTFT.P50), v.InFlight, v.Served, v.Sent, skipped)
}

// Look returns the current view.
func (l *Live) Look() View {
	l.pulsing.Lock()
	defer l.pulsing.Unlock()
	l.advance()
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.view
	v.Elapsed = l.clk.Now() - l.zero
	v.Chunks = l.arrived()
	v.Lateness, v.TTFT, v.Gap = l.pulse.late.quantiles(), l.pulse.ttft.quantiles(), l.pulse.gap.quantiles()
	v.Seconds = slices.Clone(l.pulse.seconds)
	v.Errors = slices.Clone(v.Errors)
	return v
}

// Line returns the text of a progress line, and the part of the run that is over.
func (l *Live) Line() (text string, part float64) {
	v := l.Look()
	return v.String(), v.Part()
}

// due records that a row is due.
func (l *Live) due() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view.Due++
}

// progress returns the progress for metrics.
func (l *Live) progress() telemetry.Progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.view
	v.Elapsed = l.clk.Now() - l.zero
	left, known := v.Left()
	p := telemetry.Progress{Due: v.Due, Sent: v.Sent, Chunks: l.arrived(), Part: -1, Left: -1, RowsLeft: -1}
	if v.End > 0 || v.Rows > 0 {
		p.Part = v.Part()
	}
	switch {
	case v.Stopped, v.End > 0 && v.Elapsed >= v.End: // no row will be due; without a figure, Prometheus would go on showing the last one
		p.Left = 0
	case known:
		p.Left = left
	}
	if v.Rows > 0 {
		p.RowsLeft = max(v.Rows-v.done(), 0)
	}
	return p
}

// sent records that a row's request is sent.
func (l *Live) sent(offset time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view.Sent++
	l.view.InFlight++
	l.view.Offset = max(l.view.Offset, offset)
}

// landed records that a request is no longer in flight.
func (l *Live) landed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view.InFlight--
}

func (l *Live) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view.Stopped = true
}

func (l *Live) ended(r *measure.Record) {
	if l.watched {
		l.follow(r)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view.count(r)
}

// count counts a row that has ended.
func (v *View) count(r *measure.Record) {
	switch r.Outcome {
	case measure.Skipped:
		v.Skipped++
		return
	case measure.Served:
		v.Served++
	case measure.Disconnected:
		v.Disconnected++
	case measure.Cancelled:
		v.Cancelled++
	case measure.Failed:
		v.Failed++
		v.failed(r.Reason)
	}
	if predicted, cached, known := r.CachePair(); known {
		v.Predicted, v.Cached, v.Prompt = v.Predicted+predicted, v.Cached+cached, v.Prompt+r.Exchange.Usage.Prompt
	}
}

// follow adds a request's durations to those of the last seconds.
func (l *Live) follow(r *measure.Record) {
	if r.Outcome == measure.Skipped {
		return
	}
	l.pulsing.Lock()
	defer l.pulsing.Unlock()
	l.advance()
	if r.Scheduled {
		l.pulse.late.add(r.Lateness())
	}
	if ttft, ok := r.TTFT(r.Wire()); ok {
		l.pulse.ttft.add(ttft)
	}
	at := r.Exchange.At
	for i := 1; i < len(at); i++ {
		l.pulse.gap.add(time.Duration(at[i] - at[i-1]))
	}
}

// maxErrors is the maximum number of failure reasons in a view.
const maxErrors = 16

// failed counts a failed request by its reason.
func (v *View) failed(reason string) {
	errs := v.Errors
	i := slices.IndexFunc(errs, func(e measure.Reason) bool { return e.Reason == reason })
	switch {
	case i >= 0:
		errs[i].Count++
	case len(errs) < maxErrors:
		errs = append(errs, measure.Reason{Reason: reason, Count: 1})
	default:
		errs[len(errs)-1] = measure.Reason{Reason: "others", Count: errs[len(errs)-1].Count + 1}
	}
	slices.SortStableFunc(errs, func(a, b measure.Reason) int { return cmp.Compare(b.Count, a.Count) })
	v.Errors = errs
}

// advance closes the past seconds. The caller must hold pulsing, and must not hold mu.
func (l *Live) advance() {
	l.mu.Lock()
	v := l.view
	l.mu.Unlock()
	v.Chunks = l.arrived()
	l.pulse.advance(l.clk.Now()-l.zero, &v)
}

func (l *Live) arrived() int64 {
	if l.chunks == nil {
		return 0
	}
	return l.chunks()
}
