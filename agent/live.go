// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/measure"
)

// recent is the number of requests that the medians of a live view look back on.
const recent = 256

// Live is a view of a run under way. Safe for concurrent use.
type Live struct {
	clk  clock.Clock
	zero time.Duration

	mu   sync.Mutex
	view View
	late window
	ttft window
}

// View is one look at a run.
type View struct {
	Elapsed  time.Duration // since the schedule's zero; negative before it
	Sent     int64
	InFlight int64
	Served   int64
	Failed   int64 // failed or cancelled
	Skipped  int64
	// Offset is the replay time of the row sent last, End that of the trace's last row; 0 when unknown.
	Offset, End time.Duration
	// Lateness and TTFT (from the wire) are medians of the last requests.
	Lateness, TTFT time.Duration
	Stopped        bool // no further rows go out
}

// Part is the part of the trace's time that is over, from 0 to 1.
func (v View) Part() float64 {
	if v.End <= 0 {
		return 0
	}
	return min(1, v.Offset.Seconds()/v.End.Seconds())
}

// String says in a line where in the run it is, when it will end, and how it is doing.
func (v View) String() string {
	at := v.Elapsed.Round(time.Second).String()
	switch {
	case v.Elapsed < 0:
		at = "starting"
	case v.Stopped:
		at += ", ending"
	case v.End > v.Elapsed:
		at += fmt.Sprintf(", %s left", (v.End - v.Elapsed).Round(time.Second))
	}
	skipped := ""
	if v.Skipped > 0 {
		skipped = fmt.Sprintf(" · skipped %d", v.Skipped)
	}
	return fmt.Sprintf("%s  sent %d · in flight %d · done %d · failed %d%s · late %s · TTFT %s",
		at, v.Sent, v.InFlight, v.Served, v.Failed, skipped, short(v.Lateness), short(v.TTFT))
}

// short writes a duration with three digits.
func short(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2f ms", d.Seconds()*1e3)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// Look returns the current view.
func (l *Live) Look() View {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.view
	v.Elapsed = l.clk.Now() - l.zero
	v.Lateness, v.TTFT = l.late.median(), l.ttft.median()
	return v
}

// Line is what a view of a run under way shows: the current view in a line, and the part of the trace's time that is over.
func (l *Live) Line() (text string, part float64) {
	v := l.Look()
	return v.String(), v.Part()
}

func (l *Live) sent(offset time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view.Sent++
	l.view.InFlight++
	l.view.Offset = max(l.view.Offset, offset)
}

// left says that a request is no longer under way.
func (l *Live) left() {
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
	l.mu.Lock()
	defer l.mu.Unlock()
	switch r.Outcome {
	case measure.Skipped:
		l.view.Skipped++
		return
	case measure.Served:
		l.view.Served++
	default:
		l.view.Failed++
	}
	if r.Scheduled {
		l.late.add(r.Lateness())
	}
	if ttft, ok := r.TTFT(r.Wire()); ok {
		l.ttft.add(ttft)
	}
}

// window holds the last values of a figure.
type window struct {
	values [recent]time.Duration
	n      int
}

func (w *window) add(d time.Duration) {
	w.values[w.n%recent] = d
	w.n++
}

func (w *window) median() time.Duration {
	last := slices.Sorted(slices.Values(w.values[:min(w.n, recent)]))
	if len(last) == 0 {
		return 0
	}
	return last[(len(last)-1)/2]
}
