// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

// One replay does not show how much the next one would differ. This file makes several and shows their spread.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/internal/atomicfile"
	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/study"
)

// maxRuns is the maximum of --runs.
const maxRuns = 1000

// runsFile is the file in a folder of runs, next to them.
const runsFile = "runs.json"

// shownSpreads are the metrics of the table; the file has all.
var shownSpreads = []string{
	"time_to_first_token.p50", "time_to_first_token.p99", "inter_token_latency.p50", "inter_token_latency.p99", "request_latency.p50", "request_latency.p99",
	"output_token_throughput.avg", "request_throughput.avg",
}

// replayRuns makes all runs, one after the other, and shows how their figures scatter. It returns the worst run's error. A run that cannot
// be made, or is interrupted, is the last one.
func (f *replayFlags) replayRuns(cmd *cobra.Command) error {
	stderr, stdout := cmd.ErrOrStderr(), cmd.OutOrStdout()
	out := f.cfg.Out
	for i := 1; i <= f.runs && !f.cfg.Force && f.resume == ""; i++ { // check before an hour has been spent on the first runs
		if _, err := os.Lstat(runFolder(out, i)); err == nil {
			return hintError{fmt.Errorf("output directory %s: %w", runFolder(out, i), fs.ErrExist), "choose another folder with --out, or replace what is there with --force"}
		}
	}
	if !f.runsFresh {
		fmt.Fprint(stderr, term.Note(stderr, "every run sends the same prompts: from the second one on the engine may have them in its cache; --runs-fresh sends others"))
	}
	var worst error
	var runs, cut []*study.Run // cut: the interrupted one
	toCome := f.runs
	for i := 1; i <= f.runs; i++ {
		if i > 1 && !clock.Pause(cmd.Context(), f.runsPause) {
			break
		}
		err := f.replayOne(cmd, i)
		run, readErr := study.ReadRuns(runFolder(out, i))
		status := statusOf(err)
		switch {
		case readErr != nil:
		case status == exitInterrupted: // its figures are those of a part of the trace
			cut = run
		default:
			runs = append(runs, run...)
		}
		toCome--
		worst = worse(worst, err)
		if err != nil && (status == exitUsage || status == exitInterrupted) {
			break
		}
	}
	if len(runs) == 0 {
		return worst
	}
	spreads := study.Spreads(runs)
	if err := errors.Join(writeRuns(filepath.Join(out, runsFile), runs, cut, spreads), output(stdout, runsText(runs, cut, toCome, spreads))); err != nil {
		return err
	}
	sayWhere(cmd, out, fmt.Sprintf("results in %s, the spread of all figures in its %s\n", out, runsFile))
	return worst
}

// replayOne makes the i-th run, or continues it, unless an earlier command has made it.
func (f *replayFlags) replayOne(cmd *cobra.Command, i int) error {
	stderr, cfg := cmd.ErrOrStderr(), f.run(i)
	what := "run %d of %d"
	if f.resume != "" {
		switch stateOf(cfg.Out) {
		case runOver:
			fmt.Fprint(stderr, term.Note(stderr, fmt.Sprintf("run %d of %d was complete already", i, f.runs)))
			return nil
		case runBroken:
			cfg.Resume, what = true, "run %d of %d is resumed"
		default:
			cfg.Force = true // the folder may exist, if the run was cut short before it began
		}
	}
	fmt.Fprint(stderr, term.Note(stderr, fmt.Sprintf(what, i, f.runs)))
	return f.replay(cmd, cfg)
}

// run returns the configuration of the i-th run, counted from 1.
func (f *replayFlags) run(i int) agent.Config {
	cfg := f.cfg
	cfg.Out = runFolder(cfg.Out, i)
	if cfg.RunID != "" {
		cfg.RunID += fmt.Sprintf("-%d", i)
	}
	if f.runsWarm && i > 1 {
		s := &cfg.Schedule
		s.Warmup, s.WarmupFor, s.WarmupGrace, s.WarmupConcurrency, s.WarmupConcurrencyRampUp = 0, 0, 0, 0, 0
		s.WarmupPrefillConcurrency, s.WarmupPrefillRampUp, s.WarmupArrivals = 0, 0, load.Arrivals{}
	}
	if f.runsFresh {
		cfg.Prompt.Seed += uint64(i - 1) //nolint:gosec // i is 1 or more
	}
	return cfg
}

func runFolder(out string, i int) string { return filepath.Join(out, fmt.Sprintf("run-%d", i)) }

// statusOf returns the exit status of an error of a replay.
func statusOf(err error) int {
	var exit exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return exit.status
	}
	return exitUsage
}

// worse returns the more important of two errors, by the order of judge.ExitCode.
func worse(a, b error) error {
	rank := map[int]int{exitOK: 0, exitGoals: 1, exitInvalid: 2, exitUsage: 3, exitInterrupted: 4}
	if rank[statusOf(b)] > rank[statusOf(a)] {
		return b
	}
	return a
}

// writeRuns writes runs.json.
func writeRuns(name string, runs, cut []*study.Run, spreads []study.Spread) error {
	type one struct {
		Folder  string    `json:"folder"`
		Start   time.Time `json:"start_time"`
		Verdict string    `json:"verdict"`
		// Interrupted says that the run is not complete, and not in the figures.
		Interrupted bool `json:"interrupted,omitempty"`
	}
	content := struct {
		Runs    []one          `json:"runs"`
		Figures []study.Spread `json:"figures"`
	}{[]one{}, spreads}
	for _, r := range runs {
		content.Runs = append(content.Runs, one{filepath.Base(r.Dir), r.Start, r.Verdict, false})
	}
	for _, r := range cut {
		content.Runs = append(content.Runs, one{filepath.Base(r.Dir), r.Start, r.Verdict, true})
	}
	return writeWhole(name, atomicfile.Anything, func(w io.Writer) error { return encode(w, content) })
}

// runsText returns the table over the runs, their verdicts, and what is missing.
func runsText(runs, cut []*study.Run, toCome int, spreads []study.Spread) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nover %s:\n\n", term.Counted(int64(len(runs)), "runs"))
	t := term.NewTable()
	t.AppendHeader(table.Row{"metric", "mean", "sd", "CV", "min", "max"})
	for _, name := range shownSpreads {
		for _, s := range spreads {
			if s.Metric == name {
				t.AppendRow(table.Row{
					s.Metric, fmt.Sprintf("%.4g %s", s.Mean, s.Unit), fmt.Sprintf("%.3g", s.SD), fmt.Sprintf("%.2f %%", 100*s.CV),
					fmt.Sprintf("%.4g", s.Min), fmt.Sprintf("%.4g", s.Max),
				})
			}
		}
	}
	b.WriteString(t.Render() + "\n\n")
	writeVerdicts(&b, runs)
	for _, r := range cut {
		fmt.Fprintf(&b, "%s: interrupted, and not in the figures above\n", filepath.Base(r.Dir))
	}
	if toCome > 0 {
		fmt.Fprintf(&b, "%s not made\n", term.Counted(int64(toCome), "further runs"))
	}
	return b.String()
}

func writeVerdicts(w io.Writer, runs []*study.Run) {
	for _, r := range runs {
		fmt.Fprintf(w, "%s: %s\n", filepath.Base(r.Dir), judge.Text(r.Verdict))
	}
}
