// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/foreign"
	"github.com/moonloop/moonloop/receiver/annotate"
	"github.com/moonloop/moonloop/receiver/offline"
)

// convertFlags are the flags of convert.
type convertFlags struct {
	from, out          string
	force, json        bool
	format             string
	blockSize, maxLine int
	tempDir            string
	// of telemetry
	keyEnv             string
	sessionKeys        []string
	replays, untokened string
	// of public traces
	failed    string
	models    []string
	lookahead int
}

// Flags that only some formats know.
var (
	telemetryFlags = []string{"key-env", "session-key", "replays", "missing-tokens", "temp-dir"}
	publicFlags    = []string{"failed", "only-model", "look-ahead"}
)

// newConvertCommand returns the command that makes traces of other files.
func newConvertCommand() *cobra.Command {
	var f convertFlags
	cmd := &cobra.Command{
		Use:   "convert INPUT... --out TRACE",
		Short: "Make a Mooncake trace of telemetry files or of another public trace",
		Long: `Convert reads files of one format and writes their requests as one Mooncake trace, with a sidecar that says what
the rows cannot and what was left out. An input is a file, plain or compressed with gzip, zstd or bzip2, - for standard
input, or an http or https URL. The format is found out from the first line of the first input, or given with --from:

  otlp      JSON lines of the Collector's file exporter, traces and logs, in one file or many
  dynamo    JSON lines of Dynamo's request trace
  bailian   Alibaba's qwen-bailian-usagetraces-anon: blocks of 16 tokens, unless --block-size asks for larger ones
  burstgpt  CSV of BurstGPT, with or without session ids: lengths only
  azure     CSV of the Azure LLM inference traces of 2023, 2024 and 2025: lengths only

Telemetry goes through what a Collector would have done: "moonloop capture" for files. Prompts are hashed under the key in
$` + hashKeyEnv + `, and no text is written. Requests of replays become traces of their own, TRACE.run-ID.jsonl beside TRACE.

Rows of public traces are merged by time; a file whose rows are out of order by more than the look-ahead is an error.
A line that cannot be understood is an error that names it; only a last line of telemetry that breaks off is counted.

EXIT STATUS

  0    the trace was written
  2    usage or input error, nothing came out, or the trace exists; nothing was written
  130  interrupted; nothing was written`,
		Example: `  moonloop convert otel.jsonl.zst --out prod.jsonl
  moonloop convert --from dynamo dynamo-request-trace*.jsonl.gz --out dynamo.jsonl
  moonloop convert AzureLLMInferenceTrace_code_1week.csv AzureLLMInferenceTrace_conv_1week.csv --out azure.jsonl.zst
  moonloop convert qwen_traceA_blksz_16.jsonl --block-size 512 --out bailian.jsonl`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runConvert(cmd, f, args) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVarP(&f.out, "out", "o", "", "trace to write (required), compressed when its name ends in .gz or .zst; its sidecar goes beside it")
	fs.BoolVar(&f.force, "force", false, "replace a trace that is there")
	fs.StringVar(&f.from, "from", "", "format of the inputs: otlp, dynamo, bailian, burstgpt or azure (default: found out)")
	fs.StringVar(&f.format, "format", string(capture.FormatFull), "fields of rows: full, or mooncake (the four that other tools know)")
	fs.IntVar(&f.blockSize, "block-size", 0, "tokens per hash id (default: 16 for bailian, 512 for telemetry)")
	fs.IntVar(&f.maxLine, "max-line", mooncake.DefaultMaxLine, "longest line to accept, in bytes")
	fs.BoolVar(&f.json, "json", false, "print what was made as JSON")
	fs.StringVar(&f.keyEnv, "key-env", hashKeyEnv, "telemetry: environment variable that holds the hash key")
	fs.StringArrayVar(&f.sessionKeys, "session-key", nil, "telemetry: attribute that holds a session id, before the known ones (repeatable)")
	fs.StringVar(&f.replays, "replays", string(capture.ReplaysSeparate), "telemetry: what becomes of requests of replays: separate (own traces), drop or only")
	fs.StringVar(&f.untokened, "missing-tokens", string(capture.MissingDrop), "telemetry: what becomes of requests without token counts: drop or estimate")
	fs.StringVar(&f.tempDir, "temp-dir", "", "telemetry: folder for temporary files (default: the system's)")
	fs.StringVar(&f.failed, "failed", string(foreign.FailedDrop), "burstgpt: what becomes of failed requests: drop or keep (as rows with no output)")
	fs.StringArrayVar(&f.models, "only-model", nil, "burstgpt: keep the requests to this model only (repeatable)")
	fs.IntVar(&f.lookahead, "look-ahead", foreign.DefaultLookahead, "public traces: rows that are put into order of time")
	return cmd
}

// converted is the output of --json.
type converted struct {
	From   string           `json:"from"`
	Traces []convertedTrace `json:"traces"`
}

type convertedTrace struct {
	File string `json:"file"`
	capture.TraceResult
	Span        float64 `json:"span_ms"`
	Sessions    int     `json:"sessions"` // up to a million
	InputTokens int64   `json:"input_tokens"`
}

func runConvert(cmd *cobra.Command, f convertFlags, names []string) error {
	if err := f.validate(names); err != nil {
		return err
	}
	ctx := cmd.Context()
	inputs := inputs{names: names, opt: mooncake.OpenOptions{Stdin: interruptible(ctx, cmd.InOrStdin())}}
	defer inputs.close()
	if f.from == "" {
		from, err := inputs.detect(ctx)
		if err != nil {
			return err
		}
		f.from = from
	}
	var made summaries
	sink := made.sink(func(p capture.Partition) string {
		if p.Replay {
			return capture.RunFile(f.out, p.Run)
		}
		return f.out
	})
	convert := f.public
	wrong := telemetryFlags
	if _, err := offline.ParseFormat(f.from); err == nil {
		convert, wrong = f.telemetry, publicFlags
	}
	for _, name := range wrong {
		if cmd.Flags().Changed(name) {
			return fmt.Errorf("--%s has no effect on %s: leave it out", name, f.from)
		}
	}
	result, err := convert(cmd, &inputs, sink)
	if err != nil {
		return err
	}
	if !f.json {
		made.report(cmd.OutOrStdout(), result)
		return nil
	}
	out := converted{From: f.from, Traces: []convertedTrace{}}
	for _, t := range result.Traces {
		if t.Meta.Rows == 0 {
			continue
		}
		s := made[len(out.Traces)]
		out.Traces = append(out.Traces, convertedTrace{
			File: s.file, TraceResult: t, Span: s.last, Sessions: len(s.sessions), InputTokens: s.cache.InputTokens,
		})
	}
	enc := json.NewEncoder(cmd.OutOrStdout())
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}

// validate checks what can be checked without reading.
func (f *convertFlags) validate(names []string) error {
	var errs []error
	for _, c := range []struct {
		flag, value string
		known       []string
	}{
		{"from", f.from, []string{"", string(offline.OTLP), string(offline.Dynamo), string(foreign.Bailian), string(foreign.BurstGPT), string(foreign.Azure)}},
		{"format", f.format, []string{string(capture.FormatFull), string(capture.FormatMooncake)}},
		{"replays", f.replays, []string{string(capture.ReplaysSeparate), string(capture.ReplaysDrop), string(capture.ReplaysOnly)}},
		{"missing-tokens", f.untokened, []string{string(capture.MissingDrop), string(capture.MissingEstimate)}},
		{"failed", f.failed, []string{string(foreign.FailedDrop), string(foreign.FailedKeep)}},
	} {
		if !slices.Contains(c.known, c.value) {
			errs = append(errs, fmt.Errorf("--%s %q: want %s", c.flag, c.value, strings.Join(slices.DeleteFunc(c.known, func(s string) bool { return s == "" }), " or ")))
		}
	}
	for flag, n := range map[string]int{"look-ahead": f.lookahead, "max-line": f.maxLine} {
		if n < 1 {
			errs = append(errs, fmt.Errorf("--%s %d: want 1 or more", flag, n))
		}
	}
	if f.blockSize < 0 {
		errs = append(errs, fmt.Errorf("--block-size %d: want 1 or more", f.blockSize))
	}
	if i := slices.Index(names, "-"); i >= 0 && slices.Contains(names[i+1:], "-") {
		errs = append(errs, errors.New("standard input can be read once"))
	}
	if f.out == "" {
		errs = append(errs, errors.New("--out: no trace to write is given"))
	} else if have, err := os.Stat(f.out); err == nil {
		switch {
		case have.IsDir():
			errs = append(errs, fmt.Errorf("--out %s is a directory: name a file in it", f.out))
		case slices.ContainsFunc(names, func(name string) bool { in, err := os.Stat(name); return err == nil && os.SameFile(in, have) }):
			errs = append(errs, fmt.Errorf("--out %s is an input", f.out))
		case !f.force:
			errs = append(errs, hintError{fmt.Errorf("--out %s exists", f.out), "--force replaces it"})
		}
	}
	return errors.Join(errs...)
}

// telemetry converts OTLP and Dynamo's request trace.
func (f *convertFlags) telemetry(cmd *cobra.Command, in *inputs, sink capture.Sink) (capture.Result, error) {
	text, notice, err := hashKey(f.keyEnv)
	if err != nil {
		return capture.Result{}, err
	}
	if notice != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "moonloop: %s\n", notice)
	}
	opt := offline.Options{
		Format: offline.Format(f.from), MaxLine: f.maxLine,
		Annotate: annotate.Config{BlockSize: f.blockSize, SessionKeys: f.sessionKeys},
		Compile: capture.Options{
			Replays: capture.Replays(f.replays), Format: capture.Format(f.format), MissingTokens: capture.MissingTokens(f.untokened),
			TempDir: f.tempDir, Tool: "moonloop convert " + version(),
		},
	}
	if opt.Annotate.Key, err = annotate.ParseKey(text); err != nil {
		return capture.Result{}, fmt.Errorf("hash key in %s: %w", f.keyEnv, err)
	}
	var files []capture.Source
	for i, name := range in.labels() {
		files = append(files, capture.Source{Name: name, Open: func() (io.ReadCloser, error) { return in.open(cmd.Context(), i) }})
	}
	result, err := offline.Convert(cmd.Context(), opt, sink, files...)
	return result.Result, err
}

