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
		Args:  noInputs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.Out, cfg.Err = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return runDemo(cmd, cfg)
		},
	}
	add(cmd.Flags(), &cfg.Folder, "out", "", anyText("a folder that is empty or does not exist yet"))
	add(cmd.Flags(), &cfg.Production, "production", 16*time.Second, lasting(time.Second, time.Hour, "from 1s to 1h"))
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
