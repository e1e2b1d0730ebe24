// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

// This file opens a run's input and output, and reports what is unusual about the trace.

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/moonloop/moonloop/agent/carry"
	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/mooncake"
)

// openFolder locks the output directory, before anything is read or sent. It returns nil if there is none.
func openFolder(cfg Config) (*report.Folder, error) {
	if cfg.Out == "" {
		return nil, nil //nolint:nilnil // nil means no folder
	}
	var folder *report.Folder
	var err error
	switch c := cfg.Trace; {
	case cfg.Resume:
		folder, err = report.ReopenFolder(cfg.Out)
	case c.Lenient && c.Quarantine == "":
		folder, err = report.OpenFolder(cfg.Out, cfg.Force, mooncake.RejectedName(c.Name))
	default:
		folder, err = report.OpenFolder(cfg.Out, cfg.Force)
	}
	if err != nil {
		return nil, err
	}
	if err := folder.CheckInput(cfg.Trace.Name); err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	return folder, nil
}

// input is the open trace.
type input struct {
	path, name string // path as given, name without secrets
	trace      *mooncake.Trace
	stream     *load.Stream
	quarantine *mooncake.Quarantine // nil unless the trace is read leniently
	looped     *mooncake.Trace      // of the current pass of a loop; owned by the reading goroutine
	rejected   int64                // rows that a dry run leaves out; final once the whole trace has been read
	again      atomic.Int64         // rows that a later pass of a loop leaves out; the first pass has reported them
}

// openInput opens the trace. Meanwhile it checks whether the OTLP receivers are reachable, because nobody wants
// to learn after an hour that no span was delivered. needs is called for each row with replies, as it is read, with its index.
func openInput(ctx context.Context, cfg Config, needs func(int64, []mooncake.Reply), said *notices) (*input, error) {
	type opening struct {
		*input
		err error
	}
	opened := make(chan opening, 1)
	go func() {
		in, err := openTrace(ctx, cfg, needs)
		opened <- opening{in, err}
	}()
	warnings, err := telemetry.Check(ctx, cfg.Telemetry)
	for _, text := range warnings {
		said.warn("%s", text)
	}
	if err != nil {
		err = fmt.Errorf("telemetry: %w", err)
	} else {
		select {
		case o := <-opened:
			return o.input, o.err
		case <-ctx.Done(): // a trace may be a pipe that is silent
			err = fmt.Errorf("trace %s: interrupted before its first rows could be read: %w", mooncake.PublicName(cfg.Trace.Source()), context.Cause(ctx))
		}
	}
	go func() { (<-opened).close() }()
	return nil, err
}

