// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/agent/carry"
	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/mooncake"
)

// replayFlags are the flags of "moonloop replay" as text, where the configuration wants something else.
type replayFlags struct {
	cfg agent.Config

	unit, sessions        string
	spread, shard         string
	extra                 string
	headers               headerFlags
	apiKeyEnv, apiKeyFile string
	ca, cert, key         string
	insecure              bool
	slo, startAt          string
	progress              string
	stamps                string
	carryMemory           string
	warnings              []string // of resolve
}

func newReplayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay TRACE",
		Short: "Replay a trace against an OpenAI-compatible engine",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return hintError{fmt.Errorf("replay takes one trace, %d were given", len(args)), "name a file, a URL, or - for standard input"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f.cfg.Trace.Name = args[0]
			if err := f.resolve(cmd.Context(), cmd.Flags()); err != nil {
				return err
			}
			for _, text := range f.warnings {
				fmt.Fprintf(cmd.ErrOrStderr(), "moonloop: warning: %s\n", text)
			}
			return replay(cmd, f.cfg, f.progress)
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().SetNormalizeFunc(peerNames)
	return cmd
}

func (f *replayFlags) register(fs *pflag.FlagSet) {
	fs.SortFlags = false
	c := &f.cfg

	fs.StringVarP(&c.Target.URL, "url", "u", "", "base `URL` of the engine, with or without /v1")
	fs.StringVarP(&c.Target.Model, "model", "m", "", "`NAME` of the model to request, whatever rows name (default: the row's own, else the first that the engine lists)")
	fs.StringVar((*string)(&c.Prompt.Endpoint), "endpoint", string(prompt.Chat), "API endpoint: chat or completions")
	fs.StringVar((*string)(&c.Target.Profile), "profile", string(prompt.Auto), "request fields that the engine understands: "+strings.Join(profileNames(), ", "))
	under(fs, "Engine")

	fs.Float64Var(&c.Schedule.Speedup, "speedup", 1, "divide the trace's times by this")
	fs.StringVar(&f.spread, "spread", "none", "smooth bursts caused by coarse timestamps: none, uniform (random) or even")
	fs.Var((*traceTime)(&c.Trace.Start), "start", "skip rows before this `TIME` after the first row (90s, 5m, or a number of milliseconds)")
	fs.Var((*traceTime)(&c.Trace.End), "end", "skip rows after this `TIME` after the first row")
	fs.Int64Var(&c.Trace.MaxRows, "max-requests", 0, "stop after N rows (0 = all)")
	fs.DurationVar(&c.Schedule.MaxDuration, "max-duration", 0, "send no request after this much replay time (0 = no limit)")
	fs.DurationVar(&c.Schedule.Grace, "grace", 30*time.Second, "time for in-flight requests to finish after --max-duration or --abort-error-rate")
	fs.DurationVar(&c.Schedule.Prepare, "prepare", 2*time.Millisecond, "prepare each request and its connection this long before it is due (at most 1s)")
	fs.IntVarP(&c.Schedule.Concurrency, "concurrency", "c", 0, "maximum number of in-flight requests; size of a closed loop (0 = no cap; 1 without timestamps)")
	fs.BoolVar(&c.Schedule.FileOrder, "no-fixed-schedule", false, "ignore timestamps: send rows in file order, --concurrency at a time (closed loop)")
	fs.BoolVar(&c.Schedule.OpenLoop, "open-loop", false, "send each turn of a session at its own timestamp, without waiting for the turn before")
	fs.IntVar(&c.Schedule.Warmup, "warmup-requests", 0, "send N requests before the schedule starts; no figure includes them")
	fs.StringVar(&f.shard, "shard", "", "replay part i of n, written `i/n` (i from 0); sessions are not split")
	fs.StringVar(&f.startAt, "start-at", "", "start the schedule at this wall-clock `TIME` (RFC 3339), for shards on several machines")
	under(fs, "Load")

	fs.StringVar(&f.sessions, "session-mode", "", "what the rows of a session hold: full (whole prompts) or delta (new turns) (default: from TRACE.meta.json, else detected)")
	fs.StringVar(&f.unit, "time-unit", "", "unit of timestamps: ms, s or us; delays are always in ms (default: from TRACE.meta.json, else ms)")
	fs.IntVar(&c.Trace.BlockSize, "block-size", 0, "tokens per hash id (default: from TRACE.meta.json, else 512)")
	fs.IntVar(&c.Trace.FineBlockSize, "fine-block-size", 0, "tokens per id of hash_ranges (default: from TRACE.meta.json)")
	fs.IntVar(&c.Trace.Lookahead, "lookahead", load.DefaultLookahead, "number of rows to read ahead and sort; a row further out of order is an error")
	fs.BoolVar(&c.Trace.Strict, "strict", false, "treat tolerated flaws as errors (unknown fields, ids past the input length, ...)")
	fs.BoolVar(&c.Trace.Lenient, "lenient", false, "skip rows that cannot be used and write them to the quarantine file, instead of refusing the trace")
	fs.StringVar(&c.Trace.Quarantine, "quarantine", "", "`FILE` for the rows that --lenient skips (default: TRACE.rejected.jsonl in --out)")
	under(fs, "Trace")

	fs.StringVar((*string)(&c.Prompt.Form), "prompt", "", "form of prompts: words or tokens (default: tokens if endpoint and profile accept token ids, else words)")
	fs.Uint64Var(&c.Prompt.Seed, "seed", 0, "seed of prompts and smoothing; change it to avoid hitting the engine's warm cache")
	fs.IntVar(&c.Prompt.Overhead, "overhead", 0, "tokens that the chat template adds to a prompt (0 = measured by two calibration requests for each model)")
	fs.StringVar((*string)(&c.Prompt.TooShort), "too-short", string(prompt.SendOneWord), "what to do with rows shorter than the chat template: send (longer than asked, flagged) or skip")
	fs.Int64Var(&c.Prompt.Output, "output-length", 0, "output tokens of rows without an output length (0 = the engine decides)")
	fs.Int64Var(&c.Prompt.OutputCap, "max-output-length", 0, "cap on output tokens (0 = none)")
	fs.StringVar(&f.extra, "extra-inputs", "", "`JSON` object merged into every request body; not shown in any output")
	fs.StringVar((*string)(&c.Prompt.Carry), "carry-replies", string(carry.Auto), "put the replay's own replies where the trace says that earlier replies stood: auto (if their tokens are known), always or never")
	fs.StringVar(&f.carryMemory, "carry-memory", humanize.IBytes(carry.DefaultBytes), "memory for replies that later rows need")
	fs.BoolVar(&c.Prompt.NoStream, "no-stream", false, "request whole replies instead of streams")
	under(fs, "Prompts and replies")

	fs.StringArrayVarP(&f.headers.lines, "header", "H", nil, "extra header, \"`Name: value`\", or @FILE with one header a line (repeatable)")
	fs.StringArrayVar(&f.headers.env, "header-env", nil, "extra header whose value is in an environment variable, `Name=VARIABLE` (repeatable)")
	fs.StringVar(&f.apiKeyEnv, "api-key-env", "", "name of the environment `VARIABLE` that holds the bearer key")
	fs.StringVar(&f.apiKeyFile, "api-key-file", "", "`FILE` that holds the bearer key")
	fs.StringVar(&f.ca, "ca-file", "", "PEM `FILE` of the certificate authorities to trust for the engine")
	fs.StringVar(&f.cert, "cert-file", "", "PEM `FILE` of the client certificate")
	fs.StringVar(&f.key, "key-file", "", "PEM `FILE` of the client certificate's key")
	fs.BoolVar(&f.insecure, "insecure-skip-verify", false, "do not verify the engine's certificate")
	under(fs, "Keys and certificates")

	fs.BoolVar(&c.Target.HTTP2, "http2", false, "use HTTP/2 if the engine offers it (makes arrival timestamps coarser)")
	fs.StringVar(&f.stamps, "arrival-stamps", "kernel", "source of arrival timestamps: kernel (if the platform has them), or read (after the read call, to compare)")
	fs.IntVar(&c.Target.CacheBlock, "engine-block-size", 0, "tokens per block of the engine's prefix cache, for the prediction (0 = from its /metrics, else learned from its replies)")
	fs.IntVar(&c.Target.Retries, "retries", 0, "retries per request; a retried request is flagged and excluded from latencies")
	fs.DurationVar(&c.Target.WaitReady, "wait-ready", 0, "wait this long for an engine that is starting or loading its model (0 = look once)")
	fs.DurationVar(&c.Target.ConnectTimeout, "connect-timeout", 10*time.Second, "limit for name resolution, TCP and TLS together (0 = none)")
	fs.DurationVar(&c.Target.FirstTokenTimeout, "first-token-timeout", 0, "limit from the last byte sent to the first token (0 = none)")
	fs.DurationVar(&c.Target.IdleTimeout, "idle-timeout", 5*time.Minute, "limit for silence within a reply (0 = none)")
	fs.DurationVar(&c.Target.TotalTimeout, "request-timeout", 6*time.Hour, "limit for a whole request (0 = none)")
	under(fs, "Connections")

	fs.StringVar(&f.slo, "slo", "", "service level of a good request, such as ttft=500ms,itl=50ms,e2e=10s")
	fs.Float64Var(&c.GoodputGoal, "goodput-goal", 0, "share of requests that must meet --slo, 0 to 1")
	c.MaxErrorRate = new(float64)
	fs.Float64Var(c.MaxErrorRate, "max-error-rate", agent.DefaultMaxErrorRate, "share of requests that may fail before the exit status is 1, 0 to 1 (1 = any)")
	fs.Float64Var(&c.AbortErrorRate, "abort-error-rate", 0, "end the run early when a larger share of requests has failed, 0 to 1 (0 = never)")
	fs.BoolVar(&c.StrictVerdict, "strict-verdict", false, "exit with status 3 unless the measurement is valid")
	under(fs, "Goals")

	fs.StringVar((*string)(&c.Telemetry.TokenEvents), "token-events", string(telemetry.EventsAll), "per-token events on spans: all, array, first or none")
	fs.BoolVar(&c.Telemetry.ExponentialHistograms, "exponential-histograms", false, "export exponential histograms instead of explicit buckets")
	fs.StringVar(&c.Telemetry.Endpoint, "otlp-endpoint", "", "send spans and metrics to the OTLP receiver at this `URL`, such as http://localhost:4318 (overrides OTEL_* variables)")
	fs.StringVar(&c.Telemetry.Protocol, "otlp-protocol", "", "grpc or http/protobuf (default: OTEL_EXPORTER_OTLP_PROTOCOL, else http/protobuf)")
	under(fs, "Telemetry")

	fs.StringVar(&c.Out, "out", "", "`DIR` for summary.json, summary.csv and requests.jsonl")
	fs.BoolVar(&c.Force, "force", false, "replace the results in --out if there are any")
	fs.StringVar(&c.RunID, "run-id", "", "`ID` of the run, in the report, the spans and the metrics (default: random)")
	fs.StringVar(&f.progress, "progress", "auto", "progress on standard error: auto, bar, lines or none")
	under(fs, "Output")
}

