// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/mooncake"
)

// replay runs a replay, shows it under way on standard error and its report on standard output.
func replay(cmd *cobra.Command, cfg agent.Config, progressMode string) error {
	stderr, stdout := cmd.ErrOrStderr(), cmd.OutOrStdout()
	view := newProgress(stderr, progressMode)
	cfg.Trace.Stdin = cmd.InOrStdin()
	cfg.Tool = version()
	cfg.Command = publicCommand(os.Args)
	cfg.Progress = view.follow
	cfg.Note = func(text string) { fmt.Fprintf(stderr, "moonloop: %s\n", text) }
	cfg.Warn = func(text string) { fmt.Fprintf(stderr, "moonloop: warning: %s\n", text) }
	// Who reads our output may go first, as when a terminal is closed: the results are to be written all the same.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	rep, err := agent.Run(cmd.Context(), cfg)
	view.stop()
	signal.Stop(broken)
	if rep != nil {
		colours := false
		if f, ok := stdout.(*os.File); ok {
			colours = term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == ""
		}
		if err := rep.Table(stdout, colours); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
		if cfg.Out != "" && err == nil {
			fmt.Fprintf(stdout, "results in %s\n", cfg.Out)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return hintError{err, "--force replaces what is there, once the new results are complete"}
	}
	if err != nil {
		return err
	}
	return exitWith(rep.ExitStatus)
}

// publicCommand returns a command line without what may be secret in it: the values of headers, bodies and URLs.
func publicCommand(args []string) []string {
	out := make([]string, 0, len(args))
	hide := false
	for i, a := range args {
		if i == 0 {
			a = "moonloop"
		}
		name, _, assigned := strings.Cut(a, "=")
		secret := name == "-H" || name == "--header" || name == "--extra-inputs"
		switch {
		case hide:
			a, hide = "…", false
		case secret && assigned:
			a = name + "=…"
		case strings.HasPrefix(a, "-H") && a != "-H":
			a = "-H…"
		case secret:
			hide = true
		default:
			a = publicArg(a)
		}
		out = append(out, a)
	}
	return out
}

// publicArg returns an argument, or the value in --flag=value, without what may be secret in a URL.
func publicArg(a string) string {
	if name, value, assigned := strings.Cut(a, "="); assigned && strings.HasPrefix(name, "-") {
		return name + "=" + mooncake.PublicName(value)
	}
	return mooncake.PublicName(a)
}
