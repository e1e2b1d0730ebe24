// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// machine is what a figure depends on beside the programs.
type machine struct {
	CPU      string
	Cores    int
	Kernel   string
	Memory   string
	Go       string
	Date     string
	Command  string
	Load     string   // of the machine before the first round
	Programs []string // name and version of each
	Skipped  []string // name of each peer that did not run, and why
}

var modelName = regexp.MustCompile(`(?m)^model name\s*: (.*)$`)

func describe(command string) machine {
	m := machine{Cores: runtime.NumCPU(), Go: runtime.Version(), Date: stamp(), Command: command}
	if match := modelName.FindStringSubmatch(content("/proc/cpuinfo")); match != nil {
		m.CPU = match[1]
	}
	m.Kernel = strings.TrimSpace(content("/proc/sys/kernel/osrelease"))
	var kB float64
	_, _ = fmt.Sscanf(content("/proc/meminfo"), "MemTotal: %g kB", &kB)
	m.Memory = fmt.Sprintf("%.1f GiB", kB/(1<<20))
	if fields := strings.Fields(content("/proc/loadavg")); len(fields) > 0 {
		m.Load = fields[0]
	}
	return m
}

// content returns a file as text, empty where it cannot be read: such a line of the results is then empty too.
func content(name string) string {
	b, _ := os.ReadFile(name)
	return string(b)
}

// versionOf reads the version that a Go program has in itself, and asks any other program.
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
	// Warnings may stand before it: the version is in the last line.
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return regexp.MustCompile(`\d+\.\d+\S*`).FindString(lines[len(lines)-1])
}

// moduleVersion returns the version of the module that a program is from.
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

// stamp is the time, as the page writes it.
func stamp() string { return time.Now().UTC().Format("2006-01-02 15:04 MST") }
