// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/generate"
)

// newGenerateCommand returns the command that makes traces.
func newGenerateCommand() *cobra.Command {
	cfg := generate.Default()
	var files outputs
	cmd := &cobra.Command{
		Use:   "generate",
		Short: "Generate a realistic Mooncake trace",
		Args:  noInputs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cfg.Rows == 0 && cfg.Duration == 0 {
				return errors.New("--rows and --duration are both 0, and a trace has to end: give one of them")
			}
			if err := inFlags(cfg.Validate(), cmd.Flags()); err != nil {
				return err
			}
			return runGenerate(cmd.Context(), cfg, &files, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVarP(&files.out, "out", "o", "", "`FILE` to write, instead of standard output")
	f.BoolVar(&files.force, "force", false, "replace an existing trace and its .meta.json")
	f.Uint64Var(&cfg.Seed, "seed", cfg.Seed, "seed of the random numbers")
	f.Int64Var(&cfg.Rows, "rows", cfg.Rows, "number of rows (0 = no limit)")
	f.DurationVar(&cfg.Duration, "duration", cfg.Duration, "trace time to cover (0 = no limit)")
	f.Float64Var(&cfg.Rate, "rate", cfg.Rate, "mean rows per second, once conversations end as often as they begin")
	f.Float64Var(&cfg.Turns, "turns", cfg.Turns, "mean number of turns of a conversation")
	f.Int64Var(&cfg.SystemPromptTokens, "system-prompt", cfg.SystemPromptTokens, "tokens of the system prompt that every prompt begins with")
	f.Var((*logNormalFlag)(&cfg.UserTokens), "user", "tokens of a user message")
	f.Var((*logNormalFlag)(&cfg.OutputTokens), "output", "tokens of a reply")
	f.Int64Var(&cfg.MaxInput, "max-input", cfg.MaxInput, "longest prompt in tokens (0 = no limit)")
	f.Var((*logNormalFlag)(&cfg.Think), "think", "seconds between a reply and the next turn")
	f.DurationVar(&cfg.TokenTime, "token-time", cfg.TokenTime, "time per token of a reply")
	f.DurationVar(&cfg.Grid, "grid", cfg.Grid, "round timestamps down to multiples of this (0 = whole milliseconds)")
	f.BoolVar(&cfg.SessionIDs, "sessions", cfg.SessionIDs, "write session_id on the rows")
	f.IntVar(&cfg.BlockSize, "block-size", cfg.BlockSize, "tokens per hash id")
	return cmd
}

func runGenerate(ctx context.Context, cfg generate.Config, files *outputs, stdout, stderr io.Writer) error {
	name := files.out
	digester := mooncake.NewDigester(mooncake.CheckOptions{BlockSize: cfg.BlockSize})
	var line int64
	write := func(w *mooncake.Writer) error {
		return generate.Generate(cfg, func(row *mooncake.Row) error {
			if line++; line%1024 == 0 && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if name != "" {
				digester.Add(row, line)
			}
			return w.Write(row)
		})
	}
	if name == "" {
		buf := bufio.NewWriterSize(stdout, 64<<10)
		if err := write(mooncake.NewWriter(buf)); err != nil {
			return err
		}
		if err := buf.Flush(); err != nil {
			return fmt.Errorf("output: %w", err)
		}
		return nil
	}
	file, err := files.create(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // after Commit without effect
	if err := write(file.Writer); err != nil {
		return err
	}
	meta := &mooncake.Meta{
		Tool: "moonloop generate", BlockSize: cfg.BlockSize, SessionMode: mooncake.SessionNone,
		Digests:         digester.Digests(),
		Transformations: []mooncake.Transformation{{Name: "generate", Parameters: map[string]any{"config": cfg}}},
	}
	if cfg.SessionIDs {
		meta.SessionMode = mooncake.SessionFull
	}
	if err := file.Commit(meta); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stderr, "%s: %d rows; sidecar %s\n", name, file.Rows(), mooncake.MetaName(name))
	return err
}

// logNormalFlag is a distribution on the command line: MEDIAN,SIGMA[,MAX].
type logNormalFlag generate.LogNormal

func (f *logNormalFlag) String() string {
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	s := number(f.Median) + "," + number(f.Sigma)
	if f.Max > 0 {
		s += "," + number(f.Max)
	}
	return s
}

// Set reads a distribution. Its range is the configuration's to check.
func (f *logNormalFlag) Set(s string) error {
	parts := strings.Split(s, ",")
	if len(parts) < 2 || len(parts) > 3 {
		return fmt.Errorf("%q is not MEDIAN,SIGMA or MEDIAN,SIGMA,MAX", s)
	}
	var values [3]float64
	for i, p := range parts {
		v, err := strconv.ParseFloat(strings.TrimSpace(p), 64)
		if err != nil {
			return fmt.Errorf("%q is not a number", p)
		}
		values[i] = v
	}
	f.Median, f.Sigma, f.Max = values[0], values[1], values[2]
	return nil
}

// Type is what help shows in the place of the value.
func (*logNormalFlag) Type() string { return "median,sigma[,max]" }
