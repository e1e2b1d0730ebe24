// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package offline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/exporter/decode"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// Result says what was made, of what, and what was not.
type Result struct {
	capture.Result
	Lines     int64           `json:"lines"` // that were not empty
	Annotated annotate.Counts `json:"annotated"`
	Decoded   decode.Counts   `json:"decoded"`
	// Lost is what was left out before there was a trace to count it for. The sidecar of the first trace has it, too.
	Lost []mooncake.Dropped `json:"lost,omitempty"`
}

// Convert makes traces of telemetry files of one format, in any order, through sink: one for production and one for each replay.
// A line that cannot be understood is a *[mooncake.RowError], and the end; but a last line that breaks off, as a Collector leaves
// it that is killed, is only counted. That no row comes out is an error, too.
func Convert(ctx context.Context, opt Options, sink capture.Sink, files ...capture.Source) (Result, error) {
	if _, err := ParseFormat(string(opt.Format)); err != nil {
		return Result{}, err
	}
	if opt.MaxLine < 0 {
		return Result{}, fmt.Errorf("longest line %d: must be above 0", opt.MaxLine)
	}
	if opt.MaxLine == 0 {
		opt.MaxLine = mooncake.DefaultMaxLine
	}
	if len(files) == 0 {
		return Result{}, errors.New("no file to convert")
	}
	opt.Annotate.Content = annotate.ContentDrop
	if err := opt.Annotate.Validate(); err != nil {
		return Result{}, err
	}
	opt.Compile.BlockSize = opt.Annotate.BlockSize
	opt.Annotate.BlockSize = capture.FineBlockSizeOf(cmp.Or(opt.Annotate.BlockSize, mooncake.BlockSize)) // the journal is a short one
	annotator, err := annotate.New(opt.Annotate)
	if err != nil {
		return Result{}, err
	}
	dir, err := os.MkdirTemp(opt.Compile.TempDir, "moonloop-convert-")
	if err != nil {
		return Result{}, fmt.Errorf("no place for the journal: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	c := &converter{format: opt.Format, annotator: annotator, decoder: decode.New(decode.Config{Limits: opt.Annotate.Limits})}
	name := filepath.Join(dir, "journal")
	if err := c.write(ctx, opt, name, files); err != nil {
		return c.result, err
	}
	before := history{step: c.transformation(opt, files), lost: c.dropped()}
	annotated := func(p capture.Partition) (capture.TraceWriter, error) {
		w, err := sink(p)
		return completed{w, before.of(p)}, err
	}
	compiled, err := capture.Compile(ctx, opt.Compile, annotated, capture.FileSource(name))
	for i := range compiled.Traces {
		t := &compiled.Traces[i]
		if t.Meta.Rows > 0 {
			before.of(t.Partition).complete(&t.Meta)
		}
	}
	c.result.Result, c.result.Lost = compiled, before.lost
	if err == nil && !slices.ContainsFunc(compiled.Traces, func(t capture.TraceResult) bool { return t.Meta.Rows > 0 }) {
		err = nothing(compiled, before.lost)
	}
	return c.result, err
}

// nothing is the error of files without a row. What belongs to no trace counts once, though each trace has it.
func nothing(compiled capture.Result, lost []mooncake.Dropped) error {
	all := tally{}
	all.add(lost, 1)
	for _, t := range compiled.Traces {
		all.add(t.Meta.Dropped, 1)
	}
	all.add(compiled.Dropped, 1-int64(len(compiled.Traces)))
	var s strings.Builder
	fmt.Fprintf(&s, "no row came out of %d spans of requests to models and %d others", compiled.Inferences, compiled.Links)
	for _, d := range all.list() {
		fmt.Fprintf(&s, "; %d %s: %s", d.Count, d.What, d.Reason)
	}
	return errors.New(s.String())
}

// converter turns telemetry into the records of a journal.
type converter struct {
	format    Format
	annotator *annotate.Annotator
	decoder   *decode.Decoder
	journal   *journal.Writer
	result    Result
	lost      tally
}

// write puts all files into a journal.
func (c *converter) write(ctx context.Context, opt Options, name string, files []capture.Source) (err error) {
	if c.journal, err = journal.OpenWriter(name, journal.WriterOptions{NoSync: true}); err != nil {
		return err
	}
	for _, file := range files {
		if err = c.file(ctx, file, opt.MaxLine); err != nil {
			break
		}
	}
	return errors.Join(err, c.journal.Close())
}

// logs takes log records: those that stand for spans become spans.
func (c *converter) logs(ld plog.Logs) error {
	td, counts := c.annotator.Logs(ld)
	c.result.Annotated.Add(counts)
	return c.records(td)
}

// traces takes spans.
func (c *converter) traces(td ptrace.Traces) error {
	c.result.Annotated.Add(c.annotator.Traces(td))
	return c.records(td)
}

func (c *converter) records(td ptrace.Traces) error {
	counts, err := c.decoder.Traces(td, func(r journal.Record) error { return c.journal.Append(r) })
	c.result.Decoded.Add(counts)
	return err
}

func (c *converter) lose(what, reason string, n int64) {
	if n == 0 {
		return
	}
	if c.lost == nil {
		c.lost = tally{}
	}
	c.lost[[2]string{what, reason}] += n
}

// dropped lists what got into no record.
func (c *converter) dropped() []mooncake.Dropped {
	for reason, n := range c.result.Annotated.Dropped {
		kind, rest, _ := strings.Cut(string(reason), "_")
		what := map[string]string{"prompt": "prompts", "hashes": "hash ids", "usage": "token counts", "reply": "replies", "log": "log records"}[kind]
		c.lose(cmp.Or(what, kind), strings.ReplaceAll(rest, "_", " "), n)
	}
	c.lose("spans", "no trace id", c.result.Decoded.NoTraceID)
	c.lose("spans", "no span id", c.result.Decoded.NoSpanID)
	for name, n := range c.result.Decoded.Invalid {
		c.lose("values", name+" is not what the convention says", n)
	}
	return c.lost.list()
}

// transformation is the step that the sidecar names.
func (c *converter) transformation(opt Options, files []capture.Source) mooncake.Transformation {
	names := make([]string, len(files))
	for i, file := range files {
		names[i] = file.Name
	}
	parameters := map[string]any{
		"from": c.format, "files": names,
		"missing_tokens": cmp.Or(opt.Compile.MissingTokens, capture.MissingDrop),
		"replays":        cmp.Or(opt.Compile.Replays, capture.ReplaysSeparate),
	}
	if len(opt.Annotate.SessionKeys) > 0 {
		parameters["session_keys"] = opt.Annotate.SessionKeys
	}
	identities := c.result.Annotated.Identities
	found := make([]string, 0, len(identities))
	for _, name := range slices.Sorted(maps.Keys(identities)) {
		found = append(found, fmt.Sprintf("%d %s", identities[name], name))
	}
	effect := fmt.Sprintf("%d spans and %d log records were read", c.result.Annotated.Spans, c.result.Annotated.Logs)
	if len(found) > 0 {
		effect += "; the requests' prompts were identified by: " + strings.Join(found, ", ")
	}
	return mooncake.Transformation{Name: "convert", Parameters: parameters, Effect: effect + "."}
}
