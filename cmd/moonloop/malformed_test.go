// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/internal/simulator"
)

var update = flag.Bool("update", false, "rewrite the golden files and generated pages")

// malformed is an input or a command line that is wrong. Its name says what is wrong, and what should happen: the golden files have the
// exit status and every word that the user reads.
type malformed struct {
	name string
	// files are written into a separate folder of the case, which is the working directory.
	files map[string]string
	// commands are the command lines; by default, a replay and an inspection of trace.jsonl. ENGINE is the URL of a simulated engine, BOTH
	// means a replay and an inspection.
	commands []string
	stdin    string
	arrange  func(t *testing.T) // further setup in the working directory; may skip
	ctx      func(t *testing.T) context.Context
}

const both = "BOTH trace.jsonl"

// checkMalformed runs the cases and compares what the user sees with the golden file of the group. A case that is skipped here
// keeps its text.
func checkMalformed(t *testing.T, group string, cases []malformed) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
	engine, _ := startSimulator(t)
	golden, err := filepath.Abs(filepath.Join("testdata", "malformed", group+".golden"))
	if err != nil {
		t.Fatal(err)
	}
	want := readGolden(t, golden)
	got := maps.Clone(want)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.ctx == nil { // a case that waits forever must not block the others
				c.ctx = func(t *testing.T) context.Context {
					t.Helper()
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
					t.Cleanup(cancel)
					return ctx
				}
			}
			t.Chdir(t.TempDir())
			for name, text := range c.files {
				if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if c.arrange != nil {
				c.arrange(t)
			}
			got[c.name] = c.transcript(t, engine.URL)
			if served := strings.Contains(got[c.name], "\nexit 0\n"); served && strings.Contains(c.name, ": refused") {
				t.Error("the name says that the input is refused, but a command accepts it")
			} else if !served && strings.Contains(c.name, ": accepted") {
				t.Error("the name says that the input is accepted, but every command refuses it")
			}
			if diff := cmp.Diff(want[c.name], got[c.name]); diff != "" && !*update {
				t.Errorf("-want +got (go test -update rewrites it):\n%s", diff)
			}
		})
	}
	known := make(map[string]bool, len(cases))
	for _, c := range cases {
		if known[c.name] {
			t.Errorf("%s occurs twice", c.name)
		}
		known[c.name] = true
	}
	maps.DeleteFunc(got, func(name, _ string) bool { return !known[name] })
	if *update {
		writeGolden(t, golden, got)
	} else if len(want) != len(got) {
		t.Errorf("%s has %d cases, want %d (go test -update rewrites it)", golden, len(want), len(got))
	}
}

// transcript runs the command lines and returns what a user sees of each. Consecutive lines with the same outcome are listed together.
func (c malformed) transcript(t *testing.T, engine string) string {
	t.Helper()
	ctx := c.ctx(t)
	commands := c.commands
	if commands == nil {
		commands = []string{both}
	}
	type outcome struct{ lines, text string }
	var outcomes []outcome
	for _, command := range commands {
		lines := []string{command}
		if rest, found := strings.CutPrefix(command, "BOTH "); found {
			lines = []string{"replay " + rest + " --url ENGINE", "inspect " + rest}
		}
		for _, line := range lines {
			args := strings.Fields(strings.TrimSuffix(line, " --model ␀")) // the suffix means that the engine names the model
			for i, a := range args {
				args[i] = strings.NewReplacer("ENGINE", engine, "␣", " ", "␊", "\n", "␀", "").Replace(a)
			}
			if args[0] == "replay" {
				for _, flag := range [][2]string{{"--progress", "none"}, {"--endpoint", "completions"}, {"--model", "sim"}} {
					resumes := slices.Contains(args, "--resume") && !mayGoOn(strings.TrimPrefix(flag[0], "--"))
					if !slices.Contains(args, flag[0]) && !strings.HasSuffix(line, flag[0]+" ␀") && !resumes {
						args = slices.Insert(args, 1, flag[0], flag[1])
					}
				}
			}
			var stdout, stderr bytes.Buffer
			status := run(ctx, args, strings.NewReader(c.stdin), &stdout, &stderr)
			text := visible(status, stdout.String(), stderr.String())
			if n := len(outcomes); n > 0 && outcomes[n-1].text == text {
				outcomes[n-1].lines += "$ moonloop " + line + "\n"
				continue
			}
			outcomes = append(outcomes, outcome{"$ moonloop " + line + "\n", text})
		}
	}
	var b strings.Builder
	for _, o := range outcomes {
		b.WriteString(machineDependent.ReplaceAllString(o.lines, "$$HOST") + o.text)
	}
	return b.String()
}

// shown are the lines of a report that describe how the input was read.
var shown = regexp.MustCompile(`(?m)^( (rows|notice|rejected)  .*|Rows  .*| +\S+ more of the trace .*)$`)

// machineDependent are addresses that differ from run to run.
var machineDependent = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// timeDependent are the times of certificates.
var timeDependent = regexp.MustCompile(`(current time|is after|expired on) \d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\dZ| UTC)`)

// visible returns what a user sees: the status, the part of the output that describes how the input was read, and all of standard error.
func visible(status int, stdout, stderr string) string {
	var b strings.Builder
	if status == exitInvalid {
		status = exitOK // which of the two depends on how busy the machine is
	}
	fmt.Fprintf(&b, "exit %d\n", status)
	for _, line := range shown.FindAllString(stdout, -1) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	b.WriteString(stderr)
	dir, err := os.Getwd()
	if err != nil {
		dir = "?"
	}
	text := timeDependent.ReplaceAllString(strings.ReplaceAll(b.String(), dir, "$DIR"), "$1 $$TIME")
	return machineDependent.ReplaceAllString(text, "$$HOST")
}

const goldenHead = "# Written by go test -update. What a user sees of each malformed input; exit 0 stands for 3 too.\n"

func readGolden(t *testing.T, name string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil && !*update {
		t.Fatal(err)
	}
	cases := make(map[string]string)
	for part := range strings.SplitSeq(strings.TrimPrefix(string(data), goldenHead), "\n## ") {
		if name, text, found := strings.Cut(part, "\n"); found {
			cases[name] = text
		}
	}
	return cases
}

func writeGolden(t *testing.T, name string, cases map[string]string) {
	t.Helper()
	var b strings.Builder
	b.WriteString(goldenHead)
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		b.WriteString("\n## " + name + "\n" + cases[name])
	}
	if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// startSimulator starts a simulated engine with the model sim, which ends with the test.
func startSimulator(t *testing.T) (*httptest.Server, *simulator.Engine) {
	t.Helper()
	e, err := simulator.New(simulator.Config{Models: []string{"sim"}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(e)
	t.Cleanup(func() {
		server.Close()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return server, e
}
