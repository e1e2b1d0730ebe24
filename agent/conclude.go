// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/observe"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/mooncake"
)

// conclude closes the books: the pipeline is flushed, the figures are taken, the run is judged and reported. It
// works on a cancelled ctx too, within its own time.
//
// The error is runErr, or says why the replay was none, or which results could not be written.
func (r *run) conclude(ctx context.Context, stats schedule.Stats, runErr error) (*report.Report, error) {
	r.over = true
	machine := r.watch.Stop()
	end := r.clk.Now()
	r.stream.Close() // which reads ahead; what the trace is asked for below is its reader's until then
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	loss, err := r.tel.Shutdown(flush)
	if err != nil && loss.FirstError == "" {
		loss.FirstError = err.Error()
	}

	figures := r.recorder.agg.Figures()
	rep := report.New(figures)
	rep.Run = r.describe(ctx, end)
	rep.Trace = r.describeTrace(stats)
	rep.Schedule = r.describeSchedule()
	rep.Machine = describeMachine(machine, stats)
	if step, known := r.client.ClockStep(); known {
		ms := millis(step)
		rep.Machine.ClockStep = &ms
	}
	rep.Telemetry = describeTelemetry(r.tel != nil, loss)
	r.warnAtEnd(figures, stats, loss, runErr)
	rep.Verdict = judge.Judge(r.facts(rep, machine, stats))
	if runErr == nil && rep.Trace.Rows == 0 && ctx.Err() == nil {
		runErr = r.traceError(errors.New("no row is left to replay: window, limit and shard leave all of them out"))
	}
	if f := r.recorder.file; f != nil {
		runErr = errors.Join(runErr, f.Close())
		if n := f.Disordered(); n > 0 {
			r.warn("%d lines of %s stand after a line of a later row", n, report.RequestsFile)
		}
	}
	if q := r.quarantine; q != nil {
		runErr = errors.Join(runErr, q.Commit())
	}
	rep.Warnings, rep.Missed = r.warnings, r.goalsMissed(figures)
	if r.cfg.Out != "" {
		runErr = errors.Join(runErr, rep.WriteFiles(r.cfg.Out), r.writeSidecar(rep))
	}
	rep.ExitStatus = judge.ExitCode(rep.Verdict.Class, judge.Ending{
		Interrupted: ctx.Err() != nil,
		InputError:  runErr != nil,
		GoalsMissed: len(rep.Missed) > 0,
		Strict:      r.cfg.StrictVerdict,
	})
	return rep, runErr
}

// sidecar is that of the records, without which the same rows would be read in another way.
func (r *run) sidecar() *mooncake.Meta {
	return &mooncake.Meta{
		Tool: "moonloop " + r.cfg.Tool, BlockSize: r.cfg.Trace.BlockSize, FineBlockSize: r.cfg.Trace.FineBlockSize,
		SessionMode: r.cfg.Trace.Sessions, TimeUnit: mooncake.UnitName(r.cfg.Trace.Unit),
		Transformations: []mooncake.Transformation{{
			Name: "replay", Parameters: map[string]any{"trace": mooncake.PublicName(r.cfg.Trace.Name), "run": r.cfg.RunID},
			Effect: "each row has what became of it in this replay under the key result, and no replies",
		}},
	}
}

// writeSidecar writes the sidecar of requests.jsonl.
func (r *run) writeSidecar(rep *report.Report) error {
	meta := r.sidecar()
	meta.Rows = rep.Figures().Rows.Total
	if n := r.quarantine.Count(); n > 0 {
		meta.Dropped = []mooncake.Dropped{{What: "rows", Reason: "rejected", Count: n}}
	}
	return meta.Save(filepath.Join(r.cfg.Out, report.RequestsFile))
}

func (r *run) describe(ctx context.Context, end time.Duration) report.Run {
	target := r.cfg.Target.URL
	if u, err := url.Parse(target); err == nil {
		target = u.Host
	}
	run := report.Run{
		ID: r.cfg.RunID, Tool: "moonloop", Version: r.cfg.Tool, Command: strings.Join(r.cfg.Command, " "),
		Target: target, Endpoint: string(r.opt.Endpoint), Model: r.mainModel(), Models: r.models(), Streaming: r.opt.Stream,
		GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.GOMAXPROCS(0),
		Start: r.clk.Wall(r.zero), End: r.clk.Wall(end), Interrupted: ctx.Err() != nil,
	}
	if r.opt.Form == prompt.Tokens {
		run.TokenIDs = &report.TokenIDs{First: r.opt.TokenIDs.First, Last: r.opt.TokenIDs.Last()}
		return run
	}
	words := r.found
	switch {
	case words.Found != "":
	case r.cfg.Prompt.Overhead > 0:
		words.Found = wordsUnchecked
	default:
		words.Found = wordsUsual
	}
	l := r.opt.Words
	words.Count, words.Letters, words.Anchor, words.Digest = l.Len(), l.Letters(), l.Anchor(), l.Digest()
	run.Words = &words
	return run
}

