// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const model = "demo-model"

// engineFlags is the simulated engine of the demonstration: a mid-sized model on one accelerator.
var engineFlags = []string{
	"--listen", "127.0.0.1:0", "--model", model,
	"--prefill", "15ms", "--prefill-per-token", "20us", "--decode", "8ms", "--decode-per-sequence", "100us",
	"--max-running", "256", "--cache-blocks", "20000", "--end-with-stdin",
}

// startEngine starts this program's simulator as a process and returns its URL. stop ends it and waits for it.
func startEngine(ctx context.Context) (url string, stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, fmt.Errorf("demo: find this program: %w", err)
	}
	// Not bound to ctx: an interrupt ends the replay first, and then, in order, the engine.
	engine := exec.CommandContext(context.WithoutCancel(ctx), self, append([]string{"simulate"}, engineFlags...)...) //nolint:gosec // this program
	engine.Args[0] = "moonloop"                                                                                      // however it is called
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
