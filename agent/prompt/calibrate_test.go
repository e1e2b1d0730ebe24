// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/agent/send"
)

// server counts a body's prompt tokens as an engine with a chat template would: one for each word, and those of the template.
func server(t *testing.T, r send.Request, bos, perMessage, generation int64) int64 {
	t.Helper()
	m := decoded(t, r)
	switch prompt := m["prompt"].(type) {
	case string:
		return bos + int64(len(strings.Fields(prompt)))
	case []any:
		return int64(len(prompt))
	}
	n := bos + generation
	for _, message := range m["messages"].([]any) {
		n += perMessage + int64(len(strings.Fields(message.(map[string]any)["content"].(string))))
	}
	return n
}

func TestCalibration(t *testing.T) {
	const bos, perMessage, generation = 1, 4, 3
	b := newBuilder(t, Options{Model: "m", Stream: true, Seed: 6})
	requests := b.Calibration("m", true)
	if len(requests) != 3 {
		t.Fatalf("%d requests, want 3", len(requests))
	}
	var counts []int64
	for _, r := range requests {
		counts = append(counts, server(t, r, bos, perMessage, generation))
	}
	overhead, err := Solve(counts[0], counts[1])
	if err != nil || overhead != bos+perMessage+generation+1 {
		t.Fatalf("overhead %d, %v; want BOS, one message, the generation prompt and the anchor", overhead, err)
	}
	turn, err := SolveTurn(counts[0], counts[2])
	if err != nil || turn != 2*perMessage+1 {
		t.Fatalf("turn overhead %d, %v; want two messages and one anchor", turn, err)
	}

	// With the result, the server counts what the rows say.
	o := b.opt
	o.Overhead, o.TurnOverhead = overhead, turn
	b = newBuilder(t, o)
	first, second := lengthRow(1000, 5, 1, 2), lengthRow(300, 5, 3)
	var h History
	p := build(t, b, 0, first, &h)
	got := server(t, p.Request, bos, perMessage, generation)
	if got != 1000 {
		t.Errorf("first turn: the server counts %d, the row says 1000", got)
	}
	h.Append(first, p, "five words in a reply", nil)
	if got := server(t, build(t, b, 1, second, &h).Request, bos, perMessage, generation); got != 1000+5+300 {
		t.Errorf("second turn: the server counts %d, want both rows and the reply: 1305", got)
	}
}

func TestCalibrationBodies(t *testing.T) {
	o := Options{
		Model: "m", Stream: true, Overhead: 40, CacheSalt: "s", BlockSize: 64,
		ExtraInputs: json.RawMessage(`{"chat_template_kwargs":{"thinking":false},"stream":true,"stream_options":{},"min_tokens":5,"max_tokens":9,"ignore_eos":true,"n":3,"messages":[]}`),
	}
	for i, r := range newBuilder(t, o).Calibration("m", true) {
		m := decoded(t, r)
		messages := m["messages"].([]any)
		delete(m, "messages")
		want := map[string]any{
			"model": "m", "stream": false, "max_completion_tokens": 1.0, "cache_salt": "s",
			"chat_template_kwargs": map[string]any{"thinking": false},
		}
		if diff := cmp.Diff(want, m); diff != "" {
			t.Errorf("request %d (-want +got):\n%s", i, diff)
		}
		var roles []string
		for _, message := range messages {
			roles = append(roles, message.(map[string]any)["role"].(string))
		}
		if diff := cmp.Diff([][]string{{"user"}, {"user"}, {"user", "assistant", "user"}}[i], roles); diff != "" {
			t.Errorf("request %d: roles (-want +got):\n%s", i, diff)
		}
		if r.Stream || r.ExpectTokens != 1 || r.Path != "/v1/chat/completions" {
			t.Errorf("request %d: %+v", i, r)
		}
	}

	ids := newBuilder(t, Options{Endpoint: Completions, Form: Tokens}).Calibration("m", true)
	if len(ids) != 2 {
		t.Fatalf("%d requests on completions, want 2: there are no turns", len(ids))
	}
	overhead, err := Solve(server(t, ids[0], 0, 0, 0), server(t, ids[1], 0, 0, 0))
	if err != nil || overhead != 0 {
		t.Errorf("token ids: overhead %d, %v; want 0", overhead, err)
	}
	text := newBuilder(t, Options{Endpoint: Completions}).Calibration("m", false)
	overhead, err = Solve(server(t, text[0], 1, 0, 0), server(t, text[1], 1, 0, 0))
	if err != nil || overhead != 2 {
		t.Errorf("text: overhead %d, %v; want BOS and anchor, 2", overhead, err)
	}
}

func TestSolveErrors(t *testing.T) {
	for _, tt := range []struct {
		why       string
		p16, p528 int64
	}{
		{"some words are two tokens", 20, 600},
		{"the server cut the prompt", 20, 256},
		{"nothing was counted", 0, 0},
		{"fewer tokens than words", 3, 515},
	} {
		if c, err := Solve(tt.p16, tt.p528); !errors.Is(err, ErrNotStable) {
			t.Errorf("%s: %d, %v", tt.why, c, err)
		}
	}
	if _, err := Solve(20, 600); !strings.Contains(err.Error(), "token ids") {
		t.Errorf("the error does not say what to do: %v", err)
	}
	if c, err := SolveTurn(20, 20); !errors.Is(err, ErrTurn) {
		t.Errorf("earlier turns are dropped: %d, %v", c, err)
	}
}
