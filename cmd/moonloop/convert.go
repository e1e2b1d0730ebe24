// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/convert/foreign"
	"github.com/moonloop/moonloop/convert/offline"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// convertFlags are the flags of convert.
type convertFlags struct {
	traceFlags
	from    string
	maxLine int
	// of telemetry
	keyEnv      string
	sessionKeys []string
	orders      []string
	// of public traces
	failed    foreign.Failed
	models    []string
	lookahead int
}

// Flags that only some formats know.
var (
	telemetryFlags = []string{"key-env", "session-key", "replays", "missing-tokens", "follow-engine", "prompt-order", "memory", "temp-dir"}
	publicFlags    = []string{"failed", "only-model", "look-ahead"}
)

// newConvertCommand returns the command that makes traces of other files.
func newConvertCommand() *cobra.Command {
	var f convertFlags
	cmd := &cobra.Command{
		Use:   "convert INPUT... --out TRACE",
		Short: "Convert telemetry files or other public traces into a Mooncake trace",
		Args:  someInputs("one file or more", `name files, URLs, or - for standard input`),
		RunE:  func(cmd *cobra.Command, args []string) error { return runConvert(cmd, f, args) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	f.addOutput(fs)
	under(fs, "Output")

	fs.StringVar(&f.from, "from", "", "format of the inputs: otlp, dynamo, bailian, burstgpt or azure (default: detected)")
	fs.IntVar(&f.BlockSize, "block-size", 0, "tokens per hash id (default: 16 for bailian, else 512)")
	fs.IntVar(&f.maxLine, "max-line", mooncake.DefaultMaxLine, "longest accepted line, in bytes")
	under(fs, "Input")

	fs.StringVar(&f.keyEnv, "key-env", hashKeyEnv, "telemetry: name of the environment `VARIABLE` that holds the hash key")
	fs.StringArrayVar(&f.sessionKeys, "session-key", nil, "telemetry: `ATTRIBUTE` that holds a session id, checked before the known ones (repeatable)")
	f.addRequests(fs, "telemetry: ")
	addPromptOrder(fs, &f.orders, "telemetry: ")
	under(fs, "Telemetry")

	fs.StringVar((*string)(&f.failed), "failed", string(foreign.FailedDrop), "burstgpt: what to do with failed requests: drop or keep (as rows without output)")
	fs.StringArrayVar(&f.models, "only-model", nil, "burstgpt: keep only requests to the model of this `NAME` (repeatable)")
	fs.IntVar(&f.lookahead, "look-ahead", foreign.DefaultLookahead, "public traces: number of rows to read ahead and sort by time")
	under(fs, "Public traces")
	return cmd
}

func runConvert(cmd *cobra.Command, f convertFlags, names []string) error {
	if err := f.validate(names); err != nil {
		return err
	}
	compile := f.options(cmd)
	_, publicErr := foreign.ParseFormat(f.from)
	files := outputs{out: f.out, force: f.force, runs: publicErr != nil && f.Replays != capture.ReplaysDrop}
	for _, name := range names {
		files.read(name)
	}
	if err := files.check(); err != nil {
		return err
	}
	ctx := cmd.Context()
	inputs := inputs{names: names, opt: mooncake.OpenOptions{Stdin: interruptible(ctx, cmd.InOrStdin())}}
	defer inputs.close()
	traces := summaries{untokened: f.MissingTokens}
	result, err := f.convert(cmd, compile, &inputs, &traces, traces.Sink(files.create, files.file))
	if err != nil {
		return traces.failed(ctx, err)
	}
	if f.json {
		return traces.encode(cmd.OutOrStdout(), f.from, result)
	}
	return traces.report(cmd.OutOrStdout(), result)
}

// convert finds out what the inputs are, unless it is said, and converts them.
func (f *convertFlags) convert(cmd *cobra.Command, compile capture.Options, in *inputs, traces *summaries, sink capture.Sink) (capture.Result, error) {
	if f.from == "" {
		from, err := in.detect(cmd.Context())
		if err != nil {
			return capture.Result{}, err
		}
		f.from = from
	}
	_, err := offline.ParseFormat(f.from)
	wrong := telemetryFlags
	if err == nil {
		wrong = publicFlags
	}
	for _, name := range wrong {
		if cmd.Flags().Changed(name) {
			return capture.Result{}, fmt.Errorf("--%s has no effect on %s: leave it out", name, f.from)
		}
	}
	if err == nil {
		result, err := f.telemetry(cmd, compile, in, sink)
		traces.Lost = result.Lost // the sidecars have it already
		return result.Result, err
	}
	traces.from = f.from
	return f.public(cmd, in, sink)
}

// validate checks what can be checked without reading.
func (f *convertFlags) validate(names []string) error {
	var errs []error
	if _, _, err := hashKey(f.keyEnv); err != nil {
		errs = append(errs, err)
	}
	for i, name := range names {
		switch again := slices.ContainsFunc(names[:i], func(other string) bool { return sameFile(other, name) }); {
		case again && name == "-":
			errs = append(errs, errors.New("standard input can be read once"))
		case again:
			errs = append(errs, fmt.Errorf("%s is named twice, and its requests would be in the trace twice: name it once", mooncake.PublicName(name)))
		}
	}
	return errors.Join(errs...)
}

// sameFile reports whether two inputs are the same one, whatever they are called.
func sameFile(a, b string) bool {
	if a == b {
		return true
	}
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	two, err := os.Stat(b)
	return err == nil && os.SameFile(one, two)
}

// telemetry converts OTLP and Dynamo's request trace.
func (f *convertFlags) telemetry(cmd *cobra.Command, compile capture.Options, in *inputs, sink capture.Sink) (offline.Result, error) {
	orders, err := promptOrders(f.orders, f.FollowEngine)
	if err != nil {
		return offline.Result{}, err
	}
	annotation := annotate.Config{BlockSize: f.BlockSize, SessionKeys: f.sessionKeys, PromptOrder: orders}
	if err := checkAnnotation(annotation); err != nil {
		return offline.Result{}, err
	}
	text, notice, err := hashKey(f.keyEnv)
	if err != nil {
		return offline.Result{}, err
	}
	if notice != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "moonloop: %s\n", notice)
	}
	opt := offline.Options{
		Format: offline.Format(f.from), MaxLine: f.maxLine,
		Annotate: annotation,
		Compile:  compile,
	}
	if text == "" {
		opt.Annotate.Key = blockhash.RandomKey()
	} else if opt.Annotate.Key, err = annotate.ParseKey(text); err != nil {
		return offline.Result{}, fmt.Errorf("hash key in %s: %w", f.keyEnv, err)
	}
	var files []capture.Source
	for i, name := range in.labels() {
		files = append(files, capture.Source{Name: name, Open: func() (io.ReadCloser, error) { return in.open(cmd.Context(), i) }})
	}
	return offline.Convert(cmd.Context(), opt, sink, files...)
}

