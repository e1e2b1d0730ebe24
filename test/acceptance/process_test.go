// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// setting returns what `make acceptance` set, and skips the test if it did not.
func setting(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Skipf("%s is not set: run this with make acceptance", name)
	}
	return value
}

// artefacts returns an empty folder that is kept after the test, so that figures can be examined.
func artefacts(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(setting(t, "MOONLOOP_OUT"), t.Name())
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// process is a running program. Its output goes to the files NAME.out and NAME.err.
type process struct {
	cmd      *exec.Cmd
	out, err string    // names of the files
	started  time.Time // just before the program was started
	lasted   time.Duration
	peak     atomic.Int64 // bytes of resident memory
	done     chan struct{}
	code     int // exit status, once done is closed; -1 if a signal ended it
}

// start starts a program; it is killed when the test ends.
func start(t *testing.T, dir, name string, environment []string, program string, args ...string) *process {
	t.Helper()
	return launch(t, dir, name, environment, exec.CommandContext(t.Context(), program, args...))
}

// startGroup does the same for a program that starts others, which do not always end with it: when the test ends, all of them are killed.
func startGroup(t *testing.T, dir, name string, environment []string, program string, args ...string) *process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	t.Cleanup(func() {
		if cmd.Process != nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // an error means that none is left
		}
	})
	return launch(t, dir, name, environment, cmd)
}

func launch(t *testing.T, dir, name string, environment []string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{
		cmd: cmd,
		out: filepath.Join(dir, name+".out"), err: filepath.Join(dir, name+".err"),
		done: make(chan struct{}),
	}
	p.cmd.Env = append(os.Environ(), environment...)
	stdout, stderr := create(t, p.out), create(t, p.err)
	p.cmd.Stdout, p.cmd.Stderr = stdout, stderr
	p.started = time.Now()
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	go p.watchMemory()
	go func() {
		_ = p.cmd.Wait() // its result is the exit status
		p.lasted = time.Since(p.started)
		p.code = p.cmd.ProcessState.ExitCode()
		_, _ = stdout.Close(), stderr.Close()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

func create(t *testing.T, name string) *os.File {
	t.Helper()
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

var highWater = regexp.MustCompile(`VmHWM:\s*(\d+) kB`)

// watchMemory samples the kernel's own high-water mark. The mark in the exit status cannot be used: a child starts with this process's
// memory, which counts as the child's first.
func (p *process) watchMemory() {
	status := fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid)
	// Often at first, for programs that end within a second; seldom later, since sampling takes time from the measured program.
	for pause := 2 * time.Millisecond; ; pause = min(pause*21/20, time.Second/4) {
		if content, err := os.ReadFile(status); err == nil {
			if match := highWater.FindSubmatch(content); match != nil {
				var kB int64
				_, _ = fmt.Sscan(string(match[1]), &kB)
				p.peak.Store(kB << 10)
			}
		}
		select {
		case <-p.done:
			return
		case <-time.After(pause):
		}
	}
}

// wait waits for the end and returns the exit status; past the limit it kills the program and fails.
func (p *process) wait(t *testing.T, limit time.Duration) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		t.Fatalf("%s is still running after %v\n%s", p.cmd.Path, limit, p.tail())
	}
	return p.code
}

// stop asks the program to end, as Ctrl-C does, and waits for it.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	p.wait(t, 2*time.Minute)
}

// find waits until the program's output matches, and returns the first group.
func (p *process) find(t *testing.T, pattern *regexp.Regexp) string {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		for _, name := range []string{p.out, p.err} {
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if match := pattern.FindSubmatch(content); match != nil {
				return string(match[1])
			}
		}
		select {
		case <-p.done:
			t.Fatalf("%s ended with status %d\n%s", p.cmd.Path, p.code, p.tail())
		default:
		}
	}
	t.Fatalf("%s said nothing that matches %s\n%s", p.cmd.Path, pattern, p.tail())
	return ""
}

// tail returns the end of the program's standard error.
func (p *process) tail() []byte {
	content, err := os.ReadFile(p.err)
	if err != nil {
		return []byte(err.Error())
	}
	lines := bytes.SplitAfter(content, []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-30):], nil)
}

// peakMiB returns the program's peak memory, in MiB.
func (p *process) peakMiB() float64 { return float64(p.peak.Load()) / (1 << 20) }
