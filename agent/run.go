// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/moonloop/moonloop/agent/carry"
	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/observe"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/mooncake"
)

const (
	defaultLead = 50 * time.Millisecond
	// defaultPrepare is enough for a burst of 20 requests, some 0.1 ms each, or for a connection within a data centre. Each
	// request that waits has a connection of its own: more would cost caches, the engine's and ours.
	defaultPrepare = 2 * time.Millisecond
	defaultGrace   = 30 * time.Second
	// flushTime bounds the wait for telemetry at the end of a run.
	flushTime = 30 * time.Second
	// longest bounds what is asked for in time, so that no sum of instants overflows: nobody waits for so long.
	longest = 50 * 365 * 24 * time.Hour
)

var errAborted = errors.New("too many requests failed")

// run is one replay from its preparation to its report.
type run struct {
	cfg Config
	clk clock.Clock
	opening
	folder   *report.Folder // nil without an output directory
	client   *send.Client
	builder  *prompt.Builder
	opt      prompt.Options   // the builder's
	carry    *carry.Store     // nil where no row has replies, or none is to be carried
	found    report.Words     // how the words of prompts were found; zero = they are the usual ones
	noTurns  error            // why the cost of a turn could not be measured
	contexts map[string]int64 // tokens that the engine's models can hold, as far as it says
	tel      *telemetry.Pipeline
	apart    []telemetry.Apart // requests before there was telemetry
	watch    *observe.Observer
	wait     schedule.Waiter
	sched    *schedule.Scheduler
	recorder *recorder
	live     *Live
	zero     time.Duration
	learned  atomic.Int64 // tokens in a block of the engine's cache, as its replies show

	warnings []string
	over     bool // the schedule has ended
}

// Run replays a trace and returns the report on it. The error is for what keeps a replay from being one: bad
// configuration, a trace that cannot be read, an engine that cannot be reached. Failed requests, a missed goal or an
// invalid measurement are in the report, as is what a cancelled ctx cut short: Run ends by itself then, with every
// row accounted for.
func Run(ctx context.Context, cfg Config) (*report.Report, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := &run{cfg: cfg, clk: clock.New()}
	if r.cfg.Schedule.Speedup == 0 {
		r.cfg.Schedule.Speedup = 1
	}
	if r.cfg.RunID == "" {
		r.cfg.RunID = newRunID()
	}
	r.carry = carry.New(carry.Options{Mode: cfg.Prompt.Carry, Bytes: cfg.Prompt.CarryBytes, Shard: cfg.Trace.Shard, Shards: cfg.Trace.Shards})
	defer r.close()
	if err := r.openFolder(); err != nil {
		return nil, err
	}
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	r.warmUp(ctx)
	if err := r.arm(); err != nil {
		return nil, err
	}
	stats, err := r.replay(ctx)
	return r.conclude(ctx, stats, err)
}

