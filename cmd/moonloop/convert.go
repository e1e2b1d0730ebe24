// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/convert"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// convertFlags are the flags of convert.
type convertFlags struct {
	traceFlags
	from    convert.Format
	to      convert.Target
	maxLine int
	// for telemetry
	keyEnv                 string
	sessionKeys, classKeys []string
	orders                 []string
	prompts                convert.Prompts
	// for public traces
	failed    convert.Failed
	models    []string
	lookahead int
	// for request bodies
	fileSessions bool
}

// publicFlags are the flags for public traces only.
var publicFlags = []string{"failed", "only-model", "lookahead", "file-sessions"}

// telemetryFlags returns the flags for telemetry only.
func telemetryFlags() []string {
	return append(requestFlags(), "key-env", "session-key", "class-key", "prompt-order")
}

// newConvertCommand returns the command that makes traces from other files.
func newConvertCommand() *cobra.Command {
	var f convertFlags
	cmd := &cobra.Command{
		Use:   "convert INPUT... --out TRACE",
		Short: "Convert telemetry, logs and public traces into a Mooncake trace",
		Args:  someInputs("one file or more", `name files, URLs, or - for standard input`),
		RunE:  func(cmd *cobra.Command, args []string) error { return runConvert(cmd, f, args) },
	}
	fs := cmd.Flags()
	f.addOutput(fs)
	wordVar(fs, &f.from, "from", "", convert.Formats()...)
	wordVar(fs, &f.to, "to", "", convert.Targets()...)
	add(fs, &f.BlockSize, "block-size", 0, blockSize)
	add(fs, &f.maxLine, "max-line", mooncake.DefaultMaxLine, whole(1, 1<<31-1))
	add(fs, &f.keyEnv, "key-env", hashKeyEnv, aVariable)
	listVar(fs, &f.sessionKeys, "session-key", anAttribute)
	listVar(fs, &f.classKeys, "class-key", anAttribute)
	f.addRequests(fs)
	addPromptOrder(fs, &f.orders)
	wordVar(fs, &f.prompts, "prompts", convert.PromptsHash, convert.PromptsHash, convert.PromptsKeep)
	wordVar(fs, &f.failed, "failed", convert.FailedDrop, convert.FailedDrop, convert.FailedKeep)
	listVar(fs, &f.models, "only-model", aModel)
	add(fs, &f.fileSessions, "file-sessions", false)
	add(fs, &f.lookahead, "lookahead", convert.DefaultLookahead, whole(1, 1<<24))
	return cmd
}

