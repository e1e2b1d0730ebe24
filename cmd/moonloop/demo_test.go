// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// TestDemo runs the whole loop with a short production.
func TestDemo(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "out")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "moonloop", "demo", "--production", "3s", "--out", folder)
	// What is set for others must not bend the demonstration.
	cmd.Env = append(cmd.Environ(), "OTEL_SDK_DISABLED=true", "OTEL_TRACES_SAMPLER=always_off", hashKeyEnv+"=short")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, _ := cmd.Output()
	// 3 is a machine too busy for a valid measurement; that the loop closes does not depend on it.
	if status := cmd.ProcessState.ExitCode(); status != exitOK && status != exitInvalid {
		t.Fatalf("exit status %d\n%s%s", status, out, &stderr)
	}
	for _, want := range []string{
		`(?m)^1  engine .*http://127\.0\.0\.1:`,
		`(?m)^3  production `,
		`(?m)^Verdict `,
		`(?m)^   rows +\d+ +\d+ +same, and as many as production sent$`,
		`(?m)^   seq digest +([0-9a-f]{12}) +[0-9a-f]{12} +same$`,
		`(?m)^   tree digest +[0-9a-f]{12} +[0-9a-f]{12} +same$`,
		`(?m)^   timestamps +at most 0 ms apart$`,
		`(?m)^   text +in no file +in no file +[0-9.]+ kB were sent, [0-9]+ files written`,
		`(?m)^Loop +closed; the measurement of the replay is `,
	} {
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("the output has no %s", want)
		}
	}
	if t.Failed() {
		t.Logf("%s%s", out, &stderr)
	}
	want := int64(prompts(planProduction(3*time.Second, 1)))
	for _, name := range []string{demoCaptured, demoReplayed} {
		meta, err := mooncake.LoadMeta(filepath.Join(folder, name))
		if err != nil || meta == nil || meta.Rows != want {
			t.Errorf("%s: sidecar %+v (%v), want %d rows", name, meta, err, want)
		}
	}
	if files, err := journals(filepath.Join(folder, demoJournal)); err != nil || len(files) != 1 {
		t.Errorf("journals: %v (%v), want one", files, err)
	}

	again := exec.CommandContext(ctx, "moonloop", "demo", "--out", folder)
	if out, _ := again.CombinedOutput(); again.ProcessState.ExitCode() != exitUsage || !strings.Contains(string(out), "empty or not there yet") {
		t.Errorf("a folder with results: exit status %d\n%s", again.ProcessState.ExitCode(), out)
	}
}

// TestLoopVerdict makes the demonstration's comparison fail in each way that it can.
func TestLoopVerdict(t *testing.T) {
	good := func() *loop {
		meta := mooncake.Meta{Rows: 3, Digests: mooncake.Digests{Seq: strings.Repeat("a", 64), Tree: strings.Repeat("b", 64), Arrival: strings.Repeat("c", 64)}}
		return &loop{captured: capture.TraceResult{Meta: meta}, replayed: capture.TraceResult{Meta: meta}, sent: produced{Requests: 3}}
	}
	for _, tc := range []struct {
		name string
		bend func(*loop)
		want string // in the output; "" is a closed loop
	}{
		{"closed", func(*loop) {}, ""},
		{"timestamps 1 ms apart are allowed", func(l *loop) { l.traces.Apart = 1 }, ""},
		{"timestamps further apart are not", func(l *loop) {
			l.traces.Apart, l.traces.Timestamps = 1.01, stats.Difference{Count: 1}
		}, "1.01 ms"},
		{"a request of production is missing", func(l *loop) { l.sent.Requests = 4 }, "production sent 4"},
		{"a row of the replay is missing", func(l *loop) { l.replayed.Meta.Rows = 2 }, "DIFFERENT"},
		{"other sharing", func(l *loop) { l.traces.Blocks.Count = 1 }, "DIFFERENT lengths and shared blocks"},
		{"other lengths", func(l *loop) { l.traces.Lengths.Count = 1 }, "DIFFERENT lengths and shared blocks"},
		{"sharing that was not compared", func(l *loop) { l.traces.Unchecked = 1 }, "same"},
		{"text in a file", func(l *loop) { l.found = []string{"journal/x"} }, "in journal/x;"},
	} {
		l := good()
		tc.bend(l)
		if closed := tc.want == ""; l.closed() != closed {
			t.Errorf("%s: closed is %v", tc.name, l.closed())
		}
		var b strings.Builder
		l.write(&b)
		verdict := "Loop        closed; the measurement of the replay is valid"
		if tc.want != "" {
			verdict = "Loop        NOT CLOSED; the measurement of the replay is valid"
		}
		if !slices.Contains(strings.Split(b.String(), "\n"), verdict) || !strings.Contains(b.String(), tc.want) {
			t.Errorf("%s: want %q and %q in\n%s", tc.name, verdict, tc.want, &b)
		}
	}
}
