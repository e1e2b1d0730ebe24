// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/examples"
)

// demoEngine is the simulated engine of the demonstration: a mid-sized model on one accelerator.
var demoEngine = []string{
	"--listen", "127.0.0.1:0", "--model", "demo-model",
	"--prefill", "15ms", "--prefill-per-token", "20us", "--decode", "8ms", "--decode-per-sequence", "100us",
	"--max-running", "256", "--cache-blocks", "20000", "--end-with-stdin",
}

func newDemoCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Replay a generated trace against the simulated engine, in half a minute",
		Long: `Demo starts "moonloop simulate" as a process of its own on a free port of localhost, replays the trace that is
built into the binary against it, shows the table and the verdict, and stops the engine again.

EXIT STATUS

  as of "moonloop replay"`,
		Example: "  moonloop demo\n  moonloop demo --out demo-results",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo(cmd, out)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "directory for summary.json, summary.csv and requests.jsonl")
	return cmd
}

func demo(cmd *cobra.Command, out string) (err error) {
	dir, err := os.MkdirTemp("", "moonloop-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	trace := filepath.Join(dir, examples.DemoName)
	for name, content := range map[string][]byte{trace: examples.Demo, strings.TrimSuffix(trace, ".jsonl") + ".meta.json": examples.DemoMeta} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
	}
	url, stop, err := startEngine(cmd.Context(), cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	fmt.Fprintf(cmd.ErrOrStderr(), "simulated engine: %s\n", url)
	return replay(cmd, agent.Config{
		Trace:  agent.Trace{Name: trace},
		Target: agent.Target{URL: url},
		Out:    out,
		// Every request of the demonstration must be served.
		MaxErrorRate: new(float64),
	}, "auto")
}

// startEngine starts this program's simulator as a process and returns its URL. stop ends it and waits for it.
func startEngine(ctx context.Context, stderr io.Writer) (url string, stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, fmt.Errorf("demo: find this program: %w", err)
	}
	// Not bound to ctx: an interrupt ends the replay first, and then, in order, the engine.
	engine := exec.CommandContext(context.WithoutCancel(ctx), self, append([]string{"simulate"}, demoEngine...)...) //nolint:gosec // this program
	engine.SysProcAttr = ownGroup()
	var log strings.Builder
	engine.Stderr = &log
	// The engine ends with its standard input, and so with this process, however that ends.
	if _, err := engine.StdinPipe(); err != nil {
		return "", nil, fmt.Errorf("demo: %w", err)
	}
	stdout, err := engine.StdoutPipe()
	if err != nil {
		return "", nil, fmt.Errorf("demo: %w", err)
	}
	if err := engine.Start(); err != nil {
		return "", nil, fmt.Errorf("demo: start the simulated engine: %w", err)
	}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if _, found := strings.CutPrefix(lines.Text(), "listening on "); !found {
			continue
		}
		url = strings.TrimPrefix(lines.Text(), "listening on ")
		go io.Copy(io.Discard, stdout) //nolint:errcheck // ends with the process
		return url, func() error {
			if err := engine.Process.Signal(syscall.SIGTERM); err != nil {
				return fmt.Errorf("demo: stop the simulated engine: %w", err)
			}
			kill := time.AfterFunc(10*time.Second, func() { _ = engine.Process.Kill() })
			defer kill.Stop()
			_ = engine.Wait() // how it ended after the replay is of no interest
			return nil
		}, nil
	}
	_ = engine.Process.Kill()
	_ = engine.Wait()
	return "", nil, fmt.Errorf("demo: the simulated engine did not start: %s", strings.TrimSpace(log.String()))
}