// openTrace opens the trace and reads its first rows, as its sidecar and the configuration say.
func openTrace(ctx context.Context, cfg Config, needs func(int64, []mooncake.Reply)) (in *input, err error) {
	c := cfg.Trace
	in = &input{path: c.Name, name: mooncake.PublicName(c.Source())}
	defer func() {
		if err != nil {
			in.close()
			in = nil
		}
	}()
	read := mooncake.OpenOptions{Strict: c.Strict, BlockSize: c.BlockSize, FineBlockSize: c.FineBlockSize, Unit: c.Unit, Map: c.Map, Stdin: c.Stdin}
	switch {
	case c.Lenient && cfg.DryRun:
		read.Reject = func(mooncake.Rejected) error { in.rejected++; return nil }
	case c.Lenient:
		read.Reject = func(row mooncake.Rejected) error { return in.quarantine.Add(row) } // no row is read before the quarantine exists
	}
	if in.trace, err = mooncake.Open(ctx, c.Name, read); err != nil {
		return in, err
	}
	if c.Lenient && !cfg.DryRun { // only now, so that a missing trace leaves no file behind
		if in.quarantine, err = openQuarantine(cfg); err != nil {
			return in, err
		}
	}
	opt := load.Options{
		BlockSize: in.trace.BlockSize(), FineBlockSize: in.trace.FineBlockSize(), Lookahead: c.Lookahead, FileOrder: cfg.Schedule.FileOrder,
		Start: c.Start, End: c.End, MaxRows: c.MaxRows, Speedup: cfg.Schedule.Speedup,
		Spread: cfg.Schedule.Spread, Arrivals: cfg.Schedule.Arrivals, Seed: cfg.Prompt.Seed, Shard: c.Shard, Shards: c.Shards,
		Sessions: c.Sessions, OpenSessions: cfg.Schedule.OpenLoop, Strict: c.Strict, OneModel: cfg.oneModel() != "",
		Replies: needs,
	}
	opt.Loop = load.Loop{Passes: c.Loop, For: c.LoopFor, Fresh: c.LoopFresh, Again: func() (load.Rows, error) {
		if in.looped != nil {
			_ = in.looped.Close() // it was only read
		}
		if c.Lenient {
			read.Reject = func(mooncake.Rejected) error { in.again.Add(1); return nil } // the first pass has reported the row
		}
		var err error
		if in.looped, err = mooncake.Open(ctx, c.Name, read); err != nil {
			return nil, err
		}
		return in.looped.Reader, nil
	}}
	if meta := in.trace.Meta(); meta != nil {
		if err = meta.CheckSessionMode(c.Sessions); err != nil {
			return in, in.named(err)
		}
		if opt.Sessions == mooncake.SessionUnknown {
			opt.Sessions = meta.SessionMode
		}
		opt.Trunk = meta.Trunk
	}
	in.stream, err = load.Open(in.trace.Reader, opt)
	if errors.Is(err, load.ErrNoRows) && in.quarantine.Count() > 0 {
		err = fmt.Errorf("none of its %d rows can be used; the first is %w", in.quarantine.Count(), in.quarantine.First())
	}
	return in, in.named(err)
}

// unit returns the name of the unit of the timestamps in the file.
func (in *input) unit() string {
	if !in.stream.Info().Timed { // if Timed, the unit was known before the rest of the trace was read
		return mooncake.UnitName(time.Millisecond)
	}
	return mooncake.UnitName(in.trace.Unit())
}

// openQuarantine creates the file for rows that cannot be used.
func openQuarantine(cfg Config) (*mooncake.Quarantine, error) {
	name := cfg.Trace.Quarantine
	if name == "" {
		name = filepath.Join(cfg.Out, mooncake.RejectedName(cfg.Trace.Name))
	}
	q, err := mooncake.NewQuarantine(name)
	if err != nil {
		return nil, err
	}
	if err := q.CheckName(cfg.Trace.Name); err != nil {
		return nil, errors.Join(err, q.Close())
	}
	return q, nil
}

// close closes all files.
func (in *input) close() {
	if in == nil || in.stream != nil && !in.stream.Close() {
		return // the goroutine that still reads the trace closes it
	}
	for _, t := range []*mooncake.Trace{in.trace, in.looped} {
		if t != nil {
			_ = t.Close()
		}
	}
	_ = in.quarantine.Close() // no effect after its commit
}

// named adds the name of the trace to an error about it, unless it has it already.
func (in *input) named(err error) error {
	var row *mooncake.RowError
	if err == nil || errors.As(err, &row) || strings.HasPrefix(err.Error(), in.name+":") { // such as the error of a source that breaks off
		return err
	}
	return fmt.Errorf("trace %s: %w", in.name, err)
}

