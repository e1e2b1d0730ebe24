// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"

	"github.com/moonloop/moonloop/internal/simulator"
)

// terminal is a terminal with a program in it, as a person sees it.
type terminal struct {
	cmd    *exec.Cmd
	master *os.File

	mu      sync.Mutex
	screen  *vt.Emulator
	raw     bytes.Buffer // all that the program wrote
	answers bytes.Buffer // what the terminal answered to the program's questions
	closed  chan struct{}
}

// onTerminal starts the binary on a terminal.
func onTerminal(t *testing.T, columns, rows int, environment []string, args ...string) *terminal {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "moonloop", args...)
	cmd.Env = append(os.Environ(), append([]string{"TERM=xterm-256color", "COLORTERM=truecolor"}, environment...)...)
	master, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: uint16(rows), Cols: uint16(columns)})
	if err != nil {
		t.Fatal(err)
	}
	x := &terminal{cmd: cmd, master: master, screen: vt.NewEmulator(columns, rows), closed: make(chan struct{})}
	go func() {
		part := make([]byte, 4096)
		for {
			n, err := x.screen.Read(part)
			x.mu.Lock()
			x.answers.Write(part[:n])
			x.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	go func() {
		defer close(x.closed)
		part := make([]byte, 4096)
		for {
			n, err := master.Read(part)
			x.mu.Lock()
			x.raw.Write(part[:n])
			_, _ = x.screen.Write(part[:n])
			x.mu.Unlock()
			if err != nil { // the program has ended
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = master.Close()
		<-x.closed
		_ = x.screen.InputPipe().(io.Closer).Close() // ends the reading of answers, which would race with Close
	})
	return x
}

// lines returns the current lines of the screen.
func (x *terminal) lines() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	lines := strings.Split(x.screen.String(), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return lines
}

// await returns the first screen that has all of these texts.
func (x *terminal) await(t *testing.T, texts ...*regexp.Regexp) []string {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		lines := x.lines()
		screen, missing := strings.Join(lines, "\n"), false
		for _, text := range texts {
			missing = missing || !text.MatchString(screen)
		}
		if !missing {
			return lines
		}
	}
	t.Fatalf("the screen never had all of %v; at last:\n%s", texts, strings.Join(x.lines(), "\n"))
	return nil
}

// wait waits for the end of the program, and returns its exit status and all that it wrote.
func (x *terminal) wait(t *testing.T) (code int, raw string) {
	t.Helper()
	select {
	case <-x.closed:
	case <-time.After(2 * time.Minute):
		t.Fatalf("the program does not end:\n%s", strings.Join(x.lines(), "\n"))
	}
	var exit *exec.ExitError
	if err := x.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.cmd.ProcessState.ExitCode(), x.raw.String()
}

// engineAndTrace returns the address of an engine that fails about every tenth request, and a trace of a few seconds.
func engineAndTrace(t *testing.T) (engine, trace string) {
	t.Helper()
	e, err := simulator.New(simulator.Config{
		Latency: simulator.Latency{Prefill: 20 * time.Millisecond, Decode: 5 * time.Millisecond},
		Faults:  simulator.Faults{Rates: map[simulator.Fault]float64{"server-error": 0.1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(e)
	t.Cleanup(func() { s.Close(); e.Close() })
	var rows strings.Builder
	for i := range 120 {
		fmt.Fprintf(&rows, `{"timestamp": %d, "input_length": 1100, "output_length": 40, "hash_ids": [1, 2, %d]}`+"\n", i*40, i+3)
	}
	trace = filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(trace, []byte(rows.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return s.URL, trace
}

func replayArgs(engine, trace string, more ...string) []string {
	return append([]string{"replay", trace, "--url", engine, "--overhead", "4", "--max-error-rate", "1"}, more...)
}

// What a person sees of a replay: a screen with its progress, complete at each size; afterwards only the report, in lines that fit. The
// terminal is not queried, because only the shell would read the answer.
func TestReplayOnATerminal(t *testing.T) {
	t.Parallel()
	engine, trace := engineAndTrace(t)
	for _, size := range [][2]int{{80, 24}, {120, 40}} {
		t.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(t *testing.T) {
			t.Parallel()
			x := onTerminal(t, size[0], size[1], nil, replayArgs(engine, trace)...)
			var says []*regexp.Regexp
			for _, text := range []string{
				`trace\.jsonl → 127\.0\.0\.1`, `█+░+ +\d+ %  \ds, \ds left`, `requests  \d+/s due, \d+/s sent +[▁-█]`, `in flight \d+ +[▁-█]`,
				`done      \d+ served, \d+ failed: 500 ×\d+ +[▁-█]`, `TTFT      p50 [\d.]+ ms +p99 [\d.]+ m?s +[▁-█]`, `gap       p50 [\d.]+ (m|µ)s +p99 [\d.]+ m?s +[▁-█]`,
				`chunks    [\d,]+/s +[▁-█]`, `late      p50 [\d.]+ (m|µ)s +p99 [\d.]+ (m|µ)s +[▁-█]`, `cache     [\d.]+ % of the prompt tokens cached`, `so far    \w+: \w+ is`,
			} {
				says = append(says, regexp.MustCompile(text))
			}
			lines := x.await(t, says...)
			for _, line := range lines[2:] { // the first has names of any length
				if strings.HasSuffix(line, "…") {
					t.Errorf("cut: %s", line)
				}
			}
			code, raw := x.wait(t)
			if code != 0 && code != 3 {
				t.Errorf("exit status %d", code)
			}
			if x.answers.Len() > 0 {
				t.Errorf("the terminal was asked something, and answered %q to the shell", x.answers.String())
			}
			screen := strings.Join(x.lines(), "\n")
			if strings.Contains(screen, "so far") || strings.ContainsAny(screen, "▁█░") || !strings.Contains(screen, "Verdict") {
				t.Errorf("at the end the screen shows:\n%s", screen)
			}
			_, report, found := strings.Cut(ansi.Strip(raw), "moonloop | LLM Metrics")
			if !found {
				t.Fatalf("no report:\n%s", screen)
			}
			for line := range strings.SplitSeq(report, "\r\n") {
				if n := ansi.StringWidth(line); n > size[0] {
					t.Errorf("a line of %d columns: %s", n, line)
				}
			}
		})
	}
}

// With NO_COLOR there are no colours; a terminal that is resized gets a view that fits.
func TestReplayOnATerminalThatIsResized(t *testing.T) {
	t.Parallel()
	engine, trace := engineAndTrace(t)
	x := onTerminal(t, 120, 40, []string{"NO_COLOR=1"}, replayArgs(engine, trace)...)
	x.await(t, regexp.MustCompile(`done      \d+ served`), regexp.MustCompile(`TTFT      p50`))
	if err := pty.Setsize(x.master, &pty.Winsize{Rows: 24, Cols: 60}); err != nil {
		t.Fatal(err)
	}
	x.mu.Lock()
	x.screen.Resize(60, 24)
	resized := x.raw.Len()
	x.mu.Unlock()
	_, raw := x.wait(t)
	if colour := regexp.MustCompile(`\x1b\[[\d;]*\b[349]\d[\d;]*m`).FindString(raw); colour != "" {
		t.Errorf("a colour nevertheless: %q", colour)
	}
	view := ansi.Strip(raw[resized:])
	bars := regexp.MustCompile(`[█░]+ +\d+ %[^\r\n]*`).FindAllString(view, -1)
	if len(bars) == 0 {
		t.Fatalf("nothing was drawn after the terminal got smaller: %q", view)
	}
	if last := bars[len(bars)-1]; ansi.StringWidth(last) > 60 {
		t.Errorf("60 columns: %q", last)
	}
}

// If no screen can be drawn, the output is lines, whatever was requested.
func TestReplayWithoutATerminal(t *testing.T) {
	t.Parallel()
	engine, trace := engineAndTrace(t)
	for _, progress := range []string{"auto", "live", "lines", "none"} {
		t.Run("pipe "+progress, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			output, err := exec.CommandContext(ctx, "moonloop", replayArgs(engine, trace, "--progress", progress)...).CombinedOutput()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			plain(t, string(output))
		})
		t.Run("dumb "+progress, func(t *testing.T) {
			t.Parallel()
			_, raw := onTerminal(t, 80, 24, []string{"TERM=dumb"}, replayArgs(engine, trace, "--progress", progress)...).wait(t)
			plain(t, strings.ReplaceAll(raw, "\r\n", "\n"))
		})
	}
}

// plain requires a report without anything that a terminal would interpret.
func plain(t *testing.T, output string) {
	t.Helper()
	if i := strings.IndexFunc(output, func(r rune) bool { return r < ' ' && r != '\n' }); i >= 0 {
		t.Errorf("a control character: %q", output[max(0, i-20):min(len(output), i+20)])
	}
	if !strings.Contains(output, "Verdict") {
		t.Errorf("no report:\n%s", output)
	}
}

// The demonstration on a terminal of 80 columns: no line is wider, except the command to copy.
func TestDemoOnATerminal(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "out")
	x := onTerminal(t, 80, 24, nil, "demo", "--production", "2s", "--out", folder)
	code, raw := x.wait(t)
	if code != exitOK && code != exitInvalid { // which happens on a busy machine
		t.Errorf("exit status %d", code)
	}
	whole := regexp.MustCompile(`^(starting|[\dms]+(, ending|, [\dms]+ left)?)  failed \d+( · (late|TTFT) [\d.]+ [mµ]?s| · in flight \d+| · done \d+ of \d+ sent)* +[█░]+ +\d+%$`)
	bars := 0
	for line := range strings.SplitSeq(ansi.Strip(raw), "\n") {
		for text := range strings.SplitSeq(strings.TrimRight(line, "\r"), "\r") { // progress is drawn over itself
			if n := ansi.StringWidth(text); n > 80 && !strings.Contains(text, folder) {
				t.Errorf("a line of %d columns: %s", n, text)
			}
			if strings.ContainsAny(text, "█░") {
				bars++
				if !whole.MatchString(text) {
					t.Errorf("cut: %s", text)
				}
			}
		}
	}
	if bars == 0 {
		t.Error("no progress of the replay was shown")
	}
}
