// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/report/page"
	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/study"
)

// newMergeCommand returns the command that combines the shards of a replay into one run.
func newMergeCommand() *cobra.Command {
	var opt study.MergeOptions
	var layout report.Layout
	var percentiles report.Percentiles
	var files exports
	cmd := &cobra.Command{
		Use:   "merge DIR... --out DIR",
		Short: "Combine the shards of a replay into one run",
		Args:  someInputs("one folder or more", "name the folders that the shards wrote (moonloop replay --shard --out), or a folder that contains them"),
		RunE: func(cmd *cobra.Command, dirs []string) error {
			if opt.Out == "" {
				return errors.New("--out is missing: name the folder for the results of the whole run")
			}
			opt.Tool, opt.Command = version(), strings.Join(publicCommand(cmd, dirs), " ")
			opt.Name = func(folder string) string { return urlOf(cmd, folder) }
			rep, err := study.Merge(dirs, opt)
			if errors.Is(err, fs.ErrExist) {
				return hintError{err, "--force replaces results once the new ones are complete"}
			}
			if err != nil {
				return err
			}
			stdout := cmd.OutOrStdout()
			rep.Percentiles, rep.Layout = percentiles, layout
			if err := rep.Table(stdout, term.Width(stdout), term.Colours(stdout)); err != nil {
				return fmt.Errorf("write the report: %w", err)
			}
			clocks := "clocks were not compared (--clock-reference)"
			if apart := rep.Merged.ClocksApart; apart != nil {
				clocks = fmt.Sprintf("clocks at most %.3g ms apart", *apart)
			}
			sayWhere(cmd, opt.Out, fmt.Sprintf("%s, %s; results in %s\n", term.Counted(int64(len(rep.Merged.Shards)), "shards"), clocks, opt.Out))
			if err := files.write(cmd, opt.Out, opt.Slice); err != nil {
				return err
			}
			return exitWith(rep.ExitStatus)
		},
	}
	f := cmd.Flags()
	add(f, &opt.Out, "out", "", anyText("a folder"))
	add(f, &opt.Force, "force", false)
	add(f, &opt.Strict, "strict-verdict", false)
	add(f, &opt.NoPage, "no-report-page", false)
	files.register(f)
	add(f, &opt.Slice, "slice", page.DefaultSlice, aSlice)
	textVar(f, &percentiles, "percentiles", "", "some of 1, 5, 10, 25, 50, 75, 90, 95, 99 and 99.9, such as 50,95,99", report.ParsePercentiles)
	wordVar(f, &layout, "table", report.LayoutMoonloop, report.LayoutMoonloop, report.LayoutTraceReplay)
	return cmd
}
