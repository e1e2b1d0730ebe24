// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/generate"
)

// newGenerateCommand returns the command that makes traces.
func newGenerateCommand() *cobra.Command {
	cfg := generate.Default()
	var files outputs
	var clients clientFlags
	cmd := &cobra.Command{
		Use:   "generate",
		Short: "Generate a realistic Mooncake trace",
		Args:  noInputs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch drawn, err := clients.drawn(cmd.Flags(), cfg); {
			case err != nil:
				return err
			case drawn:
				return clients.run(cmd, &files, cfg.BlockSize)
			}
			if cfg.Rows == 0 && cfg.Duration == 0 {
				return errors.New("--rows and --duration are both 0, so the trace would not end: give one of the two")
			}
			if err := inFlags(cfg.Validate(), cmd.Flags()); err != nil {
				return err
			}
			return runGenerate(cmd.Context(), cfg, &files, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	add(f, &files.out, "out,o", "", traceFile)
	add(f, &files.force, "force", false)
	add(f, &cfg.Seed, "seed", cfg.Seed)
	add(f, &cfg.Rows, "rows", cfg.Rows, whole(0, maxRows))
	add(f, &cfg.Duration, "duration", cfg.Duration, lasting(0, 365*24*time.Hour, "from 0 to 8760h"))
	add(f, &cfg.Rate, "rate", cfg.Rate, number(1e-6, 1e6))
	add(f, &cfg.Turns, "turns", cfg.Turns, number(1, 1e6))
	add(f, &cfg.SystemPromptTokens, "system-prompt", cfg.SystemPromptTokens, whole(0, maxTokens))
	logNormalVar(f, &cfg.UserTokens, "user", 1)
	logNormalVar(f, &cfg.OutputTokens, "output", 1)
	add(f, &cfg.MaxInput, "max-input", cfg.MaxInput, whole(0, maxTokens))
	logNormalVar(f, &cfg.Think, "think", 0)
	add(f, &cfg.TokenTime, "token-time", cfg.TokenTime, lasting(0, time.Hour, "from 0 to 1h"))
	add(f, &cfg.Grid, "grid", cfg.Grid, between("whole milliseconds from 0 to 1h, such as 3s", parseGrid, 0, time.Hour))
	add(f, &cfg.SessionIDs, "sessions", cfg.SessionIDs)
	add(f, &cfg.BlockSize, "block-size", cfg.BlockSize, whole(1, 1<<20))
	add(f, &clients.folder, "clients", "", that("a folder that exists", isFolder))
	add(f, &clients.Start, "start", 0, lasting(0, 365*24*time.Hour, "from 0 to 8760h"))
	return cmd
}

func runGenerate(ctx context.Context, cfg generate.Config, files *outputs, stdout, stderr io.Writer) error {
	return writeGenerated(ctx, files, cfg.BlockSize, stdout, stderr, func(row func(*mooncake.Row) error) (mooncake.Meta, error) {
		meta := mooncake.Meta{
			SessionMode: mooncake.SessionNone, Transformations: []mooncake.Transformation{{Name: "generate", Parameters: map[string]any{"config": cfg}}},
		}
		if cfg.SessionIDs {
			meta.SessionMode = mooncake.SessionFull
		}
		return meta, generate.Generate(cfg, row)
	})
}

// writeGenerated writes the rows that a function makes, and, for a file, a sidecar that describes them.
func writeGenerated(
	ctx context.Context, files *outputs, blockSize int, stdout, stderr io.Writer, rows func(each func(*mooncake.Row) error) (mooncake.Meta, error),
) error {
	name := files.out
	digester := mooncake.NewDigester(mooncake.CheckOptions{BlockSize: blockSize})
	var line int64
	write := func(w *mooncake.Writer) (mooncake.Meta, error) {
		return rows(func(row *mooncake.Row) error {
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
		if _, err := write(mooncake.NewWriter(buf)); err != nil {
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
	defer func() { _ = file.Close() }() // no effect after Commit
	meta, err := write(file.Writer)
	if err != nil {
		return err
	}
	meta.Tool, meta.BlockSize, meta.Digests, meta.Trunk = "moonloop generate", blockSize, digester.Digests(), digester.Trunk()
	if err := file.Commit(&meta); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stderr, "%s: %s; sidecar %s\n", name, english.Plural(int(file.Rows()), "row", ""), mooncake.MetaName(name))
	return err
}

// logNormalVar adds a distribution: MEDIAN,SIGMA[,MAX]. The median must not be below least. The default is the current value of *to.
func logNormalVar(fs *pflag.FlagSet, to *generate.LogNormal, name string, least float64) {
	text := fmt.Sprintf("%g,%g", to.Median, to.Sigma)
	if to.Max > 0 {
		text += fmt.Sprintf(",%g", to.Max)
	}
	v := textVar(fs, to, name, text, "", parseLogNormal)
	v.kind, v.rule = "median,sigma[,max]", distribution(least)
}

func parseLogNormal(text string) (d generate.LogNormal, err error) {
	parts := strings.Split(text, ",")
	if len(parts) < 2 || len(parts) > 3 {
		return d, fmt.Errorf("%q is not MEDIAN,SIGMA or MEDIAN,SIGMA,MAX", text)
	}
	for i, value := range []*float64{&d.Median, &d.Sigma, &d.Max}[:len(parts)] {
		if *value, err = parseFloat(strings.TrimSpace(parts[i])); err != nil {
			return d, fmt.Errorf("%q is not a number", parts[i])
		}
	}
	return d, nil
}
