// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Command moonloop makes Mooncake traces from production telemetry and replays them against OpenAI-compatible engines. It also has trace
// tools, a trace generator and a simulated engine.
//
// Each verb has a file with its name. A verb's constructor adds its flags; the verb's work is done by a library of this module.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/internal/term"
)

// The exit statuses of all verbs. The help of a verb lists those that it uses.
const (
	exitOK          = 0
	exitGoals       = 1   // goals missed, errors above the limit, or a check that did not hold
	exitUsage       = 2   // usage or input error
	exitInvalid     = 3   // the measurement is not valid
	exitInterrupted = 130 // stopped by a signal
)

// exitError carries an exit status out of a verb that has reported everything itself.
type exitError struct{ status int }

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", e.status) }

// exitWith returns the error for a status; nil for 0.
func exitWith(status int) error {
	if status == exitOK {
		return nil
	}
	return exitError{status}
}

// hintError adds advice to an error.
type hintError struct {
	error
	hint string
}

func (e hintError) Unwrap() error { return e.error }

func main() {
	ctx, stop := withSignals(context.Background(), os.Stderr)
	status := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// withSignals returns a context that the first interrupt, SIGTERM or SIGHUP ends. A second one ends the process. A SIGHUP
// that is ignored, as under nohup, stays ignored.
func withSignals(parent context.Context, stderr io.Writer) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		ends = append(ends, syscall.SIGHUP)
	}
	signal.Notify(signals, ends...)
	go func() {
		if _, open := <-signals; !open {
			return
		}
		cancel()
		if _, open := <-signals; !open {
			return
		}
		fmt.Fprintln(stderr, "moonloop: stopped at once; results are incomplete")
		os.Exit(exitInterrupted)
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		cancel()
	}
}

// run executes one command line and returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return execute(ctx, newRootCommand(), args, stdin, stdout, stderr)
}

func execute(ctx context.Context, root *cobra.Command, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	wordCompletion(root) // after SetOut: the completion command writes to the output that is set now
	staged := new(stage)
	root.PersistentPreRunE = staged.begin
	verb, rest, err := findCommand(root, args)
	if err == nil && verb.Name() == replayVerb {
		var said []string
		rest, said, err = translate(verb.Flags(), rest)
		for _, text := range said {
			fmt.Fprintf(stderr, "moonloop: %s\n", term.Plain(text))
		}
		root.SetArgs(append([]string{replayVerb}, rest...))
	}
	if err == nil {
		typed := func() []typedFlag { return typedFlags(verb.Flags(), rest) }
		root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(verb, typed(), err) })
		// Checked before the arguments: if a flag has swallowed the next word, their number is wrong, too.
		number := verb.Args
		verb.Args = func(cmd *cobra.Command, args []string) error {
			if err := checkFlags(cmd, typed()); err != nil || number == nil {
				return err
			}
			return number(cmd, args)
		}
		err = staged.finish(ctx, root.ExecuteContext(ctx))
	}
	if err == nil {
		return exitOK
	}
	if exit, ok := errors.AsType[exitError](err); ok {
		return exit.status
	}
	interrupted := ctx.Err() != nil
	if interrupted && err.Error() == context.Canceled.Error() { // one that says more, such as what was interrupted, is printed as it is
		err = errInterrupted
	}
	printError(urlWriter{stderr, staged}, err)
	if interrupted {
		return exitInterrupted
	}
	return exitUsage
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "moonloop",
		Short:         "Capture production LLM traffic from OpenTelemetry, and replay it with exact timing",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version(),
	}
	root.SetVersionTemplate("moonloop {{.Version}}\n")
	root.AddCommand(
		newCaptureCommand(),
		newCompileCommand(),
		newTrunkCommand(),
		newConvertCommand(),
		newReplayCommand(),
		newAgentCommand(),
		newReportCommand(),
		newCompareCommand(),
		newTwinCommand(),
		newRouterCommand(),
		newMergeCommand(),
		newRefereeCommand(),
		newSearchCommand(),
		newShadowCommand(),
		newInspectCommand(),
		newGenerateCommand(),
		newTransformCommand(),
		newSimulateCommand(),
		newDemoCommand(),
	)
	describe(root)
	for _, verb := range root.Commands() {
		describe(verb)
	}
	wordHelp(root)
	return root
}
