// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moonloop/moonloop/internal/testport"
	"github.com/moonloop/moonloop/internal/testprogram"
)

const root = "../.." // of the repository, from this package

// acceptance reports whether these are the long runs of make acceptance.
func acceptance() bool { return os.Getenv("MOONLOOP_OUT") != "" }

// process is a running program, a Collector in most tests.
type process struct {
	cmd    *exec.Cmd
	health string // URL, of a Collector
	log    string // name of the file with its output
	done   chan struct{}
}

// spawn starts a program, which is killed when the test ends. Its output goes to NAME.log in dir, where it runs.
func spawn(t *testing.T, dir, name string, environment []string, file string, args ...string) *process {
	t.Helper()
	p := &process{log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.CommandContext(context.Background(), file, args...)
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(), environment...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // its result is the exit status
		_ = log.Close()
		close(p.done)
	}()
	t.Cleanup(p.kill)
	return p
}

// launch starts a Collector. The configurations are merged; where they differ, the last one wins.
func launch(t *testing.T, dir string, environment []string, configs ...string) *process {
	t.Helper()
	health := testport.Address(t)
	args := []string{}
	for _, config := range configs {
		args = append(args, "--config", config)
	}
	args = append(args, "--set", "extensions.health_check.endpoint="+health)
	p := spawn(t, dir, "otelcol", environment, testprogram.File(t, "otelcol-moonloop"), args...)
	p.health = "http://" + health
	return p
}

// ready waits until the health check answers, which is after the receivers listen.
func (p *process) ready(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !p.healthy(t); time.Sleep(5 * time.Millisecond) {
		select {
		case <-p.done:
			t.Fatalf("the Collector ended: %v\n%s", p.cmd.ProcessState, p.tail())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("the Collector is not healthy after 2 minutes\n%s", p.tail())
		}
	}
}

func (p *process) healthy(t *testing.T) bool {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.health, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// kill ends the process as a crash does, and waits for its end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop ends the process as systemd and Kubernetes do, and requires exit status 0.
func (p *process) stop(t *testing.T) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(3 * time.Minute):
		t.Fatalf("the Collector still runs 3 minutes after SIGTERM\n%s", p.tail())
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Fatalf("the Collector ended with exit status %d\n%s", code, p.tail())
	}
}

// tail returns the end of the process's output.
func (p *process) tail() []byte {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return []byte(err.Error())
	}
	lines := bytes.SplitAfter(content, []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-30):], nil)
}

// cpu returns the processor time that the process has used so far.
func (p *process) cpu(t *testing.T) time.Duration {
	t.Helper()
	stat := p.proc(t, "stat")
	_, fields, _ := strings.Cut(stat, ") ") // the second field, the program's name, may hold spaces
	columns := strings.Fields(fields)
	var ticks int64
	for _, column := range columns[11:13] { // utime, stime
		n, err := strconv.ParseInt(column, 10, 64)
		if err != nil {
			t.Fatalf("/proc/PID/stat: %v", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * cpuTick
}

// cpuTick is the unit of processor time: USER_HZ is 100 on every Linux on which Go runs.
const cpuTick = time.Second / 100

// memory returns a figure of the process's memory in bytes: VmRSS is the present value, VmHWM the peak.
func (p *process) memory(t *testing.T, figure string) int64 {
	t.Helper()
	for line := range strings.Lines(p.proc(t, "status")) {
		var kB int64
		if n, _ := fmt.Sscanf(line, figure+": %d kB", &kB); n == 1 {
			return kB << 10
		}
	}
	t.Fatalf("the process has no figure %s", figure)
	return 0
}

func (p *process) proc(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, file))
	if err != nil {
		t.Fatalf("%v\n%s", err, p.tail())
	}
	return string(content)
}

// write writes a file into a folder and returns its name.
func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	name = filepath.Join(dir, name)
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
