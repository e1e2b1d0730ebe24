// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/observe"
	"github.com/moonloop/moonloop/agent/preflight"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/report/page"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/mooncake"
)

const (
	// flushTime is the maximum wait for telemetry at the end of a run.
	flushTime = 30 * time.Second
	// countTime is the maximum time for counting the rows of a trace that were not reached.
	countTime = time.Second
)

// ending is the end of a run: its results, and what the report needs.
type ending struct {
	plan     plan
	clk      clock.Clock
	zero     time.Duration // of the schedule, on the clock of the records
	in       *input
	engines  *engines
	tel      *telemetry.Pipeline
	watch    *observe.Observer
	recorder *recorder
	saved    *savedPrompts
	said     *notices
	stats    schedule.Stats
	warmed   *report.Warmup
	before   *past
	aborted  bool   // the run ended early because of its error limit
	ended    func() // Config.Ended
}

// conclude finishes a run: it flushes the pipeline, computes the figures, judges the run and writes the report. It also works with a
// cancelled ctx, within its own time limit.
//
// It returns runErr, or the reason why there was no replay, or which results could not be written.
func (e ending) conclude(ctx context.Context, runErr error) (*report.Report, error) {
	e.said.over = true
	machine := e.watch.Stop()
	end := e.clk.Now()
	if e.ended != nil {
		e.ended()
	}
	readerEnded := e.in.stream.Close() // the reader reads ahead; after this, the trace can be queried
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	spansErr := e.tel.CloseSpans(flush)

	removed := false // the file of the records, by someone else
	if f := e.recorder.file; f != nil {
		err := f.Close()
		runErr, removed = errors.Join(runErr, err), errors.Is(err, fs.ErrNotExist)
		if n := f.Disordered(); n > 0 {
			e.said.warn("%d lines of %s come after a line of a later row", n, report.RequestsFile)
		}
	}
	figures, counts := e.recorder.figures.Figures(), e.in.stream.Counts()
	rep := report.New(figures)
	rep.Run, rep.Settings, rep.Schedule = e.plan.run, e.plan.settings, e.plan.order
	rep.Run.Start, rep.Run.End, rep.Run.Interrupted = e.clk.Wall(e.zero-e.recorder.shift), e.clk.Wall(end), ctx.Err() != nil
	e.before.addParts(rep, e.said)
	if len(e.recorder.models) > 1 {
		rep.Run.Models = e.recorder.models
	}
	rep.Trace, rep.Shard = e.describeTrace(counts), e.describeShard(ctx, counts.Parts)
	rep.Machine = e.describeMachine(machine)
	rep.Steady, rep.Warmup = e.steady(), e.warmed
	rep.NoSteady = rep.Steady == nil && e.plan.steady.Any()
	// The last export of metrics has the verdict, as far as it is known before that export.
	rep.Telemetry = describeTelemetry(e.tel)
	e.tel.Conclude(verdictMetrics(judge.Judge(e.facts(rep, machine, counts))))
	loss, err := e.tel.Shutdown(flush)
	if err = cmp.Or(spansErr, err); err != nil && loss.FirstError == "" {
		loss.FirstError = err.Error()
	}
	rep.Telemetry = describeTelemetry(e.tel)
	if readerEnded { // else the reader still waits for its next row
		for _, n := range e.in.trace.Notices() {
			e.said.warn("%s", n.Text)
		}
	}
	e.warn(figures, counts, loss, runErr)
	rep.Verdict = judge.Judge(e.facts(rep, machine, counts))
	if runErr == nil && rep.Trace.Rows == 0 && ctx.Err() == nil {
		runErr = e.in.named(noRows(rep.Shard))
	}
	if q := e.in.quarantine; q != nil {
		runErr = errors.Join(runErr, q.Commit())
	}
	saved, err := e.saved.finish(e.savedMeta())
	runErr = errors.Join(runErr, err)
	if rep.Saved = saved; saved != nil && saved.Lost > 0 {
		e.said.warn("%d bodies are not in %s: the disk was too slow, or the bodies are longer than a line of a trace may be", saved.Lost, saved.File)
	}
	if err := e.recorder.journal.Complete(); err != nil {
		e.said.warn("the run cannot be resumed: %v", err)
	}
	rep.Warnings, rep.Missed = e.said.warnings, e.plan.limits.missed(figures, rep.Shown())
	if e.plan.out != "" {
		runErr = errors.Join(runErr, rep.WriteFiles(e.plan.out), e.writeSidecar(figures))
		if !removed {
			runErr = errors.Join(runErr, e.writePage(figures))
		}
	}
	unfinished := runErr != nil || counts.Cut && (e.aborted || ctx.Err() != nil) || slices.ContainsFunc(figures.Skips, func(r measure.Reason) bool { return notSent(r.Reason) })
	runErr = errors.Join(runErr, e.recorder.journal.Close(unfinished))
	rep.ExitStatus = judge.ExitCode(rep.Verdict.Class, judge.Ending{
		Interrupted: ctx.Err() != nil,
		InputError:  runErr != nil,
		GoalsMissed: len(rep.Missed) > 0,
		Strict:      e.plan.limits.strictVerdict,
	})
	return rep, runErr
}

