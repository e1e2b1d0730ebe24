// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/mooncake"
)

func TestSessionsFullPrompts(t *testing.T) {
	virtually(t, simulator.Config{Latency: simulator.Latency{Prefill: 40 * time.Millisecond}}, func(t bubble, e engine) {
		r := e.replay(t, Config{Prompt: Prompt{Endpoint: prompt.Completions}},
			`{"session_id": "a", "timestamp": 0, "input_length": 1024, "output_length": 2, "hash_ids": [0, 1]}`,
			`{"session_id": "b", "timestamp": 5, "input_length": 512, "output_length": 2, "hash_ids": [9]}`,
			`{"session_id": "a", "timestamp": 10, "input_length": 1536, "output_length": 2, "hash_ids": [0, 1, 2]}`)
		if r.err != nil {
			t.Fatal(r.err)
		}
		if mode := r.report.Trace.SessionMode; mode != "full" {
			t.Errorf("session mode %q, the second turn repeats the blocks of the first", mode)
		}
		if r.sent[2].Headers < r.sent[0].Ended {
			t.Error("a turn was sent before the previous one had ended")
		}
		if r.sent[1].Headers > r.sent[0].Ended {
			t.Error("another session had to wait")
		}
		if r.results[2].Result.Turn != 1 {
			t.Errorf("turn %d of its session, want 1", r.results[2].Result.Turn)
		}
		if got := r.sent[2].PromptTokens; got != 1536 {
			t.Errorf("%d prompt tokens, want 1536: the row's prompt is whole", got)
		}
	})
}

func TestSessionsOpenLoop(t *testing.T) {
	virtually(t, simulator.Config{Latency: simulator.Latency{Prefill: 200 * time.Millisecond}}, func(t bubble, e engine) {
		r := e.replay(t, Config{Schedule: Schedule{OpenLoop: true}, Prompt: Prompt{Endpoint: prompt.Completions}},
			`{"session_id": "a", "timestamp": 0, "input_length": 1024, "output_length": 2, "hash_ids": [0, 1]}`,
			`{"session_id": "a", "timestamp": 10, "input_length": 1536, "output_length": 2, "hash_ids": [0, 1, 2]}`)
		if r.err != nil {
			t.Fatal(r.err)
		}
		if r.sent[1].Headers > r.sent[0].Ended {
			t.Error("the second turn waited for the first")
		}
	})
}

func TestSessionsDeltaCarryTheLiveReply(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	r := e.replay(t, Config{Prompt: Prompt{}},
		`{"session_id": "a", "timestamp": 0, "input_length": 600, "output_length": 4, "hash_ids": [0, 1]}`,
		`{"session_id": "a", "delay": 1, "input_length": 100, "output_length": 3, "hash_ids": [2]}`,
		`{"session_id": "a", "delay": 1, "input_length": 50, "output_length": 3, "hash_ids": [3]}`)
	if r.err != nil {
		t.Fatal(r.err)
	}
	if mode := r.report.Trace.SessionMode; mode != "delta" {
		t.Fatalf("session mode %q, every turn has new blocks only", mode)
	}
	if len(r.other) != 3 {
		t.Errorf("%d calibration requests, want 3: the overhead of a turn is measured too", len(r.other))
	}
	first, third := body(t, r.sent[0]), body(t, r.sent[2])
	var roles []string
	for _, m := range third.Messages {
		roles = append(roles, m.Role)
	}
	if got := strings.Join(roles, " "); got != "user assistant user assistant user" {
		t.Fatalf("third turn has %s", got)
	}
	if third.Messages[0].Content != first.Messages[0].Content {
		t.Error("the first turn's text has changed")
	}
	if reply, ok := third.Messages[1].Content.(string); !ok || len(strings.Fields(reply)) != 4 {
		t.Errorf("the live reply of 4 tokens was sent as %q", third.Messages[1].Content)
	}
	// The prompt grows by the turn's own length and the reply before it: nothing is sent twice.
	for i, want := range []int{600, 600 + 4 + 100, 600 + 4 + 100 + 3 + 50} {
		if got := r.sent[i].PromptTokens; got != want {
			t.Errorf("turn %d: %d prompt tokens, want %d", i, got, want)
		}
	}
}

func TestSessionsDeltaCarryToolCalls(t *testing.T) {
	e := newEngine(t, simulator.Config{ToolCalls: 1})
	const tools = `"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]`
	r := e.replay(t, Config{Prompt: Prompt{}},
		`{"session_id": "a", "timestamp": 0, "message_mode": "delta", "messages": [{"role": "user", "content": "x"}], `+tools+`, "output_length": 8}`,
		`{"session_id": "a", "delay": 0, "message_mode": "delta", "messages": [{"role": "tool", "tool_call_id": "c", "content": "y"}], "output_length": 2}`)
	if r.err != nil {
		t.Fatal(r.err)
	}
	second := body(t, r.sent[1])
	if len(second.Messages) != 3 || second.Messages[1].Role != "assistant" || len(second.Messages[1].ToolCalls) != 1 || second.Messages[2].Role != "tool" {
		t.Errorf("second turn: %+v, want user, assistant with its tool call, tool", second.Messages)
	}
}