// resolve turns the flags' text into the configuration and reports everything that is wrong with it.
func (f *replayFlags) resolve(ctx context.Context, fs *pflag.FlagSet) error {
	c := &f.cfg
	var errs []error
	check := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	var err error
	memory, _ := humanize.ParseBytes(f.carryMemory)   // its rule has read it
	c.Prompt.CarryBytes = int64(memory)               //nolint:gosec // likewise
	if fs.Changed("grace") && c.Schedule.Grace == 0 { // which the configuration takes for its default
		c.Schedule.Grace = time.Nanosecond
	}
	if fs.Changed("prepare") && c.Schedule.Prepare == 0 { // as above
		c.Schedule.Prepare = time.Nanosecond
	}
	if f.unit != "" {
		c.Trace.Unit, err = mooncake.ParseUnit(f.unit)
		check(err)
	}
	if f.sessions != "" {
		c.Trace.Sessions, err = mooncake.ParseSessionMode(f.sessions)
		check(err)
	}
	c.Schedule.Spread, err = load.ParseSpread(f.spread)
	check(err)
	if f.shard != "" {
		c.Trace.Shard, c.Trace.Shards, err = parseShard(f.shard)
		check(err)
	}
	if f.startAt != "" {
		if c.Schedule.StartAt, err = parseStartAt(f.startAt, time.Now()); err != nil { // since its rule was checked
			check(fmt.Errorf("--start-at %s: %w", f.startAt, err))
		}
	}
	if f.slo != "" {
		if c.SLO, err = measure.ParseSLO(f.slo); err != nil {
			check(fmt.Errorf("slo: %w", err))
		}
	}
	if f.extra != "" {
		c.Prompt.Extra = json.RawMessage(f.extra)
	}
	c.Target.Header, f.warnings, err = f.headers.parse(ctx)
	check(err)
	c.Target.APIKey, err = readKey(ctx, f.apiKeyEnv, f.apiKeyFile)
	check(err)
	c.Target.TLS, err = clientTLS(ctx, f.ca, f.cert, f.key, f.insecure)
	check(err)
	unencrypted, err := checkScheme(c.Target.URL, c.Target.TLS, cmp.Or(c.Target.APIKey, c.Target.Header.Get("Authorization")))
	check(err)
	if unencrypted != "" {
		f.warnings = append(f.warnings, unencrypted)
	}
	if name := secretQuery(c.Target.URL); name != "" {
		f.warnings = append(f.warnings, fmt.Sprintf("--url: every user of this machine can read %s in its query in the list of processes; use -H @FILE if the engine takes it as a header", name))
	}
	f.warnings = append(f.warnings, exposure([2]string{"--api-key-file", f.apiKeyFile}, [2]string{"--key-file", f.key})...)
	c.Telemetry.OtherSpanExporter = func(ctx context.Context) (sdktrace.SpanExporter, error) { return autoexport.NewSpanExporter(ctx) }
	c.Telemetry.OtherMetricReader = func(ctx context.Context) (sdkmetric.Reader, error) { return autoexport.NewMetricReader(ctx) }
	c.Target.ReadStamps = f.stamps == "read"
	check(f.contradictions(fs))
	check(inFlags(c.Validate(), fs))
	return errors.Join(errs...)
}

