// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// maxSeconds is the maximum number of past seconds in a live view.
	maxSeconds = 60
	// quantileSeconds is the number of seconds that its quantiles cover.
	quantileSeconds = 10
)

// Second is what happened within a second of a run. Done are all requests that ended in it, Failed those of them that failed.
type Second struct {
	Due, Sent, Done, Failed, Chunks int64
	InFlight                        int64     // at its end
	TTFT, Gap, Lateness             Quantiles // of the requests that ended in this second
}

// Quantiles are the median and the 99th percentile; 0 if there is no value.
type Quantiles struct{ P50, P99 time.Duration }

// pulse follows a run second by second.
type pulse struct {
	next            time.Duration // end of the current second, since the schedule's start
	before          View          // at the beginning of the second
	seconds         []Second
	ttft, gap, late recent
}

// advance closes the seconds that have ended by now. v has the current counts.
func (p *pulse) advance(now time.Duration, v *View) {
	if p.next == 0 {
		p.next = time.Second
	}
	for over := 0; now >= p.next; over++ {
		if over >= maxSeconds { // the view was not read for a long time
			p.next = now.Truncate(time.Second) + time.Second
			return
		}
		p.seconds = append(p.seconds, Second{
			Due: v.Due - p.before.Due, Sent: v.Sent - p.before.Sent, Done: v.ended() - p.before.ended(),
			Failed: v.Failed - p.before.Failed, Chunks: v.Chunks - p.before.Chunks, InFlight: v.InFlight,
			TTFT: p.ttft.rotate(), Gap: p.gap.rotate(), Lateness: p.late.rotate(),
		})
		p.seconds = p.seconds[max(0, len(p.seconds)-maxSeconds):]
		p.before = *v
		p.next += time.Second
	}
}

// recent has the durations of the last seconds, with a relative error of 1 %. The zero value is empty.
type recent struct {
	h *hdrhistogram.WindowedHistogram
}

func (r *recent) add(d time.Duration) {
	if r.h == nil {
		r.h = hdrhistogram.NewWindowed(quantileSeconds, 1, time.Hour.Microseconds(), 2)
	}
	_ = r.h.Current.RecordValue(min(max(d.Microseconds(), 0), time.Hour.Microseconds())) // within bounds it cannot fail
}

// quantiles returns the quantiles of the last seconds.
func (r *recent) quantiles() Quantiles {
	if r.h == nil {
		return Quantiles{}
	}
	return quantilesOf(r.h.Merge())
}

// rotate begins a new second, and returns the quantiles of the last one.
func (r *recent) rotate() Quantiles {
	if r.h == nil {
		return Quantiles{}
	}
	q := quantilesOf(r.h.Current)
	r.h.Rotate()
	return q
}

func quantilesOf(h *hdrhistogram.Histogram) Quantiles {
	if h.TotalCount() == 0 {
		return Quantiles{}
	}
	micros := func(q float64) time.Duration { return time.Duration(h.ValueAtQuantile(q)) * time.Microsecond }
	return Quantiles{micros(50), micros(99)}
}
