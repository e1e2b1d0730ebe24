// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const model = "demo-model"

// engineFlags configure the simulated engine of the demonstration: a mid-sized model on one accelerator.
var engineFlags = []string{
	"--listen", "127.0.0.1:0", "--model", model,
	"--prefill", "15ms", "--prefill-per-token", "20us", "--decode", "8ms", "--decode-per-sequence", "100us",
	"--max-running", "256", "--cache-blocks", "20000", "--end-with-stdin",
}

// startEngine starts this program's simulator as a process and returns its URL. stop ends it and waits for it.
func startEngine(ctx context.Context) (url string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, fmt.Errorf("demo: find this program: %w", err)
	}
	// Not bound to ctx: an interrupt ends the replay first, and then, in order, the engine.
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	engine := exec.CommandContext(running, self, append([]string{"simulate"}, engineFlags...)...) //nolint:gosec // this program
	stop = func() {
		end()
		_ = engine.Wait() // its result after the replay does not matter
	}
	engine.Args[0] = "moonloop" // whatever this program's file is called
	engine.SysProcAttr = ownGroup()
	engine.Cancel = func() error { return engine.Process.Signal(syscall.SIGTERM) }
	engine.WaitDelay = 10 * time.Second
	var log strings.Builder
	engine.Stderr = &log
	_, inErr := engine.StdinPipe() // the engine ends with this pipe, and so with this process
	stdout, outErr := engine.StdoutPipe()
	if err := errors.Join(inErr, outErr, engine.Start()); err != nil {
		end()
		return "", nil, fmt.Errorf("demo: start the simulated engine: %w", err)
	}
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if url, found := strings.CutPrefix(lines.Text(), "listening on "); found {
			go io.Copy(io.Discard, stdout) //nolint:errcheck // ends with the process
			return url, stop, nil
		}
	}
	stop()
	return "", nil, fmt.Errorf("demo: the simulated engine did not start: %s", strings.TrimSpace(log.String()))
}
