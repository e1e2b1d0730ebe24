// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/agent/carry"
	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/report/page"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/convert"
	"github.com/moonloop/moonloop/internal/gcpace"
	"github.com/moonloop/moonloop/internal/live"
	"github.com/moonloop/moonloop/internal/objects"
	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/internal/timeslice"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/transform"
)

// startPace prepares the process for a run: short time slices, and the garbage collector's pace, which the caller stops. Tests that run many
// replays in one process replace it.
var startPace = func() *gcpace.Pace {
	timeslice.Shorten()
	return gcpace.Start()
}

// mostWarmup is the maximum of --warmup-concurrency.
const mostWarmup = 1024

// aMark describes the values of the steady-state flags.
const aMark = "a share such as 10%, a time such as 30s, or one before the end such as -30s"

// replayFlags has the configuration of a replay, and the flags of "moonloop replay" whose values it cannot hold as they are given.
type replayFlags struct {
	cfg agent.Config

	settings
	exports
	engineSecrets
	urls        []string
	shard       [2]int // index and number of shards
	loop        loops
	made        sourceSteps
	runs        int  // number of runs, one after the other
	runsFresh   bool // each with other prompts
	runsPause   time.Duration
	runsWarm    bool   // only the first one has a warm-up
	series      string // the file with a rate that changes over time
	extra       string // JSON
	progress    string
	percentiles report.Percentiles
	layout      report.Layout
	dryRun      string            // false, true or json
	as          string            // the tool for which the command line is written; used by translate
	resume      string            // the folder of a run that was cut short
	began       *report.Beginning // the beginning of the run to resume; nil if there is none, or if it is one of several
	warnings    []string          // from resolve
}

func newReplayCommand() *cobra.Command {
	cmd, _ := newReplay()
	return cmd
}

