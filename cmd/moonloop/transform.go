// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/transform"
)

// transformFlags are the flags of transform.
type transformFlags struct {
	transform.Config
	outputs
	append, merge bool
	start, end    traceTime
	spread        transform.Spread
	unit          time.Duration
	mapping       mooncake.Mapping
	block, fine   int
	maxLine       int
}

// newTransformCommand returns the command that makes traces from other traces.
func newTransformCommand() *cobra.Command {
	var f transformFlags
	cmd := &cobra.Command{
		Use:   "transform TRACE... [--out TRACE]",
		Short: "Scale, cut, join and reshape Mooncake traces without losing what their requests share",
		Args:  someInputs("one file or more", `name files, URLs, or - for standard input`),
		RunE:  func(cmd *cobra.Command, args []string) error { return runTransform(cmd, f, args) },
	}
	fs := cmd.Flags()
	factor := number(transform.MinScale, transform.MaxScale)
	add(fs, &f.out, "out,o", "", traceFile)
	add(fs, &f.force, "force", false)
	add(fs, &f.append, "append", false)
	add(fs, &f.merge, "merge", false)
	add(fs, &f.start, "start", 0)
	add(fs, &f.end, "end", 0)
	add(fs, &f.Sample, "sample", 1, number(mooncake.MinSampleRate, 1))
	wordVar(fs, &f.SampleBy, "sample-by", mooncake.SampleSession, mooncake.SampleSession, mooncake.SamplePrefix)
	listVar(fs, &f.Models, "only-model", aModel)
	listVar(fs, &f.Classes, "only-class", anyText("a class of rows"))
	listVar(fs, &f.Sessions, "only-session", anyText("a session_id"))
	add(fs, &f.MinInput, "min-input", 0, whole(0, maxTokens))
	add(fs, &f.MaxInput, "max-input", 0, whole(0, maxTokens))
	add(fs, &f.MinOutput, "min-output", 0, whole(0, maxTokens))
	add(fs, &f.MaxOutput, "max-output", 0, whole(0, maxTokens))
	add(fs, &f.MaxContext, "max-context", 0, whole(0, maxTokens))
	add(fs, &f.Conversations, "first-conversations", 0, whole(0, maxRows))
	add(fs, &f.First, "first", 0, whole(0, maxRows))
	add(fs, (*string)(&f.Draw), "draw", "", oneOf("shuffle", "random"))
	add(fs, &f.Scale, "scale", 1, factor)
	add(fs, &f.Shift, "shift", transform.DefaultShift, lasting(time.Millisecond, 24*time.Hour, "from 1ms to 24h"))
	add(fs, &f.Roots, "roots", 1, whole(1, transform.MaxRoots))
	add(fs, &f.InputScale, "input-scale", 1, factor)
	add(fs, &f.PrefixScale, "prefix-scale", 1, factor)
	add(fs, &f.OutputScale, "output-scale", 1, factor)
	add(fs, &f.BlockSize, "to-block-size", 0, blockSize)
	add(fs, &f.MaxGap, "max-gap", 0, lasting(0, century, "0 or more"))
	textVar(fs, &f.spread, "spread", "none", "", transform.ParseSpread).rule = oneOf("none", "uniform", "even")
	add(fs, (*string)(&f.Turns), "turn-delay", "", oneOf("start", "end", "none"))
	add(fs, &f.MaxDelay, "max-delay", 0, lasting(0, century, "0 or more"))
	listVar(fs, &f.ToModels, "to-model", aModel)
	add(fs, &f.TimeScale, "time-scale", 1, factor)
	add(fs, &f.Seed, "seed", 1)
	textVar(fs, &f.unit, "time-unit", "", "", mooncake.ParseUnit).rule = timeUnit
	mapVar(fs, &f.mapping)
	add(fs, &f.block, "block-size", 0, blockSize)
	add(fs, &f.fine, "fine-block-size", 0, blockSize)
	add(fs, &f.maxLine, "max-line", mooncake.DefaultMaxLine, whole(1, 1<<31-1))
	add(fs, &f.TempDir, "temp-dir", "", that("a folder that exists", isFolder))
	return cmd
}