// public converts public traces.
func (f *convertFlags) public(cmd *cobra.Command, in *inputs, sink capture.Sink) (result capture.Result, err error) {
	opt := foreign.Options{
		Format: foreign.Format(f.from), BlockSize: f.blockSize, Models: f.models, Lookahead: f.lookahead, MaxLine: f.maxLine,
		Plain: f.format == string(capture.FormatMooncake), Tool: "moonloop convert " + version(),
	}
	if cmd.Flags().Changed("failed") {
		opt.Failed = foreign.Failed(f.failed)
	}
	var files []foreign.Source
	for i, name := range in.labels() {
		files = append(files, foreign.Source{Name: name, Open: func() (io.ReadCloser, error) { return in.open(cmd.Context(), i) }})
	}
	out, err := sink(capture.Partition{})
	if err != nil {
		return capture.Result{}, err
	}
	defer func() { _ = out.Close() }() // after Commit without effect
	meta, err := foreign.Convert(cmd.Context(), opt, out, files...)
	if err != nil {
		return capture.Result{}, err
	}
	if err := out.Commit(meta); err != nil {
		return capture.Result{}, err
	}
	return capture.Result{Traces: []capture.TraceResult{{Meta: *meta}}}, nil
}

// inputs are what convert reads. The first one is opened to find out what it is.
type inputs struct {
	names []string
	opt   mooncake.OpenOptions
	first *mooncake.Input // until it is taken
}

