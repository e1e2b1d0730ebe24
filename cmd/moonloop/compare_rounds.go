// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/study"
)

// roundFlags are the flags with which compare makes the runs itself.
type roundFlags struct {
	commands []string
	study.Rounds
}

func (r *roundFlags) register(f *pflag.FlagSet) {
	listVar(f, &r.commands, "run", anyText("a command of the shell that writes a run's folder to {out}"))
	add(f, &r.N, "rounds", 6, whole(1, study.MaxRounds))
	add(f, &r.Between, "between", "")
	add(f, &r.Calibrate, "calibrate", false)
	add(f, &r.Seed, "seed", 0)
	add(f, &r.Dir, "out", "rounds", anyText("the name of a folder"))
}

func (r *roundFlags) given() bool { return len(r.commands) > 0 }

func (r *roundFlags) check(folders []string, again string) error {
	switch {
	case len(folders) > 0:
		return errors.New("folders are existing runs, and --run makes new ones: give one or the other")
	case again != "":
		return errors.New("--again names existing runs: with --run, give --calibrate")
	case len(r.commands) != 2:
		return fmt.Errorf("--run has %s: give two: one for A and one for B", term.Counted(int64(len(r.commands)), "commands"))
	}
	return nil
}

// run runs the rounds, and returns the folders of their runs.
func (r *roundFlags) run(cmd *cobra.Command, metric study.Metric) (dirs []string, again string, err error) {
	r.A, r.B = r.commands[0], r.commands[1]
	if r.Seed == 0 {
		r.Seed = drawnSeed()
	}
	r.Exec = shell
	r.Ended = func(round int, side string, run *study.Run) {
		value, unit, _ := run.Value(metric)
		fmt.Fprintf(cmd.ErrOrStderr(), "round %d of %d, %s: %s %.4g %s, %s\n", round, r.N, side, metric, value, unit, judge.Text(run.Verdict))
	}
	switch err := r.Run(cmd.Context()); {
	case errors.Is(err, study.ErrTooSmall): // the comparison says the rest
		fmt.Fprint(cmd.ErrOrStderr(), term.Note(cmd.ErrOrStderr(), "warning: "+err.Error()))
	case err != nil:
		return nil, "", err
	}
	if r.Calibrate {
		again = filepath.Join(r.Dir, study.SideAgain)
	}
	return []string{filepath.Join(r.Dir, study.SideA), filepath.Join(r.Dir, study.SideB)}, again, nil
}

// shellEnds is how long a command may take to end after it was told to.
const shellEnds = 30 * time.Second

// shell runs a command. In its PATH, the folder of this moonloop comes first.
func shell(ctx context.Context, command string, log io.Writer) error {
	args := []string{"sh", "-c", command}
	if runtime.GOOS == "windows" {
		args = []string{"cmd", "/C", command}
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // it is the user's own command
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = log, log, shellEnds
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if own, err := os.Executable(); err == nil {
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(own)+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	return cmd.Run()
}
