// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/internal/demo"
)

func newDemoCommand() *cobra.Command {
	cfg := demo.Config{Version: version()}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the whole loop on this machine: application, capture, replay, capture again, compare",
		Long: `Demo runs the whole loop on free ports of localhost, in about half a minute, with nothing to install:

  1  engine: "moonloop simulate", as a process of its own
  2  capture: the receiver and the exporter of a Collector, in this process
  3  production: an application chats with the engine and emits OpenTelemetry spans that contain the prompts, as
     applications in production do
  4  compile: the capture's journal becomes a trace without text
  5  replay: the trace is replayed against the engine at its recorded times; the replay's spans go to the same capture
  6  compile: the replay's spans become a second trace
  7  compare: both traces are compared, and every file is searched for the text of the prompts

Variables named OTEL_* have no effect here.

EXIT STATUS

  0    both traces have the same rows, shared blocks and timestamps, and no file contains text of a prompt
  1    they differ, a file contains text, or a request failed
  2    the demonstration could not start
  3    they are the same, but the replay's measurement is invalid
  130  interrupted`,
		Example: "  moonloop demo\n  moonloop demo --out demo-results",
		Args:    noInputs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.Out, cfg.Err = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return runDemo(cmd, cfg)
		},
	}
	cmd.Flags().StringVar(&cfg.Folder, "out", "", "`DIR` for the traces, the journal and the replay's report (default: they are deleted)")
	cmd.Flags().DurationVar(&cfg.Production, "production", 16*time.Second, "approximate duration of the production step")
	return cmd
}

func runDemo(cmd *cobra.Command, cfg demo.Config) error {
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "OTEL_") {
			if err := os.Unsetenv(name); err != nil {
				return fmt.Errorf("demo: %w", err)
			}
		}
	}
	closed, rep, err := demo.Run(cmd.Context(), cfg)
	switch {
	case err != nil:
		return err
	case !closed:
		return exitWith(exitGoals)
	}
	return exitWith(rep.ExitStatus)
}
