// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/collect"
	"github.com/moonloop/moonloop/internal/demo"
	"github.com/moonloop/moonloop/mooncake"
)

// TestDemo runs the whole loop with a short production.
func TestDemo(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "out")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "moonloop", "demo", "--production", "3s", "--out", folder)
	// Variables that are set for others must not change the demonstration.
	cmd.Env = append(cmd.Environ(), "OTEL_SDK_DISABLED=true", "OTEL_TRACES_SAMPLER=always_off", hashKeyEnv+"=short")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, _ := cmd.Output()
	// Exit status 3 means that the machine is too busy for a valid measurement; whether the loop closes does not depend on that.
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
	want := int64(demo.Turns(demo.Plan(3*time.Second, 1)))
	for _, name := range []string{demo.Captured, demo.Replayed} {
		meta, err := mooncake.LoadMeta(filepath.Join(folder, name))
		if err != nil || meta == nil || meta.Rows != want {
			t.Errorf("%s: sidecar %+v (%v), want %d rows", name, meta, err, want)
		}
	}
	if files, err := collect.Journals(filepath.Join(folder, demo.Journal)); err != nil || len(files) != 1 {
		t.Errorf("journals: %v (%v), want one", files, err)
	}

	again := exec.CommandContext(ctx, "moonloop", "demo", "--out", folder)
	if out, _ := again.CombinedOutput(); again.ProcessState.ExitCode() != exitUsage || !strings.Contains(string(out), "empty or does not exist yet") {
		t.Errorf("a folder with results: exit status %d\n%s", again.ProcessState.ExitCode(), out)
	}
}
