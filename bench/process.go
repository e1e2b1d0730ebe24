// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// sample is what a program and its children had used by an instant.
type sample struct {
	at  time.Time
	cpu time.Duration
	rss int64 // bytes, summed over the processes: shared pages count in each
}

// process is a program under measurement.
type process struct {
	cmd     *exec.Cmd
	name    string
	log     string // the file with all its output
	began   time.Time
	lasted  time.Duration
	samples []sample
	peak    int64 // bytes
	done    chan struct{}
	err     error // of its end
	stopped sync.Once
}

// how says how a program is started.
type how struct {
	dir  string
	name string // of its log file in dir
	core int    // the core that it is pinned to; -1 = any
	env  []string
	tree bool // it has child processes that count
}

// start starts a program and watches what it uses.
func start(ctx context.Context, h how, program string, args ...string) (*process, error) {
	if taskset, err := exec.LookPath("taskset"); err == nil && h.core >= 0 {
		args = append([]string{"-c", strconv.Itoa(h.core), program}, args...)
		program = taskset
	}
	p := &process{name: h.name, log: filepath.Join(h.dir, h.name+".log"), done: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	p.cmd = exec.CommandContext(ctx, program, args...)
	p.cmd.Env = append(os.Environ(), h.env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that a peer's children end with it
	p.cmd.Cancel = func() error { return p.signal(syscall.SIGKILL) }
	p.began = time.Now()
	if err := p.cmd.Start(); err != nil {
		_ = log.Close()
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		p.err = p.cmd.Wait()
		p.lasted = time.Since(p.began)
		_ = log.Close()
		_ = p.signal(syscall.SIGKILL) // children that outlived it
		close(ended)
	}()
	go p.watch(h.tree, ended)
	return p, nil
}

// signal reaches the program and its children.
func (p *process) signal(s syscall.Signal) error { return syscall.Kill(-p.cmd.Process.Pid, s) }

// watch samples until the program has ended. Seldom enough to cost nothing beside what is measured.
func (p *process) watch(children bool, ended <-chan struct{}) {
	defer close(p.done)
	var gone time.Duration // of children that have ended
	last := map[int]state{}
	for {
		now := time.Now()
		ours := map[int]state{}
		if children {
			ours = tree(p.cmd.Process.Pid)
		} else if s, ok := look(p.cmd.Process.Pid); ok {
			ours[p.cmd.Process.Pid] = s
		}
		s := sample{at: now}
		for pid, was := range last {
			if _, ok := ours[pid]; !ok {
				gone += was.cpu
			}
		}
		for _, is := range ours {
			s.cpu += is.cpu
			s.rss += is.rss
		}
		s.cpu += gone
		last = ours
		if len(ours) > 0 {
			p.samples = append(p.samples, s)
			p.peak = max(p.peak, s.rss, p.highWater(children))
		}
		pause := 50 * time.Millisecond
		if children {
			pause = 200 * time.Millisecond
		}
		select {
		case <-ended:
			return
		case <-time.After(pause):
		}
	}
}

// highWater is the kernel's own mark, which misses no peak; of several processes there is none.
func (p *process) highWater(children bool) int64 {
	if children {
		return 0
	}
	_, rest, _ := strings.Cut(content(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid)), "VmHWM:")
	var kB int64
	_, _ = fmt.Sscan(rest, &kB)
	return kB << 10
}

// wait waits for the program's end, or kills it past the limit.
func (p *process) wait(limit time.Duration) error {
	select {
	case <-p.done:
	case <-time.After(limit):
		_ = p.signal(syscall.SIGKILL)
		<-p.done
		return fmt.Errorf("%s did not end within %v; see %s", p.name, limit, p.log)
	}
	return p.err
}

// stop asks the program to end, and waits.
func (p *process) stop() error {
	p.stopped.Do(func() { _ = p.signal(syscall.SIGINT) })
	return p.wait(time.Minute)
}

// status returns the exit status of a program that has ended; -1 where a signal ended it.
func (p *process) status() int { return p.cmd.ProcessState.ExitCode() }

// cpu returns the processor time that was used between two instants, laid linearly between the samples.
func (p *process) cpu(from, to time.Time) time.Duration {
	return used(p.samples, to) - used(p.samples, from)
}

// used returns the processor time used by an instant.
func used(samples []sample, at time.Time) time.Duration {
	for i, s := range samples {
		if s.at.Before(at) {
			continue
		}
		if i == 0 {
			return s.cpu
		}
		before := samples[i-1]
		share := float64(at.Sub(before.at)) / float64(s.at.Sub(before.at))
		return before.cpu + time.Duration(share*float64(s.cpu-before.cpu))
	}
	if len(samples) == 0 {
		return 0
	}
	return samples[len(samples)-1].cpu
}

// total is the processor time of a program that has ended, its start included.
func (p *process) total() time.Duration {
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}

// tail is the end of the program's output, for an error.
func (p *process) tail() string {
	text := strings.TrimSpace(content(p.log))
	return text[max(0, len(text)-600):]
}

// run runs a program to its end.
func run(ctx context.Context, limit time.Duration, h how, program string, args ...string) (*process, error) {
	p, err := start(ctx, h, program, args...)
	if err != nil {
		return nil, err
	}
	if err := p.wait(limit); err != nil {
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			return p, fmt.Errorf("%s: %w: …%s", h.name, err, p.tail())
		}
		return p, err
	}
	return p, nil
}
