// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/moonloop/moonloop/agent/carry"
	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/observe"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/agent/telemetry"
)

// Run replays a trace and returns the report. It returns an error only if there was no replay: bad configuration, a trace that cannot be
// read, an engine that cannot be reached. Failed requests, a missed goal, an invalid measurement and a cancelled ctx are in the report.
// When ctx is cancelled, Run ends by itself, and every row is accounted for; before the schedule begins, there is nothing to account for, and
// Run returns an error.
func Run(ctx context.Context, cfg Config) (*report.Report, error) {
	rep, err := run(ctx, cfg)
	if rep == nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) { // a run that has begun has a report
		err = stoppedBefore{err}
	}
	return rep, err
}

// stoppedBefore is the error of a run that was stopped before its schedule began. What it was waiting for then is not the reason.
type stoppedBefore struct{ error }

func (stoppedBefore) Error() string {
	return "interrupted before the first request of the trace was sent: there are no results; start it again to replay the trace"
}

func (e stoppedBefore) Unwrap() error { return e.error }

func run(ctx context.Context, cfg Config) (*report.Report, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.DryRun {
		return nil, errors.New("a dry run sends nothing: call Predict")
	}
	cfg = cfg.resolved()
	clk, said := clock.New(), &notices{onWarn: cfg.Warn, onNote: cfg.Note}

	// Preflight: everything that may prevent a replay is found before the first request of the trace.
	folder, err := openFolder(cfg)
	if err != nil {
		return nil, err
	}
	defer func() { _ = folder.Close() }()
	before, err := openPast(cfg)
	if err != nil {
		return nil, err
	}
	if before != nil {
		cfg.RunID = before.journal.Run.ID
	}
	saved, err := openSaved(cfg)
	if err != nil {
		return nil, err
	}
	defer saved.close()
	replies := carry.New(carry.Options{Mode: cfg.Prompt.Carry, Bytes: cfg.Prompt.CarryBytes})
	defer replies.Close()
	in, err := openInput(ctx, cfg, replies.Need, said)
	if err != nil {
		return nil, err
	}
	defer in.close()
	in.announce(cfg, said)
	summing, stopSumming := context.WithCancel(ctx)
	defer stopSumming() // if the run fails, the checksum is not needed
	sum := checksum(summing, in.trace, cfg.Out)
	text, err := readTexts(ctx, cfg.Prompt)
	if err != nil {
		return nil, err
	}
	engines, err := newEngines(cfg, clk, said)
	if err != nil {
		return nil, err
	}
	defer engines.close()
	engines.follow(in.stream, said)
	found, err := engines.ask(ctx, questions(cfg, in, text, replies.Needed(), said), clk)
	if err != nil {
		return nil, err
	}

	// Plan: from here on everything is decided.
	p := newPlan(cfg, in, found)
	sayPriorities(in.stream, p.requests, said)
	offset, err := compareClock(ctx, cfg.Schedule.ClockReference, said)
	if err != nil {
		return nil, err
	}
	if p.shard != nil {
		p.shard.Clock = offset
	}
	traceSum, err := sum()
	if err != nil {
		return nil, err
	}
	p.beginning = beginning(p, in, traceSum)
	if err := before.check(p.beginning, said); err != nil {
		return nil, err
	}
	before.restoreSettings(&p)

	// Run.
	in.stream.DefaultModel(p.requests.Options().DefaultModel)
	if p.replies == nil {
		replies.Close()
		replies = nil
	} else {
		replies.Set(p.replies)
	}
	tel, err := telemetry.Start(ctx, p.telemetry, clk)
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	defer abandon(tel)
	sayOff(tel, p.telemetry, said)
	for _, a := range found.Asked {
		tel.Apart(a)
	}
	cache := &predictor{blocks: p.blocks}
	rec, err := newRecorder(p, text, cache, tel, before)
	if err != nil {
		return nil, err
	}
	defer rec.abandon()
	s := &sender{clk: clk, runID: p.runID, engines: engines, session: cfg.Target.SessionHeader, builder: p.requests, replies: replies, cache: cache, disconnect: cfg.Disconnect, seed: cfg.Prompt.Seed}
	saved.start(p)
	if err := engines.post(ctx, cfg.Target.Posts, BeforeWarmup); err != nil {
		return nil, err
	}
	p.requests.Until(ctx.Done())
	warmed := p.warmup.run(ctx, s, in.stream.Shapes(p.warmup.shapes()), tel, said)
	if err := engines.post(ctx, cfg.Target.Posts, AtStart); err != nil {
		return nil, err
	}
	wait, watch, err := startTimers(cfg.Waiter, clk, tel)
	if err != nil {
		return nil, err
	}
	defer func() { _ = wait.Close() }()
	d := &dispatcher{sender: s, delta: p.delta, tel: tel, recorder: rec, saved: saved, prefillCap: p.schedule.PrefillSlots > 0}
	zero, rows, err := d.begin(ctx, p, in.stream, wait, before, said)
	defer d.close()
	if err != nil {
		watch.Stop()
		return nil, in.named(err)
	}
	live := &Live{clk: clk, zero: zero, chunks: engines.chunks, watched: cfg.Progress != nil, view: View{
		Trace: in.name, Engine: p.run.Target, Model: p.run.Model, RunID: p.runID,
		End: in.horizon(cfg), Rows: in.rowsToSend(cfg.Trace),
	}}
	before.addTo(live)
	tel.ObserveRun(live.progress)
	if cfg.Progress != nil {
		cfg.Progress(live)
	}
	rec.live, rec.watch, d.live = live, watch, live
	stats, err := d.replay(p, zero, rows, before)
	engines.postLast(ctx, cfg.Target.Posts, said)

	// Conclude.
	e := ending{plan: p, clk: clk, zero: zero + rec.shift, in: in, engines: engines, tel: tel, watch: watch, recorder: rec, saved: saved, said: said, stats: stats, warmed: warmed, before: before, aborted: errors.Is(context.Cause(d.dispatch), errAborted), ended: cfg.Ended}
	return e.conclude(ctx, in.named(err))
}