func runTransform(cmd *cobra.Command, f transformFlags, names []string) (err error) {
	c := f.Config
	c.Start, c.End, c.Spread = time.Duration(f.start), time.Duration(f.end), f.spread
	switch {
	case f.append && f.merge:
		return errors.New("--append puts traces one after the other, and --merge overlays them: give one of --append and --merge")
	case len(names) > 1 && !f.append && !f.merge:
		return hintError{fmt.Errorf("%d traces are given, but not how to combine them", len(names)), "--append puts traces one after the other, --merge overlays them"}
	case f.append:
		c.Join = transform.JoinAppend
	case f.merge:
		c.Join = transform.JoinMerge
	}
	if c.InputScale != 1 && c.PrefixScale != 1 {
		return errors.New("--input-scale scales the shared prefix, too, so --prefix-scale cannot be used with it: pipe one transformation into another")
	}
	for _, same := range []*float64{&c.InputScale, &c.PrefixScale} {
		if *same == 1 {
			*same = 0 // which also does nothing
		}
	}
	if err := inFlags(c.Validate(), cmd.Flags()); err != nil {
		return err
	}
	stdin := 0
	for _, name := range names {
		f.read(name)
		if name == "-" {
			if stdin++; stdin > 1 {
				return errors.New("standard input can be read only once")
			}
		}
	}
	in := tracesRead{ctx: cmd.Context(), flags: &f, stdin: standardInput(cmd.Context(), cmd.InOrStdin())}
	defer func() { err = errors.Join(err, in.close()) }()
	sources := make([]transform.Source, len(names))
	for i, name := range names {
		if sources[i], err = in.source(name); err != nil {
			return err
		}
	}
	var file *mooncake.File
	if f.out != "" {
		if file, err = f.create(f.out); err != nil {
			return err
		}
		defer func() { _ = file.Close() }() // no effect after Commit
	}
	stream, err := transform.Open(c, sources...)
	if err != nil {
		return inFlags(err, cmd.Flags())
	}
	defer stream.Close() // before the traces are closed
	out := bufio.NewWriterSize(cmd.OutOrStdout(), 256<<10)
	writer, digester := mooncake.NewWriter(out), (*mooncake.Digester)(nil)
	if file != nil {
		writer = file.Writer
		digester = mooncake.NewDigester(mooncake.CheckOptions{BlockSize: stream.BlockSize(), FineBlockSize: stream.FineBlockSize()})
	}
	last := lastRow{Writer: writer}
	write := writer.Write
	if file == nil && isPipe(cmd.OutOrStdout()) {
		write = last.delay
	}
	if err := copyRows(cmd.Context(), stream, write, digester); err != nil {
		return inFlags(err, cmd.Flags())
	}
	stream.Close()
	report := stream.Report()
	if file == nil {
		if err := errors.Join(last.write(slices.Concat(in.before(0), report.Steps)), out.Flush()); err != nil {
			return fmt.Errorf("output: %w", err)
		}
	} else if err := file.Commit(in.meta(stream, report, digester)); err != nil {
		return err
	}
	for _, text := range in.notices() {
		fmt.Fprintf(cmd.ErrOrStderr(), "moonloop: %s\n", text)
	}
	return f.report(cmd.ErrOrStderr(), report, stream)
}

// lastRow delays a row until it is known whether it is the last one. A pipe has no sidecar, so the last row has the transformations.
type lastRow struct {
	*mooncake.Writer
	held *mooncake.Row
}

// delay writes the delayed row, and delays this one.
func (l *lastRow) delay(row *mooncake.Row) error {
	before := l.held
	if l.held = row; before == nil {
		return nil
	}
	return l.Write(before)
}

// write writes the delayed row, if there is one, with the transformations.
func (l *lastRow) write(done []mooncake.Transformation) error {
	if l.held == nil {
		return nil
	}
	if len(done) > 0 {
		raw, err := json.Marshal(done)
		if err != nil {
			return err
		}
		l.held.Foreign = maps.Clone(l.held.Foreign)
		if l.held.Foreign == nil {
			l.held.Foreign = map[string]json.RawMessage{}
		}
		l.held.Foreign["transformations"] = raw
	}
	return l.Write(l.held)
}

