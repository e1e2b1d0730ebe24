// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/internal/gcpace"
	"github.com/moonloop/moonloop/internal/term"
)

// replay runs a replay, shows it under way on standard error and its report on standard output.
func replay(cmd *cobra.Command, cfg agent.Config, progressMode string) error {
	stderr, stdout := cmd.ErrOrStderr(), cmd.OutOrStdout()
	view := term.NewProgress(stderr, progressMode)
	cfg.Trace.Stdin = cmd.InOrStdin()
	cfg.Tool = version()
	cfg.Command = publicCommand(cmd, []string{cfg.Trace.Name})
	cfg.Progress = func(live *agent.Live) { view.Show(live.Line) }
	cfg.Note = func(text string) { fmt.Fprintf(stderr, "moonloop: %s\n", text) }
	cfg.Warn = func(text string) { fmt.Fprintf(stderr, "moonloop: warning: %s\n", text) }
	defer telemetry.CatchSDK(cfg.Warn)()
	defer gcpace.Start()()
	// Who reads our output may go first, as when a terminal is closed: the results are to be written all the same.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	rep, err := agent.Run(cmd.Context(), cfg)
	view.Stop(true)
	signal.Stop(broken)
	if rep != nil {
		if err := rep.Table(stdout, term.Colours(stdout)); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
		if cfg.Out != "" && err == nil {
			fmt.Fprintf(stdout, "results in %s\n", cfg.Out)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return hintError{err, "--force replaces results once the new ones are complete; it discards the records of a run that did not end at once"}
	}
	if err != nil {
		return err
	}
	return exitWith(rep.ExitStatus)
}