// contradictions says which flags would have no effect beside others.
func (f *replayFlags) contradictions(fs *pflag.FlagSet) error {
	var errs []error
	if f.cfg.Schedule.FileOrder {
		for _, name := range []string{"spread", "start", "end", "prepare"} {
			if fs.Changed(name) && (name != "spread" || f.spread != "none") {
				errs = append(errs, fmt.Errorf("--%s has no effect with --no-fixed-schedule, which ignores the timestamps: leave one of the two out", name))
			}
		}
	}
	if f.cfg.Target.HTTP2 && fs.Changed("prepare") {
		errs = append(errs, errors.New("--prepare has no effect with --http2, whose headers go out at once: leave one of the two out"))
	}
	if f.cfg.Target.APIKey != "" && f.cfg.Target.Header.Get("Authorization") != "" {
		errs = append(errs, errors.New("an Authorization header and --api-key-env or --api-key-file: a request has one of them; leave the other out"))
	}
	if f.cfg.Schedule.FileOrder && fs.Changed("speedup") {
		f.warnings = append(f.warnings, "--speedup divides only the delays between turns here: --no-fixed-schedule ignores the timestamps")
	}
	if fs.Changed("grace") && f.cfg.Schedule.MaxDuration == 0 && f.cfg.AbortErrorRate == 0 {
		errs = append(errs, errors.New("--grace has no effect without --max-duration or --abort-error-rate: give one of these, or leave it out"))
	}
	if f.cfg.Schedule.OpenLoop && f.sessions == "delta" {
		errs = append(errs, errors.New("--open-loop and --session-mode delta: a new turn carries the reply before it, and has to wait for that: leave one of the two out"))
	}
	return errors.Join(errs...)
}

