// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"time"

	"github.com/moonloop/moonloop/agent/carry"
	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/preflight"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// plan is everything that a run will do, decided before the first request of the trace. It has all that each part of the run needs, and is
// never changed.
type plan struct {
	runID    string
	passes   int64                // over the trace; at least 1
	maxRows  int64                // 0 = no limit
	instance string               // the header in which a router names an instance; empty: not given
	requests *prompt.Builder      // endpoint, form, models, words, overheads and lengths of requests
	delta    bool                 // rows of a session are new turns
	replies  func(*carry.Options) // how live replies are carried; nil = not carried
	blocks   blocks
	warmup   warmup

	schedule schedule.Config // without its start
	lead     time.Duration   // from the last preparation to the start
	startAt  time.Time       // of the start; zero = at once
	fixed    bool            // start at startAt even if that has passed
	grace    time.Duration   // for requests in flight at the end
	ramp     time.Duration   // duration of the ramp of the rate or of the maximum in flight
	steady   Steady

	limits    limits
	telemetry telemetry.Config
	out       string        // directory of the results; empty = none
	page      bool          // whether to write the page, too
	slice     time.Duration // of a line of series.csv
	traceURL  string        // for links on the page; empty = no links
	sidecar   mooncake.Meta
	beginning report.Beginning // what a resumed part of the run must have in common with the first

	// For the report:
	run      report.Run
	settings []report.Setting
	trace    report.Trace
	order    report.Schedule
	shard    *report.Shard // nil: the run is not sharded
}

// limits decide how a run is judged, and whether it continues.
type limits struct {
	slo           measure.SLO
	goodput       float64 // share of requests that must be good; 0 = no goal
	maxErrors     float64 // share of requests that may fail
	abortErrors   float64 // share of failed requests above which the run ends early; 0 = never
	abortFailed   int64   // number of failed requests at which the run ends early; 0 = never
	abortAfter    int64   // number of requests that must have ended before abortErrors applies
	strictVerdict bool
	allRows       bool // no limit leaves out rows at the trace's end
}

// newPlan decides what a run will do, from its configuration and from what the trace and the engine have shown.
func newPlan(cfg Config, in *input, found preflight.Findings) plan {
	info, opt := in.stream.Info(), found.Builder.Options()
	s := cfg.Schedule
	p := plan{
		runID: cfg.RunID, passes: int64(max(1, cfg.Trace.Loop)), maxRows: cfg.Trace.MaxRows, instance: cfg.Target.InstanceHeader, requests: found.Builder, delta: info.Sessions == mooncake.SessionDelta,
		blocks: blocks{size: int64(opt.BlockSize), fine: int64(opt.FineBlockSize), engine: int64(found.CacheBlock)},
		warmup: newWarmup(s),
		schedule: schedule.Config{
			Slots: slots(s, info), SlotsOver: s.ConcurrencyRampUp, PrefillSlots: s.PrefillConcurrency, PrefillSlotsOver: s.PrefillRampUp, ClosedLoop: !info.Scheduled, OpenSessions: s.OpenLoop, Speedup: s.Speedup,
			Until: s.MaxDuration, Prepare: s.Prepare, Carry: info.Sessions == mooncake.SessionDelta,
		},
		lead: cfg.Lead, startAt: s.StartAt, fixed: s.Fixed, grace: s.Grace, ramp: max(s.Arrivals.RampUp, s.ConcurrencyRampUp, s.PrefillRampUp), steady: cfg.Steady,
		limits: limits{
			slo: cfg.SLO, goodput: cfg.GoodputGoal, maxErrors: *cfg.MaxErrorRate, abortErrors: cfg.AbortErrorRate, abortFailed: cfg.AbortErrors,
			abortAfter: int64(max(s.Concurrency, 10)), strictVerdict: cfg.StrictVerdict, allRows: cfg.Trace.MaxRows == 0,
		},
		telemetry: cfg.Telemetry, out: cfg.Out, page: !cfg.NoPage, slice: cfg.Slice, traceURL: cfg.TraceURL,
		sidecar: mooncake.Meta{
			Tool: "moonloop " + cfg.Tool, BlockSize: opt.BlockSize, FineBlockSize: opt.FineBlockSize,
			SessionMode: info.Sessions, TimeUnit: mooncake.UnitName(time.Millisecond),
			Transformations: []mooncake.Transformation{{
				Name: "replay", Parameters: map[string]any{"trace": in.name, "run": cfg.RunID},
				Effect: "the field \"result\" of each row has the row's result in this replay; the field \"replies\" is left out",
			}},
		},
	}
	if found.Carry {
		p.replies = func(o *carry.Options) {
			o.BlockSize, o.FineBlockSize, o.TokenIDs = opt.BlockSize, opt.FineBlockSize, opt.Form == prompt.Tokens
			o.Whole, o.Check, o.Elsewhere = info.Whole, found.Check, in.stream.Elsewhere
		}
	}
	if !info.Scheduled && cfg.Trace.LoopFor > 0 { // the times of a closed loop are not known in advance, so the clock ends it
		p.schedule.Until = cfg.Trace.LoopFor
	}
	p.describe(cfg, in, found)
	p.setTelemetry(cfg, in, found)
	return p
}