// writeSidecar writes the sidecar of requests.jsonl. Without it, the rows would be read in another way.
func (e ending) writeSidecar(f *measure.Figures) error {
	meta := e.plan.sidecar
	meta.Rows = f.Rows.Total
	if n := e.in.quarantine.Count(); n > 0 {
		meta.Dropped = []mooncake.Dropped{{What: "rows", Reason: "rejected", Count: n}}
	}
	return meta.Save(filepath.Join(e.plan.out, report.RequestsFile))
}

// savedMeta returns the sidecar of the saved prompts, whose rows have whole bodies and the trace's timestamps.
func (e ending) savedMeta() mooncake.Meta {
	meta := e.plan.sidecar
	meta.SessionMode = mooncake.SessionFull
	meta.Transformations = []mooncake.Transformation{{
		Name: "save-prompts", Parameters: map[string]any{"trace": e.in.name, "run": e.plan.runID, "endpoint": string(e.plan.requests.Options().Endpoint)},
		Effect: "the payload of each row is the body that was sent for it; the field \"sent\" says what it was made from",
	}}
	return meta
}

func describeTelemetry(tel *telemetry.Pipeline) report.Telemetry {
	loss := tel.Loss()
	return report.Telemetry{
		Enabled: tel.Exports(), SpansEnded: loss.Ended, SpansAccepted: loss.Accepted, SpansLost: loss.Lost,
		SpansSampled: loss.SampledOut, EventsDropped: loss.EventsDropped,
		MetricExports: loss.MetricExports, MetricExportsFailed: loss.MetricFailures,
	}
}

// verdictMetrics returns a verdict for metrics: its class, and the reasons that are more than notes.
func verdictMetrics(v judge.Verdict) telemetry.Verdict {
	m := telemetry.Verdict{Class: v.Class.Word(), Classes: judge.Words()}
	for _, r := range v.Reasons {
		if r.Class != judge.Valid {
			m.Reasons = append(m.Reasons, telemetry.VerdictReason{Metric: r.Metric, Class: r.Class.Word(), Value: r.Value})
		}
	}
	return m
}

// writePage analyses the run over time and by session, and writes the CSV files and, if the plan says so, the page. Without records it does
// nothing.
func (e ending) writePage(f *measure.Figures) error {
	if f.Rows.Total == 0 {
		return nil
	}
	run, err := page.Load(e.plan.out, e.plan.slice)
	if err != nil {
		return err
	}
	err = run.SaveSheets()
	if e.plan.page {
		run.TraceURL = e.plan.traceURL
		err = errors.Join(err, run.Save(filepath.Join(e.plan.out, page.File)))
	}
	return err
}

func (e ending) describeTrace(counts load.Counts) report.Trace {
	rejected := e.in.quarantine.Count()
	t := e.plan.trace
	t.Rows = e.stats.Fired + e.stats.Skipped + e.stats.Passed
	t.Filtered = map[string]int64{
		"window": counts.OutsideWindow, "max_requests": counts.PastLimit, "shard": counts.OtherShards, "rejected": rejected,
	}
	maps.DeleteFunc(t.Filtered, func(_ string, n int64) bool { return n == 0 })
	if counts.Cut {
		t.NotReached, t.AtLeast = e.in.notReached(counts.Read+rejected+e.in.again.Load(), e.plan.passes)
		if limit := e.plan.maxRows; limit > 0 { // of a loop, mostly fewer than its passes have
			most := max(0, limit+counts.OutsideWindow-counts.Read)
			t.NotReached, t.AtLeast = min(t.NotReached, most), t.AtLeast && t.NotReached < most
		}
	}
	if meta := e.in.trace.Meta(); meta != nil && rejected == 0 { // the digests are of all rows
		t.SeqDigest, t.TreeDigest, t.ArrivalDigest = meta.Digests.Seq, meta.Digests.Tree, meta.Digests.Arrival
	}
	return t
}

// notReached returns the number of rows of the trace that were not read, if the sidecar or the number of lines shows it. atLeast says that
// there may be more.
func (in *input) notReached(read, passes int64) (rows int64, atLeast bool) {
	if n, whole, err := mooncake.CountRows(in.path, countTime); err == nil {
		return max(0, n*passes-read), !whole
	}
	if meta := in.trace.Meta(); meta != nil {
		if rows = timesPasses(meta.Rows, passes) - read; rows >= 0 {
			return rows, false
		}
	}
	return 0, true
}

func (e ending) describeMachine(m observe.Machine) report.Machine {
	d := report.Machine{
		Elapsed: clock.Millis(m.Elapsed), Hiccups: m.Hiccups, HiccupTime: clock.Millis(m.HiccupTime), HiccupMax: clock.Millis(m.HiccupMax),
		GCPauses: m.GCPauses, GCPauseMax: clock.Millis(m.GCPauseMax), GCPauseTime: clock.Millis(m.GCPauseTime), MaxRSS: m.MaxRSS,
		ReaderStalls: e.stats.Stalls,
	}
	if m.CPUKnown {
		d.CPUShare = &m.CPUShare
	}
	if m.ThrottleKnown {
		d.Throttled = new(clock.Millis(m.Throttled))
	}
	if step, known := e.engines.clockStep(); known {
		d.ClockStep = new(clock.Millis(step))
	}
	return d
}