func runConvert(cmd *cobra.Command, f convertFlags, names []string) error {
	_, _, err := hashKey(f.keyEnv)
	errs := []error{err}
	var read outputs
	for i, name := range names {
		switch again := read.read(name) || slices.Contains(names[:i], name); {
		case again && name == "-":
			errs = append(errs, errors.New("standard input can be read only once"))
		case again:
			errs = append(errs, fmt.Errorf("%s is named twice, and its requests would be in the trace twice: name it once", mooncake.PublicName(name)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	t, err := f.begin(f.from == "" || f.from.Telemetry(), names...)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	in := inputs{names: names, opt: mooncake.OpenOptions{Stdin: standardInput(ctx, cmd.InOrStdin())}}
	defer in.close()
	_, err = t.write(ctx, cmd.OutOrStdout(), func(sink capture.Sink) (capture.Result, error) { return f.convert(cmd, &in, t, sink) })
	return err
}

// convert detects the format of the inputs, unless it is given, and converts them.
func (f *convertFlags) convert(cmd *cobra.Command, in *inputs, t *traces, sink capture.Sink) (capture.Result, error) {
	if f.from == "" {
		from, err := in.detect(cmd.Context())
		if err != nil {
			return capture.Result{}, err
		}
		f.from = from
	}
	opt := convert.Options{Format: f.from, MaxLine: f.maxLine, Compile: f.options(cmd), To: f.to, Prompts: f.prompts, Models: f.models, FileSessions: f.fileSessions, Lookahead: f.lookahead}
	t.format, t.public = string(f.from), !f.from.Telemetry() || f.prompts == convert.PromptsKeep
	wrong := publicFlags
	switch {
	case t.public:
		wrong = telemetryFlags()
	case f.from.Keeps():
		wrong = []string{"lookahead"}
	}
	if !f.from.Keeps() && cmd.Flags().Changed("prompts") {
		wrong = append(slices.Clone(wrong), "prompts")
	}
	if f.from != convert.Payloads {
		wrong = append(slices.Clone(wrong), "file-sessions")
	}
	for _, name := range wrong {
		if cmd.Flags().Changed(name) && (name != "temp-dir" || !f.to.Groups()) {
			return capture.Result{}, fmt.Errorf("--%s has no effect on %s: leave it out", name, f.from)
		}
	}
	if f.from == convert.Mooncake {
		meta, err := in.meta(cmd.Context())
		if err != nil {
			return capture.Result{}, err
		}
		opt.Meta = meta
	}
	if cmd.Flags().Changed("failed") {
		opt.Failed = f.failed
	}
	if !t.public {
		if err := f.annotate(cmd, &opt.Annotate); err != nil {
			return capture.Result{}, err
		}
	}
	result, err := convert.Convert(cmd.Context(), opt, sink, in.sources(cmd.Context())...)
	t.Lost = result.Lost // the sidecars have it already
	return result.Result, err
}

// annotate sets the configuration with which telemetry is read.
func (f *convertFlags) annotate(cmd *cobra.Command, opt *annotate.Config) error {
	orders, err := promptOrders(f.orders, f.FollowEngine)
	*opt = annotate.Config{BlockSize: f.BlockSize, SessionKeys: f.sessionKeys, ClassKeys: f.classKeys, PromptOrder: orders, Key: blockhash.RandomKey()}
	if err := cmp.Or(err, checkAnnotation(*opt)); err != nil {
		return err
	}
	key, notice, err := hashKey(f.keyEnv)
	if notice != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "moonloop: %s\n", notice)
	}
	if err == nil && key != "" {
		opt.Key, err = annotate.ParseKey(key)
	}
	return err
}

// inputs are the inputs of convert. The first one is opened to detect its format.
type inputs struct {
	names []string
	opt   mooncake.OpenOptions
	first *mooncake.Input // until it is used
}

// sources returns the inputs, with the names that messages and the sidecar give them.
func (in *inputs) sources(ctx context.Context) (files []capture.Source) {
	for i, name := range in.names {
		label := mooncake.PublicName(name)
		if name == "-" {
			label = "standard input"
		}
		files = append(files, capture.Source{Name: label, Open: func() (io.ReadCloser, error) {
			if first := in.first; first != nil && i == 0 {
				in.first = nil
				return first, nil
			}
			return in.open(ctx, name)
		}})
	}
	return files
}

// open opens an input of text so that the end of ctx ends any waiting, which for a pipe may be long.
func (in *inputs) open(ctx context.Context, name string) (*mooncake.Input, error) {
	opt, source := in.opt, name
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() && !info.IsDir() && name != "-" {
		pipe, err := openInput(ctx, name)
		if err != nil {
			return nil, err
		}
		opt.Stdin, source = pipe, "-"
	}
	opened, err := mooncake.OpenInput(ctx, source, opt)
	if err != nil {
		return nil, err
	}
	if source != name {
		opened.Label = name
	}
	if err := opened.Text(); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return opened, nil
}

// meta returns the sidecar of the first input; nil if there is none.
func (in *inputs) meta(ctx context.Context) (meta *mooncake.Meta, err error) {
	switch name := in.names[0]; {
	case name == "-":
		return nil, nil
	case !strings.Contains(name, "://"):
		return mooncake.LoadMeta(name)
	case in.first == nil:
		if in.first, err = in.open(ctx, name); err != nil {
			return nil, err
		}
	}
	return in.first.Meta(), nil
}

func (in *inputs) close() {
	if in.first != nil {
		_ = in.first.Close()
	}
}

// detect detects the format of the first input.
func (in *inputs) detect(ctx context.Context) (from convert.Format, err error) {
	if in.first, err = in.open(ctx, in.names[0]); err != nil {
		return "", err
	}
	head, err := in.first.Peek(in.first.Size())
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("%s: cannot be read: %w", in.first.Label, err)
	}
	format, err := convert.Detect(in.first.Label, head)
	if errors.Is(err, convert.ErrUnknownFormat) {
		err = hintError{err, "--from forces a format; an error then names the line that does not fit"}
	}
	return format, err
}

// formatHelp lists the input formats for --help.
func formatHelp() string {
	var b strings.Builder
	for _, f := range convert.Formats() {
		about := f.About()
		if !f.Detected() {
			about += " (--from " + string(f) + ")"
		}
		listHelp(&b, string(f), about)
	}
	return b.String()
}

// targetHelp lists the output formats.
func targetHelp() string {
	var b strings.Builder
	for _, to := range convert.Targets() {
		listHelp(&b, string(to), to.About())
	}
	return b.String()
}

// listHelp writes a name and its description, broken between words.
func listHelp(b *strings.Builder, name, about string) {
	line := fmt.Sprintf("  %-17s", name)
	for word := range strings.FieldsSeq(about) {
		if len(line)+1+len(word) > helpWidth {
			b.WriteString(line + "\n")
			line = strings.Repeat(" ", 19)
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}