// labels are the names for messages and the sidecar.
func (in *inputs) labels() []string {
	labels := make([]string, len(in.names))
	for i, name := range in.names {
		labels[i] = mooncake.PublicName(name)
		if name == "-" {
			labels[i] = "standard input"
		}
	}
	return labels
}

func (in *inputs) open(ctx context.Context, i int) (io.ReadCloser, error) {
	if first := in.first; first != nil && i == 0 {
		in.first = nil
		return first, nil
	}
	return mooncake.OpenInput(ctx, in.names[i], in.opt)
}

func (in *inputs) close() {
	if in.first != nil {
		_ = in.first.Close()
	}
}

// detect tells the format of the first input.
func (in *inputs) detect(ctx context.Context) (from string, err error) {
	if in.first, err = mooncake.OpenInput(ctx, in.names[0], in.opt); err != nil {
		return "", err
	}
	head, err := in.first.Peek(in.first.Size())
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("%s: cannot be read: %w", in.first.Label, err)
	}
	if format, ok := offline.Detect(head); ok {
		return string(format), nil
	}
	if format, ok := foreign.Detect(head); ok {
		return string(format), nil
	}
	if keys := foreign.Keys(head); keys["input_length"] || keys["hash_ids"] {
		return "", fmt.Errorf("%s is a Mooncake trace already: replay and inspect read it as it is", in.first.Label)
	}
	if len(head) == 0 {
		return "", fmt.Errorf("%s is empty", in.first.Label)
	}
	return "", hintError{fmt.Errorf("%s: its format is not known", in.first.Label), "--from forces one, and then says which line does not fit"}
}
