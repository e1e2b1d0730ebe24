// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moonloop/moonloop/internal/testport"
	"github.com/moonloop/moonloop/internal/testprogram"
)

// ending is a replay that something ends: 300 rows are due within three seconds, and each takes half a second.
type ending struct {
	*process
	engine *process
	out    string
}

const endingRows = 300

// startEnding starts the replay and waits until requests are in flight.
func startEnding(t *testing.T, binary string, environment []string, flags ...string) *ending {
	t.Helper()
	dir := t.TempDir()
	trace := filepath.Join(dir, "trace.jsonl")
	var rows strings.Builder
	for i := range endingRows {
		fmt.Fprintf(&rows, `{"timestamp": %d, "input_length": 600, "output_length": 50, "hash_ids": [0, %d]}`+"\n", 10*i, i+1)
	}
	if err := os.WriteFile(trace, []byte(rows.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	e := &ending{out: filepath.Join(dir, "out")}
	e.engine = start(t, dir, "engine", nil, binary, "simulate", "--listen", "127.0.0.1:0", "--grace", "0s",
		"--prefill", "5ms", "--decode", "10ms", "--record", filepath.Join(dir, "engine.jsonl"))
	args := []string{
		"replay", trace, "--url", e.engine.find(t, listening), "--model", "sim", "--endpoint", "completions", "--progress", "none",
	}
	if !slices.Contains(flags, "--out") {
		args = append(args, "--out", e.out)
	}
	args = append(args, flags...)
	e.process = start(t, dir, "replay", environment, binary, args...)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		// The first request queries the vocabulary, before the first row.
		if content, err := os.ReadFile(filepath.Join(dir, "engine.jsonl")); err == nil && bytes.Count(content, []byte("\n")) > 1 {
			return e
		}
		if time.Now().After(deadline) {
			t.Fatalf("no request reached the engine\n%s", e.tail())
		}
	}
}

// soon waits until a random moment of the replay.
func soon() { time.Sleep(time.Duration(rand.Int64N(int64(1500 * time.Millisecond)))) }

func (e *ending) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := e.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// outcomes waits for the end and returns how often the records name each outcome; each row must have one.
func (e *ending) outcomes(t *testing.T, status int) map[string]int {
	t.Helper()
	// If the machine was too busy to measure, the status is 3 even if goals were missed.
	code := e.wait(t, time.Minute)
	busy := status == 1 && code == 3 && strings.Contains(string(e.tail()), "invalid")
	if code != status && !busy {
		t.Errorf("exit status %d, want %d\n%s", code, status, e.tail())
	}
	rows := map[int64]bool{}
	by := map[string]int{}
	for _, row := range readLines[faultRow](t, filepath.Join(e.out, "requests.jsonl")) {
		rows[row.Result.Row] = true
		by[strings.TrimSpace(row.Result.Outcome+" "+row.Result.Reason)]++
	}
	if len(rows) != endingRows {
		t.Errorf("records of %d rows, want %d: %v", len(rows), endingRows, by)
	}
	return by
}

// says requires a text in the program's output.
func (p *process) says(t *testing.T, name, text string) {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(content), text) {
		t.Errorf("%s does not say %q:\n%s", filepath.Base(name), text, content)
	}
}

// blackHole accepts connections and never answers on them, until the test ends.
func blackHole(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(io.Discard, conn) // until the sender hangs up
				_ = conn.Close()
			}()
		}
	}()
	return "http://" + listener.Addr().String()
}