// describe sets the parts of the report that describe the plan.
func (p *plan) describe(cfg Config, in *input, found preflight.Findings) {
	info, opt := in.stream.Info(), found.Builder.Options()
	if t := cfg.Trace; t.Shards > 0 {
		p.shard = &report.Shard{Index: t.Shard, Of: t.Shards, Lookahead: fmt.Sprintf("%016x", info.Fingerprint)}
	}
	p.run = report.Run{
		ID: cfg.RunID, Labels: cfg.Labels, Tool: "moonloop", Version: cfg.Tool, Command: strings.Join(cfg.Command, " "),
		Target: hosts(cfg.Target), Endpoint: string(opt.Endpoint), Model: found.Model, Streaming: opt.Stream,
		GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.GOMAXPROCS(0),
	}
	p.settings = cfg.Settings
	if opt.Form == prompt.Tokens {
		p.run.TokenIDs = &report.TokenIDs{First: opt.TokenIDs.First, Last: opt.TokenIDs.Last()}
	} else {
		words, l := found.Words, opt.Words
		words.Count, words.Letters, words.Anchor, words.Digest = l.Len(), l.Letters(), l.Anchor(), l.Digest()
		words.Overhead = opt.Overhead - prompt.AnchorTokens
		p.run.Words = &words
	}
	p.run.Dataset = found.Dataset
	p.trace = report.Trace{
		Name: in.name, BlockSize: opt.BlockSize, SessionMode: info.Sessions.String(), Unit: in.unit(),
		Quarantine: in.quarantine.Name(),
	}
	if meta := in.trace.Meta(); meta != nil {
		for _, t := range meta.Transformations {
			p.trace.Transformations = append(p.trace.Transformations, t.Name)
		}
	}
	if info.Grid.Coarse {
		p.trace.Grid = info.Grid.Quantum
	}
	p.order = describeSchedule(cfg, info)
}