// facts collects the facts on which the verdict depends.
func (e ending) facts(rep *report.Report, m observe.Machine, counts load.Counts) judge.Facts {
	facts := judge.FromFigures(rep.Figures())
	facts.Rows = rep.Trace.Rows
	rejected := e.in.quarantine.Count()
	facts.RejectedShare = judge.Know(float64(rejected) / float64(max(1, rejected+counts.FirstPass))) // rejected rows are counted once, however many passes a loop has
	facts.Elapsed = m.Elapsed.Seconds()
	facts.Breaks = e.before.breaks()
	facts.LookAheadStalls = judge.Know(float64(e.stats.Stalls))
	share := func(d time.Duration, known bool) judge.Fact {
		return judge.KnowIf(float64(d)/float64(m.Elapsed), known && m.Elapsed > 0)
	}
	facts.HiccupShare, facts.GCPauseShare, facts.ThrottledShare = share(m.HiccupTime, true), share(m.GCPauseTime, true), share(m.Throttled, m.ThrottleKnown)
	facts.CPUShare = judge.KnowIf(m.CPUShare, m.CPUKnown)
	facts.GCPauseMax = judge.Know(rep.Machine.GCPauseMax)
	if step := rep.Machine.ClockStep; step != nil {
		facts.ClockStep = judge.Know(max(*step, -*step))
	}
	if t := rep.Telemetry; t.Enabled {
		facts.SpansLost = judge.KnowIf(float64(t.Lost())/float64(t.SpansEnded), t.SpansEnded > 0)
		facts.MetricExportsFailed = judge.Know(float64(t.MetricExportsFailed))
	}
	e.steadyFacts(rep.Steady, &facts)
	return facts
}

// warn adds the warnings that are known only at the end of a run.
func (e ending) warn(f *measure.Figures, counts load.Counts, loss telemetry.Loss, runErr error) {
	said, rejected := e.said, e.in.quarantine.Count()
	if counts.PastLimit == 0 && !counts.Cut && runErr == nil && e.plan.limits.allRows {
		if err := e.in.trace.Meta().CheckRows(counts.FirstPass + rejected); err != nil {
			said.warn("%v", err)
		}
	}
	if rejected > 0 {
		said.warn("%d rows cannot be used and were rejected, so the run's digests differ from the trace's; these rows are in %s; the first is %v", rejected, e.in.quarantine.Name(), e.in.quarantine.First())
	}
	if name := e.plan.instance; name != "" && f.Rows.Served > 0 && len(f.Servers) == 0 {
		said.warn("no reply has the header %s, so no instance is known; --instance-header names the one that the router sends", name)
	}
	// The template's own tokens are cached with every prompt, and an engine may share part of a fine block.
	slack := int64(e.plan.requests.Options().Overhead) + e.plan.blocks.fine
	if cached, _ := f.Stat(measure.TotalCached); f.Cache.Beyond > slack*f.Cache.Predicted && float64(f.Cache.Beyond) > 0.05*cached.Avg {
		said.warn("the engine had more cached than earlier rows can have left there: these prompts are from an earlier run; another --seed finds a cold cache")
	}
	for _, one := range e.engines.all {
		if one.client.ClosesAfterStreams() {
			said.note("engine %s: it closes a connection after each streamed reply, without announcing it, so each streamed request had its own, as with --connections fresh",
				mooncake.PublicName(one.url))
		}
	}
	counted := func(n int64, format string, args ...any) {
		if n > 0 {
			said.warn(format, append([]any{n}, args...)...)
		}
	}
	counted(counts.Unpredicted, "cache hits of %d rows could not be predicted: the trace has more block ids than the prediction can store")
	counted(counts.Unawaited, "%d ids in wait_for are not the request_id of an earlier row, and were ignored")
	counted(f.Tokens.Assumed, "%d rows ask for models whose chat template was not measured: the models first appear after the look-ahead (--lookahead), are not among the %d with the most rows, or are unknown to the engine; another model's template was assumed",
		preflight.MaxMeasured)
	counted(e.stats.SessionsEvicted, "%d idle sessions were closed to make room: a later turn of a closed session began a new OTel trace, or, if it needed the turns before it, was skipped")
	counted(f.Tokens.TooShort, "%d rows are shorter than the engine's template and were sent with more tokens than they ask for (--too-short=skip leaves them out)")
	if !loss.Complete() || loss.MetricFailures > 0 {
		said.warn("the run's telemetry is incomplete: %s", incomplete(loss))
	}
	counted(loss.Resent, "the OTLP receiver did not answer in time: %d spans were sent again, and the receiver may have them twice, with the same ids (compile counts each once)")
}

// incomplete describes the telemetry that was lost, and why, if that is known.
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