// TestEndings ends the process of a replay in each abnormal way. It must end within a minute (far more than it takes, for busy machines),
// with a record for every row, the right message and the right exit status.
func TestEndings(t *testing.T) {
	if testing.Short() {
		t.Skip("replays by process")
	}
	t.Parallel()
	binary := testprogram.File(t, "moonloop")

	t.Run("server killed", func(t *testing.T) {
		t.Parallel()
		e := startEnding(t, binary, withoutTelemetry)
		soon()
		if err := e.engine.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		by := e.outcomes(t, 1)
		// Requests in flight break, later ones find no engine, and nothing else happens.
		if by["failed transport"] == 0 || by["failed connect"] == 0 || by["served"]+by["failed transport"]+by["failed connect"] != endingRows {
			t.Errorf("outcomes %v", by)
		}
		e.says(t, e.process.out, "connect")
		e.says(t, e.process.out, "connection refused or unreachable")
	})

	t.Run("disk full", func(t *testing.T) {
		t.Parallel()
		// The records go to a device that is full, which gives the error of a full file system without one.
		dir := t.TempDir()
		out := filepath.Join(dir, "out")
		if err := os.Mkdir(out, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/dev/full", filepath.Join(out, "requests.jsonl.partial")); err != nil {
			t.Fatal(err)
		}
		e := startEnding(t, binary, withoutTelemetry, "--out", out, "--force")
		if code := e.wait(t, time.Minute); code != 2 {
			t.Errorf("exit status %d, want 2", code)
		}
		e.says(t, e.process.err, "records are not in requests.jsonl")
		e.says(t, e.process.err, "no space left on device")
		e.says(t, e.process.out, fmt.Sprintf("%d served", endingRows)) // the run continued, and its report is complete
		if _, err := os.Stat(filepath.Join(out, "summary.json")); err != nil {
			t.Errorf("the summary is missing, although only the records had no room: %v", err)
		}
		if _, err := os.Stat(filepath.Join(out, "requests.jsonl")); err == nil {
			t.Error("an incomplete file has the name of a complete one")
		}
	})

	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		e := startEnding(t, binary, withoutTelemetry)
		time.Sleep(2500 * time.Millisecond) // the first rows ended long ago
		if err := e.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		e.wait(t, time.Minute)
		served := map[int64]bool{}
		for _, row := range readLines[faultRow](t, filepath.Join(e.out, "requests.jsonl.partial")) {
			if row.Result.Outcome != "served" || served[row.Result.Row] {
				t.Errorf("row %d: %s", row.Result.Row, row.Result.Outcome)
			}
			served[row.Result.Row] = true
		}
		if len(served) < 20 { // some 90 on an idle machine
			t.Errorf("%d records are left after 2.5 s", len(served))
		}
	})

	for name, s := range map[string]os.Signal{"Ctrl-C": os.Interrupt, "SIGTERM": syscall.SIGTERM, "SIGHUP": syscall.SIGHUP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Whoever started the tests may ignore the signal, as nohup ignores a hang-up. A signal that is caught here has its default in
			// a child process.
			caught := make(chan os.Signal, 1)
			signal.Notify(caught, s)
			defer signal.Stop(caught)
			e := startEnding(t, binary, withoutTelemetry)
			soon()
			e.signal(t, s)
			by := e.outcomes(t, 130)
			if by["cancelled cancelled"] == 0 || by["skipped interrupted"] == 0 || by["served"]+by["cancelled cancelled"]+by["skipped interrupted"] != endingRows {
				t.Errorf("outcomes %v", by)
			}
			e.says(t, e.process.out, fmt.Sprintf("%d skipped of %d", by["skipped interrupted"], endingRows))
		})
	}

	t.Run("Ctrl-C while the OTLP endpoint is a black hole", func(t *testing.T) {
		t.Parallel()
		e := startEnding(t, binary, append(toSink(blackHole(t)), "OTEL_BSP_EXPORT_TIMEOUT=500"))
		soon()
		e.signal(t, os.Interrupt)
		e.outcomes(t, 130)
		e.says(t, e.process.out, "the run's telemetry is incomplete")
		telemetry := at[map[string]any](t, decodeFile(t, filepath.Join(e.out, "summary.json")), "telemetry")
		lost := 0.0
		for _, n := range at[map[string]any](t, telemetry, "spans_lost") {
			lost += n.(float64)
		}
		if ended := at[float64](t, telemetry, "spans_ended"); lost == 0 || lost != ended {
			t.Errorf("%v of %v spans are said to be lost", lost, ended)
		}
	})

	t.Run("second Ctrl-C", func(t *testing.T) {
		t.Parallel()
		// The first Ctrl-C waits for spans that nobody accepts; the second waits for nothing.
		e := startEnding(t, binary, append(toSink(blackHole(t)), "OTEL_BSP_EXPORT_TIMEOUT=60000", "OTEL_EXPORTER_OTLP_TIMEOUT=60000"))
		soon()
		e.signal(t, os.Interrupt)
		select {
		case <-e.done:
			t.Fatalf("the first Ctrl-C did not wait for the spans: exit status %d", e.code)
		case <-time.After(time.Second):
		}
		e.signal(t, os.Interrupt)
		second := time.Now()
		if code := e.wait(t, 20*time.Second); code != 130 {
			t.Errorf("exit status %d, want 130", code)
		}
		if took := time.Since(second); took > 10*time.Second { // the flush may take 30
			t.Errorf("the second Ctrl-C took %v", took)
		}
		e.says(t, e.process.err, "stopped at once; results are incomplete")
	})

	t.Run("OTLP endpoint refusing", func(t *testing.T) {
		t.Parallel()
		e := startEnding(t, binary, toSink("http://"+testport.Address(t)), "--max-requests", "300")
		if code := e.wait(t, time.Minute); code != 0 && code != 3 {
			t.Errorf("exit status %d", code)
		}
		if by := e.outcomes(t, e.code); by["served"] != endingRows {
			t.Errorf("outcomes %v", by)
		}
		e.says(t, e.process.out, "spans lost (export_failed)")
	})
}

func decodeFile(t *testing.T, name string) any {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, content)
}