// startTimers starts the timers: the schedule's, and that of the hiccup meter, which is not needed in virtual time.
func startTimers(virtual func(clock.Clock) schedule.Waiter, clk clock.Clock, tel *telemetry.Pipeline) (schedule.Waiter, *observe.Observer, error) {
	if virtual != nil {
		return virtual(clk), observe.Start(clk, nil), nil
	}
	wait, err := schedule.NewWaiter(clk, schedule.Spin)
	if err != nil {
		return nil, nil, err
	}
	meter, err := schedule.NewWaiter(clk, 0)
	if err != nil {
		return nil, nil, errors.Join(err, wait.Close())
	}
	watch := observe.Start(clk, meter)
	tel.Observe(watch.Now)
	return wait, watch, nil
}

// sayOff warns of settings of telemetry that is off.
func sayOff(tel *telemetry.Pipeline, c telemetry.Config, said *notices) {
	var flags []string
	if !tel.Exports() && c.TokenEvents != "" && c.TokenEvents != telemetry.EventsAll {
		flags = append(flags, "--token-events")
	}
	if !tel.Exports() && c.Protocol != "" {
		flags = append(flags, "--otlp-protocol")
	}
	if tel == nil && c.ExplicitHistograms {
		flags = append(flags, "--histograms")
	}
	if len(flags) > 0 {
		said.warn("telemetry is off, so %s had no effect; --otlp-endpoint, or OTEL_EXPORTER_OTLP_ENDPOINT, switches it on", strings.Join(flags, " and "))
	}
}

// abandon ends the telemetry of a run that failed to start; it does nothing after its Shutdown.
func abandon(tel *telemetry.Pipeline) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = tel.Shutdown(ctx)
}
