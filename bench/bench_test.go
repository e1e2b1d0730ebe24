// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
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
		"## Dispatch at 5000 requests/s, busy loops on the engine's and the client's core",
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

// TestErrors: an error says what is wrong with a file, and names it once.
func TestErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	empty, torn, saw := write("empty", ""), write("torn", "{"), makeTruth(t)
	bursts := func(trace string) error {
		_, err := (&bench{trace: trace}).bursts(10, 1000)
		return err
	}
	read := func(log string) error {
		write("floor.log", log)
		_, err := bare.read(dir, saw)
		return err
	}
	for want, err := range map[string]error{
		empty + ": no rows; give -trace the file of a trace, or leave it out": bursts(empty),
		torn + ": unexpected EOF":                                    bursts(torn),
		"the floor read 4 tokens, the engine wrote 5":                read("4 tokens"),
		"floor.log does not say how many tokens the floor read: EOF": read(""),
	} {
		if got := fmt.Sprint(err); got != want {
			t.Errorf("got %q, want %q", got, want)
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