// newReplay returns the command with its flags, for other verbs that replay.
func newReplay() (*cobra.Command, *replayFlags) {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay TRACE",
		Short: "Replay a trace against an OpenAI-compatible engine",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				_ = f.args.Set("trace", args[0]) // every text is valid
			}
			if f.resume != "" {
				if err := f.readStored(cmd); err != nil {
					return err
				}
			}
			if err := f.apply(cmd); err != nil {
				return hintError{err, listsFlags(cmd)}
			}
			if f.resume != "" {
				if err := f.goOn(); err != nil {
					return err
				}
			}
			if len(args) > 1 || len(args) == 0 && f.cfg.Trace.Name == "" && !f.print {
				return hintError{fmt.Errorf("replay takes one trace, %d were given", len(args)), "name a file, a URL, or - for standard input"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if objects.IsURL(f.cfg.Trace.Name) { // Args read it before the stage replaced {today}, or the settings name it
				f.cfg.Trace.Name = objects.OnDay(f.cfg.Trace.Name, time.Now())
			}
			f.cfg.Settings = f.effective(cmd)
			if f.print {
				if err := writeSettings(cmd.OutOrStdout(), f.cfg.Settings); err != nil {
					return err
				}
			}
			if err := f.resolve(cmd.Context(), cmd.Flags()); err != nil || f.print {
				return err
			}
			for _, text := range f.warnings {
				fmt.Fprint(cmd.ErrOrStderr(), term.Note(cmd.ErrOrStderr(), "warning: "+text))
			}
			remove, err := f.made.make(cmd, &f)
			defer remove()
			if err != nil {
				return err
			}
			if f.cfg.DryRun {
				return dryRun(cmd, f.cfg, f.dryRun)
			}
			if f.runs > 1 {
				return f.replayRuns(cmd)
			}
			return f.replay(cmd, f.cfg)
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().SetNormalizeFunc(peerNames)
	return cmd, &f
}

func (f *replayFlags) register(fs *pflag.FlagSet) {
	c := &f.cfg

	listVar(fs, &f.urls, "url,u", that("http://host:port or https://host:port", isBaseURL))
	wordVar(fs, &c.Target.Balance, "balance", agent.RoundRobin, agent.Balances()...)
	add(fs, &c.Target.InstanceHeader, "instance-header", "", that("the name of a header", isRecordable))
	add(fs, &c.Target.SessionHeader, "session-header", "X-Session-Id", that("the name of a header", isSessionHeader))
	pairsVar(fs, &c.Target.Posts, "engine-post", "WHEN=PATH, where WHEN is before, start or end, such as before=/reset_prefix_cache", agent.ParsePosts)
	add(fs, &c.Target.Model, "model,m", "", aModel)
	wordVar(fs, &c.Prompt.Endpoint, "endpoint", prompt.Chat, prompt.Endpoints()...)
	wordVar(fs, &c.Target.Profile, "profile", prompt.Auto, prompt.Profiles()...)
	add(fs, &c.Schedule.Speedup, "speedup", 1, number(1e-6, 1e9))
	textVar(fs, &c.Schedule.Spread, "spread", "none", "", transform.ParseSpread).rule = oneOf("none", "uniform", "even")
	add(fs, &c.Schedule.Arrivals.Rate, "request-rate", 0, aRate)
	add(fs, &f.series, "request-rate-series", "", aFile)
	wordVar(fs, &c.Schedule.Arrivals.Pattern, "arrival", load.Poisson, load.Constant, load.Poisson, load.Gamma)
	add(fs, &c.Schedule.Arrivals.Burstiness, "burstiness", 1, number(load.MinBurstiness, load.MaxBurstiness))
	add(fs, &c.Schedule.Arrivals.Users, "users", 0, whole(0, load.MaxUsers))
	add(fs, &c.Schedule.Arrivals.RampUp, "ramp-up", 0)
	add(fs, &c.Schedule.Arrivals.RampFrom, "ramp-up-from", 0, number(0, load.MaxRate))
	wordVar(fs, &c.Schedule.Arrivals.RampShape, "ramp-up-shape", load.RampLinear, load.RampLinear, load.RampExponential)
	add(fs, (*traceTime)(&c.Trace.Start), "start", 0)
	add(fs, (*traceTime)(&c.Trace.End), "end", 0)
	add(fs, &c.Trace.MaxRows, "max-requests", 0, whole(0, maxRows))
	add(fs, &c.Schedule.MaxDuration, "max-duration", 0)
	add(fs, &c.Steady.Auto, "steady-state", false)
	textVar(fs, &c.Steady.From, "steady-from", "", aMark, agent.ParseMark)
	textVar(fs, &c.Steady.To, "steady-to", "", aMark, agent.ParseMark)
	textVar(fs, &f.loop, "loop", "", "a number of passes from 1 to 1,000,000, or a duration with its unit, such as 30m", parseLoop)
	add(fs, &c.Trace.LoopFresh, "loop-fresh", false)
	add(fs, &f.runs, "runs", 1, whole(1, maxRuns))
	add(fs, &f.runsFresh, "runs-fresh", false)
	add(fs, &f.runsPause, "runs-pause", 0)
	eitherVar(fs, &f.runsWarm, "runs-warmup", "each", "first")
	add(fs, &c.Schedule.Grace, "grace", 30*time.Second)
	add(fs, &c.Schedule.Prepare, "prepare", 2*time.Millisecond, lasting(0, time.Second, "from 0 to 1s"))
	add(fs, &c.Schedule.Concurrency, "concurrency,c", 0)
	add(fs, &c.Schedule.PrefillConcurrency, "prefill-concurrency", 0)
	add(fs, &c.Schedule.ConcurrencyRampUp, "concurrency-ramp-up", 0)
	add(fs, &c.Schedule.PrefillRampUp, "prefill-concurrency-ramp-up", 0)
	add(fs, &c.Schedule.FileOrder, "no-fixed-schedule", false)
	add(fs, &c.Schedule.OpenLoop, "open-loop", false)
	add(fs, &c.Schedule.Warmup, "warmup-requests", 0, whole(0, 1_000_000))
	add(fs, &c.Schedule.WarmupFor, "warmup-duration", 0)
	add(fs, &c.Schedule.WarmupGrace, "warmup-grace", 0)
	add(fs, &c.Schedule.WarmupConcurrency, "warmup-concurrency", 0, whole(0, mostWarmup))
	add(fs, &c.Schedule.WarmupConcurrencyRampUp, "warmup-concurrency-ramp-up", 0)
	add(fs, &c.Schedule.WarmupPrefillConcurrency, "warmup-prefill-concurrency", 0, whole(0, 1024))
	add(fs, &c.Schedule.WarmupPrefillRampUp, "warmup-prefill-ramp-up", 0)
	add(fs, &c.Schedule.WarmupArrivals.Rate, "warmup-request-rate", 0, aRate)
	wordVar(fs, &c.Schedule.WarmupArrivals.Pattern, "warmup-arrival", load.Poisson, load.Constant, load.Poisson, load.Gamma)
	add(fs, &c.Schedule.WarmupArrivals.RampUp, "warmup-ramp-up", 0)
	textVar(fs, &f.shard, "shard", "", "i/n with 0 ≤ i < n, such as 0/4, or auto/n", parseShard)
	textVar(fs, &c.Schedule.StartAt, "start-at", "", "a future time, such as 2026-11-21T15:04:05Z, or a time of day in UTC, such as 03:10", parseStartAt)
	add(fs, &c.Schedule.ClockReference, "clock-reference", "", that("the host of an NTP server, with or without a port, such as pool.ntp.org", isHost))
	textVar(fs, &c.Trace.Sessions, "session-mode", "", "", mooncake.ParseSessionMode).rule = oneOf("full", "delta")
	textVar(fs, &c.Trace.Unit, "time-unit", "", "", mooncake.ParseUnit).rule = timeUnit
	mapVar(fs, &c.Trace.Map)
	add(fs, &c.Trace.BlockSize, "block-size", 0, whole(minReplayBlock, mooncake.MaxBlockSize))
	add(fs, &c.Trace.FineBlockSize, "fine-block-size", 0, blockSize)
	wordVar(fs, &f.made.from, "from", "", convert.Formats()...)
	listVar(fs, &f.made.steps, "transform", aTransform)
	add(fs, &c.Trace.Lookahead, "lookahead", load.DefaultLookahead, whole(1, 1<<24))
	add(fs, &c.Trace.Strict, "strict", false)
	add(fs, &c.Trace.Lenient, "lenient", false)
	add(fs, &c.Trace.Quarantine, "quarantine", "", aFile)
	wordVar(fs, &c.Prompt.Form, "prompt", "", prompt.Words, prompt.Tokens)
	add(fs, &c.Prompt.Dataset, "dataset", "", aFile)
	add(fs, &c.Prompt.Tokenizer, "tokenizer", "", aTokenizer)
	add(fs, &c.Prompt.Images.Each, "images", 0, whole(0, mooncake.MaxImages))
	textVar(fs, &c.Prompt.Images.Size, "image-size", "512x512", "a size in pixels, such as 1024x768, of at most 8192 a side and 4096x4096 in all", prompt.ParseImageSize)
	wordVar(fs, &c.Prompt.Images.Format, "image-format", prompt.PNG, prompt.PNG, prompt.JPEG)
	add(fs, &c.Prompt.Images.Tokens, "image-tokens", 0, whole(0, 1<<20))
	add(fs, &c.Prompt.Seed, "seed", 0)
	add(fs, &c.Prompt.Overhead, "overhead", 0, whole(0, 1<<20))
	wordVar(fs, &c.Prompt.TooShort, "too-short", prompt.SendOneWord, prompt.SendOneWord, prompt.Skip)
	add(fs, &c.Prompt.Output, "output-length", 0, whole(0, maxTokens))
	add(fs, &c.Prompt.OutputCap, "max-output-length", 0, whole(0, maxTokens))
	add(fs, &f.extra, "extra-inputs", "", rule{want: `a JSON object, such as {"temperature": 0}`, ok: isObject, secret: true, long: true})
	pairsVar(fs, &c.Prompt.Priorities, "priority", "CLASS=N, such as batch=10", prompt.ParsePriorities)
	wordVar(fs, &c.Prompt.Carry, "carry-replies", carry.Auto, carry.Auto, carry.Always, carry.Never)
	bytesVar(fs, &c.Prompt.CarryBytes, "carry-memory", carry.DefaultBytes, 1<<10, "of at least 1KiB")
	add(fs, &c.Prompt.NoStream, "no-stream", false)
	f.engineSecrets.register(fs)
	add(fs, &c.Disconnect.Share, "cancel-share", 0, share)
	add(fs, &c.Disconnect.After, "cancel-after", 0)
	add(fs, &c.Target.HTTP2, "http2", false)
	wordVar(fs, &c.Target.Connections, "connections", send.ReuseAny, send.ReuseAny, send.ReuseNever, send.ReuseSession)
	eitherVar(fs, &c.Target.ReadStamps, "arrival-stamps", "kernel", "read")
	add(fs, &c.Target.CacheBlock, "engine-block-size", 0, whole(0, mooncake.MaxBlockSize))
	add(fs, &c.Target.Retries, "retries", 0, whole(0, 1000))
	add(fs, &c.Target.WaitReady, "wait-ready", 0)
	add(fs, &c.Target.ConnectTimeout, "connect-timeout", 10*time.Second)
	add(fs, &c.Target.FirstTokenTimeout, "first-token-timeout", 0)
	add(fs, &c.Target.IdleTimeout, "idle-timeout", 5*time.Minute)
	add(fs, &c.Target.TotalTimeout, "request-timeout", 6*time.Hour)
	textVar(fs, &c.SLO, "slo", "", "", measure.ParseSLO).rule = explains("name=duration pairs, where name is ttft, ttst, itl, tpot, e2e, ttfo or decode, such as ttft=500ms,itl=50ms", measure.ParseSLO)
	add(fs, &c.GoodputGoal, "goodput-goal", 0, share)
	c.MaxErrorRate = new(float64)
	add(fs, c.MaxErrorRate, "max-error-rate", agent.DefaultMaxErrorRate, share)
	add(fs, &c.AbortErrorRate, "abort-error-rate", 0, share)
	add(fs, &c.AbortErrors, "abort-errors", 0, whole(0, maxRows))
	add(fs, &c.StrictVerdict, "strict-verdict", false)
	wordVar(fs, &c.Telemetry.TokenEvents, "token-events", telemetry.EventsAll, telemetry.EventsAll, telemetry.EventsArray, telemetry.EventsFirst, telemetry.EventsNone)
	eitherVar(fs, &c.Telemetry.ExplicitHistograms, "histograms", "exponential", "explicit")
	add(fs, &c.Telemetry.Endpoint, "otlp-endpoint", "", that("http://host:port or https://host:port", isEndpoint))
	wordVar(fs, &c.Telemetry.Protocol, "otlp-protocol", "", telemetry.ProtocolGRPC, telemetry.ProtocolHTTP)
	f.dryRunVar(fs)
	add(fs, &c.Out, "out", "", anyText("a folder"))
	add(fs, &c.Force, "force", false)
	add(fs, &f.resume, "resume", "", anyText("the folder of a run that was cut short"))
	add(fs, &c.SavePrompts, "save-prompts", "", aFile)
	add(fs, &c.NoPage, "no-report-page", false)
	f.exports.register(fs)
	add(fs, &c.Slice, "slice", page.DefaultSlice, aSlice)
	add(fs, &c.TraceURL, "trace-url", "", aTraceURL)
	add(fs, &c.RunID, "run-id", "", runID)
	labelVar(fs, &c.Labels)
	textVar(fs, &f.percentiles, "percentiles", "", "some of 1, 5, 10, 25, 50, 75, 90, 95, 99 and 99.9, such as 50,95,99", report.ParsePercentiles)
	wordVar(fs, &f.layout, "table", report.LayoutMoonloop, report.LayoutMoonloop, report.LayoutTraceReplay)
	args := pflag.NewFlagSet("", pflag.ContinueOnError)
	add(args, &c.Trace.Name, "trace", "", anyText("a file, a URL, or - for standard input"))
	f.settings.register(fs, args)
	wordVar(fs, &f.as, "as", "", aiperf, vllm, guidellm, traceReplay)
	wordVar(fs, &f.progress, "progress", "auto", "auto", "live", "bar", "lines", "none")
}

// resolve completes the configuration and returns all errors in it.
func (f *replayFlags) resolve(ctx context.Context, fs *pflag.FlagSet) error {
	c := &f.cfg
	c.Trace.Shard, c.Trace.Shards = f.shard[0], f.shard[1]
	c.DryRun = f.dryRun != dryRunOff
	c.Trace.Loop, c.Trace.LoopFor = f.loop.passes, f.loop.lasting
	if f.extra != "" {
		c.Prompt.Extra = json.RawMessage(f.extra)
	}
	if a := &c.Schedule.Arrivals; fs.Changed("burstiness") && !fs.Changed("arrival") && a.Burstiness != 1 {
		a.Pattern = load.Gamma
	}
	if a := &c.Schedule.Arrivals; a.Users > 0 && !fs.Changed("arrival") {
		a.Pattern = load.Constant
	}
	if w := &c.Schedule.WarmupArrivals; w.Pattern == load.Gamma {
		w.Burstiness = c.Schedule.Arrivals.Burstiness
	}
	var err error
	if f.series != "" && !fs.Changed("request-rate") {
		if c.Schedule.Arrivals.Series, err = readSeries(ctx, f.series); err == nil {
			c.Schedule.Arrivals.Rate = c.Schedule.Arrivals.Series[0].Rate
		}
	}
	// In the configuration, 0 stands for the default.
	for name, d := range map[string]*time.Duration{"grace": &c.Schedule.Grace, "prepare": &c.Schedule.Prepare} {
		if fs.Changed(name) && *d == 0 {
			*d = time.Nanosecond
		}
	}
	f.headers.source = f.from["header"]
	for i, address := range f.urls {
		switch {
		case i == 0:
			c.Target.URL = address
		case !slices.Contains(f.urls[:i], address):
			c.Target.Further = append(c.Target.Further, address)
		}
	}
	var secretsErr error
	f.warnings, secretsErr = f.engineSecrets.read(ctx, &c.Target)
	err = errors.Join(err, secretsErr)
	for _, address := range c.Target.URLs() {
		name := secretQuery(address)
		switch from := f.from["url"]; {
		case name == "" || from.kind == fromEnvironment:
		case from.kind == fromFile:
			f.warnings = append(f.warnings, fmt.Sprintf("%s: %s in the query of the URL is in plain text in a file, which is easily passed on; use header: \"@FILE\" if the engine takes it as a header", from.at, name))
		default:
			f.warnings = append(f.warnings, fmt.Sprintf("--url: every user of this machine can read %s in its query in the list of processes; use -H @FILE if the engine takes it as a header", name))
		}
	}
	f.warnings = append(f.warnings, exposure([2]string{"--api-key-file", f.apiKeyFile}, [2]string{"--key-file", f.key})...)
	c.Telemetry.OtherSpanExporter, c.Telemetry.OtherMetricReader = otherSpanExporter, otherMetricReader
	if !c.Force && f.resume == "" {
		err = errors.Join(err, f.exports.check())
	}
	return errors.Join(err, f.contradictions(fs), inFlags(c.Validate(), fs))
}

// contradictions returns errors for flags that contradict others, or have no effect with them. Some of the latter are only warnings.
func (f *replayFlags) contradictions(fs *pflag.FlagSet) error {
	var errs []error
	refuse := func(when bool, text string) {
		if when {
			errs = append(errs, errors.New(text))
		}
	}
	c := &f.cfg
	a := c.Schedule.Arrivals
	for _, name := range []string{"start", "end", "prepare"} {
		refuse(c.Schedule.FileOrder && fs.Changed(name) && (name != "prepare" || !a.Any()),
			"--"+name+" has no effect with --no-fixed-schedule, which ignores the timestamps: leave one of the two out")
	}
	for _, name := range []string{"arrival", "burstiness"} {
		refuse((!a.Any() || a.AtOnce()) && fs.Changed(name) && (name != "burstiness" || a.Burstiness != 1),
			"--"+name+" has no effect without --request-rate and a number: give both or neither")
	}
	for _, name := range []string{"ramp-up-from", "ramp-up-shape"} {
		refuse(a.RampUp == 0 && fs.Changed(name), "--"+name+" has no effect without --ramp-up: give both or neither")
	}
	for _, name := range readingFlags {
		refuse(f.made.from != "" && fs.Changed(name) && name != "block-size", "--"+name+" has no effect with --from, which knows how the file is read: leave one of the two out")
	}
	refuse(fs.Changed("balance") && len(c.Target.Further) == 0, "--balance has no effect with one --url: give several, or leave it out")
	refuse(fs.Changed("cancel-after") && c.Disconnect.Share == 0, "--cancel-after has no effect without --cancel-share: give both or neither")
	refuse(c.Target.HTTP2 && fs.Changed("prepare"),
		"--prepare has no effect with --http2, whose headers are sent at once: leave one of the two out")
	refuse(c.Target.APIKey != "" && c.Target.Header.Get("Authorization") != "",
		"an Authorization header and --api-key-env or --api-key-file: a request has one of them; leave the other out")
	refuse(fs.Changed("grace") && c.Schedule.MaxDuration == 0 && c.AbortErrorRate == 0 && c.AbortErrors == 0,
		"--grace has no effect without --max-duration, --abort-error-rate or --abort-errors: give one of these, or leave it out")
	refuse(f.series != "" && fs.Changed("request-rate"), "--request-rate and --request-rate-series: the first is constant, the second changes over time; leave one of the two out")
	for _, name := range []string{"warmup-arrival", "warmup-ramp-up"} {
		refuse(fs.Changed(name) && !c.Schedule.WarmupArrivals.Any(), "--"+name+" has no effect without --warmup-request-rate: give both or neither")
	}
	for _, name := range []string{
		"warmup-grace", "warmup-concurrency", "warmup-concurrency-ramp-up", "warmup-prefill-concurrency", "warmup-prefill-ramp-up", "warmup-request-rate",
	} {
		refuse(fs.Changed(name) && c.Schedule.Warmup == 0 && c.Schedule.WarmupFor == 0,
			"--"+name+" has no effect without a warm-up: give --warmup-duration or --warmup-requests, or leave it out")
	}
	refuse(f.runs > 1 && c.Out == "" && !c.DryRun, "--runs needs a folder for the results of each run: give --out DIR")
	refuse(f.runs > 1 && c.Trace.Name == "-", "--runs and a trace from standard input, which can be read only once: name a file")
	refuse(f.runs > 1 && c.SavePrompts != "", "--runs and --save-prompts: each run would write the same file; leave one of the two out")
	refuse(f.runs > 1 && !c.Schedule.StartAt.IsZero(), "--runs and --start-at: only the first run can start then; leave one of the two out")
	refuse(f.runs > 1 && f.exports.any(), "--runs and --xlsx or --parquet: make them from the folder of each run afterwards, with moonloop report")
	refuse(f.exports.any() && c.Out == "", "without --out there are no results to make --xlsx and --parquet from; give --out DIR, too")
	refuse(c.Schedule.OpenLoop && c.Trace.Sessions == mooncake.SessionDelta,
		"--open-loop and --session-mode delta: a new turn carries the reply before it, and has to wait for that: leave one of the two out")
	if c.Trace.LoopFresh && c.Trace.Loop < 2 && c.Trace.LoopFor == 0 {
		f.warnings = append(f.warnings, "--loop-fresh has no effect without --loop: the trace is sent once")
	}
	for _, name := range []string{"force", "no-report-page", "slice", "trace-url"} {
		if fs.Changed(name) && c.Out == "" && (name != "force" || c.SavePrompts == "") {
			f.warnings = append(f.warnings, "--"+name+" has no effect without --out: no results are written")
		}
	}
	for _, name := range []string{"runs-pause", "runs-warmup"} {
		if fs.Changed(name) && f.runs < 2 {
			f.warnings = append(f.warnings, "--"+name+" has no effect without --runs: there is one run")
		}
	}
	if f.runsFresh && f.runs < 2 {
		f.warnings = append(f.warnings, "--runs-fresh has no effect without --runs: there is one run")
	}
	if c.Schedule.FileOrder && fs.Changed("speedup") {
		f.warnings = append(f.warnings, "--speedup divides only the delays between turns here: --no-fixed-schedule ignores the timestamps")
	} else if a.Any() && fs.Changed("speedup") {
		f.warnings = append(f.warnings, "--speedup divides only the delays between turns here: --request-rate replaces the timestamps")
	}
	return errors.Join(errs...)
}

// readSeries reads a rate that changes over time.
func readSeries(ctx context.Context, name string) ([]load.RatePoint, error) {
	text, err := readSmallFile(ctx, name, maxSettingsFile)
	if err != nil {
		return nil, fmt.Errorf("--request-rate-series %s: %s; name a JSON file, such as one of {\"points\": [{\"time_s\": 0, \"qps\": 5}, {\"time_s\": 60, \"qps\": 20}]}", quoted(name), reason(err))
	}
	points, err := load.ParseSeries([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("--request-rate-series %s: %w", quoted(name), err)
	}
	return points, nil
}

// dryRunVar adds a switch that may also have a value: the form of the output.
func (f *replayFlags) dryRunVar(fs *pflag.FlagSet) {
	f.dryRun = dryRunOff
	(&flagValue{
		kind: "bool", rule: oneOf(dryRunText, dryRunOff, dryRunJSON), text: func() string { return f.dryRun },
		set: func(text string) error { f.dryRun = text; return nil },
	}).register(fs, "dry-run")
}

// parseStartAt parses a future time. A time of day, which nightly jobs use, means the nearest one: a time that has just passed must not become
// tomorrow's.
func parseStartAt(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339Nano, text)
	if clock, e := time.Parse("15:04", text); e == nil {
		now := time.Now().UTC()
		at, err = time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), 0, 0, time.UTC), nil
		const half = 12 * time.Hour
		switch away := at.Sub(now); {
		case away > half:
			at = at.Add(-2 * half)
		case away <= -half:
			at = at.Add(2 * half)
		}
	}
	switch ahead := time.Until(at); {
	case err != nil:
		return time.Time{}, err
	case ahead <= 0:
		return time.Time{}, advice("it is in the past; want a future time, the same for every shard")
	case ahead > century:
		return time.Time{}, advice("it is more than 100 years ahead; want an earlier time")
	}
	return at, nil
}