// parseStartAt reads a time to come.
func parseStartAt(text string, now time.Time) (time.Time, error) {
	at, err := time.Parse(time.RFC3339Nano, text)
	switch {
	case err != nil:
		return time.Time{}, errWant
	case !at.After(now):
		return time.Time{}, errors.New("it is over; want a time to come, the same for every shard")
	case at.Sub(now) > century:
		return time.Time{}, errors.New("it is more than 100 years ahead; want an earlier time")
	}
	return at, nil
}

// traceTime is a flag in trace time: a duration, or a bare number of milliseconds as trace files have it.
type traceTime time.Duration

func (t *traceTime) String() string {
	if *t == 0 {
		return ""
	}
	return time.Duration(*t).String()
}
func (t *traceTime) Type() string { return "time" }
func (t *traceTime) Set(text string) error {
	if ms, err := strconv.ParseFloat(text, 64); err == nil {
		if century := 100 * 365 * 24 * time.Hour; !(math.Abs(ms) <= float64(century/time.Millisecond)) { // NaN, too
			return errors.New("want at most 100 years; a bare number is milliseconds")
		}
		*t = traceTime(ms * float64(time.Millisecond))
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("want a duration such as 90s or 5m, or a number of milliseconds")
	}
	*t = traceTime(d)
	return nil
}

