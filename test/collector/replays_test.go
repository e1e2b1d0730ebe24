// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/internal/testprogram"
)

// TestReplaysOfExamples runs each replay in the manifests and the compose file with the arguments given there, next to the Collector to
// which it sends: a flag that was renamed, a value that is refused, or an address with a different protocol fails here. Only addresses,
// folders and variables are replaced, and each replay is limited to two seconds, which is enough to send some spans.
func TestReplaysOfExamples(t *testing.T) {
	t.Parallel()
	inCluster := settings{name: "gateway", config: "examples/capture/gateway.yaml"}
	composed := settings{
		name: "compose", config: "examples/compose/collector.yaml",
		more: fmt.Sprintf("exporters: {mooncake: {directory: %q}}", filepath.Join(t.TempDir(), "traces")),
	}
	for _, c := range []struct {
		file     string
		settings settings
		replays  int
	}{
		{"examples/kubernetes/replay-job.yaml", inCluster, 1},
		{"examples/kubernetes/replay-indexed-job.yaml", inCluster, 1},
		{"examples/kubernetes/replay-cronjob.yaml", inCluster, 1},
		{"examples/compose/compose.yaml", composed, 1},
	} {
		t.Run(filepath.Base(c.file), func(t *testing.T) {
			t.Parallel() // most of the time is waiting
			commands := commandsIn(manifests(t, filepath.Join(root, c.file)))
			simulate := []string{"simulate"}
			replays := 0
			for _, command := range commands {
				if command[0] == "simulate" {
					simulate = command
				}
			}
			engine := simulated(t, simulate)
			otelcol := configure(t, t.TempDir(), c.settings)
			otelcol.start(t)
			for _, command := range commands {
				if command[0] == "replay" {
					replays++
					checkReplay(t, command, engine, otelcol)
				}
			}
			if replays != c.replays {
				t.Errorf("%d replays, want %d", replays, c.replays)
			}
		})
	}
}

// simulated starts an engine with a manifest's arguments, on a separate port.
func simulated(t *testing.T, args []string) (url string) {
	t.Helper()
	args = slices.Clone(args)
	for i, arg := range args {
		if i > 0 && args[i-1] == "--listen" {
			args[i] = strings.Replace(arg, "0.0.0.0:8000", "127.0.0.1:0", 1)
		}
	}
	if !slices.Contains(args, "--listen") {
		args = append(args, "--listen", "127.0.0.1:0")
	}
	engine := spawn(t, t.TempDir(), "simulate", nil, testprogram.File(t, "moonloop"), args...)
	return engine.says(t, regexp.MustCompile(`listening on (\S+)`))
}

// checkReplay runs a replay with a manifest's arguments, and requires that all its spans are in the Collector.
func checkReplay(t *testing.T, args []string, engine string, otelcol *collector) {
	t.Helper()
	out := t.TempDir()
	demo, err := filepath.Abs(filepath.Join(root, "examples"))
	if err != nil {
		t.Fatal(err)
	}
	here := strings.NewReplacer(
		"http://vllm:8000", engine, "${ENGINE_URL:-http://simulator:8000}", engine,
		"http://moonloop-gateway:24317", "http://"+otelcol.address, "http://collector:4318", "http://"+otelcol.http,
		"/trace/trace.jsonl", filepath.Join(demo, "demo.jsonl"), "/examples/demo.jsonl", filepath.Join(demo, "demo.jsonl"),
		"/results/", out+"/",
		"$(RUN_ID)/$(JOB_COMPLETION_INDEX)", "run", "$(RUN_ID)", "run", "$(JOB_COMPLETION_INDEX)", "0",
		"START_AT", time.Now().Add(5*time.Second).UTC().Format(time.RFC3339Nano),
	)
	args = slices.Clone(args)
	for i, arg := range args {
		if args[i] = here.Replace(arg); strings.Contains(args[i], "$(") || strings.Contains(args[i], "${") {
			t.Errorf("%s has a variable that nobody sets", arg)
		}
	}
	replay := exec.CommandContext(t.Context(), testprogram.File(t, "moonloop"), append(args, "--max-duration=2s")...)
	replay.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "OTEL_") })
	replay.Dir = out
	said, err := replay.CombinedOutput()
	// 1 and 3: a busy machine may miss a goal or make the measurement invalid.
	if status := replay.ProcessState.ExitCode(); status != 0 && status != 1 && status != 3 {
		t.Fatalf("%v: %v\n%s", args, err, said)
	}
	var summary struct {
		Telemetry struct {
			Ended    int64 `json:"spans_ended"`
			Accepted int64 `json:"spans_accepted"`
		}
	}
	content, err := os.ReadFile(filepath.Join(out, "run", "summary.json"))
	if err = errors.Join(err, json.Unmarshal(content, &summary)); err != nil {
		t.Fatal(err)
	}
	if tel := summary.Telemetry; tel.Ended < 5 || tel.Accepted != tel.Ended {
		t.Errorf("the Collector has accepted %d of %d spans:\n%s", tel.Accepted, tel.Ended, said)
	}
}

// commandsIn returns the arguments of our command in YAML documents: the args of a manifest's container, the command of a
// compose file's service.
func commandsIn[T any](documents []T) (commands [][]string) {
	for _, document := range documents {
		switch v := any(document).(type) {
		case []any:
			commands = append(commands, commandsIn(v)...)
		case map[string]any:
			for key, below := range v {
				list, _ := below.([]any)
				var args []string
				for _, arg := range list {
					args = append(args, fmt.Sprint(arg))
				}
				if (key == "args" || key == "command") && len(args) > 0 && (args[0] == "replay" || args[0] == "simulate") {
					commands = append(commands, args)
				}
				commands = append(commands, commandsIn([]any{below})...)
			}
		}
	}
	return commands
}