// isPipe reports whether another program reads the output.
func isPipe(w io.Writer) bool {
	f, isFile := w.(*os.File)
	if !isFile {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeNamedPipe != 0
}

// copyRows writes the rows of a stream.
func copyRows(ctx context.Context, stream *transform.Stream, write func(*mooncake.Row) error, d *mooncake.Digester) error {
	line := int64(0)
	return stream.Each(ctx, func(row *mooncake.Row) error {
		if line++; d != nil {
			d.Add(row, line)
		}
		return write(row)
	})
}

// report writes what was done, on standard error, because rows may be on standard output.
func (f *transformFlags) report(w io.Writer, r transform.Report, s *transform.Stream) error {
	for _, step := range r.Steps {
		if _, err := fmt.Fprintf(w, "%-13s %s\n", step.Name, step.Effect); err != nil {
			return err
		}
	}
	a, b := r.Before, r.After
	t := term.NewTable()
	t.AppendHeader(table.Row{"", "before", "after"})
	for _, row := range []struct {
		name, format  string
		before, after float64
	}{
		{"rows", "%.0f", float64(a.Rows), float64(b.Rows)},
		{"span, s", "%.1f", a.Span / 1000, b.Span / 1000},
		{"rows per second", "%.3f", a.Rate, b.Rate},
		{"gap CV", "%.3f", a.GapCV, b.GapCV},
		{"  of random arrivals", "%.3f", a.RandomCV, b.RandomCV},
		{"mean input, tokens", "%.1f", a.Input, b.Input},
		{"mean output, tokens", "%.1f", a.Output, b.Output},
		{"infinite cache, tokens hit", "%.2f %%", 100 * a.TokenHits, 100 * b.TokenHits},
	} {
		t.AppendRow(table.Row{row.name, fmt.Sprintf(row.format, row.before), fmt.Sprintf(row.format, row.after)})
	}
	_, err := fmt.Fprintln(w, t.Render())
	switch {
	case err != nil:
	case f.out != "":
		_, err = fmt.Fprintf(w, "%s: %s; sidecar %s\n", f.out, english.Plural(int(b.Rows), "row", ""), mooncake.MetaName(f.out))
	case s.FineBlockSize() > 0 || s.BlockSize() != mooncake.BlockSize:
		_, err = fmt.Fprintf(w, "moonloop: a pipe has no sidecar: read these rows with --block-size %d", s.BlockSize())
		if s.FineBlockSize() > 0 && err == nil {
			_, err = fmt.Fprintf(w, " --fine-block-size %d", s.FineBlockSize())
		}
		fmt.Fprintln(w)
	}
	return err
}

// tracesRead opens traces.
type tracesRead struct {
	ctx    context.Context //nolint:containedctx // of the one command
	flags  *transformFlags
	stdin  io.Reader
	metas  []*mooncake.Meta
	opened []*mooncake.Trace // with the same index
	traces []*mooncake.Trace // opened traces, some of them twice
	ends   []func() error
}

func (t *tracesRead) close() error {
	var errs []error
	for _, end := range t.ends {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// notices returns the notices about unusual layouts and timestamps of the traces, each once.
func (t *tracesRead) notices() (texts []string) {
	for _, trace := range t.traces {
		for _, n := range trace.Notices() {
			if (n.Code == mooncake.NoticeLayout || n.Code == mooncake.NoticeTimes) && !slices.Contains(texts, n.Text) { // it may have been read twice
				texts = append(texts, n.Text)
			}
		}
	}
	return texts
}

func (t *tracesRead) open(name string, opt mooncake.OpenOptions) (*mooncake.Trace, error) {
	f := t.flags
	opt.BlockSize, opt.FineBlockSize, opt.Unit, opt.Map, opt.MaxLine, opt.TempDir = f.block, f.fine, f.unit, f.mapping, f.maxLine, f.TempDir
	trace, err := mooncake.Open(t.ctx, name, opt)
	if err == nil {
		t.ends = append(t.ends, trace.Close)
		t.traces = append(t.traces, trace)
	}
	return trace, err
}

// source returns a trace as a source. It reads the sidecar at once, but opens the trace later.
func (t *tracesRead) source(name string) (transform.Source, error) {
	s := transform.Source{Name: displayName(name)}
	var meta *mooncake.Meta
	var err error
	pipe := name == "-"
	if info, e := os.Stat(name); e == nil && !pipe {
		pipe = !info.Mode().IsRegular() && !info.IsDir()
		if !pipe {
			meta, err = mooncake.LoadMeta(name)
		}
	}
	if err != nil {
		return s, err
	}
	number := len(t.metas)
	t.metas, t.opened = append(t.metas, meta), append(t.opened, nil)
	if meta != nil {
		s.Trunk = meta.Trunk
	}
	s.Waits = pipe
	open := func() (*mooncake.Trace, error) {
		switch {
		case !pipe:
			return t.open(name, mooncake.OpenOptions{})
		case name != "-":
			in, err := openInput(t.ctx, name)
			if err != nil {
				return nil, err
			}
			t.ends = append(t.ends, in.Close)
			return t.open("-", mooncake.OpenOptions{Stdin: in, StdinName: name})
		}
		return t.open("-", mooncake.OpenOptions{Stdin: t.stdin})
	}
	s.Open = func() (transform.Rows, error) {
		trace, err := open()
		if err != nil {
			return nil, err
		}
		if t.opened[number] = trace; meta == nil {
			t.metas[number] = trace.Meta() // that of a URL
		}
		return &wholeTrace{Trace: trace, name: s.Name}, nil
	}
	return s, nil
}

// wholeTrace is a trace that ends with an error unless it has as many rows as its sidecar says. Otherwise a trace that was cut would become one
// that looks complete.
type wholeTrace struct {
	*mooncake.Trace
	name string
	rows int64
}

func (w *wholeTrace) Read() (*mooncake.Row, error) {
	row, err := w.Trace.Read()
	if err == nil {
		w.rows++
	}
	if errors.Is(err, io.EOF) {
		if cut := w.Meta().CheckRows(w.rows); cut != nil {
			return nil, fmt.Errorf("%s: %w", w.name, cut)
		}
	}
	return row, err
}

// before returns the earlier transformations of a source, from its sidecar or, if there is none, from its last row.
func (t *tracesRead) before(source int) []mooncake.Transformation {
	switch {
	case t.metas[source] != nil:
		return t.metas[source].Transformations
	case t.opened[source] != nil:
		return t.opened[source].Transformations()
	}
	return nil
}

// meta returns the sidecar of the new trace: facts about the sources' rows that remain true of more or fewer rows.
func (t *tracesRead) meta(s *transform.Stream, r transform.Report, d *mooncake.Digester) *mooncake.Meta {
	m := &mooncake.Meta{}
	for i, from := range t.metas {
		switch {
		case from == nil:
		case i == 0:
			*m = *from
		case m.SessionMode != from.SessionMode:
			m.SessionMode = mooncake.SessionUnknown
		}
	}
	t.origin(m, s)
	if len(t.metas) > 1 {
		m.TimeBase = time.Time{}
	}
	if r.Before.Rows != r.After.Rows || len(t.metas) > 1 {
		m.Identity, m.ObservedCache = nil, nil // they describe the original rows
	}
	m.Sampling = t.sampling(r.After.Rows)
	m.Schema, m.Tool, m.Rows, m.TimeUnit = mooncake.MetaSchema, "moonloop transform "+version(), r.After.Rows, "ms"
	m.BlockSize, m.FineBlockSize, m.Digests, m.Trunk = s.BlockSize(), s.FineBlockSize(), d.Digests(), d.Trunk()
	m.Transformations = slices.Concat(t.before(0), r.Steps)
	return m
}

// sampling returns the samples of production in the new trace: those of its sources, reduced to the part that was kept.
func (t *tracesRead) sampling(rows int64) (list []mooncake.Sampling) {
	whole, rate := true, cmp.Or(t.flags.Sample, 1)
	for _, from := range t.metas {
		of := []mooncake.Sampling{{Rate: 1}}
		if from != nil && len(from.Sampling) > 0 {
			of = from.Sampling
		}
		for _, s := range of {
			if rate != 1 {
				s.By = t.flags.SampleBy
			}
			s.Rate, s.Rows = s.Rate*rate, 0 // the number of remaining rows of each is unknown
			whole = whole && s.Rate == 1
			if !slices.Contains(list, s) {
				list = append(list, s)
			}
		}
	}
	switch {
	case whole:
		return nil
	case len(list) == 1:
		list[0].Rows = rows
	}
	return list
}

// origin says in the sidecar how ids and times of the new trace were made, as far as the sidecars of its sources say so. The rest is
// counted as rows are written.
func (t *tracesRead) origin(m *mooncake.Meta, s *transform.Stream) {
	var p mooncake.Privacy
	m.HashKeys, m.HashDomains = nil, nil
	for i, from := range t.metas {
		var said mooncake.Privacy
		if from != nil {
			m.HashKeys, m.HashDomains = append(m.HashKeys, from.HashKeys...), append(m.HashDomains, from.HashDomains...)
			if from.Privacy != nil {
				said = *from.Privacy
			}
		}
		if i == 0 {
			p.HashAlgorithm = said.HashAlgorithm
		}
		if p.HashAlgorithm != said.HashAlgorithm {
			p.HashAlgorithm = ""
		}
		p.TimestampJitter = max(p.TimestampJitter, said.TimestampJitter)
	}
	slices.Sort(m.HashKeys)
	slices.Sort(m.HashDomains)
	m.HashKeys, m.HashDomains = slices.Compact(m.HashKeys), slices.Compact(m.HashDomains)
	p.TimestampJitter = s.Jitter(p.TimestampJitter)
	m.Privacy = &p
}