func newRunID() string {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// openFolder takes the output directory, before anything is read or sent.
func (r *run) openFolder() (err error) {
	if r.cfg.Out == "" {
		return nil
	}
	var further []string
	if c := r.cfg.Trace; c.Lenient && c.Quarantine == "" {
		further = append(further, mooncake.RejectedName(c.Name))
	}
	if r.folder, err = report.OpenFolder(r.cfg.Out, r.cfg.Force, further...); err != nil {
		return err
	}
	return r.folder.CheckInput(r.cfg.Trace.Name)
}

// prepare does everything that must be done before the first request of the trace.
func (r *run) prepare(ctx context.Context) error {
	if err := r.openAndCheck(ctx); err != nil {
		return err
	}
	r.decide()
	if err := r.openTarget(ctx); err != nil {
		return err
	}
	tel := r.cfg.Telemetry
	tel.RunID, tel.Version = r.cfg.RunID, r.cfg.Tool
	tel.Model, tel.Operation = r.mainModel(), operation(r.opt.Endpoint)
	tel.ServerAddress, tel.ServerPort = hostPort(r.cfg.Target.URL)
	tel.Speedup, tel.BlockSize, tel.FineBlockSize = r.cfg.Schedule.Speedup, r.cfg.Trace.BlockSize, r.cfg.Trace.FineBlockSize
	tel.TimestampScale = millis(r.cfg.Trace.Unit)
	tel.HashDomain = hashDomain(r.trace.Meta(), r.stream.Info().Fingerprint)
	var err error
	if r.tel, err = telemetry.Start(ctx, tel, r.clk); err != nil {
		return fmt.Errorf("telemetry: %w", err)
	}
	for _, a := range r.apart {
		r.tel.Apart(a)
	}
	r.apart = nil
	r.recorder, err = newRecorder(r)
	return err
}

// openAndCheck opens the trace and asks the OTLP receivers meanwhile whether they are there: who waits for an hour's spans
// wants to know before.
func (r *run) openAndCheck(ctx context.Context) error {
	checked := make(chan telemetryCheck, 1)
	go func() {
		var c telemetryCheck
		c.warnings, c.err = telemetry.Check(ctx, r.cfg.Telemetry)
		checked <- c
	}()
	// A trace may be a pipe that stays silent; an interrupt must not wait for it.
	opened := make(chan opening, 1)
	go func() { opened <- r.openTrace(ctx) }()
	for waiting := 2; waiting > 0; waiting-- {
		select {
		case r.opening = <-opened:
			opened = nil
			if r.opening.err != nil {
				return r.opening.err
			}
		case c := <-checked:
			for _, text := range c.warnings {
				r.warn("%s", text)
			}
			if c.err != nil {
				if opened != nil {
					go func() { (<-opened).close() }()
				}
				return fmt.Errorf("telemetry: %w", c.err)
			}
		case <-ctx.Done():
			if opened == nil {
				return ctx.Err()
			}
			go func() { (<-opened).close() }()
			return fmt.Errorf("trace %s: interrupted before its first rows could be read", mooncake.PublicName(r.cfg.Trace.Name))
		}
	}
	return nil
}

// telemetryCheck is what telemetry.Check came to.
type telemetryCheck struct {
	warnings []string
	err      error
}

// opening is what openTrace came to. Trace and stream are set as far as it came.
type opening struct {
	trace      *mooncake.Trace
	stream     *load.Stream
	quarantine *mooncake.Quarantine // nil unless the trace is read leniently
	err        error
}

// close closes what is open.
func (o opening) close() {
	if o.stream != nil && !o.stream.Close() {
		return // a trace that is still being read is left to its reader
	}
	if o.trace != nil {
		_ = o.trace.Close()
	}
	_ = o.quarantine.Close() // after conclude without effect
}

// openTrace opens the trace and reads its first rows, by its sidecar and the configuration.
func (r *run) openTrace(ctx context.Context) (o opening) {
	c := r.cfg.Trace
	read := mooncake.OpenOptions{Strict: c.Strict, BlockSize: c.BlockSize, FineBlockSize: c.FineBlockSize, Stdin: c.Stdin}
	if c.Lenient {
		read.Reject = func(row mooncake.Rejected) error { return o.quarantine.Add(row) } // not before a row is read
	}
	if o.trace, o.err = mooncake.Open(ctx, c.Name, read); o.err != nil {
		return o
	}
	if c.Lenient { // only now: a trace that is not there leaves nothing behind
		if o.quarantine, o.err = r.openQuarantine(); o.err != nil {
			return o
		}
	}
	opt := load.Options{
		BlockSize: o.trace.BlockSize(), FineBlockSize: o.trace.FineBlockSize(), Lookahead: c.Lookahead, Unit: c.Unit, FileOrder: r.cfg.Schedule.FileOrder,
		Start: c.Start, End: c.End, MaxRows: c.MaxRows, Speedup: r.cfg.Schedule.Speedup,
		Spread: r.cfg.Schedule.Spread, Seed: r.cfg.Prompt.Seed, Shard: c.Shard, Shards: c.Shards,
		Sessions: c.Sessions, OpenSessions: r.cfg.Schedule.OpenLoop, Strict: c.Strict, OneModel: r.cfg.oneModel() != "",
		Replies: r.carry.Need,
	}
	if meta := o.trace.Meta(); meta != nil {
		if o.err = errors.Join(meta.CheckSessionMode(c.Sessions), meta.CheckTimeUnit(c.Unit)); o.err != nil {
			o.err = r.traceError(o.err)
			return o
		}
		if opt.Sessions == mooncake.SessionUnknown {
			opt.Sessions = meta.SessionMode
		}
		if opt.Unit == 0 {
			opt.Unit = meta.Unit()
		}
	}
	o.stream, o.err = load.Open(o.trace.Reader, opt)
	if errors.Is(o.err, load.ErrNoRows) && o.quarantine.Count() > 0 {
		o.err = fmt.Errorf("none of its %d rows can be used; the first is %w", o.quarantine.Count(), o.quarantine.First())
	}
	o.err = r.traceError(o.err)
	return o
}

// openQuarantine makes the place for rows that cannot be used.
func (r *run) openQuarantine() (*mooncake.Quarantine, error) {
	c := r.cfg.Trace
	name := c.Quarantine
	if name == "" {
		name = filepath.Join(r.cfg.Out, mooncake.RejectedName(c.Name))
	}
	q, err := mooncake.NewQuarantine(name)
	if err != nil {
		return nil, err
	}
	if err := q.CheckName(c.Name); err != nil {
		return nil, errors.Join(err, q.Close())
	}
	return q, nil
}

// decide settles what the trace's first rows have shown, and says so.
func (r *run) decide() {
	c := &r.cfg.Trace
	info := r.stream.Info()
	c.BlockSize, c.Sessions, c.Unit = r.trace.BlockSize(), info.Sessions, r.stream.Unit()
	c.FineBlockSize = r.trace.FineBlockSize()
	if info.Sessions == mooncake.SessionFull || info.Sessions == mooncake.SessionDelta {
		r.note("sessions: rows are %s; %s", map[mooncake.SessionMode]string{
			mooncake.SessionFull: "whole prompts", mooncake.SessionDelta: "new turns",
		}[info.Sessions], info.Evidence)
	}
	if slices.ContainsFunc(info.Broken, func(v mooncake.Violation) bool { return matters(v.Rule) }) {
		r.note("%s", brokenRules(info))
	}
	switch {
	case !info.Timed && !r.cfg.Schedule.FileOrder:
		r.warn("the trace has no timestamps: its rows go out in file order, %d at a time (--concurrency)", max(1, r.cfg.Schedule.Concurrency))
	case info.LooksSeconds:
		r.warn("the timestamps look like seconds and are read as milliseconds; say --time-unit=s if they are seconds")
	case info.Timed && info.Grid.Coarse && r.cfg.Schedule.Spread == load.SpreadNone:
		r.warn("the timestamps lie on a grid of %.0f ms with %.1f rows a step: the replay sends bursts that production never saw, which raises TTFT; --spread=uniform lays them out", info.Grid.Quantum, info.Grid.RowsPerStamp)
	}
}

// matters reports whether a rule that is broken changes what a replay sends or predicts. A field that is left out, an id out of
// order and a large id do not.
func matters(rule mooncake.Rule) bool {
	return rule != mooncake.V1 && rule != mooncake.V7 && rule != mooncake.V8
}

// brokenRules says in one line what inspect would say of the rules of the format.
func brokenRules(info load.Info) string {
	where := "the trace breaks"
	if !info.Whole {
		where = fmt.Sprintf("the trace breaks, in its first %d rows,", info.Rows)
	}
	texts := make([]string, len(info.Broken))
	for i, v := range info.Broken {
		texts[i] = fmt.Sprintf("%s in %s", v.Rule, v.Text)
	}
	return where + " rules of the format and is replayed as it stands (moonloop inspect shows where): " + strings.Join(texts, "; ")
}

// openTarget finds the engine, its model and what it adds to a prompt.
func (r *run) openTarget(ctx context.Context) error {
	t := r.cfg.Target
	client, err := send.New(send.Config{
		URL: t.URL, Header: t.Header, APIKey: t.APIKey, TLS: t.TLS, HTTP2: t.HTTP2, Retries: t.Retries,
		ConnectTimeout: min(t.ConnectTimeout, longest), FirstTokenTimeout: min(t.FirstTokenTimeout, longest),
		IdleTimeout: min(t.IdleTimeout, longest), TotalTimeout: min(t.TotalTimeout, longest),
		Connections: r.cfg.Schedule.Concurrency, DialContext: r.cfg.DialContext, NoKernelStamps: t.ReadStamps,
	}, r.clk)
	if err != nil {
		return err
	}
	r.client = client
	if t.TLS != nil && t.TLS.InsecureSkipVerify {
		r.warn("the engine's certificate was not verified: whoever stands between may have read and changed everything (--insecure-skip-verify)")
	}
	fallback, err := r.chooseModel(ctx)
	if err != nil {
		return err
	}
	r.stream.DefaultModel(fallback)
	p := r.cfg.Prompt
	r.opt = prompt.Options{
		Endpoint: p.Endpoint, Form: r.form(), Profile: t.Profile, Model: t.Model, DefaultModel: fallback, Stream: !p.NoStream,
		Seed: prompt.Seed(p.Seed), BlockSize: r.cfg.Trace.BlockSize, FineBlockSize: r.cfg.Trace.FineBlockSize, TooShort: p.TooShort, ExtraInputs: p.Extra,
		DefaultOutput: int(p.Output), OutputCap: int(p.OutputCap), Overhead: p.Overhead,
	}
	if err := r.build(); err != nil {
		return err
	}
	r.chooseReplies()
	switch {
	case r.opt.Form == prompt.Tokens:
		err = r.checkVocabulary(ctx)
	case p.Overhead == 0:
		err = r.calibrate(ctx)
	}
	if err != nil {
		return err
	}
	r.tooLong()
	if r.cfg.Target.CacheBlock == 0 {
		r.cfg.Target.CacheBlock = r.askBlockSize(ctx)
	}
	return r.settleReplies(ctx)
}

// build makes the builder anew from its options.
func (r *run) build() (err error) {
	if r.builder, err = prompt.NewBuilder(r.opt); err == nil {
		r.opt = r.builder.Options()
	}
	return err
}

// form is how prompts are written, where the configuration leaves it open: as token ids, which are exact with any
// tokenizer, wherever the engine takes them and no reply must be carried forward as text.
func (r *run) form() prompt.Form {
	p := r.cfg.Prompt
	if p.Form == "" && r.cfg.Target.Profile.TakesTokenIDs(p.Endpoint) && r.stream.Info().Sessions != mooncake.SessionDelta {
		return prompt.Tokens
	}
	return p.Form
}

// hashDomain names the maker of the trace's block ids: the domain of its sidecar, else one of the trace's own.
func hashDomain(meta *mooncake.Meta, fingerprint uint64) string {
	if meta != nil && len(meta.HashDomains) == 1 {
		return meta.HashDomains[0]
	}
	return fmt.Sprintf("%08x", uint32(fingerprint)) //nolint:gosec // 32 bits of a hash are the domain
}

// replay runs the schedule to its end.
func (r *run) replay(ctx context.Context) (schedule.Stats, error) {
	s := r.cfg.Schedule
	info := r.stream.Info()
	last := r.horizon()
	lead := r.cfg.Lead
	if lead == 0 {
		lead = defaultLead
	}
	r.zero = r.clk.Now() + lead
	if !s.StartAt.IsZero() {
		r.zero = max(r.zero, min(s.StartAt.Sub(r.clk.Start()), longest))
	}
	slots := s.Concurrency
	if !info.Timed {
		slots = max(1, slots)
	}

	dispatch, stopDispatch := context.WithCancelCause(ctx)
	defer stopDispatch(nil)
	requests, stopRequests := context.WithCancel(ctx)
	defer stopRequests()
	grace, until := min(cmp.Or(s.Grace, defaultGrace), longest), min(s.MaxDuration, longest)
	if until > 0 {
		t := time.AfterFunc(r.zero-r.clk.Now()+until+grace, stopRequests)
		defer t.Stop()
	}
	r.live = &Live{clk: r.clk, zero: r.zero, view: View{End: last}}
	context.AfterFunc(dispatch, r.live.stop)
	if r.cfg.Progress != nil {
		r.cfg.Progress(r.live)
	}
	abort := func() {
		stopDispatch(errAborted)
		late := time.AfterFunc(grace, stopRequests)
		context.AfterFunc(requests, func() { late.Stop() }) // the run has ended before
	}
	r.recorder.start(abort)

	var err error
	r.sched, err = schedule.New(schedule.Config{
		Zero: r.zero, Slots: slots, ClosedLoop: !info.Timed, OpenSessions: s.OpenLoop, Speedup: s.Speedup,
		Until: until, Prepare: r.ahead(), Carry: info.Sessions == mooncake.SessionDelta,
	}, r.clk, r.wait, schedule.Hooks{
		Prepare: func(it *schedule.Item) { r.begin(requests, it) },
		Fire:    func(it *schedule.Item) { r.fire(requests, it) },
		Skip: func(it *schedule.Item, why schedule.Reason) {
			r.skip(it, why, errors.Is(context.Cause(dispatch), errAborted))
		},
	})
	if err != nil {
		r.recorder.stop()
		return schedule.Stats{}, err
	}
	stats, err := r.sched.Run(dispatch, r.stream)
	r.recorder.stop()
	return stats, r.traceError(err)
}

// ahead is how long before its instant a request is begun.
func (r *run) ahead() time.Duration {
	if r.cfg.Target.HTTP2 { // headers would go out at once
		return 0
	}
	return cmp.Or(r.cfg.Schedule.Prepare, defaultPrepare)
}

// traceError names the trace in an error about it, unless it is named already.
func (r *run) traceError(err error) error {
	var row *mooncake.RowError
	name := mooncake.PublicName(r.cfg.Trace.Name)
	if err == nil || errors.As(err, &row) || strings.HasPrefix(err.Error(), name+":") { // a source that breaks off names it, too
		return err
	}
	return fmt.Errorf("trace %s: %w", name, err)
}

// arm readies the timers: the schedule's, and that of the hiccup meter, which virtual time has no use for.
func (r *run) arm() (err error) {
	if r.cfg.Waiter != nil {
		r.wait = r.cfg.Waiter(r.clk)
		r.watch = observe.Start(r.clk, nil)
		return nil
	}
	if r.wait, err = schedule.NewWaiter(r.clk, schedule.Spin); err != nil {
		return err
	}
	meter, err := schedule.NewWaiter(r.clk, 0)
	if err != nil {
		return err
	}
	r.watch = observe.Start(r.clk, meter)
	r.tel.Observe(r.watch.Now)
	return nil
}

// close frees what the run holds, in whatever state it ended.
func (r *run) close() {
	if r.wait != nil {
		_ = r.wait.Close()
	}
	if r.tel != nil { // after conclude without effect
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, _ = r.tel.Shutdown(ctx)
	}
	if r.recorder != nil && r.recorder.file != nil {
		_ = r.recorder.file.Abandon() // after conclude without effect
	}
	r.opening.close()
	r.carry.Close()
	_ = r.folder.Close()
	if r.client != nil {
		r.client.Close()
	}
}

// warn notes a warning for the report and, while the run is not over, tells it at once.
func (r *run) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.warnings = append(r.warnings, text)
	if r.cfg.Warn != nil && !r.over {
		r.cfg.Warn(text)
	}
}

// note tells what the run has decided by itself.
func (r *run) note(format string, args ...any) {
	if r.cfg.Note != nil {
		r.cfg.Note(fmt.Sprintf(format, args...))
	}
}

// newRecord is the record of an item that has been dispatched or skipped.
func (r *run) newRecord(it *schedule.Item) *measure.Record {
	return &measure.Record{
		Model: r.builder.Model(it.Row),
		Row:   it.Row, Index: it.Index, Turn: it.Turn,
		Offset: it.Offset, Spread: it.Spread, Intended: it.Intended, Scheduled: it.Scheduled,
		Prediction: it.Predicted, Prompts: it.Prompts, Predicted: it.Predicted.Whole, Finest: it.Predicted.Finest,
	}
}