// describeSchedule describes the schedule so that it can be requested again.
func describeSchedule(cfg Config, info load.Info) report.Schedule {
	s := cfg.Schedule
	order := report.Schedule{Mode: report.ByTimestamps, Speedup: s.Speedup, Concurrency: slots(s, info), PrefillConcurrency: s.PrefillConcurrency, Warmup: s.Warmup, Seed: cfg.Prompt.Seed}
	switch a := s.Arrivals; {
	case a.AtOnce():
		order.Mode = report.AllAtOnce
	case a.Any():
		order.Mode, order.RequestRate, order.Arrival = report.AtRate, a.Rate, string(cmp.Or(a.Pattern, load.Poisson))
		if order.Users = a.Users; a.Users > 0 {
			order.Arrival = string(load.Constant)
		}
		if a.Pattern == load.Gamma {
			order.Burstiness = cmp.Or(a.Burstiness, 1)
		}
		for _, point := range a.Series {
			order.Series = append(order.Series, report.RatePoint{At: 1000 * point.Seconds, Rate: point.Rate})
		}
		if a.RampUp > 0 {
			order.RampUp, order.RampFrom, order.RampShape = clock.Millis(a.RampUp), a.RampFrom, string(cmp.Or(a.RampShape, load.RampLinear))
		}
	case !info.Timed:
		order.Mode, order.Speedup = report.ClosedLoop, 0
	}
	order.WarmupFor, order.WarmupGrace, order.WarmupConcurrency = clock.Millis(s.WarmupFor), clock.Millis(s.WarmupGrace), s.WarmupConcurrency
	if a := s.WarmupArrivals; a.Any() {
		order.WarmupRate, order.WarmupArrival = a.Rate, string(cmp.Or(a.Pattern, load.Poisson))
	}
	order.ConcurrencyRampUp, order.PrefillRampUp = clock.Millis(s.ConcurrencyRampUp), clock.Millis(s.PrefillRampUp)
	order.FileOrder = s.Arrivals.Any() && !info.Timed
	if len(cfg.Target.Further) > 0 {
		order.Balance = string(cmp.Or(cfg.Target.Balance, RoundRobin))
	}
	if d := cfg.Disconnect; d.Share > 0 {
		order.DisconnectShare, order.DisconnectAfter = d.Share, clock.Millis(d.After)
	}
	if s.Spread != load.SpreadNone {
		order.Spread = s.Spread.String()
	}
	order.Loop, order.LoopFor, order.LoopFresh = cfg.Trace.Loop, clock.Millis(cfg.Trace.LoopFor), cfg.Trace.LoopFresh
	if t := cfg.Trace; t.Shards > 0 {
		order.Shard = fmt.Sprintf("%d/%d", t.Shard, t.Shards)
	}
	return order
}

// hosts returns the hosts and ports of the engines, as in the URLs.
func hosts(t Target) string {
	var all []string
	for _, address := range t.URLs() {
		u, _ := url.Parse(address) // Validate has parsed it before
		all = append(all, u.Host)
	}
	return strings.Join(all, ", ")
}

// slots returns the maximum number of requests in flight; 0 = none.
func slots(s Schedule, info load.Info) int {
	if !info.Scheduled {
		return max(1, s.Concurrency)
	}
	return s.Concurrency
}

// setTelemetry adds the attributes of the run to the user's configuration of telemetry.
func (p *plan) setTelemetry(cfg Config, in *input, found preflight.Findings) {
	info, opt, t := in.stream.Info(), found.Builder.Options(), &p.telemetry
	t.Trace, t.SLO = in.name, cfg.SLO
	if meta := in.trace.Meta(); meta != nil {
		t.Digest = meta.Digests.Seq
	}
	t.RunID, t.Version, t.Model, t.Operation = cfg.RunID, cfg.Tool, found.Model, semconv.OperationChat
	switch opt.Endpoint {
	case prompt.Embeddings:
		t.Operation = semconv.OperationEmbeddings
	case prompt.Completions, prompt.Generate:
		t.Operation = semconv.OperationTextCompletion
	case prompt.Chat, prompt.Responses, prompt.Messages: // as above
	}
	if engine := serverOf(cfg.Target.URL); len(cfg.Target.Further) == 0 {
		t.ServerAddress, t.ServerPort = engine.Address, engine.Port
	} else {
		t.Engines = hosts(cfg.Target)
	}
	t.Speedup, t.BlockSize, t.FineBlockSize = cfg.Schedule.Speedup, opt.BlockSize, opt.FineBlockSize
	t.HashDomain = fmt.Sprintf("%08x", uint32(info.Fingerprint)) //nolint:gosec // 32 bits of a hash are the domain
	if meta := in.trace.Meta(); meta != nil && len(meta.HashDomains) == 1 {
		t.HashDomain = meta.HashDomains[0]
	}
}

// zero returns the time of offset 0 for a schedule that is about to start. Unless the start is fixed, it returns an error if the process
// was ready too late for startAt, because other shards may have begun.
func (p plan) zero(clk clock.Clock) (time.Duration, error) {
	ready := clk.Now() + p.lead
	if p.startAt.IsZero() {
		return ready, nil
	}
	zero := min(p.startAt.Sub(clk.Start()), longest)
	if late := ready - zero; late > 0 && !p.fixed {
		return 0, fmt.Errorf("start at %s: this process was ready %v too late, and sent nothing; give all shards the same later time, by which the slowest process has read the trace and probed its engine",
			p.startAt.Format(time.RFC3339Nano), late.Round(time.Millisecond))
	}
	return zero, nil
}
