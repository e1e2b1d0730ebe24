// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/internal/testprogram"
)

// asCommand runs the test binary as the harness itself, because the harness starts itself as floor and sink.
const asCommand = "MOONLOOP_TEST_AS_BENCH"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestHarness runs the smallest bench, without peers, so that it stays usable. Its figures on a busy machine do not matter here.
func TestHarness(t *testing.T) {
	dir := t.TempDir()
	moonloop := testprogram.File(t, "moonloop")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(dir, "RESULTS.md")
	harness := exec.CommandContext(t.Context(), self, "-moonloop", moonloop, "-dir", filepath.Join(dir, "bench"), "-peers", filepath.Join(dir, "none"),
		"-rounds", "1", "-lasts", "200ms", "-sizes", "20", "-scenarios", "dispatch,streams,readers,outages", "-out", page)
	harness.Env = append(os.Environ(), asCommand+"=1")
	if out, err := harness.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| moonloop, even |", "| moonloop, the trace's bursts |",
		"## Dispatch at 5000 requests/s, a busy loop on each core",
		"moonloop, the trace's bursts: CPU per request at most vegeta's (ours, vegeta's, the floor's): **was not measured**",
		"| floor: one thread, bare system calls, even |", "| floor: one thread, bare system calls, the trace's bursts |",
		"| skipped | vegeta: not installed",
		"## 20 streams of 50 tokens/s",
		"| moonloop, kernel stamps, all telemetry |",
		"| floor: bare net/http and the scanner |",
		"## Readers: 20 streams of 50 tokens/s",
		"| one loop, epoll, at once |", "| one loop, epoll, each ms |",
		"## Latency at a server that is stalled",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in the page", want)
		}
	}
	if strings.Contains(string(text), "round 1: ") {
		t.Errorf("a run failed:\n%s", text)
	}
}

// TestCommandLine: a mistake is reported before anything runs.
func TestCommandLine(t *testing.T) {
	for _, args := range [][]string{{"-scenarios", "speed"}, {"-rounds", "0"}, {"-moonloop", filepath.Join(t.TempDir(), "none")}} {
		if err := command(t.Context(), args); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}

// TestCopied copies a program as it is, and leaves a script where it is.
func TestCopied(t *testing.T) {
	b := &bench{dir: t.TempDir()}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	to := b.copied(self)
	if to == self || content(to) != content(self) || b.copied(self) != to {
		t.Errorf("%s was copied to %s", self, to)
	}
	script := filepath.Join(b.dir, "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := b.copied(script); got != script {
		t.Errorf("a script was copied to %s", got)
	}
}
