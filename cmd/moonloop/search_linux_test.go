// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/study"
)

// TestScaledTraceLeavesNoFileOpen: a search scales its trace for each probe, with a temporary file.
func TestScaledTraceLeavesNoFileOpen(t *testing.T) {
	dir, temp := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temp)
	name := filepath.Join(dir, "trace.jsonl")
	if err := os.WriteFile(name, []byte(strings.Repeat(`{"timestamp": 1, "input_length": 600, "output_length": 1}`+"\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	p := prober{dir: dir}
	cfg := agent.Config{Trace: agent.Trace{Name: name}}
	if err := p.scale(t.Context(), &cfg, study.Planned{Load: 2, Seed: 1}); err != nil {
		t.Fatal(err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range open {
		if file, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(file, temp) {
			t.Errorf("%s is open", file)
		}
	}
}