func parseShard(text string) (shard, shards int, err error) {
	i, n, found := strings.Cut(text, "/")
	if found {
		shard, err = strconv.Atoi(i)
		if err == nil {
			shards, err = strconv.Atoi(n)
		}
	}
	if !found || err != nil || shards < 1 || shard < 0 || shard >= shards {
		return 0, 0, errWant
	}
	return shard, shards, nil
}

// readKey reads the bearer key. Keys are never taken from the command line, which every user of a machine can see.
func readKey(ctx context.Context, env, file string) (string, error) {
	switch {
	case env != "" && file != "":
		return "", errors.New("--api-key-env and --api-key-file: a key comes from one of the two; leave the other out")
	case env != "":
		key := strings.TrimSpace(os.Getenv(env))
		if key == "" {
			return "", fmt.Errorf("--api-key-env: environment variable %s is empty or not set; export it with the key", publicVariable(env))
		}
		return checkKey("--api-key-env", key)
	case file != "":
		key, err := readSecretFile(ctx, file)
		if err != nil {
			return "", fmt.Errorf("--api-key-file %s: %s; name a file that holds the key", publicFile(file), reason(err))
		}
		return checkKey("--api-key-file", key)
	}
	return "", nil
}

// checkKey returns a key that can stand in a header. Its error does not repeat it.
func checkKey(flag, key string) (string, error) {
	key = strings.TrimSpace(key)
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s: the key has a space, a line end or another character that no key has; want the key alone, without \"Bearer\"", flag)
	}
	return key, nil
}

func profileNames() (names []string) {
	for _, p := range prompt.Profiles() {
		names = append(names, string(p))
	}
	return names
}

// peers are the names of other replay tools for flags that mean the same.
var peers = map[string]string{
	"endpoint-type": "endpoint", "request-count": "max-requests", "num-prompts": "max-requests",
	"max-concurrency": "concurrency", "warmup-request-count": "warmup-requests", "num-warmups": "warmup-requests",
	"fixed-schedule-start-offset": "start", "fixed-schedule-end-offset": "end",
	"synthesis-speedup-ratio": "speedup", "random-seed": "seed", "isl-block-size": "block-size",
	"output-artifact-dir": "out", "artifact-dir": "out", "goodput": "slo", "base-url": "url",
	"failed-request-threshold": "abort-error-rate", "extra-body": "extra-inputs",
}

// peerNames lets those who come from other tools use the names that they know.
func peerNames(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if ours, known := peers[name]; known {
		name = ours
	}
	return pflag.NormalizedName(name)
}
