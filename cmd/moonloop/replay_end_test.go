// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moonloop/moonloop/internal/simulator"
)

// underWay is a replay in a process, whose first five rows are served at once, while the last is due in an hour.
type underWay struct {
	*exec.Cmd
	out            string
	stdout, stderr strings.Builder
}

// startReplay starts such a replay, and waits until the records of the first rows are in the file. before has the words that precede
// "moonloop" on the command line, such as nohup, if any.
func startReplay(t *testing.T, before ...string) *underWay {
	t.Helper()
	e, err := simulator.New(simulator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(e)
	t.Cleanup(func() {
		s.Close()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	var rows strings.Builder
	for i := range 5 {
		fmt.Fprintf(&rows, `{"timestamp": %d, "input_length": 10, "output_length": 2}`+"\n", i)
	}
	rows.WriteString(`{"timestamp": 3600000, "input_length": 10, "output_length": 2}` + "\n")
	trace := filepath.Join(dir, "trace.jsonl")
	if err := os.WriteFile(trace, []byte(rows.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &underWay{out: filepath.Join(dir, "out")}
	args := append(before, "moonloop", "replay", trace, "--url", s.URL, "--model", "m", "--endpoint", "completions",
		"--out", r.out, "--progress", "none")
	r.Cmd = exec.CommandContext(t.Context(), args[0], args[1:]...)
	r.Stdout, r.Stderr = &r.stdout, &r.stderr
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Process.Kill() }) // has no effect after Wait
	for deadline := time.Now().Add(time.Minute); r.records(t) < 5; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of 5 records are in %s\n%s", r.records(t), r.out, r.stderr.String())
		}
	}
	return r
}

// records counts the records in the partial file, each of which must be whole.
func (r *underWay) records(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.out, "requests.jsonl.partial"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		t.Fatalf("a line is torn: %s", text)
	}
	return strings.Count(string(text), "\n")
}

// TestKilledReplayCanBeRead kills a replay outright: its records exist, can be inspected, and are replaced by the next run only with
// force.
func TestKilledReplayCanBeRead(t *testing.T) {
	t.Parallel()
	r := startReplay(t)
	if err := r.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = r.Wait()
	partial := filepath.Join(r.out, "requests.jsonl.partial")
	if _, err := os.Stat(filepath.Join(r.out, "requests.jsonl")); r.records(t) != 5 || err == nil {
		t.Errorf("%d records, requests.jsonl: %v", r.records(t), err)
	}
	for _, args := range [][]string{{"inspect", partial}, {"inspect", partial, "--json"}} {
		var stdout, stderr strings.Builder
		if status := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr); status != exitOK {
			t.Errorf("%s: exit status %d\n%s", args, status, stderr.String())
		}
	}
	// A machine that dies leaves a torn line, which is reported, and can be left out.
	text, err := os.ReadFile(partial)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(partial, text[:len(text)-20], 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr strings.Builder
	if status := run(t.Context(), []string{"inspect", partial}, strings.NewReader(""), &stdout, &stderr); status != exitUsage || !strings.Contains(stderr.String(), "requests.jsonl.partial:5: the row's JSON object does not end; the file may be cut off") {
		t.Errorf("a torn line: exit status %d\n%s", status, stderr.String())
	}
	if status := run(t.Context(), []string{"inspect", partial, "--lenient"}, strings.NewReader(""), &stdout, &stderr); status != exitOK {
		t.Errorf("a torn line, leniently: exit status %d\n%s", status, stderr.String())
	}

	stderr.Reset()
	// The records also prevent a new run if results are next to them, because --force discards the records before there are new results.
	if err := os.WriteFile(filepath.Join(r.out, "summary.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	again := []string{"replay", r.Args[2], "--url", "http://127.0.0.1:1", "--model", "m", "--out", r.out, "--progress", "none"}
	if status := run(t.Context(), again, strings.NewReader(""), &stdout, &stderr); status != exitUsage ||
		!strings.Contains(stderr.String(), "requests.jsonl.partial: file already exists, and has the records of a run that did not end") ||
		!strings.Contains(stderr.String(), "hint: --force replaces results once the new ones are complete; records of a run that did not end are discarded at once") {
		t.Errorf("a run into the same folder: exit status %d\n%s", status, stderr.String())
	}
	stderr.Reset()
	if status := run(t.Context(), append(again, "--force"), strings.NewReader(""), &stdout, &stderr); status != exitUsage || !strings.Contains(stderr.String(), "connection refused") {
		t.Errorf("a run with --force: exit status %d\n%s", status, stderr.String())
	}
}

// TestTwoReplaysInOneFolder: the second is refused while the first runs, with or without force, and changes nothing.
func TestTwoReplaysInOneFolder(t *testing.T) {
	t.Parallel()
	r := startReplay(t)
	for _, force := range []string{"--force=false", "--force"} {
		var stdout, stderr strings.Builder
		args := append(r.Args[1:], force)
		if status := run(t.Context(), args, strings.NewReader(""), &stdout, &stderr); status != exitUsage || !strings.Contains(stderr.String(), "another replay is writing its results there") {
			t.Errorf("%s: exit status %d\n%s", force, status, stderr.String())
		}
	}
	if err := r.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = r.Wait()
	if status := r.ProcessState.ExitCode(); status != exitInterrupted || !strings.Contains(r.stdout.String(), "5 served, 0 failed, 0 cancelled, 1 skipped of 6") {
		t.Errorf("the first: exit status %d\n%s%s", status, r.stdout.String(), r.stderr.String())
	}
	entries, err := os.ReadDir(r.out)
	if err != nil || len(entries) != 7 {
		t.Errorf("%v, %v: want six results, and what the run needs to continue", entries, err)
	}
}

// TestNohup: a hang-up that the user asked to ignore is ignored.
func TestNohup(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("nohup"); err != nil {
		t.Skip(err)
	}
	r := startReplay(t, "nohup")
	if err := r.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		time.Sleep(100 * time.Millisecond)
		if n := r.records(t); n != 5 { // a run that ends renames the file
			t.Fatalf("the hang-up ended the run: %d records are in the partial file", n)
		}
	}
	if err := r.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = r.Wait()
	if status := r.ProcessState.ExitCode(); status != exitInterrupted {
		t.Errorf("exit status %d\n%s", status, r.stderr.String())
	}
}

// TestReplayOutlivesItsReader: if nobody reads the output, the results are still written.
func TestReplayOutlivesItsReader(t *testing.T) {
	t.Parallel()
	e, err := simulator.New(simulator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(e)
	defer s.Close()
	defer e.Close()
	dir := t.TempDir()
	trace, out := filepath.Join(dir, "trace.jsonl"), filepath.Join(dir, "out")
	if err := os.WriteFile(trace, []byte(`{"input_length": 10, "output_length": 2}`+"\n"), 0o600); err != nil { // a row without a timestamp causes a warning
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "moonloop", "replay", trace, "--url", s.URL, "--model", "m", "--endpoint", "completions", "--out", out, "--progress", "lines")
	cmd.Stdout, cmd.Stderr = write, write
	_ = read.Close() // "| tee" was killed with the terminal
	_ = cmd.Run()
	_ = write.Close()
	if _, err := os.Stat(filepath.Join(out, "summary.json")); err != nil {
		t.Errorf("%v: %v", cmd.ProcessState, err)
	}
}