// models counts rows by model, where there are several.
func (r *run) models() map[string]int64 {
	if len(r.recorder.models) < 2 {
		return nil
	}
	return r.recorder.models
}

func (r *run) describeTrace(stats schedule.Stats) report.Trace {
	info, counts := r.stream.Info(), r.stream.Counts()
	t := report.Trace{
		Name: mooncake.PublicName(r.cfg.Trace.Name), Rows: stats.Fired + stats.Skipped, BlockSize: r.cfg.Trace.BlockSize,
		SessionMode: info.Sessions.String(), Unit: mooncake.UnitName(r.cfg.Trace.Unit), Filtered: make(map[string]int64),
	}
	if info.Grid.Coarse {
		t.Grid = info.Grid.Quantum
	}
	for why, n := range map[string]int64{
		"window": counts.OutsideWindow, "max_requests": counts.PastLimit, "shard": counts.OtherShards,
		"rejected": r.quarantine.Count(),
	} {
		if n > 0 {
			t.Filtered[why] = n
		}
	}
	if q := r.quarantine; q != nil {
		t.Quarantine = q.Name()
	}
	if counts.Cut {
		t.NotReached, t.AtLeast = r.notReached(counts.Read + r.quarantine.Count())
	}
	if meta := r.trace.Meta(); meta != nil && r.quarantine.Count() == 0 { // the digests are of all rows
		t.SeqDigest, t.TreeDigest, t.ArrivalDigest = meta.Digests.Seq, meta.Digests.Tree, meta.Digests.Arrival
	}
	return t
}

// counting bounds the time for which the rows of a trace that were not reached are counted.
const counting = time.Second

// notReached returns how many rows the trace has beside those that were read, as far as that can be told without reading
// them: by its sidecar, or its lines. atLeast says that there may be more.
func (r *run) notReached(read int64) (rows int64, atLeast bool) {
	if n, whole, err := mooncake.CountRows(r.cfg.Trace.Name, counting); err == nil {
		return max(0, n-read), !whole
	}
	if meta := r.trace.Meta(); meta != nil && meta.Rows >= read {
		return meta.Rows - read, false
	}
	return 0, true
}

func (r *run) describeSchedule() report.Schedule {
	s := r.cfg.Schedule
	d := report.Schedule{Mode: "timestamps", Speedup: s.Speedup, Concurrency: s.Concurrency, Warmup: s.Warmup, Seed: r.cfg.Prompt.Seed}
	if !r.stream.Info().Timed {
		d.Mode, d.Speedup, d.Concurrency = "closed_loop", 0, max(1, s.Concurrency)
	}
	if s.Spread != load.SpreadNone {
		d.Spread = s.Spread.String()
	}
	if n := r.cfg.Trace.Shards; n > 0 {
		d.Shard = fmt.Sprintf("%d/%d", r.cfg.Trace.Shard, n)
	}
	return d
}

func describeMachine(m observe.Machine, stats schedule.Stats) report.Machine {
	d := report.Machine{
		Elapsed: millis(m.Elapsed), Hiccups: m.Hiccups, HiccupTime: millis(m.HiccupTime), HiccupMax: millis(m.HiccupMax),
		GCPauses: m.GCPauses, GCPauseMax: millis(m.GCPauseMax), GCPauseTime: millis(m.GCPauseTime), MaxRSS: m.MaxRSS, ReaderStalls: stats.Stalls,
	}
	if m.CPUKnown {
		d.CPUShare = &m.CPUShare
	}
	if m.ThrottleKnown {
		t := millis(m.Throttled)
		d.Throttled = &t
	}
	return d
}

func describeTelemetry(on bool, loss telemetry.Loss) report.Telemetry {
	return report.Telemetry{
		Enabled: on, SpansEnded: loss.Ended, SpansAccepted: loss.Accepted, SpansLost: loss.Lost,
		SpansSampled: loss.SampledOut, EventsDropped: loss.EventsDropped,
		MetricExports: loss.MetricExports, MetricExportsFailed: loss.MetricFailures,
	}
}

// facts gathers what the verdict depends on.
func (r *run) facts(rep *report.Report, m observe.Machine, stats schedule.Stats) judge.Facts {
	f := rep.Figures()
	facts := judge.FromFigures(f)
	facts.Rows = stats.Fired + stats.Skipped
	facts.Records = f.Rows.Total
	rejected := r.quarantine.Count()
	facts.RejectedShare = judge.Know(float64(rejected) / float64(max(1, rejected+r.stream.Counts().Read)))
	facts.Elapsed = m.Elapsed.Seconds()
	facts.LookAheadStalls = judge.Know(float64(stats.Stalls))
	facts.HiccupShare = judge.KnowIf(m.HiccupShare(), m.Elapsed > 0)
	facts.CPUShare = judge.KnowIf(m.CPUShare, m.CPUKnown)
	facts.GCPauseMax = judge.Millis(m.GCPauseMax)
	if m.Elapsed > 0 {
		facts.GCPauseShare = judge.Know(float64(m.GCPauseTime) / float64(m.Elapsed))
		facts.ThrottledShare = judge.KnowIf(float64(m.Throttled)/float64(m.Elapsed), m.ThrottleKnown)
	}
	if step := rep.Machine.ClockStep; step != nil {
		facts.ClockStep = judge.Know(max(*step, -*step))
	}
	if t := rep.Telemetry; t.Enabled {
		if t.SpansEnded > 0 {
			facts.SpansLost = judge.Know(float64(t.Lost()) / float64(t.SpansEnded))
		}
		facts.MetricExportsFailed = judge.Know(float64(t.MetricExportsFailed))
	}
	return facts
}