// public converts public traces.
func (f *convertFlags) public(cmd *cobra.Command, in *inputs, sink capture.Sink) (result capture.Result, err error) {
	opt := foreign.Options{
		Format: foreign.Format(f.from), BlockSize: f.BlockSize, Models: f.models, Lookahead: f.lookahead, MaxLine: f.maxLine,
		Plain: f.Format == capture.FormatMooncake, Tool: "moonloop convert " + version(),
	}
	if cmd.Flags().Changed("failed") {
		opt.Failed = f.failed
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
	return in.openOne(ctx, in.names[i])
}

// openOne opens an input of text so that the end of ctx ends the waiting for it.
func (in *inputs) openOne(ctx context.Context, name string) (*mooncake.Input, error) {
	opened, err := in.openAny(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := opened.Text(); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return opened, nil
}

// openAny opens an input, whatever is in it.
func (in *inputs) openAny(ctx context.Context, name string) (*mooncake.Input, error) {
	info, err := os.Stat(name)
	if err != nil || info.Mode().IsRegular() || info.IsDir() || name == "-" {
		return mooncake.OpenInput(ctx, name, in.opt)
	}
	pipe, err := openInput(ctx, name)
	if err != nil {
		return nil, err
	}
	opt := in.opt
	opt.Stdin = pipe
	opened, err := mooncake.OpenInput(ctx, "-", opt)
	if err != nil {
		return nil, err
	}
	opened.Label = name
	return opened, nil
}

func (in *inputs) close() {
	if in.first != nil {
		_ = in.first.Close()
	}
}

// detect tells the format of the first input.
func (in *inputs) detect(ctx context.Context) (from string, err error) {
	if in.first, err = in.openOne(ctx, in.names[0]); err != nil {
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
		return "", fmt.Errorf("%s is empty: name another file", in.first.Label)
	}
	return "", hintError{fmt.Errorf("%s: its format is not known", in.first.Label), "--from forces one, and then says which line does not fit"}
}
