// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/moonloop/moonloop/agent/carry"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/mooncake"
)

// TestResponses: a replay to /v1/responses sends each row's tokens as messages, reads the usage from the last event or from the whole
// reply, and carries the replies of a session into its later turns.
func TestResponses(t *testing.T) {
	rows := []string{
		`{"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [0, 1]}`,
		`{"timestamp": 1, "input_length": 700, "output_length": 4, "hash_ids": [0, 2]}`,
		`{"timestamp": 2, "text_input": "hello there", "output_length": 2}`,
	}
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprint("whole ", whole), func(t *testing.T) {
			e := new(talker)
			rep, results, _ := e.replay(t, Config{Prompt: Prompt{Endpoint: prompt.Responses, NoStream: whole}}, rows)
			if f := rep.Figures(); f.Rows.Served != 3 || f.Rows.Failed != 0 {
				t.Fatalf("%+v, %v", f.Rows, f.Errors)
			}
			for i, want := range []struct{ prompt, output, cached int64 }{{600, 3, 0}, {700, 4, 512}, {0, 2, 0}} {
				r := results[i].Result
				if r.Outcome != "served" || r.Usage.Completion != want.output || r.Output != "equal" {
					t.Errorf("row %d: %+v", i, r)
				}
				if want.prompt > 0 && (r.Usage.Prompt != want.prompt || r.Prompt != "equal" || r.Usage.Cached != want.cached) {
					t.Errorf("row %d: %+v, want %+v", i, r, want)
				}
				var body map[string]any
				if err := json.Unmarshal([]byte(e.bodies[int64(i)]), &body); err != nil || body["input"] == nil || body["messages"] != nil || body["max_output_tokens"] == nil ||
					body["ignore_eos"] != map[bool]any{true: true}[want.prompt > 0] {
					t.Errorf("row %d: %.200s", i, e.bodies[int64(i)])
				}
			}
			if n := e.paths["/v1/chat/completions"] + e.paths["/v1/completions"]; n > 0 {
				t.Errorf("%d requests to other endpoints", n)
			}
		})
	}
	session := []string{
		`{"timestamp": 0, "session_id": "s", "input_length": 100, "output_length": 3}`,
		`{"delay": 1, "session_id": "s", "input_length": 50, "output_length": 3}`,
	}
	e := new(talker)
	rep, _, _ := e.replay(t, Config{Trace: Trace{Sessions: mooncake.SessionDelta}, Prompt: Prompt{Endpoint: prompt.Responses}}, session)
	var body struct {
		Input []struct{ Role, Content string }
	}
	if err := json.Unmarshal([]byte(e.bodies[1]), &body); err != nil || rep.Figures().Rows.Served != 2 || len(body.Input) != 3 ||
		body.Input[1].Role != "assistant" || body.Input[1].Content != " r0.0 r0.1 r0.2" {
		t.Errorf("%+v, %v", body, err)
	}
	// The live replies of a trace with replies are inserted where the recorded ones were.
	e = new(talker)
	rep, _, _ = e.replay(t, Config{Prompt: Prompt{Endpoint: prompt.Responses, Carry: carry.Always}}, conversations(t))
	if f := rep.Figures(); f.Rows.Served != 9 || f.Replies.Carried == 0 {
		t.Errorf("%+v, %+v", f.Rows, f.Replies)
	}
}

// TestResponsesArrive: an engine of the Responses API gets what rows say, whole and streamed: lengths, prefixes, messages, and tools in
// the form of the API.
func TestResponsesArrive(t *testing.T) {
	rows := []string{
		`{"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [0, 1], "priority": 2}`,
		`{"timestamp": 50, "input_length": 700, "output_length": 4, "hash_ids": [0, 2]}`,
		`{"timestamp": 100, "text_input": "hello there", "output_length": 2}`,
		`{"timestamp": 150, "output_length": 2, "messages": [{"role": "system", "content": "be brief"}, {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "c", "content": "found it"}], "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]}`,
	}
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprint("whole ", whole), func(t *testing.T) {
			cfg := simulator.Config{}
			cfg.Record.Headers = []string{"X-Request-Id"}
			e := newEngine(t, cfg)
			r := e.replay(t, Config{Prompt: Prompt{Endpoint: prompt.Responses, NoStream: whole}}, rows...)
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
				if rec.Path != "/v1/responses" || rec.Request.Stream == whole || rec.Request.Prompt != simulator.PromptMessages {
					t.Errorf("row %d: %+v", i, rec)
				}
				if rec.PromptTokens != int(r.results[i].Result.Usage.Prompt) || rec.OutputTokens != int(r.results[i].Result.Usage.Completion) {
					t.Errorf("row %d: the engine counted %d tokens of the prompt and %d of the reply, and the client has %+v", i, rec.PromptTokens, rec.OutputTokens, r.results[i].Result.Usage)
				}
			}
			var roles []string
			for _, m := range r.sent[3].Request.Messages {
				roles = append(roles, m.Role)
			}
			if fmt.Sprint(roles) != "[system assistant tool]" || r.sent[3].Request.Tools != 1 {
				t.Errorf("%v, %d tools", roles, r.sent[3].Request.Tools)
			}
		})
	}
}

// TestResponsesSession: the turns of a session carry replies and tool calls, as items, whole or streamed.
func TestResponsesSession(t *testing.T) {
	for _, whole := range []bool{false, true} {
		cfg := simulator.Config{ToolCalls: 1}
		cfg.Record.Headers = []string{"X-Request-Id"}
		e := newEngine(t, cfg)
		r := e.replay(t, Config{Trace: Trace{Sessions: mooncake.SessionDelta}, Prompt: Prompt{Endpoint: prompt.Responses, NoStream: whole}},
			`{"timestamp": 0, "session_id": "s", "output_length": 3, "message_mode": "delta", "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}], "tools": [{"type": "function", "function": {"name": "f"}}]}`,
			`{"delay": 1, "session_id": "s", "output_length": 3, "message_mode": "delta", "messages": [{"role": "tool", "tool_call_id": "c", "content": "found"}]}`)
		if r.err != nil || len(r.sent) != 2 {
			t.Fatalf("%v, %d", r.err, len(r.sent))
		}
		var body struct {
			Input []struct {
				Role, Type, Name, Arguments, Output string
				CallID                              string `json:"call_id"`
			}
			Tools []struct{ Name string }
		}
		if err := json.Unmarshal(r.sent[1].Body, &body); err != nil || len(body.Input) != 4 || len(body.Tools) != 1 || body.Tools[0].Name != "f" {
			t.Fatalf("whole %v: %v, %s", whole, err, r.sent[1].Body)
		}
		if call := body.Input[2]; call.Type != "function_call" || call.Name != "f" || call.CallID == "" || len(call.Arguments) < len(`{"text":""}`) {
			t.Errorf("whole %v: the reply is carried as %+v", whole, call)
		}
		if result := body.Input[3]; result.Type != "function_call_output" || result.CallID != "c" || result.Output != "found" {
			t.Errorf("whole %v: the result is %+v", whole, result)
		}
	}
}
