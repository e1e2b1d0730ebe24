// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/mooncake"
)

// TestPipedSteps: the sidecar at the end of a pipe describes each earlier step, with figures, just as a file between the steps would.
func TestPipedSteps(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	var said bytes.Buffer
	if status := run(t.Context(), []string{"generate", "--rows", "400", "--rate", "10", "--turns", "4", "--sessions", "--out", at("prod.jsonl")}, strings.NewReader(""), &said, &said); status != 0 {
		t.Fatal(said.String())
	}
	r1, w1, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r2, w2, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	status := make(chan int, 2)
	for _, part := range []struct {
		args []string
		in   *os.File
		out  *os.File
	}{
		{[]string{"transform", at("prod.jsonl"), "--max-input", "20000", "--scale", "0.5"}, nil, w1},
		{[]string{"transform", "-", "--max-gap", "1s"}, r1, w2},
	} {
		go func() {
			status <- run(t.Context(), part.args, part.in, part.out, new(bytes.Buffer))
			_ = part.out.Close()
		}()
	}
	if got := run(t.Context(), []string{"transform", "-", "--time-scale", "0.5", "--out", at("piped.jsonl")}, r2, &said, &said) + <-status + <-status; got != 0 {
		t.Fatal(said.String())
	}
	_, _ = r1.Close(), r2.Close()

	meta, err := mooncake.LoadMeta(at("piped.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	var before *mooncake.TraceFigures
	for _, step := range meta.Transformations {
		names = append(names, step.Name)
		if step.Name == "generate" {
			continue
		}
		if step.Before == nil || step.After == nil || before != nil && *step.Before != *before || step.After.TokenHits <= 0 || step.After.GapCV <= 0 {
			t.Errorf("%s: %+v → %+v, after %+v", step.Name, step.Before, step.After, before)
		}
		before = step.After
	}
	if got := strings.Join(names, " "); got != "generate input length scale max-gap time-scale" || before.Rows != meta.Rows {
		t.Errorf("steps: %s; %d rows at the end, of %d", got, before.Rows, meta.Rows)
	}
	rows, err := os.ReadFile(at("piped.jsonl"))
	if err != nil || bytes.Contains(rows, []byte("transformations")) {
		t.Errorf("%v; the rows of a file with a sidecar say what was done, too", err)
	}

	// A pipe may end in a file: its last row describes the steps, and is otherwise a normal row.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		status <- run(t.Context(), []string{"transform", at("prod.jsonl"), "--scale", "0.5"}, nil, w, new(bytes.Buffer))
		_ = w.Close()
	}()
	var plain bytes.Buffer
	if _, err := plain.ReadFrom(r); err != nil || <-status != 0 {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(plain.String()), "\n")
	for i, line := range lines {
		var row map[string]any
		if err := json.Unmarshal([]byte(line), &row); err != nil || (row["transformations"] != nil) != (i == len(lines)-1) || row["input_length"] == nil {
			t.Fatalf("line %d of %d: %v: %.200s", i+1, len(lines), err, line)
		}
	}
	if err := os.WriteFile(at("plain.jsonl"), plain.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	said.Reset()
	if status := run(t.Context(), []string{"inspect", at("plain.jsonl"), "--strict"}, strings.NewReader(""), &said, &said); status != 0 || strings.Contains(said.String(), "unknown") {
		t.Error(said.String())
	}
	// Output to something other than a pipe has only rows.
	var buffer bytes.Buffer
	if status := run(t.Context(), []string{"transform", at("prod.jsonl"), "--scale", "0.5"}, strings.NewReader(""), &buffer, &said); status != 0 || strings.Contains(buffer.String(), "transformations") {
		t.Error(said.String())
	}
}
