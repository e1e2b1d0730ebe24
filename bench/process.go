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
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// sample is the resource usage of a program and its children at one moment.
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
	samples []sample
	peak    int64 // bytes
	done    chan struct{}
	err     error // the error at its end
}

// how describes how to start a program.
type how struct {
	dir  string
	name string // of its log file in dir
	core int    // the core that it is pinned to; -1 = any
	env  []string
	tree bool // its child processes count, too
}

// start starts a program and samples its resource usage.
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
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that a peer's children can be killed with it
	p.cmd.Cancel = func() error { return p.signal(syscall.SIGKILL) }
	p.began = time.Now()
	if err := p.cmd.Start(); err != nil {
		_ = log.Close()
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		p.err = p.cmd.Wait()
		_ = log.Close()
		_ = p.signal(syscall.SIGKILL) // children that outlived it
		close(ended)
	}()
	go p.watch(h.tree, ended)
	return p, nil
}

// signal sends a signal to the program and its children.
func (p *process) signal(s syscall.Signal) error { return syscall.Kill(-p.cmd.Process.Pid, s) }

// watch samples the resource usage until the program ends, rarely enough to add no noticeable load.
func (p *process) watch(children bool, ended <-chan struct{}) {
	defer close(p.done)
	pause := 50 * time.Millisecond
	if children {
		pause = 200 * time.Millisecond
	}
	var gone time.Duration // processor time of children that have ended
	last := map[int]procfs.ProcStat{}
	for {
		s, now := sample{at: time.Now()}, look(p.cmd.Process.Pid, children)
		for pid, was := range last {
			if _, ok := now[pid]; !ok {
				gone += cpuTime(was)
			}
		}
		for _, is := range now {
			s.cpu += cpuTime(is)
			s.rss += int64(is.ResidentMemory())
		}
		s.cpu += gone
		if last = now; len(now) > 0 {
			p.samples = append(p.samples, s)
			p.peak = max(p.peak, s.rss, p.highWater(children))
		}
		select {
		case <-ended:
			return
		case <-time.After(pause):
		}
	}
}

// look returns the existing processes of a program: its own and, if children count, all descendants.
func look(root int, children bool) map[int]procfs.ProcStat {
	procs := procfs.Procs{}
	if children {
		procs, _ = procfs.AllProcs() // on an error, it returns those that it could read
	} else if p, err := procfs.NewProc(root); err == nil {
		procs = procfs.Procs{p}
	}
	all := make(map[int]procfs.ProcStat, len(procs))
	for _, p := range procs {
		if s, err := p.Stat(); err == nil {
			all[p.PID] = s
		}
	}
	ours := make(map[int]procfs.ProcStat)
	for pid, s := range all {
		for up, hops := pid, 0; hops < 16; up, hops = all[up].PPID, hops+1 {
			if up == root {
				ours[pid] = s
				break
			}
		}
	}
	return ours
}

// cpuTime returns the processor time of a process, in steps of 10 ms.
func cpuTime(s procfs.ProcStat) time.Duration {
	return time.Duration(s.CPUTime() * float64(time.Second))
}

// highWater returns the kernel's own maximum of the memory, which misses no peak; 0 for several processes, for which there is none.
func (p *process) highWater(children bool) int64 {
	if children {
		return 0
	}
	proc, err := procfs.NewProc(p.cmd.Process.Pid)
	if err != nil {
		return 0 // it has ended
	}
	status, _ := proc.NewStatus() // likewise
	return int64(status.VmHWM)
}

// errTooLong is the error for a program that was killed at its time limit.
var errTooLong = errors.New("killed at its time limit")

// wait waits until the program ends, or kills it at the limit.
func (p *process) wait(limit time.Duration) error {
	select {
	case <-p.done:
		return p.err
	case <-time.After(limit):
		_ = p.signal(syscall.SIGKILL)
		<-p.done
		return fmt.Errorf("%s: %w of %v; see %s", p.name, errTooLong, limit, p.log)
	}
}

// stop asks the program to end, and waits.
func (p *process) stop() error {
	_ = p.signal(syscall.SIGINT)
	return p.wait(time.Minute)
}

// status returns the exit status of a program that has ended; -1 if a signal ended it.
func (p *process) status() int { return p.cmd.ProcessState.ExitCode() }

// cpu returns the processor time used between two moments, interpolated linearly between samples.
func (p *process) cpu(from, to time.Time) time.Duration {
	return used(p.samples, to) - used(p.samples, from)
}

// used returns the processor time used up to a moment.
func used(samples []sample, at time.Time) time.Duration {
	var before sample
	for i, s := range samples {
		if s.at.Before(at) {
			before = s
			continue
		}
		if i == 0 {
			return s.cpu
		}
		share := float64(at.Sub(before.at)) / float64(s.at.Sub(before.at))
		return before.cpu + time.Duration(share*float64(s.cpu-before.cpu))
	}
	return before.cpu
}

// total is the processor time of a program that has ended, its start included.
func (p *process) total() time.Duration {
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}

// tail returns the end of the program's output, for an error message.
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
	if err = p.wait(limit); err != nil && !errors.Is(err, errTooLong) {
		err = fmt.Errorf("%s: %w: …%s", h.name, err, p.tail())
	}
	return p, err
}
