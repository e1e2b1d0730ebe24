// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/mooncake"
)

// TestFinerRowsAreReadAndKept: a trace with ranges is read with the fine block size that its sidecar or the configuration gives, its last
// row counts for the schedule's horizon, and the records can be read as a trace again.
func TestFinerRowsAreReadAndKept(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	name := traceFile(t,
		`{"timestamp": 0, "input_length": 1030, "output_length": 4, "hash_ids": [0, 1, 2], "hash_ranges": [[0, 65]]}`,
		`{"timestamp": 20, "input_length": 1300, "output_length": 4, "hash_ids": [0, 1, 3], "hash_ranges": [[0, 64], [65, 18]], "replies": [[1, 1030, 4]]}`,
	)
	cfg := Config{Trace: Trace{Name: name}, Target: Target{URL: e.url, Model: "m"}, Prompt: ids, Lead: time.Millisecond}
	if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "nothing says how many tokens an id stands for") {
		t.Errorf("without a size: %v", err)
	}
	if err := os.WriteFile(mooncake.MetaName(name), []byte(`{"schema": 1, "fine_block_size": 16}`), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg.Trace.FineBlockSize = 32
	if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "fine block size 32 contradicts") {
		t.Errorf("another size: %v", err)
	}
	cfg.Trace.FineBlockSize, cfg.Out = 0, filepath.Join(t.TempDir(), "out")
	rep, err := Run(t.Context(), cfg)
	if err != nil || rep.Figures().Rows.Served != 2 {
		t.Fatalf("%v, %+v", err, rep)
	}
	if row := lastRow(name, mooncake.ParseRow); row == nil || row.Timestamp.V != 20 {
		t.Errorf("the last row is %+v", row)
	}
	trace, err := mooncake.Open(t.Context(), filepath.Join(cfg.Out, report.RequestsFile), mooncake.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = trace.Close() }()
	for i := 0; ; i++ {
		row, err := trace.Read()
		if errors.Is(err, io.EOF) {
			if i != 2 {
				t.Errorf("%d records", i)
			}
			break
		}
		if err != nil || row.HashRanges == nil || row.Replies != nil {
			t.Fatalf("record %d: %+v, %v", i, row, err)
		}
	}
}

// TestRangesThatDisagree: a replay says at its start that ranges describe other prefixes than hash ids. A strict replay refuses such a
// trace.
func TestRangesThatDisagree(t *testing.T) {
	lines := []string{
		`{"timestamp": 0, "input_length": 1030, "output_length": 4, "hash_ids": [0, 1, 2], "hash_ranges": [[0, 65]]}`,
		`{"timestamp": 20, "input_length": 1030, "output_length": 4, "hash_ids": [0, 1, 3], "hash_ranges": [[0, 40], [65, 25]]}`,
	}
	e := newEngine(t, simulator.Config{})
	var notes []string
	cfg := Config{Trace: Trace{FineBlockSize: 16}, Prompt: ids, Note: func(s string) { notes = append(notes, s) }}
	if r := e.replay(t, cfg, lines...); r.err != nil || r.report.Figures().Rows.Served != 2 {
		t.Errorf("%v", r.err)
	}
	if !slices.ContainsFunc(notes, func(s string) bool {
		return strings.Contains(s, "V9 in 1 row: hash_ranges describe other prefixes than hash_ids") && strings.Contains(s, "at block 1")
	}) {
		t.Errorf("notes %q", notes)
	}
	_, err := Run(t.Context(), Config{
		Trace: Trace{Name: traceFile(t, lines...), FineBlockSize: 16, Strict: true}, Target: Target{URL: e.url, Model: "m"}, Prompt: ids,
	})
	if err == nil || !strings.Contains(err.Error(), "trace.jsonl:2: hash_ranges: block 1: the row breaks V9") {
		t.Errorf("strictly: %v", err)
	}
}