func TestSessionsFailedTurnEndsItsSession(t *testing.T) {
	e := newEngine(t, simulator.Config{Models: []string{"m"}})
	fault := `"extra": {"model": "nobody's"}` // the engine answers with 404
	r := e.replay(t, Config{Prompt: Prompt{Endpoint: prompt.Completions}, Trace: Trace{Sessions: mooncake.SessionFull}},
		`{"session_id": "a", "timestamp": 0, "input_length": 10, "output_length": 2}`,
		`{"session_id": "a", "timestamp": 1, "input_length": 20, "output_length": 2, `+fault+`}`,
		`{"session_id": "a", "timestamp": 2, "input_length": 30, "output_length": 2}`,
		`{"session_id": "a", "timestamp": 3, "input_length": 40, "output_length": 2}`,
		`{"session_id": "b", "timestamp": 4, "input_length": 40, "output_length": 2}`)
	if r.err != nil {
		t.Fatal(r.err)
	}
	want := []string{"served", "failed 404", "skipped session_failed", "skipped session_failed", "served"}
	for i, res := range r.results {
		if got := strings.TrimSpace(res.Result.Outcome + " " + res.Result.Reason); got != want[i] {
			t.Errorf("row %d: %s, want %s", i, got, want[i])
		}
	}
	rows := r.report.Figures().Rows
	if rows.Served != 2 || rows.Failed != 1 || rows.Skipped != 2 || len(r.report.Figures().Skips) != 1 || r.report.Figures().Skips[0].Reason != measure.SkipSession {
		t.Errorf("rows %+v, skips %+v", rows, r.report.Figures().Skips)
	}
}

func TestSessionsAmbiguousAreRefused(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	lines := []string{
		`{"session_id": "a", "timestamp": 0, "input_length": 600, "output_length": 4}`,
		`{"session_id": "a", "timestamp": 1, "input_length": 700, "output_length": 3}`,
	}
	if r := e.replay(t, Config{Prompt: Prompt{Endpoint: prompt.Completions}}, lines...); r.err == nil || !strings.Contains(r.err.Error(), "--session-mode") {
		t.Errorf("error %v, want one that asks for the session mode", r.err)
	}
	for _, mode := range []mooncake.SessionMode{mooncake.SessionFull, mooncake.SessionDelta} {
		var notes []string
		note := func(s string) { notes = append(notes, s) }
		if r := e.replay(t, Config{Prompt: Prompt{}, Trace: Trace{Sessions: mode}, Note: note}, lines...); r.err != nil {
			t.Errorf("session mode %v: %v", mode, r.err)
		}
		if text := strings.Join(notes, "\n"); !strings.Contains(text, "--session-mode or the trace's metadata says so") || strings.Contains(text, "do not show whether") {
			t.Errorf("session mode %v, which is given: %s", mode, text)
		}
	}
}

func TestSessionsWithoutTimestamps(t *testing.T) {
	virtually(t, simulator.Config{Latency: simulator.Latency{Prefill: 20 * time.Millisecond}}, func(t bubble, e engine) {
		var lines []string
		for turn := range 3 {
			for s := range 4 {
				lines = append(lines, fmt.Sprintf(`{"session_id": "s%d", "input_length": %d, "output_length": 2, "hash_ids": [%d]}`, s, 100+100*turn, 10*turn+s))
			}
		}
		r := e.replay(t, Config{Schedule: Schedule{Concurrency: 4}, Trace: Trace{Sessions: mooncake.SessionFull}, Prompt: Prompt{Endpoint: prompt.Completions}}, lines...)
		if r.err != nil {
			t.Fatal(r.err)
		}
		for i := 4; i < 12; i++ {
			if r.sent[i].Headers < r.sent[i-4].Ended {
				t.Errorf("row %d was sent before the previous turn had ended", i)
			}
		}
		if most := mostAtOnce(r.sent); most != 4 {
			t.Errorf("%d requests at once, want 4", most)
		}
	})
}

func TestSessionModeDeltaHoldsForMessages(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	r := e.replay(t, Config{Trace: Trace{Sessions: mooncake.SessionDelta}},
		`{"session_id": "a", "timestamp": 0, "messages": [{"role": "user", "content": "one"}], "output_length": 2}`,
		`{"session_id": "a", "delay": 0, "messages": [{"role": "user", "content": "two"}], "output_length": 2}`)
	if r.err != nil {
		t.Fatal(r.err)
	}
	if second := body(t, r.sent[1]); len(second.Messages) != 3 {
		t.Errorf("second turn: %+v, want user, assistant, user", second.Messages)
	}
}