// warnAtEnd says what only the end of a run shows.
func (r *run) warnAtEnd(f *measure.Figures, stats schedule.Stats, loss telemetry.Loss, runErr error) {
	if r.stream.Close() { // else somebody still waits for its next row
		for _, n := range r.trace.Notices() {
			r.warn("%s", n.Text)
		}
	}
	counts := r.stream.Counts()
	if whole := counts.PastLimit == 0 && !counts.Cut && runErr == nil; whole && r.cfg.Trace.MaxRows == 0 {
		if err := r.trace.Meta().CheckRows(counts.Read + r.quarantine.Count()); err != nil {
			r.warn("%v", err)
		}
	}
	if n := r.quarantine.Count(); n > 0 {
		r.warn("%d rows cannot be used, the run is without them, and the trace's digests are not its; they are in %s; the first is %v", n, r.quarantine.Name(), r.quarantine.First())
	}
	// A template's own tokens are cached with every prompt, and an engine may share a part of a fine block.
	if cached, _ := f.Stat(measure.TotalCached); f.Cache.Beyond > int64(r.opt.Overhead+r.cfg.Trace.FineBlockSize)*f.Cache.Predicted && float64(f.Cache.Beyond) > 0.05*cached.Avg {
		r.warn("the engine had more cached than the rows before can have left there: it knew these prompts from an earlier run; another --seed finds a cold cache")
	}
	if n := counts.Unpredicted; n > 0 {
		r.warn("cache hits of %d rows could not be predicted: their ids are too many and in no order", n)
	}
	if n := f.Tokens.Assumed; n > 0 {
		r.warn("%d rows ask for models whose chat template was not measured: they first come after the look-ahead (--lookahead), are more than %d, or the engine did not know them; another model's template was taken for theirs",
			n, maxMeasured)
	}
	if stats.SessionsEvicted > 0 {
		r.warn("%d idle sessions were closed to make room: a turn that came for one later began a new trace, or, where it needed the turns before, was skipped", stats.SessionsEvicted)
	}
	if f.Tokens.TooShort > 0 {
		r.warn("%d rows are shorter than the engine's template and were sent longer than they ask (--too-short=skip leaves them out)", f.Tokens.TooShort)
	}
	if !loss.Complete() || loss.MetricFailures > 0 {
		r.warn("the run's telemetry is incomplete: %s", incomplete(loss))
	}
	if n := loss.Resent; n > 0 {
		r.warn("the OTLP receiver did not answer in time: %d spans were sent again, and it may have them twice, with the same ids (compile takes each once)", n)
	}
}

// incomplete says what of a run's telemetry did not arrive, and why as far as it is known.
func incomplete(loss telemetry.Loss) string {
	var parts []string
	add := func(n int64, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	for _, why := range slices.Sorted(maps.Keys(loss.Lost)) {
		add(loss.Lost[why], "spans lost ("+why+")")
	}
	add(loss.Unended, "spans never ended")
	add(loss.SampledOut, "spans dropped by the sampler")
	add(loss.EventsDropped, "token events cut off by a limit")
	add(loss.AttributesDropped, "attributes cut off by a limit")
	add(loss.MetricFailures, "failed exports of metrics")
	text := strings.Join(parts, ", ")
	if loss.FirstError != "" {
		text += "; first error: " + loss.FirstError
	}
	return text
}

// goalsMissed says what the engine failed of what was asked of it.
func (r *run) goalsMissed(f *measure.Figures) (missed []string) {
	if tried := f.Rows.Served + f.Rows.Failed; float64(f.Rows.Failed) > r.maxErrorRate()*float64(tried) {
		missed = append(missed, fmt.Sprintf("errors: %d of %d requests failed: %s; at most %.4g %% may (--max-error-rate)",
			f.Rows.Failed, tried, classes(f.Errors), 100*r.maxErrorRate()))
	}
	if goal := r.cfg.GoodputGoal; goal > 0 {
		if good, ok := f.Stat(measure.GoodFraction); !ok || good.Avg < goal {
			missed = append(missed, fmt.Sprintf("goodput: %.4g %% of the requests met %s, the goal is %g %%", 100*good.Avg, r.cfg.SLO, 100*goal))
		}
	}
	return missed
}

// maxErrorRate is the share of requests that may fail.
func (r *run) maxErrorRate() float64 {
	if r.cfg.MaxErrorRate != nil {
		return *r.cfg.MaxErrorRate
	}
	return DefaultMaxErrorRate
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
