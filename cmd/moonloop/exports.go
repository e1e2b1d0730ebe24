// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/agent/report/export"
	"github.com/moonloop/moonloop/agent/report/page"
	"github.com/moonloop/moonloop/internal/term"
)

// exports are the files for other programs that are made from the folder of a run.
type exports struct{ xlsx, parquet string }

func (e *exports) register(flags *pflag.FlagSet) {
	add(flags, &e.xlsx, "xlsx", "", that("the name of a file", notStandardOutputOf("a workbook")))
	add(flags, &e.parquet, "parquet", "", that("the name of a file", notStandardOutputOf("a Parquet file")))
}

func notStandardOutputOf(what string) func(string) error {
	return func(value string) error {
		if value == "-" {
			return advice(what + " is written whole: standard output cannot do that; name a file")
		}
		return nil
	}
}

// check returns an error if a file exists.
func (e *exports) check() error {
	var errs []error
	for _, f := range [][2]string{{"--xlsx", e.xlsx}, {"--parquet", e.parquet}} {
		if _, err := os.Lstat(f[1]); f[1] != "" && err == nil {
			errs = append(errs, fmt.Errorf("%s %s: %w; name another file, or give --force", f[0], f[1], fs.ErrExist))
		}
	}
	return errors.Join(errs...)
}

func (e *exports) any() bool { return e.xlsx != "" || e.parquet != "" }

// write writes the requested files, each even if another one fails.
func (e *exports) write(cmd *cobra.Command, dir string, slice time.Duration) error {
	var failed error
	if e.xlsx != "" {
		failed = e.writeWorkbook(cmd, dir, slice)
	}
	if e.parquet != "" {
		if err := export.Parquet(dir, e.parquet); err != nil {
			return errors.Join(failed, fmt.Errorf("--parquet: %w", err))
		}
		sayWhere(cmd, e.parquet, e.parquet+"\n")
	}
	return failed
}

func (e *exports) writeWorkbook(cmd *cobra.Command, dir string, slice time.Duration) error {
	run, err := page.Load(dir, slice)
	if err != nil {
		return err
	}
	left, err := export.Workbook(run, dir, e.xlsx)
	if err != nil {
		return fmt.Errorf("--xlsx: %w", err)
	}
	if left > 0 {
		stderr := cmd.ErrOrStderr()
		fmt.Fprint(stderr, term.Note(stderr, fmt.Sprintf("warning: %s requests are not in %s: a sheet has no room for them; --parquet has all", term.Comma(left), e.xlsx)))
	}
	sayWhere(cmd, e.xlsx, e.xlsx+"\n")
	return nil
}