// loops is how often a trace is sent: a number of times, or again and again for a duration.
type loops struct {
	passes  int
	lasting time.Duration
}

func parseLoop(text string) (loops, error) {
	if n, err := strconv.Atoi(text); err == nil {
		return loops{passes: n}, wrongUnless(n >= 1 && n <= 1_000_000)
	}
	d, err := time.ParseDuration(text)
	return loops{lasting: d}, errors.Join(err, wrongUnless(d > 0 && d <= century))
}

// traceTime is a flag in the time of a trace.
type traceTime time.Duration

func (t traceTime) String() string {
	if t == 0 {
		return ""
	}
	return time.Duration(t).String()
}

// parseTraceTime parses a time of a trace: a duration, or a bare number of milliseconds as in trace files.
func parseTraceTime(text string) (time.Duration, error) {
	if ms, err := parseFloat(text); err == nil {
		return mooncake.Duration(ms), wrongUnless(math.Abs(ms) <= float64(century/time.Millisecond)) // NaN, too, is wrong
	}
	return time.ParseDuration(text)
}

// indexVariables have the index of a process among those that a launcher starts: an Indexed Job of Kubernetes, Cloud Run, AWS Batch,
// Google's Batch, job arrays of Slurm, srun, Open MPI, and PMI (MPICH, Intel MPI).
var indexVariables = []string{
	"JOB_COMPLETION_INDEX", "CLOUD_RUN_TASK_INDEX", "AWS_BATCH_JOB_ARRAY_INDEX", "BATCH_TASK_INDEX",
	"SLURM_ARRAY_TASK_ID", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
}

