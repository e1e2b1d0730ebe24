// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moonloop/moonloop/internal/simulator"
)

// watched is the output of a program, which a test reads while the program runs.
type watched struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// TestReplayToADeadReceiver: an OTLP endpoint where nobody listens is reported before the first request to the engine, and messages of
// OpenTelemetry's SDK become warnings, each once.
func TestReplayToADeadReceiver(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := "http://" + closed.Addr().String()
	_ = closed.Close()
	var stderr watched
	e, err := simulator.New(simulator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var first sync.Once
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first.Do(func() {
			told := func() bool { return strings.Contains(stderr.String(), "do not arrive at "+endpoint) }
			for until := time.Now().Add(time.Minute); !told() && time.Now().Before(until); { // its output is still on the way
				time.Sleep(time.Millisecond)
			}
			if !told() {
				t.Errorf("the engine got a request before the receiver was reported: %q", stderr.String())
			}
		})
		e.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		engine.Close()
		_ = e.Close()
	})
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(trace, []byte(rowOfSix), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "moonloop", "replay", trace, "--url", engine.URL, "--progress", "none")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "OTEL_") })
	cmd.Env = append(cmd.Env, "OTEL_EXPORTER_OTLP_ENDPOINT="+endpoint, "OTEL_EXPORTER_OTLP_TIMEOUT=soon", "OTEL_TRACES_SAMPLER=dice",
		"OTEL_BSP_EXPORT_TIMEOUT=100") // so that the program need not wait at its end
	cmd.Stderr = &stderr
	_ = cmd.Run()
	if status := cmd.ProcessState.ExitCode(); status != exitOK && status != exitInvalid {
		t.Errorf("exit status %d\n%s", status, stderr.String())
	}
	times := make(map[string]int)
	for line := range strings.Lines(stderr.String()) {
		if !strings.HasPrefix(line, "moonloop: ") {
			t.Errorf("a line that is not ours: %q", line)
		}
		times[line]++
		if times[line] > 1 {
			t.Errorf("said again: %q", line)
		}
	}
	for _, want := range []string{`parsing "soon"`, "dice"} {
		if n := strings.Count(stderr.String(), want); n != 1 {
			t.Errorf("%q is said %d times, want once:\n%s", want, n, stderr.String())
		}
	}
}
