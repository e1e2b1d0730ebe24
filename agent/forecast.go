// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

// This file predicts what a replay would send, and when, from its trace and its configuration only.

import (
	"context"
	"errors"
	"io"
	"math"

	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// Forecast describes what a replay would send. It does not include what depends on the engine: the number of requests in flight, the times
// of turns that follow the turn before, and all times of a closed loop.
type Forecast struct {
	Trace    string          `json:"trace"` // without secrets
	Schedule report.Schedule `json:"schedule"`
	Sessions string          `json:"session_mode"`
	// Rows is the number of rows that would be sent. Following is the number of those whose time depends on the turn before.
	Rows      int64 `json:"rows"`
	Following int64 `json:"rows_following"`
	// PastEnd is the number of rows that would be skipped because they are after the maximum duration. The rows that the next three fields
	// count do not belong to the run.
	PastEnd       int64 `json:"rows_past_max_duration"`
	OutsideWindow int64 `json:"rows_outside_window"`
	OtherShards   int64 `json:"rows_of_other_shards"`
	Rejected      int64 `json:"rows_rejected"` // unusable rows, with Trace.Lenient
	// InputTokens and OutputTokens are the requested tokens. Unmeasured is the number of rows without an input length, Unasked the number
	// of rows whose reply's length the engine decides.
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	Unmeasured   int64 `json:"rows_without_input_length"`
	Unasked      int64 `json:"rows_without_output_length"`
	// CachedTokens are the prompt tokens that an infinite cache of whole blocks would serve.
	CachedTokens int64 `json:"predicted_cached_tokens"`
	// Last is the offset of the last row that has one, in seconds.
	Last float64 `json:"last_offset_s"`
	// Peak is the maximum number of rows within a second, [n, n+1) for a whole n; PeakAt is n.
	Peak   int64 `json:"peak_rows_per_s"`
	PeakAt int64 `json:"peak_at_s"`
	// Bins has the number of rows that are due in each interval of Width seconds, from 0 on.
	Width float64 `json:"bin_s"`
	Bins  []int64 `json:"rows_by_bin"`

	// Classes are the classes of the rows, by name; nil if no row has one. A priority is the one that the requests would have; it does not
	// include priorities in a row's own extras or payload.
	Classes []stats.ClassStats `json:"classes,omitempty"`

	second, inSecond int64 // the current second
	classes          stats.Classes
}

// maxBins is the maximum number of Forecast.Bins. They are one second wide, or 2, 4, 8 ... if the rows would need more of them.
const maxBins = 24

// Predict reads the trace as a replay with this configuration would, and returns what the replay would send. It calls the function each, if
// there is one, for every row that would be sent, in the order of the schedule. It sends and writes nothing, does not need Target.URL, and
// sets up no telemetry.
func Predict(ctx context.Context, cfg Config, each func(*schedule.Item)) (*Forecast, error) {
	cfg.DryRun = true
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.resolved()
	in, err := openTrace(ctx, cfg, nil)
	if err != nil {
		return nil, err
	}
	defer in.close()
	in.announce(cfg, &notices{onWarn: cfg.Warn, onNote: cfg.Note})
	defer context.AfterFunc(ctx, in.stream.Stop)()
	info := in.stream.Info()
	f := &Forecast{Trace: in.name, Schedule: describeSchedule(cfg, info), Sessions: info.Sessions.String(), Width: 1}
	for {
		it, err := in.stream.Next()
		if errors.Is(err, io.EOF) {
			counts := in.stream.Counts()
			f.OutsideWindow, f.OtherShards, f.Rejected = counts.OutsideWindow, counts.OtherShards, in.rejected
			f.endSecond()
			f.Classes = f.classes.Stats()
			return f, context.Cause(ctx)
		}
		if err != nil {
			return nil, in.named(err)
		}
		if limit := cfg.Schedule.MaxDuration; limit > 0 && info.Scheduled && it.Offset > limit {
			f.PastEnd++
			continue
		}
		f.add(it, cfg.Prompt, info)
		f.classes.Add(it.Row.Class, it.Row.InputLength.V, max(0, cfg.Prompt.outputOf(it.Row)), PriorityOf(cfg, it.Row))
		if each != nil {
			each(it)
		}
	}
}

// add counts a row that would be sent.
func (f *Forecast) add(it *schedule.Item, p Prompt, info load.Info) {
	f.Rows++
	if it.Row.InputLength.Set {
		f.InputTokens += it.Row.InputLength.V
	} else {
		f.Unmeasured++
	}
	if n := p.outputOf(it.Row); n > 0 {
		f.OutputTokens += n
	} else {
		f.Unasked++
	}
	f.CachedTokens += max(0, it.Predicted.Whole)
	if !info.Scheduled {
		return
	}
	if !it.Timed {
		f.Following++
		return
	}
	at := it.Offset.Seconds()
	f.Last = max(f.Last, at)
	if second := int64(math.Floor(at)); second != f.second {
		f.endSecond()
		f.second, f.inSecond = second, 0
	}
	f.inSecond++
	for at >= f.Width*maxBins {
		f.widen()
	}
	bin := int(at / f.Width)
	for len(f.Bins) <= bin {
		f.Bins = append(f.Bins, 0)
	}
	f.Bins[bin]++
}

// PriorityOf returns the priority that a replay would send with a row; absent if there is none, or if it is not known in advance.
func PriorityOf(cfg Config, row *mooncake.Row) mooncake.Opt[int64] {
	if row.Kind() == mooncake.KindPayload {
		return mooncake.Opt[int64]{}
	}
	return prompt.Options{Endpoint: cfg.Prompt.Endpoint, Profile: cfg.Target.Profile, Priorities: cfg.Prompt.Priorities}.PriorityOf(row)
}

// widen doubles the width of the bins.
func (f *Forecast) widen() {
	wider := make([]int64, (len(f.Bins)+1)/2)
	for i, n := range f.Bins {
		wider[i/2] += n
	}
	f.Bins, f.Width = wider, 2*f.Width
}

func (f *Forecast) endSecond() {
	if f.inSecond > f.Peak {
		f.Peak, f.PeakAt = f.inSecond, f.second
	}
}

// outputOf returns the number of output tokens that a row's request asks for; 0 if the engine decides.
func (p Prompt) outputOf(r *mooncake.Row) int64 {
	n := p.Output
	if r.OutputLength.Set {
		n = r.OutputLength.V
	}
	if p.OutputCap > 0 {
		n = min(n, p.OutputCap)
	}
	return n
}
