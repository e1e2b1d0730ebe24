// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/agent/report/page"
)

// newReportCommand returns the command that draws the results of replays.
func newReportCommand() *cobra.Command {
	var out, traceURL string
	var files exports
	var slice time.Duration
	cmd := &cobra.Command{
		Use:   "report DIR...",
		Short: "Draw the results of replays as a page",
		Args:  someInputs("one folder or more", "name folders that moonloop replay --out wrote"),
		RunE: func(cmd *cobra.Command, dirs []string) error {
			if out != "" && len(dirs) > 1 {
				return errors.New("--out names one page: give one folder, or leave --out out")
			}
			if files.any() && len(dirs) > 1 {
				return errors.New("--xlsx and --parquet name one file: give one folder, or leave both flags out")
			}
			for _, dir := range dirs {
				if err := drawRun(cmd, dir, out, traceURL); err != nil {
					return err
				}
				if err := files.write(cmd, dir, slice); err != nil {
					return err
				}
			}
			return nil
		},
	}
	add(cmd.Flags(), &out, "out", "", aFile)
	add(cmd.Flags(), &traceURL, "trace-url", "", aTraceURL)
	files.register(cmd.Flags())
	add(cmd.Flags(), &slice, "slice", page.DefaultSlice, aSlice)
	return cmd
}

func drawRun(cmd *cobra.Command, dir, out, traceURL string) error {
	run, err := page.Load(dir, 0)
	if err != nil {
		return err
	}
	run.TraceURL = traceURL
	switch out {
	case "-":
		return run.Write(cmd.OutOrStdout())
	case "":
		out = filepath.Join(dir, page.File)
	}
	if err := run.Save(out); err != nil {
		return err
	}
	sayWhere(cmd, out, out+"\n")
	return nil
}
