// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/mooncake"
)

// replayFlags are the flags of "moonloop replay" as text, where the configuration wants something else.
type replayFlags struct {
	cfg agent.Config

	start, end            traceTime
	unit, sessions        string
	spread, shard         string
	profile, endpoint     string
	form, tooShort        string
	extra                 string
	headers               []string
	apiKeyEnv, apiKeyFile string
	ca, cert, key         string
	insecure              bool
	slo, startAt          string
	maxErrorRate          float64
	noStream              bool
	tokenEvents, progress string
	stamps                string
	warnings              []string // of resolve
}

func newReplayCommand() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay TRACE",
		Short: "Replay a trace against an OpenAI-compatible engine",
		Long: `Replay sends each row of a Mooncake trace to an engine at the row's own instant, with a prompt that shares
its prefix blocks with the other rows as the trace says, and measures what comes back.

TRACE is a file, "-" for standard input, or an http(s) URL; JSON lines, also compressed with gzip, zstd or bzip2.

Flags that mean the same in AIPerf or in vLLM's bench go by their names there too (--request-count,
--fixed-schedule-start-offset, --random-seed, ...).

A row that cannot be used ends the replay with its line and what is wrong. With --lenient the replay is that of the
trace without such rows: they have no index, record or span, but each stands in the quarantine file with its line and the
reason, the report counts them, and the verdict is degraded (invalid above 5 %). When a hundred rows were left out and
no more than these could be used, the trace is refused all the same. The quarantine file may hold prompts, as the trace may.

Spans and metrics go out by OTLP when OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER or an
OTEL_EXPORTER_OTLP_*ENDPOINT variable says so; all standard OTEL_* variables are read.

EXIT STATUS

  0    the run ended and its measurement is valid, degraded, or of too few requests to judge
  1    a goal was missed, or more requests failed than --max-error-rate allows (1 %, unless it is given)
  2    usage or input error: nothing was measured, or the trace broke off
  3    the measurement is invalid; with --strict-verdict, if it is anything but valid
  130  interrupted (SIGINT, SIGTERM, SIGHUP); what had been measured is in the report

RESULTS

A run has the directory of --out to itself, and replaces no results in it without --force. While it runs,
requests.jsonl.partial there holds the records so far, in the order in which requests ended, at most a second behind. It
is a trace that inspect and replay read; after kill -9 it is what is left. requests.jsonl, in the trace's order, and the
summaries appear at the end.`,
		Example: `  # the trace as it was, prompts as token ids
  moonloop replay trace.jsonl --url http://127.0.0.1:8000 --model m --endpoint completions

  # ten times as fast, at most 256 at once, results in ./run1, spans to a local Collector
  OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 \
  moonloop replay trace.jsonl --url http://127.0.0.1:8000 --speedup 10 --concurrency 256 --out run1

  # minutes 10 to 20, bursts of a coarse clock laid out, a service level that must hold for 95 %
  moonloop replay trace.jsonl --url http://127.0.0.1:8000 --start 10m --end 20m --spread uniform \
    --slo ttft=500ms,itl=50ms --goodput-goal 0.95`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return hintError{fmt.Errorf("replay takes one trace, %d were given", len(args)), "name a file, a URL, or - for standard input"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f.cfg.Trace.Name = args[0]
			if err := f.resolve(cmd.Flags()); err != nil {
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
	for name, values := range map[string][]string{
		"endpoint": {string(prompt.Chat), string(prompt.Completions)}, "prompt": {string(prompt.Words), string(prompt.Tokens)},
		"profile": profileNames(), "spread": {"none", "uniform", "even"}, "session-mode": {"full", "delta"},
		"time-unit": {"ms", "s", "us"}, "too-short": {string(prompt.SendOneWord), string(prompt.Skip)},
		"token-events": {"all", "array", "first", "none"}, "otlp-protocol": {telemetry.ProtocolGRPC, telemetry.ProtocolHTTP},
		"progress": {"auto", "bar", "lines", "none"}, "arrival-stamps": {"kernel", "read"},
	} {
		// It fails only for a flag that does not exist, which the test of the help would show.
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

func (f *replayFlags) register(fs *pflag.FlagSet) {
	fs.SortFlags = false
	c := &f.cfg

	fs.StringVarP(&c.Target.URL, "url", "u", "", "base URL of the engine, with or without /v1")
	fs.StringVarP(&c.Target.Model, "model", "m", "", "model to ask for (default: the first that the engine names)")
	fs.StringVar(&f.endpoint, "endpoint", string(prompt.Chat), "chat or completions")
	fs.StringVar(&f.form, "prompt", "", "words or tokens (default: tokens where endpoint and profile take them, else words)")
	fs.StringVar(&f.profile, "profile", string(prompt.Auto), "what the engine understands: "+strings.Join(profileNames(), ", "))
	fs.StringVar(&c.Out, "out", "", "directory for summary.json, summary.csv and requests.jsonl")
	fs.BoolVar(&c.Force, "force", false, "replace the results in --out if they are there")

	fs.Float64Var(&c.Schedule.Speedup, "speedup", 1, "divide the trace's times by this")
	fs.StringVar(&f.spread, "spread", "none", "lay rows that share a coarse timestamp out over its step: none, uniform or even")
	fs.Var(&f.start, "start", "replay rows from this time on, after the first row (90s, 5m, or milliseconds)")
	fs.Var(&f.end, "end", "replay rows up to this time after the first row")
	fs.Int64Var(&c.Trace.MaxRows, "max-requests", 0, "stop after so many rows (0 = all)")
	fs.DurationVar(&c.Schedule.MaxDuration, "max-duration", 0, "send nothing after so much replay time (0 = no limit)")
	fs.DurationVar(&c.Schedule.Grace, "grace", 30*time.Second, "time that requests under way have after --max-duration or --abort-error-rate")
	fs.DurationVar(&c.Schedule.Prepare, "prepare", 2*time.Millisecond, "have each request ready, with a connection, so long before it is due (at most 1s)")
	fs.IntVarP(&c.Schedule.Concurrency, "concurrency", "c", 0, "most requests at once; the size of a closed loop (0 = no cap; 1 without timestamps)")
	fs.BoolVar(&c.Schedule.FileOrder, "no-fixed-schedule", false, "ignore timestamps: file order, --concurrency at a time")
	fs.BoolVar(&c.Schedule.OpenLoop, "open-loop", false, "send each turn of a session at its own timestamp, whatever became of the one before")
	fs.IntVar(&c.Schedule.Warmup, "warmup-requests", 0, "requests before the schedule starts, kept out of every figure")
	fs.StringVar(&f.shard, "shard", "", "i/n: replay the i-th of n parts (from 0); sessions stay whole")
	fs.StringVar(&f.startAt, "start-at", "", "wall-clock time at which the schedule starts (RFC 3339), for shards on several machines")

	fs.StringVar(&f.sessions, "session-mode", "", "what rows of one session are: full prompts, or delta (new turns) (default: the sidecar's word, else detected)")
	fs.StringVar(&f.unit, "time-unit", "", "unit of timestamps: ms, s or us; delays are always ms (default: the sidecar's word, else ms)")
	fs.IntVar(&c.Trace.BlockSize, "block-size", 0, "tokens per hash id (default: the sidecar's, else 512)")
	fs.IntVar(&c.Trace.Lookahead, "lookahead", load.DefaultLookahead, "rows read before the first is sent; rows further out of order are an error")
	fs.BoolVar(&c.Trace.Strict, "strict", false, "refuse what is otherwise read kindly (unknown fields, ids past the input length, ...)")
	fs.BoolVar(&c.Trace.Lenient, "lenient", false, "leave out rows that cannot be used, and keep them in a file, instead of refusing the trace")
	fs.StringVar(&c.Trace.Quarantine, "quarantine", "", "file for the rows that --lenient leaves out (default: TRACE.rejected.jsonl in --out)")

	fs.Uint64Var(&c.Prompt.Seed, "seed", 0, "seed of prompts and spreading; another seed finds a cold cache")
	fs.IntVar(&c.Prompt.Overhead, "overhead", 0, "tokens that the engine's template adds to a prompt (0 = measure them with two requests)")
	fs.StringVar(&f.tooShort, "too-short", string(prompt.SendOneWord), "rows shorter than the template: send (longer, flagged) or skip")
	fs.Int64Var(&c.Prompt.Output, "output-length", 0, "output tokens for rows that name none (0 = leave it to the engine)")
	fs.Int64Var(&c.Prompt.OutputCap, "max-output-length", 0, "bound on output tokens (0 = none)")
	fs.StringVar(&f.extra, "extra-inputs", "", "JSON object merged into every request body")
	fs.BoolVar(&f.noStream, "no-stream", false, "ask for whole replies instead of streams")

	fs.StringArrayVarP(&f.headers, "header", "H", nil, "extra header, \"Name: value\" (repeatable)")
	fs.StringVar(&f.apiKeyEnv, "api-key-env", "", "environment variable that holds the bearer key")
	fs.StringVar(&f.apiKeyFile, "api-key-file", "", "file that holds the bearer key")
	fs.StringVar(&f.ca, "ca-file", "", "PEM file of certificate authorities to trust for the engine")
	fs.StringVar(&f.cert, "cert-file", "", "PEM client certificate")
	fs.StringVar(&f.key, "key-file", "", "PEM key of the client certificate")
	fs.BoolVar(&f.insecure, "insecure-skip-verify", false, "do not verify the engine's certificate")
	fs.BoolVar(&c.Target.HTTP2, "http2", false, "use HTTP/2 where the engine offers it (arrival stamps become coarser)")
	fs.StringVar(&f.stamps, "arrival-stamps", "kernel", "what stamps the bytes of a reply: kernel, where it can, or read (after the read call, to compare)")
	fs.IntVar(&c.Target.Retries, "retries", 0, "retries per request; what is retried is flagged and out of the latencies")
	fs.DurationVar(&c.Target.ConnectTimeout, "connect-timeout", 10*time.Second, "name resolution, TCP and TLS together (0 = none)")
	fs.DurationVar(&c.Target.FirstTokenTimeout, "first-token-timeout", 0, "from the wire to the first token (0 = none)")
	fs.DurationVar(&c.Target.IdleTimeout, "idle-timeout", 5*time.Minute, "silence within a reply (0 = none)")
	fs.DurationVar(&c.Target.TotalTimeout, "request-timeout", 6*time.Hour, "whole request (0 = none)")

	fs.StringVar(&f.slo, "slo", "", "service level of a good request, such as ttft=500ms,itl=50ms,e2e=10s")
	fs.Float64Var(&c.GoodputGoal, "goodput-goal", 0, "share of requests that must be good, 0 to 1")
	fs.Float64Var(&f.maxErrorRate, "max-error-rate", agent.DefaultMaxErrorRate, "share of requests that may fail for exit status 0, 0 to 1 (1 = any may)")
	fs.Float64Var(&c.AbortErrorRate, "abort-error-rate", 0, "end the run early when a larger share has failed (0 = never)")
	fs.BoolVar(&c.StrictVerdict, "strict-verdict", false, "treat a measurement that is degraded, or of too few requests to judge, like an invalid one")

	fs.StringVar(&f.tokenEvents, "token-events", string(telemetry.EventsAll), "per-token events on spans: all, array, first or none")
	fs.BoolVar(&c.Telemetry.ExponentialHistograms, "exponential-histograms", false, "export histograms as exponential ones")
	fs.StringVar(&c.Telemetry.Endpoint, "otlp-endpoint", "", "send spans and metrics to this OTLP receiver, such as http://localhost:4318 (wins over OTEL_ variables)")
	fs.StringVar(&c.Telemetry.Protocol, "otlp-protocol", "", "grpc or http/protobuf (default: as OTEL_EXPORTER_OTLP_PROTOCOL says, else http/protobuf)")
	fs.StringVar(&c.RunID, "run-id", "", "name of the run in every artefact (default: random)")
	fs.StringVar(&f.progress, "progress", "auto", "progress on standard error: auto, bar, lines or none")
}

// resolve turns the flags' text into the configuration and reports everything that is wrong with it.
func (f *replayFlags) resolve(fs *pflag.FlagSet) error {
	c := &f.cfg
	var errs []error
	check := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	var err error
	c.Trace.Start, c.Trace.End = time.Duration(f.start), time.Duration(f.end)
	c.Prompt.Endpoint, c.Prompt.Form = prompt.Endpoint(f.endpoint), prompt.Form(f.form)
	c.Prompt.TooShort, c.Target.Profile = prompt.TooShort(f.tooShort), prompt.Profile(f.profile)
	c.Prompt.NoStream = f.noStream
	if c.Schedule.Speedup == 0 { // which the configuration takes for 1
		check(errors.New("speed-up 0: want a number above 0"))
	}
	c.MaxErrorRate = &f.maxErrorRate
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
		if c.Schedule.StartAt, err = time.Parse(time.RFC3339Nano, f.startAt); err != nil {
			check(fmt.Errorf("start-at %q: want a time such as 2026-11-21T15:04:05Z", f.startAt))
		}
	}
	if f.slo != "" {
		if c.SLO, err = measure.ParseSLO(f.slo); err != nil {
			check(fmt.Errorf("slo: %w", err))
		}
	}
	if f.extra != "" {
		if !json.Valid([]byte(f.extra)) || !strings.HasPrefix(strings.TrimSpace(f.extra), "{") {
			check(errors.New(`extra inputs: want a JSON object, such as {"temperature": 0}`)) // it may hold a secret
		}
		c.Prompt.Extra = json.RawMessage(f.extra)
	}
	c.Target.Header, err = parseHeaders(f.headers)
	check(err)
	c.Target.APIKey, err = readKey(f.apiKeyEnv, f.apiKeyFile)
	check(err)
	c.Target.TLS, err = clientTLS(f.ca, f.cert, f.key, f.insecure)
	check(err)
	unencrypted, err := checkScheme(c.Target.URL, c.Target.TLS, c.Target.APIKey)
	check(err)
	if unencrypted != "" {
		f.warnings = append(f.warnings, unencrypted)
	}
	f.warnings = append(f.warnings, exposure([2]string{"--api-key-file", f.apiKeyFile}, [2]string{"--key-file", f.key})...)
	c.Telemetry.TokenEvents = telemetry.Mode(f.tokenEvents)
	c.Target.ReadStamps = f.stamps == "read"
	check(choice("arrival-stamps", f.stamps, "kernel", "read"))
	switch f.progress {
	case "auto", "bar", "lines", "none":
	default:
		check(fmt.Errorf("progress %q: want auto, bar, lines or none", f.progress))
	}
	check(c.Validate())
	return errors.Join(errs...)
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
		return 0, 0, fmt.Errorf("shard %q: want i/n with 0 ≤ i < n", text)
	}
	return shard, shards, nil
}

func parseHeaders(lines []string) (http.Header, error) {
	h := make(http.Header)
	for _, line := range lines {
		name, value, found := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !found || strings.ContainsFunc(name, notToken) || name == "" {
			return nil, errors.New("header: want \"Name: value\" with a name of letters, digits and -") // the value may be a secret
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return nil, fmt.Errorf("header %s: its value holds a line end or another control character; give each header by a -H of its own", name)
		}
		h.Add(name, strings.TrimSpace(value))
	}
	return h, nil
}

// notToken reports a character that a header's name cannot have.
func notToken(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
}

// readKey reads the bearer key. Keys are never taken from the command line, which every user of a machine can see.
func readKey(env, file string) (string, error) {
	switch {
	case env != "" && file != "":
		return "", errors.New("api key: give either --api-key-env or --api-key-file")
	case env != "":
		key := strings.TrimSpace(os.Getenv(env))
		if key == "" {
			return "", fmt.Errorf("api key: environment variable %s is empty or not set", env)
		}
		return key, nil
	case file != "":
		b, err := os.ReadFile(file) //nolint:gosec // the user names the file
		if err != nil {
			return "", fmt.Errorf("api key: %w; name a file that holds the key", err)
		}
		key := strings.TrimSpace(string(b))
		if key == "" {
			return "", fmt.Errorf("api key: the file %s is empty; write the key into it", file)
		}
		return key, nil
	}
	return "", nil
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
