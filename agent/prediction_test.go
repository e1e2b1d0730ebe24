// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/internal/simulator"
)

// TestOverheadOfTokenIDs: prompts of token ids have no chat template, so an overhead shortens them, with a warning.
func TestOverheadOfTokenIDs(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	cfg := Config{Prompt: ids}
	cfg.Prompt.Overhead = 10
	r := e.replay(t, cfg, rows(3, 1)...)
	if r.err != nil {
		t.Fatal(r.err)
	}
	if tokens := r.report.Figures().Tokens.Prompt; tokens.Different != 3 {
		t.Errorf("%+v", tokens)
	}
	if !slices.ContainsFunc(r.report.Warnings, func(s string) bool {
		return strings.Contains(s, "--overhead 10: each prompt has that many tokens fewer")
	}) {
		t.Errorf("warnings %q", r.report.Warnings)
	}
}

// TestPredictionOfBrokenTraces: an infinite cache realises what is predicted, even if an id comes after different ids or with different
// lengths. The run says at its start that the trace violates a rule.
func TestPredictionOfBrokenTraces(t *testing.T) {
	for _, tc := range []struct {
		name   string
		lines  []string
		block  int
		cached []int64 // by row, as predicted
		note   string
	}{
		{
			name: "an id with two parents", block: 512, note: "V5 in 2 rows: an id follows a different id",
			lines: []string{
				`{"timestamp": 0, "input_length": 2048, "output_length": 1, "hash_ids": [0, 1, 2, 3]}`,
				`{"timestamp": 1, "input_length": 2048, "output_length": 1, "hash_ids": [0, 2, 1, 4]}`,
				`{"timestamp": 2, "input_length": 2048, "output_length": 1, "hash_ids": [0, 2, 1, 3]}`,
			},
			cached: []int64{0, 512, 1536},
		},
		{
			name: "a partial block that is longer elsewhere", block: 512, note: "V6 in 1 row: an id's block",
			lines: []string{
				`{"timestamp": 0, "input_length": 700, "output_length": 1, "hash_ids": [0, 1]}`,
				`{"timestamp": 1, "input_length": 1024, "output_length": 1, "hash_ids": [0, 1]}`,
			},
			cached: []int64{0, 512},
		},
		{
			name: "partial blocks on an engine with finer ones do not make a warm cache", block: 16,
			lines: []string{
				`{"timestamp": 0, "input_length": 700, "output_length": 1, "hash_ids": [0, 1]}`,
				`{"timestamp": 1, "input_length": 700, "output_length": 1, "hash_ids": [0, 1]}`,
			},
			cached: []int64{0, 512},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEngine(t, simulator.Config{Cache: simulator.Cache{BlockSize: tc.block}})
			var notes []string
			// One after the other: the prediction assumes that earlier rows have been served.
			r := e.replay(t, Config{Prompt: ids, Schedule: Schedule{FileOrder: true}, Note: func(s string) { notes = append(notes, s) }}, tc.lines...)
			if r.err != nil {
				t.Fatal(r.err)
			}
			for i, want := range tc.cached {
				res := r.results[i].Result
				if res.Predicted == nil || *res.Predicted != want {
					t.Errorf("row %d: predicted %v, want %d", i, res.Predicted, want)
				}
				if tc.block == 512 && res.Usage.Cached != want {
					t.Errorf("row %d: the engine had %d cached, want %d", i, res.Usage.Cached, want)
				}
			}
			if told := slices.ContainsFunc(notes, func(s string) bool { return tc.note != "" && strings.Contains(s, tc.note) }); told != (tc.note != "") {
				t.Errorf("notes %q, want %q", notes, tc.note)
			}
			if len(notes) > 1 {
				t.Errorf("more than one line: %q", notes)
			}
			for _, w := range r.report.Warnings {
				if strings.Contains(w, "earlier run") {
					t.Errorf("cold, and warned: %s", w)
				}
			}
			r = e.replay(t, Config{Prompt: ids, Schedule: Schedule{FileOrder: true}}, tc.lines...)
			if !slices.ContainsFunc(r.report.Warnings, func(s string) bool { return strings.Contains(s, "earlier run") }) {
				t.Errorf("warm, and not warned: %q", r.report.Warnings)
			}
		})
	}
}
