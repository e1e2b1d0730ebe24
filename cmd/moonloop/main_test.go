// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/moonloop/moonloop/internal/gcpace"
	"github.com/moonloop/moonloop/internal/simulator"
)

func TestMain(m *testing.M) {
	// Without this, a program under the race detector sleeps for a second at its end, and hundreds of programs run here.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")); err != nil {
		panic(err)
	}
	// A test must not find credentials: neither those of its user nor those of a machine in a cloud.
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_PROFILE": "", "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true",
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	testscript.Main(leakless{m}, map[string]func(){"moonloop": main})
}

// leakless runs the tests, and fails if one of them leaves a goroutine.
type leakless struct{ *testing.M }

// Run runs the tests.
func (l leakless) Run() int {
	// Hundreds of replays run in this process, many at once. The pace is for a process with one replay: each start and end would collect
	// garbage and unmap the program, which took half of the time. The scripts run replays as processes, with the pace.
	startPace = func() *gcpace.Pace { return new(gcpace.Pace) }
	status := l.M.Run()
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(); err != nil && status == 0 {
		fmt.Fprintln(os.Stderr, "goroutines are left behind:", err)
		return 1
	}
	return status
}

// alone skips a test with -short, as make test runs this package under the race detector: what the test runs works in one goroutine after
// another, so there is no race to find. Without the detector, every test runs.
func alone(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("one goroutine works at a time: there is no race to find")
	}
}

// some returns all cases; with -short, every eighth. The others have other flags and files, which the same goroutines then use.
func some[T any](all []T) (few []T) {
	if !testing.Short() {
		return all
	}
	for i := 0; i < len(all); i += 8 {
		few = append(few, all[i])
	}
	return few
}

// TestScripts runs the command as its users do: the scripts in testdata, against a simulated engine.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"engine": scriptEngine,
			"exits":  scriptExits,
		},
		Setup: func(env *testscript.Env) error {
			env.Vars = slices.DeleteFunc(env.Vars, func(v string) bool { return strings.HasPrefix(v, "OTEL_") })
			return scriptSetup(env)
		},
	})
}

// scriptSetup gives the programs of a script what a script's clean environment leaves out.
func scriptSetup(env *testscript.Env) error {
	env.Setenv("GORACE", os.Getenv("GORACE"))
	return nil
}

// scriptEngine starts a simulated engine and puts its URL into $ENGINE: engine [KEY]
func scriptEngine(ts *testscript.TestScript, _ bool, args []string) {
	cfg := simulator.Config{Models: []string{"sim"}}
	if len(args) > 0 {
		cfg.APIKey = args[0]
	}
	e, err := simulator.New(cfg)
	ts.Check(err)
	s := httptest.NewServer(e)
	ts.Defer(func() {
		s.Close()
		ts.Check(e.Close())
	})
	ts.Setenv("ENGINE", s.URL)
}

// scriptExits runs a program that must end with one of the given statuses, and writes what it prints to the files out and err. Besides 0, a
// replay may end with 3 on a machine that is too busy for a valid measurement: exits 0,3 moonloop replay ...
func scriptExits(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: exits STATUS[,STATUS...] PROGRAM [ARG...]")
	}
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Dir = ts.Getenv("WORK")
	for _, name := range []string{"PATH", "HOME", "ENGINE", "KEY", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_TRACES_EXPORTER"} {
		if v := ts.Getenv(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		ts.Check(err)
	}
	ts.Check(os.WriteFile(ts.MkAbs("out"), []byte(out.String()), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs("err"), []byte(errs.String()), 0o600))
	if status := strconv.Itoa(cmd.ProcessState.ExitCode()); !slices.Contains(strings.Split(args[0], ","), status) {
		ts.Fatalf("exit status %s, want %s\n%s%s", status, args[0], out.String(), errs.String())
	}
}

// TestInterrupt stops a running replay with a signal: it ends by itself, with complete records.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		signal os.Signal
	}{
		{"Ctrl-C", os.Interrupt},
		{"SIGTERM", syscall.SIGTERM},
		{"SIGHUP", syscall.SIGHUP}, // a dropped ssh
	} {
		t.Run(tc.name, func(t *testing.T) {
			// Whoever started the tests may ignore the signal, as nohup ignores a hang-up. A signal that is caught here has its default
			// effect in a child process.
			caught := make(chan os.Signal, 1)
			signal.Notify(caught, tc.signal)
			defer signal.Stop(caught)
			e, err := simulator.New(simulator.Config{Latency: simulator.Latency{Prefill: time.Hour}})
			if err != nil {
				t.Fatal(err)
			}
			s := httptest.NewServer(e)
			defer s.Close()
			defer e.Close()
			dir := t.TempDir()
			trace := filepath.Join(dir, "trace.jsonl")
			rows := `{"timestamp": 0, "input_length": 10, "output_length": 2}` + "\n" + `{"timestamp": 3600000, "input_length": 10, "output_length": 2}` + "\n"
			if err := os.WriteFile(trace, []byte(rows), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "moonloop", "replay", trace, "--url", s.URL, "--model", "m",
				"--endpoint", "completions", "--prompt", "words", "--overhead", "1", "--out", filepath.Join(dir, "out"), "--progress", "none")
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			for e.Stats().Running == 0 {
				time.Sleep(10 * time.Millisecond)
			}
			if err := cmd.Process.Signal(tc.signal); err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(bufio.NewReader(stdout))
			if err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if status := cmd.ProcessState.ExitCode(); status != exitInterrupted {
				t.Errorf("exit status %d, want %d", status, exitInterrupted)
			}
			if !strings.Contains(string(text), "1 cancelled, 1 skipped of 2") {
				t.Errorf("the report does not account for both rows:\n%s", text)
			}
			records, err := os.ReadFile(filepath.Join(dir, "out", "requests.jsonl"))
			if err != nil || strings.Count(string(records), "\n") != 2 {
				t.Errorf("records: %v\n%s", err, records)
			}
		})
	}
}

// TestInterruptedBySignal: a verb that is interrupted says so, in words of the user's.
func TestInterruptedBySignal(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("t.jsonl", []byte(`{"timestamp": 0, "input_length": 9, "output_length": 1}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range []string{"inspect t.jsonl", "transform t.jsonl", "transform t.jsonl --scale 0.5 --out o.jsonl", "generate --rows 99999", "generate --rows 99999 --out g.jsonl"} {
		var out, said strings.Builder
		if status := run(ctx, strings.Fields(args), strings.NewReader(""), &out, &said); status != exitInterrupted || said.String() != "moonloop: error: interrupted\n" {
			t.Errorf("%s: exit status %d, %s", args, status, &said)
		}
	}
}
