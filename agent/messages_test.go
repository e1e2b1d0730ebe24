// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/mooncake"
)

// TestMessages: a replay to /v1/messages has the lengths and the cache hits of the trace, sends the key in that API's header, and sends
// chats and their tools in its form.
func TestMessages(t *testing.T) {
	const chat = `"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}], "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]`
	rows := []string{
		`{"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [0, 1]}`,
		`{"timestamp": 50, "input_length": 700, "output_length": 4, "hash_ids": [0, 2]}`,
		`{"timestamp": 100, "text_input": "hello there"}`,
		`{"timestamp": 150, "output_length": 2, ` + chat + `}`,
	}
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprint("whole ", whole), func(t *testing.T) {
			cfg := simulator.Config{APIKey: "key"}
			cfg.Record.Headers = []string{"Anthropic-Version", "X-Request-Id"}
			e := newEngine(t, cfg)
			run := Config{Prompt: Prompt{Endpoint: prompt.Messages, NoStream: whole}}
			run.Target.APIKey = "key"
			r := e.replay(t, run, rows...)
			if r.err != nil {
				t.Fatal(r.err)
			}
			if f := r.report.Figures(); f.Rows.Served != 4 {
				t.Fatalf("%+v, %v", f.Rows, f.Errors)
			}
			for i, want := range []struct{ prompt, output, cached int64 }{{600, 3, 0}, {700, 4, 512}} {
				u := r.results[i].Result.Usage
				if u.Prompt != want.prompt || u.Completion != want.output || u.Cached != want.cached || r.results[i].Result.Prompt != "equal" || r.results[i].Result.Output != "equal" {
					t.Errorf("row %d: %+v, want %+v", i, r.results[i], want)
				}
			}
			for i, rec := range r.sent {
				if rec.Path != "/v1/messages" || rec.Header.Get("Anthropic-Version") != messagesVersion || rec.Request.Stream == whole {
					t.Errorf("row %d: %+v", i, rec)
				}
			}
			// A row without a reply length needs a cap here.
			if n := r.sent[2].Request.MaxTokens; n < 1 {
				t.Errorf("cap %d", n)
			}
			var body struct {
				System   string
				Messages []struct{ Role, Content string }
				Tools    []struct {
					Name   string
					Schema json.RawMessage `json:"input_schema"`
				}
			}
			if err := json.Unmarshal(r.sent[3].Body, &body); err != nil || body.System != "be brief" || len(body.Messages) != 1 || body.Messages[0].Content != "hi" ||
				len(body.Tools) != 1 || body.Tools[0].Name != "f" || string(body.Tools[0].Schema) != `{"type":"object"}` {
				t.Errorf("%v, %s", err, r.sent[3].Body)
			}
		})
	}
}

// TestMessagesSession: the turns of a session carry replies and calls of tools, as blocks, and the system text of its first turn.
func TestMessagesSession(t *testing.T) {
	cfg := simulator.Config{ToolCalls: 1}
	cfg.Record.Headers = []string{"X-Request-Id"}
	e := newEngine(t, cfg)
	r := e.replay(t, Config{Trace: Trace{Sessions: mooncake.SessionDelta}, Prompt: Prompt{Endpoint: prompt.Messages}},
		`{"timestamp": 0, "session_id": "s", "output_length": 3, "message_mode": "delta", "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}], "tools": [{"type": "function", "function": {"name": "f"}}]}`,
		`{"delay": 1, "session_id": "s", "output_length": 3, "message_mode": "delta", "messages": [{"role": "tool", "tool_call_id": "c", "content": "found"}]}`)
	if r.err != nil || len(r.sent) != 2 {
		t.Fatalf("%v, %d", r.err, len(r.sent))
	}
	var body struct {
		System   string
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
		Tools []any
	}
	if err := json.Unmarshal(r.sent[1].Body, &body); err != nil || body.System != "be brief" || len(body.Messages) != 3 || len(body.Tools) != 1 {
		t.Fatalf("%v, %s", err, r.sent[1].Body)
	}
	if said := string(body.Messages[1].Content); body.Messages[1].Role != "assistant" || !strings.Contains(said, `"type":"tool_use"`) || !strings.Contains(said, `"name":"f","input":{"text":`) {
		t.Errorf("%s", said)
	}
	if result := string(body.Messages[2].Content); body.Messages[2].Role != "user" || result != `[{"type":"tool_result","tool_use_id":"c","content":"found"}]` {
		t.Errorf("%s", result)
	}
}
