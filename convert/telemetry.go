// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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

// convertTelemetry converts telemetry files to traces.
func convertTelemetry(ctx context.Context, opt Options, sink capture.Sink, files []capture.Source) (Result, error) {
	opt.Annotate.Content, opt.Annotate.BlockSize = annotate.ContentDrop, opt.Compile.BlockSize
	if err := opt.Annotate.Validate(); err != nil {
		return Result{}, err
	}
	opt.Annotate.BlockSize = capture.FineBlockSizeOf(cmp.Or(opt.Compile.BlockSize, mooncake.BlockSize)) // the journal is only for these options
	annotator, err := annotate.New(opt.Annotate)
	if err != nil {
		return Result{}, err
	}
	dir, err := os.MkdirTemp(opt.Compile.TempDir, "moonloop-convert-")
	if err != nil {
		return Result{}, fmt.Errorf("the journal needs a temporary folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	t := &telemetry{annotator: annotator, decoder: decode.New(decode.Config{Limits: opt.Annotate.Limits})}
	t.read = t.otlpLine
	switch s := opt.Format.spec(); {
	case opt.Format == Dynamo:
		t.read = t.dynamoLine
	case s != nil:
		if err := opt.validateChoice(); err != nil {
			return Result{}, err
		}
		t.read, t.table = t.requests, s.table
		t.rows = decoder{spec: s, opt: &opt, lost: &t.lost}
	}
	name := filepath.Join(dir, "journal")
	if err := t.write(ctx, opt, name, files); err != nil {
		return Result{Lines: t.lines}, err
	}
	lost, step := t.dropped(), t.transformation(opt, files)
	if opt.To != "" {
		sink = opt.encoding(sink)
	}
	traces := 0
	completed := func(p capture.Partition) (capture.TraceWriter, error) {
		w, err := sink(p)
		return completed{w, opt.Format.spec() != nil, func(m *mooncake.Meta) {
			if traces++; traces == 1 { // counts that belong to no trace are reported once
				m.Dropped = slices.Concat(lost, m.Dropped)
			}
			m.Transformations = slices.Concat([]mooncake.Transformation{step}, m.Transformations)
		}}, err
	}
	compiled, err := capture.Compile(ctx, opt.Compile, completed, capture.FileSource(name))
	if err == nil && traces == 0 {
		err = nothing(opt.Format, files, compiled, lost)
	}
	return Result{compiled, t.lines, lost}, err
}

// completed is a trace whose sidecar also describes what happened before it was compiled.
type completed struct {
	capture.TraceWriter
	made     bool // the spans were made here
	complete func(*mooncake.Meta)
}

// Write removes the row's reference to its span if the span was made here, since no backend has it.
func (w completed) Write(row *mooncake.Row) error {
	if w.made {
		row.OTel = mooncake.SpanRef{}
	}
	return w.TraceWriter.Write(row)
}

// Commit completes the sidecar.
func (w completed) Commit(meta *mooncake.Meta) error {
	w.complete(meta)
	return w.TraceWriter.Commit(meta)
}

// nothing returns the error for telemetry without a row. Counts that belong to no trace are included once, though each trace has them.
func nothing(format Format, files []capture.Source, compiled capture.Result, lost []mooncake.Dropped) error {
	var all losses
	all.addAll(lost, 1)
	for _, t := range compiled.Traces {
		all.addAll(t.Meta.Dropped, 1)
	}
	all.addAll(compiled.Dropped, 1-int64(len(compiled.Traces)))
	why := all.list()
	for i, d := range why {
		if d.What == "rows" && d.Reason == string(reasonNoCounts) {
			why[i].Reason += " (--missing-tokens estimate keeps them)"
		}
	}
	names := namesOf(files)
	if compiled.Inferences+compiled.Links == 0 && len(all) == 0 {
		return nothingIn(names, "span and no log record", format)
	}
	advice := "correct what leaves them out, or name a file that has others"
	if compiled.Inferences == 0 {
		advice = "record the spans of a GenAI instrumentation, which have gen_ai attributes, or name a file that has some"
	}
	return noRows(fmt.Sprintf("%s, with %d spans of requests to models and %d others", strings.Join(names, ", "), compiled.Inferences, compiled.Links), why, advice)
}

// telemetry converts files to the records of a journal.
type telemetry struct {
	read      func(line []byte) error // a [*mooncake.RowError] is about the line
	table     bool                    // the files are tables
	rows      decoder                 // for formats with prompts
	made      int64                   // spans made from their requests
	annotator *annotate.Annotator
	decoder   *decode.Decoder
	journal   *journal.Writer
	lines     int64 // lines that were not empty
	annotated annotate.Counts
	decoded   decode.Counts
	lost      losses
}

// write writes the records of all files to a journal.
func (t *telemetry) write(ctx context.Context, opt Options, name string, files []capture.Source) (err error) {
	if t.journal, err = journal.OpenWriter(name, journal.WriterOptions{NoSync: true}); err != nil {
		return err
	}
	for i, file := range files {
		t.rows.file, t.rows.names = i, nil
		if err = t.file(ctx, file, opt.MaxLine); err != nil {
			break
		}
	}
	return errors.Join(err, t.journal.Close())
}

// file reads a file line by line.
func (t *telemetry) file(ctx context.Context, file capture.Source, maxLine int) (err error) {
	in, err := file.Open()
	if err != nil {
		return err
	}
	l := newLines(in, file.Name, maxLine, ", or let the exporter write smaller batches", t.table)
	t.rows.tabled = l.cells
	defer func() { t.lines, err = t.lines+l.filled, errors.Join(err, in.Close()) }()
	for {
		line, err := l.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		err = t.read(line)
		if line, more, failed := l.again(err); failed != nil {
			return failed
		} else if more {
			err = t.read(line)
		}
		fault, bad := errors.AsType[*mooncake.RowError](err)
		switch {
		case err == nil:
		case !bad:
			return err
		case l.cut() && errors.Is(fault, io.ErrUnexpectedEOF):
			t.lost.add("lines", "the last one is incomplete", 1)
		default:
			return l.fault(fault)
		}
	}
}

// logs processes log records: those that stand for spans become spans.
func (t *telemetry) logs(ld plog.Logs) error {
	td, counts := t.annotator.Logs(ld)
	t.annotated.Add(counts)
	return t.records(td)
}

// traces processes spans.
func (t *telemetry) traces(td ptrace.Traces) error {
	t.annotated.Add(t.annotator.Traces(td))
	return t.records(td)
}

func (t *telemetry) records(td ptrace.Traces) error {
	counts, err := t.decoder.Traces(td, func(r journal.Record) error { return t.journal.Append(r) })
	t.decoded.Add(counts)
	return err
}

// dropped lists what is in no record.
func (t *telemetry) dropped() []mooncake.Dropped {
	for reason, n := range t.annotated.Dropped {
		what, why := reason.Words()
		t.lost.add(what, why, n)
	}
	t.lost.add("spans", "no trace id", t.decoded.NoTraceID)
	t.lost.add("spans", "no span id", t.decoded.NoSpanID)
	for name, n := range t.decoded.Invalid {
		t.lost.add("values", decode.WhyInvalid(name), n)
	}
	return t.lost.list()
}

// transformation returns the step for the sidecar.
func (t *telemetry) transformation(opt Options, files []capture.Source) mooncake.Transformation {
	parameters := map[string]any{
		"from": opt.Format, "files": namesOf(files),
		"missing_tokens": cmp.Or(opt.Compile.MissingTokens, capture.MissingDrop),
		"replays":        cmp.Or(opt.Compile.Replays, capture.ReplaysSeparate),
	}
	if len(opt.Annotate.SessionKeys) > 0 {
		parameters["session_keys"] = opt.Annotate.SessionKeys
	}
	if len(opt.Annotate.ClassKeys) > 0 {
		parameters["class_keys"] = opt.Annotate.ClassKeys
	}
	effect := fmt.Sprintf("%d spans and %d log records were read", t.annotated.Spans, t.annotated.Logs)
	var found []string
	for _, name := range slices.Sorted(maps.Keys(t.annotated.Identities)) {
		found = append(found, fmt.Sprintf("%d %s", t.annotated.Identities[name], name))
	}
	if len(found) > 0 {
		effect += "; the requests' prompts were identified by: " + strings.Join(found, ", ")
	}
	return mooncake.Transformation{Name: "convert", Parameters: parameters, Effect: effect + "."}
}
