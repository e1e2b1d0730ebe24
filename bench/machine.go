// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

var modelName = regexp.MustCompile(`(?m)^model name\s*: (.*)$`)

// fact records something that the figures depend on.
func (r *results) fact(name, value string) { r.Facts = append(r.Facts, [2]string{name, value}) }

// describe records the machine's properties, and its load before the first round.
func (r *results) describe() {
	model := append(modelName.FindStringSubmatch(content("/proc/cpuinfo")), "", "")
	var kB float64
	_, _ = fmt.Sscanf(content("/proc/meminfo"), "MemTotal: %g kB", &kB)
	r.fact("date", stamp())
	r.fact("CPU", fmt.Sprintf("%s, %d cores", model[1], runtime.NumCPU()))
	r.fact("memory", fmt.Sprintf("%.1f GiB", kB/(1<<20)))
	r.fact("kernel", "Linux "+strings.TrimSpace(content("/proc/sys/kernel/osrelease")))
	r.fact("Go", runtime.Version())
	r.fact("load before", load())
}

// load is the load average of the last minute.
func load() string {
	l, _, _ := strings.Cut(content("/proc/loadavg"), " ")
	return l
}

// circumstances describes what may disturb the measurement of a table: the load before it, and the priority of the process.
func circumstances() string {
	text := ", load before " + load()
	if raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil && raw != 20 { // the system call returns 20 - nice
		text += fmt.Sprintf(", nice %d", 20-raw)
	}
	return text
}

// findPrograms records the contenders. peers.sh records the reason if a peer is not installed.
func (b *bench) findPrograms(ctx context.Context, chosen []scenario) {
	b.results.fact("program", "moonloop "+versionOf(ctx, b.moonloop))
	if !slices.ContainsFunc(chosen, func(s scenario) bool { return s.peers }) {
		return
	}
	for _, p := range peers {
		if program := b.installed(p); program != "" {
			// peers.sh records the version of a program that does not report it.
			version := cmp.Or(strings.TrimSpace(content(filepath.Join(b.peers, p.program+".version"))), versionOf(ctx, program))
			b.results.fact("program", p.program+" "+version)
			continue
		}
		why := strings.TrimSpace(content(filepath.Join(b.peers, p.program+".skipped")))
		b.results.fact("skipped", p.program+": "+cmp.Or(why, "not installed; run: make peers"))
	}
}

// content returns a file as text; empty if it cannot be read.
func content(name string) string {
	b, _ := os.ReadFile(name)
	return string(b)
}

// versionOf reads the version from a Go program's build information, and asks any other program.
func versionOf(ctx context.Context, program string) string {
	if info, err := buildinfo.ReadFile(program); err == nil {
		return moduleVersion(info) + ", " + info.GoVersion
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "--version").CombinedOutput()
	if err != nil {
		return "version unknown"
	}
	// Warnings may come before the version, which is in the last line.
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return regexp.MustCompile(`\d+\.\d+\S*`).FindString(lines[len(lines)-1])
}

// moduleVersion returns the version of the module that a program was built from.
func moduleVersion(info *debug.BuildInfo) string {
	version, longest := info.Main.Version, len(info.Main.Path)
	if !strings.HasPrefix(info.Path, info.Main.Path) {
		longest = 0
	}
	for _, dep := range info.Deps {
		if strings.HasPrefix(info.Path, dep.Path) && len(dep.Path) > longest {
			version, longest = dep.Version, len(dep.Path)
		}
	}
	if version == "" {
		return "(devel)"
	}
	return version
}

// stamp is the time in the page's format.
func stamp() string { return time.Now().UTC().Format("2006-01-02 15:04 MST") }
