// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/mooncake"
)

// inspectOptions are the flags of inspect.
type inspectOptions struct {
	json       bool
	strict     bool
	blockSize  int
	maxIDs     int
	capacities []string
	eviction   string
	maxLine    int
}

// newInspectCommand returns the command that measures and checks traces.
func newInspectCommand() *cobra.Command {
	var opt inspectOptions
	cmd := &cobra.Command{
		Use:   "inspect TRACE...",
		Short: "Measure and check Mooncake traces",
		Long: `Inspect reads traces and says what is in them: rows, arrivals and their clock, lengths, how much of
the prompts is shared, what prefix caches of several sizes would have hit, the digests that tell
whether two traces are the same workload, and the rules of the format (V1 to V8) that are broken.

A trace is a file of JSON lines, plain or compressed with gzip, zstd or bzip2, - for standard
input, or an http or https URL. The block size comes from the trace's sidecar (X.meta.json) where
there is one, else it is 512.

Hits are those of a cache without a time model, rows in file order. Finite caches evict the least
recently used block, of one row the last block first. Sharing shorter than a block does not show
in hash ids, so true reuse is higher than the figures say.

Exit status: 0 when the traces could be read; 1 with --strict when a rule is broken, a key is
unknown or a row has more ids than blocks; 2 when the command or a trace cannot be used.`,
		Example: `  moonloop inspect trace.jsonl
  moonloop inspect --json trace.jsonl.zst | jq .traces[0].digests
  moonloop inspect --capacity 5859,100k captured.jsonl replayed.jsonl`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runInspect(cmd.Context(), args, opt, interruptible(cmd.Context(), cmd.InOrStdin()), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.BoolVar(&opt.json, "json", false, "print JSON instead of tables")
	f.BoolVar(&opt.strict, "strict", false, "fail when a rule is broken or something was read with a liberty")
	f.IntVar(&opt.blockSize, "block-size", 0, "tokens per hash id (default: the sidecar's, else 512)")
	f.StringSliceVar(&opt.capacities, "capacity", []string{"1k", "3k", "5859", "10k", "30k", "50k", "100k"},
		"cache sizes to simulate, in blocks; k and m stand for thousands and millions")
	f.StringVar(&opt.eviction, "eviction", "leaf-first", "which blocks of a row a finite cache evicts first: leaf-first or root-first")
	f.IntVar(&opt.maxIDs, "max-ids", mooncake.DefaultMaxIDs, "distinct ids to remember; beyond, what needs them is left out")
	f.IntVar(&opt.maxLine, "max-line", mooncake.DefaultMaxLine, "longest line to accept, in bytes")
	return cmd
}

// inspected is one trace's part of the output.
type inspected struct {
	Trace string         `json:"trace"`
	Meta  *mooncake.Meta `json:"meta,omitempty"`
	*mooncake.Analysis
	Notices []mooncake.Notice `json:"notices"`
}

// inspection is the whole output.
type inspection struct {
	Traces []inspected `json:"traces"`
	// Same says whether all traces are the same workload; absent for one trace.
	Same *bool `json:"same_workload,omitempty"`
}

func runInspect(ctx context.Context, names []string, opt inspectOptions, stdin io.Reader, stdout, stderr io.Writer) error {
	analyze := mooncake.AnalyzeOptions{MaxIDs: opt.maxIDs}
	var err error
	if analyze.Capacities, err = parseCapacities(opt.capacities); err != nil {
		return err
	}
	if analyze.Eviction, err = parseEviction(opt.eviction); err != nil {
		return err
	}
	if opt.blockSize < 0 {
		return fmt.Errorf("--block-size %d: must be above 0", opt.blockSize)
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
		same := true
		for _, t := range out.Traces[1:] {
			same = same && t.Digests.Same(out.Traces[0].Digests)
		}
		out.Same = &same
	}
	if opt.json {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		err = enc.Encode(out)
	} else {
		_, err = io.WriteString(stdout, out.render())
	}
	if err != nil {
		return fmt.Errorf("output: %w", err)
	}
	if opt.strict && found > 0 {
		_, _ = fmt.Fprintf(stderr, "moonloop: strict: %d findings, listed above\n", found)
		return exitWith(exitGoals)
	}
	return nil
}

// inspectTrace reads one trace. It does not read strictly: everything is counted, and --strict decides at the end.
func inspectTrace(ctx context.Context, name string, opt inspectOptions, analyze mooncake.AnalyzeOptions, stdin io.Reader) (inspected, error) {
	trace, err := mooncake.Open(ctx, name, mooncake.OpenOptions{BlockSize: opt.blockSize, MaxLine: opt.maxLine, Stdin: stdin})
	if err != nil {
		return inspected{}, err
	}
	defer func() { _ = trace.Close() }()
	analyze.BlockSize = trace.BlockSize()
	a := mooncake.NewAnalyzer(analyze)
	for rows := 0; ; rows++ {
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
	out := inspected{Trace: displayName(name), Meta: trace.Meta(), Analysis: a.Analysis(), Notices: trace.Notices()}
	if err := out.Meta.CheckRows(out.Rows); err != nil {
		return inspected{}, fmt.Errorf("%s: %w", out.Trace, err)
	}
	return out, nil
}

// displayName shortens a path or URL to what tells traces apart in a column.
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
		if notice.Code == mooncake.NoticeUnknownKey || notice.Code == mooncake.NoticeTooManyIDs {
			n += notice.Count
		}
	}
	return n
}

func parseEviction(s string) (mooncake.Eviction, error) {
	for _, e := range []mooncake.Eviction{mooncake.LeafFirst, mooncake.RootFirst} {
		if s == e.String() {
			return e, nil
		}
	}
	return 0, fmt.Errorf("--eviction %q: must be leaf-first or root-first", s)
}

// parseCapacities reads sizes such as 5859, 10k, 1.5m.
func parseCapacities(list []string) ([]int, error) {
	out := make([]int, 0, len(list))
	for _, s := range list {
		digits, unit := strings.TrimSpace(strings.ToLower(s)), 1.
		if d, ok := strings.CutSuffix(digits, "k"); ok {
			digits, unit = d, 1e3
		} else if d, ok := strings.CutSuffix(digits, "m"); ok {
			digits, unit = d, 1e6
		}
		f, err := strconv.ParseFloat(digits, 64)
		n := f * unit
		if err != nil || n != float64(int64(n)) || n < 1 || n > 1<<30 {
			return nil, fmt.Errorf("--capacity %q: must be a number of blocks between 1 and 2^30, such as 5859 or 10k", s)
		}
		out = append(out, int(n))
	}
	return out, nil
}