// parseShard parses the index of a shard and the number of shards.
func parseShard(text string) (of [2]int, err error) {
	i, n, _ := strings.Cut(text, "/")
	if i == "auto" {
		at := slices.IndexFunc(indexVariables, func(name string) bool { return os.Getenv(name) != "" })
		if at < 0 {
			return of, advice("no launcher says which shard this is: none of " + strings.Join(indexVariables, ", ") + " is set; give the index, such as 0/4")
		}
		i = os.Getenv(indexVariables[at])
		index, errI := strconv.Atoi(i)
		if count, errN := strconv.Atoi(n); errN == nil && (errI != nil || index < 0 || index >= count) {
			return of, advice(fmt.Sprintf("%s is %q; indices of %d shards are 0 to %d", indexVariables[at], i, count, count-1))
		}
	}
	shard, errI := strconv.Atoi(i)
	shards, errN := strconv.Atoi(n)
	return [2]int{shard, shards}, errors.Join(errI, errN, wrongUnless(shard >= 0 && shard < shards))
}

// peerNames lets users of other tools use the names that they know.
func peerNames(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if ours, known := peers[name]; known {
		name = ours
	}
	return pflag.NormalizedName(name)
}

// replay runs a replay, shows its progress on standard error and its report on standard output.
func (f *replayFlags) replay(cmd *cobra.Command, cfg agent.Config) error {
	progressMode := f.progress
	stderr, stdout := cmd.ErrOrStderr(), cmd.OutOrStdout()
	switch interactive := term.IsInteractive(stderr); {
	case progressMode == "auto" && interactive:
		progressMode = "live"
	case progressMode == "live" && !interactive:
		progressMode = "lines" // a screen cannot be drawn there
	}
	var screen atomic.Pointer[live.Screen]
	view := term.NewProgress(stderr, progressMode)
	cfg.Trace.Stdin = cmd.InOrStdin()
	cfg.Tool = version()
	cfg.Command = publicCommand(cmd, []string{cfg.Trace.Source()})
	say := func(text string) {
		if s := screen.Load(); s != nil {
			s.Println(strings.TrimSuffix(term.Note(stderr, text), "\n"))
			return
		}
		fmt.Fprint(stderr, term.Note(stderr, text))
	}
	if progressMode != "none" { // without a display, the run is not followed
		cfg.Progress = func(run *agent.Live) {
			if progressMode == "live" {
				screen.Store(live.Show(stderr, run.Look))
				return
			}
			view.Show(run.Line)
		}
	}
	cfg.Note = say
	cfg.Warn = func(text string) { say("warning: " + text) }
	defer telemetry.CatchSDK(cfg.Warn)()
	pace := startPace()
	defer pace.Stop()
	cfg.Ended = pace.Rest
	// The reader of our output may end first, as when a terminal is closed; the results are still written.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	rep, err := agent.Run(cmd.Context(), cfg)
	view.Stop(true)
	if s := screen.Load(); s != nil {
		s.Close()
	}
	signal.Stop(broken)
	if rep != nil {
		rep.Percentiles, rep.Layout = f.percentiles, f.layout
		if err := rep.Table(stdout, term.Width(stdout), term.Colours(stdout)); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
		if cfg.Out != "" && err == nil {
			sayWhere(cmd, cfg.Out, fmt.Sprintf("results in %s\n", cfg.Out))
			if rep.Figures().Rows.Total > 0 {
				err = f.exports.write(cmd, cfg.Out, cfg.Slice)
			}
			fmt.Fprint(stdout, resumeAdvice(cfg.Out))
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return hintError{err, "--force replaces results once the new ones are complete; records of a run that did not end are discarded at once"}
	}
	if err != nil {
		return err
	}
	return exitWith(rep.ExitStatus)
}
