// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// inspectOptions are the flags of inspect.
type inspectOptions struct {
	json       bool
	strict     bool
	lenient    bool
	quarantine string
	blockSize  int
	fine       int
	unit       time.Duration
	mapping    mooncake.Mapping
	maxIDs     int
	capacities []string
	eviction   stats.Eviction
	maxLine    int
	potential  potentialOptions
}

// newInspectCommand returns the command that measures and checks traces.
func newInspectCommand() *cobra.Command {
	var opt inspectOptions
	cmd := &cobra.Command{
		Use:   "inspect TRACE...",
		Short: "Measure and check Mooncake traces",
		Args:  someInputs("one file or more", `name files, URLs, or - for standard input`),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := opt.potential.check(cmd.Flags()); err != nil {
				return err
			}
			return runInspect(cmd.Context(), args, opt, standardInput(cmd.Context(), cmd.InOrStdin()), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	add(f, &opt.json, "json", false)
	add(f, &opt.strict, "strict", false)
	add(f, &opt.lenient, "lenient", false)
	add(f, &opt.quarantine, "quarantine", "", aFile)
	add(f, &opt.blockSize, "block-size", 0, blockSize)
	add(f, &opt.fine, "fine-block-size", 0, blockSize)
	textVar(f, &opt.unit, "time-unit", "", "", mooncake.ParseUnit).rule = timeUnit
	mapVar(f, &opt.mapping)
	capacities := reads("numbers of blocks from 1 to 2^30 with commas between, such as 5859,10k", parseCapacities)
	listVar(f, &opt.capacities, "capacity", capacities, "1k", "3k", "5859", "10k", "30k", "50k", "100k")
	textVar(f, &opt.eviction, "eviction", "leaf-first", "", parseEviction).rule = oneOf("leaf-first", "root-first")
	add(f, &opt.maxIDs, "max-ids", mooncake.DefaultMaxIDs, whole(1, 1<<31-1))
	add(f, &opt.maxLine, "max-line", mooncake.DefaultMaxLine, whole(1, 1<<31-1))
	opt.potential.flags(f)
	return cmd
}

// inspected is one trace's part of the output.
type inspected struct {
	Trace string         `json:"trace"`
	Meta  *mooncake.Meta `json:"meta,omitempty"`
	*stats.Analysis
	Notices []mooncake.Notice `json:"notices"`
	// Rejected counts the rows that could not be used; no figure above includes them. Quarantine is the file with them.
	Rejected   int64  `json:"rejected,omitempty"`
	Quarantine string `json:"quarantine,omitempty"`

	firstRejected *mooncake.RowError
}

// inspection is the whole output.
type inspection struct {
	Traces []inspected `json:"traces"`
	// Same says whether all traces are the same workload; absent for one trace, and if it is unknown.
	Same        *bool        `json:"same_workload,omitempty"`
	Comparisons []comparison `json:"comparisons,omitempty"`
}

func runInspect(ctx context.Context, names []string, opt inspectOptions, stdin io.Reader, stdout, stderr io.Writer) error {
	analyze := stats.AnalyzeOptions{MaxIDs: opt.maxIDs, Eviction: opt.eviction}
	var err error
	if analyze.Potential, err = opt.potential.options(ctx); err != nil {
		return err
	}
	if !opt.potential.on { // else the curve has the sizes of caches
		if analyze.Capacities, err = parseCapacities(strings.Join(opt.capacities, ",")); err != nil {
			return fmt.Errorf("--capacity: %w", err)
		}
	}
	if err := opt.check(len(names)); err != nil {
		return err
	}
	var out inspection
	var found int64
	for _, name := range names {
		trace, err := inspectTrace(ctx, name, opt, analyze, stdin)
		if err != nil {
			return err
		}
		out.Traces = append(out.Traces, trace)
		found += trace.findings()
	}
	if len(out.Traces) > 1 {
		if out.Comparisons, err = compareTraces(ctx, names, out.Traces, opt); err != nil {
			return err
		}
		out.Same = sameWorkload(out.Comparisons)
	}
	var result any = out
	if !opt.json {
		result = out.render()
	}
	if err := output(stdout, result); err != nil {
		return err
	}
	if opt.strict && found > 0 {
		_, _ = fmt.Fprintf(stderr, "moonloop: strict: %d findings, listed above\n", found)
		return exitWith(exitGoals)
	}
	return nil
}

// check returns errors for contradictory flags.
func (opt inspectOptions) check(traces int) error {
	switch {
	case opt.lenient && opt.strict:
		return errors.New("--lenient rejects the rows that --strict reports: give one of --lenient and --strict")
	case opt.quarantine != "" && !opt.lenient:
		return errors.New("--quarantine: without --lenient the first row that cannot be used is an error; give both or neither")
	case opt.quarantine != "" && traces > 1:
		return fmt.Errorf("--quarantine: one file cannot hold the rows of %d traces; inspect them one by one", traces)
	}
	return nil
}

// inspectTrace reads one trace. It does not read strictly: everything is counted, and --strict decides at the end.
func inspectTrace(ctx context.Context, name string, opt inspectOptions, analyze stats.AnalyzeOptions, stdin io.Reader) (_ inspected, err error) {
	read := mooncake.OpenOptions{BlockSize: opt.blockSize, FineBlockSize: opt.fine, MaxLine: opt.maxLine, Unit: opt.unit, Map: opt.mapping, Stdin: stdin}
	var left *mooncake.Quarantine
	if opt.lenient {
		if left, err = mooncake.NewQuarantine(opt.quarantine); err != nil {
			return inspected{}, err
		}
		defer func() { err = errors.Join(err, left.Close()) }() // no effect after Commit
		if err := left.CheckName(name); err != nil {
			return inspected{}, err
		}
		read.Reject = left.Add
	}
	trace, err := mooncake.Open(ctx, name, read)
	if err != nil {
		return inspected{}, err
	}
	defer func() { _ = trace.Close() }()
	analyze.BlockSize, analyze.FineBlockSize = trace.BlockSize(), trace.FineBlockSize()
	if m := trace.Meta(); m != nil && len(m.Sampling) == 1 {
		analyze.Sample = &stats.SampleOptions{Rate: m.Sampling[0].Rate, Trunk: m.Trunk, Order: m.Sampling[0].By}
	}
	a := stats.NewAnalyzer(analyze)
	rows := int64(0)
	for ; ; rows++ {
		row, err := trace.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return inspected{}, err
		}
		a.Add(row, trace.Line())
		if rows%1024 == 0 && ctx.Err() != nil {
			return inspected{}, context.Cause(ctx)
		}
	}
	out := inspected{
		Trace: displayName(name), Meta: trace.Meta(), Analysis: a.Analysis(), Notices: trace.Notices(),
		Rejected: left.Count(), Quarantine: left.Name(), firstRejected: left.First(),
	}
	switch {
	case rows == 0 && out.Rejected > 0:
		return inspected{}, fmt.Errorf("%s: none of its %d rows can be used; the first is %w", out.Trace, out.Rejected, out.firstRejected)
	case rows == 0:
		return inspected{}, fmt.Errorf("%s: the trace has no rows: name another one", out.Trace)
	}
	if err := out.Meta.CheckRows(rows + out.Rejected); err != nil {
		return inspected{}, fmt.Errorf("%s: %w", out.Trace, err)
	}
	if out.Rejected > 0 && out.Meta != nil {
		meta := *out.Meta
		meta.Digests = mooncake.Digests{} // they are of all rows
		out.Meta = &meta
	}
	if left != nil {
		return out, left.Commit()
	}
	return out, nil
}

// displayName shortens a path or URL to a name for a column.
func displayName(name string) string {
	if name == "-" {
		return "standard input"
	}
	name, _, _ = strings.Cut(name, "?")
	return filepath.Base(name)
}

// findings counts what --strict objects to.
func (t inspected) findings() int64 {
	var n int64
	for _, v := range t.Violations {
		n += v.Count
	}
	for _, notice := range t.Notices {
		if slices.Contains([]mooncake.NoticeCode{mooncake.NoticeUnknownKey, mooncake.NoticeTooManyIDs, mooncake.NoticeLayout, mooncake.NoticeTimes}, notice.Code) {
			n += notice.Count
		}
	}
	return n
}

func parseEviction(text string) (stats.Eviction, error) {
	for _, e := range []stats.Eviction{stats.LeafFirst, stats.RootFirst} {
		if text == e.String() {
			return e, nil
		}
	}
	return 0, errors.New("must be leaf-first or root-first")
}

// parseCapacities reads sizes such as 5859,10k,1.5m.
func parseCapacities(text string) (list []int, err error) {
	for s := range strings.SplitSeq(text, ",") {
		n, bad := parseAmount(strings.TrimSpace(s), 1<<30)
		err = errors.Join(err, bad)
		list = append(list, int(n))
	}
	return list, err
}

// parseAmount reads a whole number from 1 to most, such as 5859, 10k, 1.5m or 2G.
func parseAmount(text string, most float64) (float64, error) {
	digits, unit := strings.ToLower(text), 1.
	for suffix, times := range map[string]float64{"k": 1e3, "m": 1e6, "g": 1e9} {
		if d, ok := strings.CutSuffix(digits, suffix); ok {
			digits, unit = d, times
			break
		}
	}
	f, err := parseFloat(digits)
	n := f * unit
	return n, errors.Join(err, wrongUnless(n == math.Trunc(n) && n >= 1 && n <= most))
}