// announce reports what the trace's first rows have shown.
func (in *input) announce(cfg Config, said *notices) {
	info, s := in.stream.Info(), cfg.Schedule
	switch info.Sessions {
	case mooncake.SessionFull:
		said.note("sessions: rows are whole prompts; %s", info.Evidence)
	case mooncake.SessionDelta:
		said.note("sessions: rows are new turns; %s", info.Evidence)
	default:
	}
	if n := info.Following; n > 0 {
		said.note("graphs: %d of the first %d rows are sent when the rows that they wait for have ended; --open-loop sends them at their timestamps", n, info.Rows)
	}
	// Missing fields, ids out of order and large ids do not change what a replay sends or predicts.
	harmless := []mooncake.Rule{mooncake.V1, mooncake.V7, mooncake.V8}
	if slices.ContainsFunc(info.Broken, func(v mooncake.Violation) bool { return !slices.Contains(harmless, v.Rule) }) {
		said.note("%s", brokenRules(info))
	}
	rows := "no row"
	if !info.Whole {
		rows = fmt.Sprintf("none of the first %d rows", info.Rows)
	}
	if flags := imageFlags(cfg.Prompt.Images); len(flags) > 0 && cfg.Prompt.Images.Each == 0 && info.Pictured == 0 {
		said.warn("%s has images, on which %s would have an effect; --images N adds images", rows, strings.Join(flags, " and "))
	}
	if flags := sessionFlags(cfg); len(flags) > 0 && info.Sessioned+info.Following == 0 {
		said.warn("%s has a session, on which %s would have an effect", rows, strings.Join(flags, " and "))
	}
	if cfg.Prompt.Output > 0 && info.Unsized == 0 {
		rows := "every row"
		if !info.Whole {
			rows = fmt.Sprintf("each of the first %d rows", info.Rows)
		}
		said.warn("%s has an output length, so --output-length has no effect on it; --max-output-length caps those of all rows", rows)
	}
	if flags := replyFlags(cfg.Prompt); len(flags) > 0 && info.Replying == 0 {
		said.warn("%s has replies of earlier rows, on which %s would have an effect", rows, strings.Join(flags, " and "))
	}
	switch {
	case s.Arrivals.Users > 0 && info.Sessions == mooncake.SessionNone:
		said.warn("users: no session has a second turn, so each request has a user of its own (--users)")
	case s.Arrivals.Any(): // then timestamps do not matter
	case !info.Timed && !s.FileOrder:
		said.warn("the trace has no timestamps: its rows are sent in file order, %d at a time (--concurrency)", max(1, s.Concurrency))
	case info.LooksSeconds:
		said.warn("the timestamps look like seconds and are read as milliseconds; set --time-unit=s if they are seconds")
	case info.Timed && info.Grid.Coarse && s.Spread == load.SpreadNone:
		said.warn("the timestamps are multiples of %.0f ms, with %.1f rows for each: the replay sends bursts that production never had, and these raise TTFT; --spread=uniform spreads the bursts", info.Grid.Quantum, info.Grid.RowsPerStamp)
	}
}

// sessionFlags returns the flags that matter only for rows with a session, as far as they differ from the defaults.
func sessionFlags(cfg Config) (flags []string) {
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"--session-header", cfg.Target.SessionHeader != "" && cfg.Target.SessionHeader != defaultSessionHeader},
		{"--connections session", cfg.Target.Connections == send.ReuseSession},
		{"--balance session", cfg.Target.Balance == BySession},
		{"--open-loop", cfg.Schedule.OpenLoop},
	} {
		if f.given {
			flags = append(flags, f.name)
		}
	}
	return flags
}

// replyFlags returns the flags that matter only for rows with replies of earlier rows, as far as they differ from the defaults.
func replyFlags(p Prompt) (flags []string) {
	if p.Carry != "" && p.Carry != carry.Auto {
		flags = append(flags, "--carry-replies")
	}
	if p.CarryBytes != 0 && p.CarryBytes != carry.DefaultBytes {
		flags = append(flags, "--carry-memory")
	}
	return flags
}

// imageFlags returns the flags that say how images are made, as far as they differ from the defaults.
func imageFlags(i prompt.Images) (flags []string) {
	if i.Size != (prompt.ImageSize{}) {
		flags = append(flags, "--image-size")
	}
	if i.Format != "" && i.Format != prompt.PNG {
		flags = append(flags, "--image-format")
	}
	if i.Tokens > 0 {
		flags = append(flags, "--image-tokens")
	}
	return flags
}

// brokenRules returns one line: what inspect would report about the rules of the format.
func brokenRules(info load.Info) string {
	where := "the trace breaks"
	if !info.Whole {
		where = fmt.Sprintf("the trace breaks, in its first %d rows,", info.Rows)
	}
	texts := make([]string, len(info.Broken))
	for i, v := range info.Broken {
		texts[i] = fmt.Sprintf("%s in %s", v.Rule, v.Text)
	}
	return where + " rules of the format and is replayed unchanged (moonloop inspect shows where): " + strings.Join(texts, "; ")
}
