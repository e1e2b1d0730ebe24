// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/internal/testproducers"
	"github.com/moonloop/moonloop/receiver/annotate"
	"github.com/moonloop/moonloop/semconv"
)

// ended is what an annotated span says about its messages.
type ended struct {
	chain blockhash.Chain
	reply blockhash.End // zero means none
}

// endsOf reads what an annotated span says about its messages. ok is false without cells.
func endsOf(t testing.TB, attributes pcommon.Map) (e ended, ok bool) {
	t.Helper()
	read := func(name string, unmarshal func([]byte) error) bool {
		v, ok := attributes.Get(name)
		if ok {
			if err := unmarshal(v.Bytes().AsRaw()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		return ok
	}
	if !read(semconv.Cells, e.chain.UnmarshalBinary) {
		return ended{}, false
	}
	read(semconv.CellsEnds, e.chain.UnmarshalEnds)
	if read(semconv.CellsReply, e.reply.UnmarshalBinary) {
		if err := e.chain.ValidateReply(e.reply); err != nil {
			t.Error(err)
		}
	}
	return e, true
}

// goesOn reports whether a prompt begins with another prompt and the reply to that.
func (e *ended) goesOn(before *ended) bool {
	n := len(before.chain.Ends)
	return n > 0 && len(e.chain.Ends) > n && slices.Equal(e.chain.Ends[:n], before.chain.Ends) && e.chain.Ends[n] == before.reply
}

// TestRepliesOfProducers: the reply to a turn of a real conversation, as recorded in telemetry, equals the assistant's message that the
// client sent in the next turn.
func TestRepliesOfProducers(t *testing.T) {
	folder := producers(t)
	for _, c := range []struct {
		producer, reason string
		known            int // spans whose reply is known
		turns            int // of these, spans whose prompt and reply begin another prompt: 6 turns of conversations that continue, and one call of a tool
	}{
		{"otel-js-openai", "replies in log records; a batch ends between one prompt and its reply", 14, 6},
		{"otel-js-openai-nocontent", "no text", 0, 0},
		{"js-traceloop-openai", "lists of messages", 13, 7},
		{"js-openinference-openai", "documents, and flattened messages of streams", 15, 7},
		{"js-openinference-longconv", "one prompt each, two of them without their replies", 2, 0},
		{"vercel-ai7-otel", "lists of messages", 12, 7},
		{"go-genkit", "documents; nothing calls a tool", 10, 6},
	} {
		t.Run(c.producer, func(t *testing.T) {
			a := newAnnotator(t, annotate.Config{})
			var all []ended
			take := func(td ptrace.Traces) {
				for _, span := range spans(td) {
					if e, ok := endsOf(t, span.Attributes()); ok {
						all = append(all, e)
					}
				}
			}
			stem := filepath.Join(folder, c.producer)
			testproducers.EachTraces(t, stem, func(td ptrace.Traces) { a.Traces(td); take(td) })
			testproducers.EachLogs(t, stem, func(ld plog.Logs) { td, _ := a.Logs(ld); take(td) })
			known, turns := 0, 0
			for i := range all {
				if all[i].reply == (blockhash.End{}) {
					continue
				}
				known++
				if slices.ContainsFunc(all, func(e ended) bool { return e.goesOn(&all[i]) }) {
					turns++
				}
			}
			if known != c.known || turns != c.turns {
				t.Errorf("%s: %d of %d replies known, %d of which continue; want %d and %d", c.reason, known, len(all), turns, c.known, c.turns)
			}
		})
	}
}

// object is a JSON object.
type object = map[string]any

// list is a JSON list.
type list = []any

func text(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestRepliesOfDialects: in every dialect, the reply to a turn equals the assistant's message in the next one: a text, and the call of a
// tool.
func TestRepliesOfDialects(t *testing.T) {
	const (
		words     = "I look it up.\nOne \"moment\", please…"
		arguments = `{"unit": "C", "city":"Zürich"}`
	)
	call := object{"id": "call_1", "type": "function", "function": object{"name": "weather", "arguments": arguments}}
	parsed := object{"unit": "C", "city": "Zürich"}
	answer := object{"role": "assistant", "content": words, "tool_calls": list{call}}
	// Messages of the second turn. The first turn has only the messages before the reply.
	openAI := list{
		object{"role": "system", "content": "Be kind."},
		object{"role": "user", "content": "Will it rain?"},
		answer,
		object{"role": "tool", "tool_call_id": "call_1", "content": "rain"},
	}
	modern := list{
		object{"role": "system", "parts": list{object{"type": "text", "content": "Be kind."}}},
		object{"role": "user", "parts": list{object{"type": "text", "content": "Will it rain?"}}},
		object{"role": "assistant", "parts": list{object{"type": "text", "content": words}, object{"type": "tool_call", "id": "call_1", "name": "weather", "arguments": parsed}}},
		object{"role": "tool", "parts": list{object{"type": "tool_call_response", "id": "call_1", "response": "rain"}}},
	}
	output := list{object{"role": "assistant", "finish_reason": "tool_call", "parts": modern[2].(object)["parts"]}}
	flat := func(prefix string, messages list, m attributes) attributes {
		for i, message := range messages {
			at := prefix + string(rune('0'+i)) + "."
			inner := ""
			if prefix[0] == 'l' {
				at, inner = at+"message.", "tool_call."
			}
			message := message.(object)
			m[at+"role"], m[at+"content"] = message["role"], message["content"]
			if message["tool_calls"] != nil {
				m[at+"tool_calls.0."+inner+"id"] = "call_1"
				function := "function."
				if inner == "" {
					function = ""
				}
				m[at+"tool_calls.0."+inner+function+"name"], m[at+"tool_calls.0."+inner+function+"arguments"] = "weather", arguments
			}
		}
		return m
	}
	openInference := func(messages list, more attributes) attributes {
		m := attributes{"openinference.span.kind": "LLM", "llm.model_name": "llama", "input.mime_type": "application/json", "input.value": text(t, object{"messages": messages})}
		maps.Copy(m, more)
		return m
	}
	anthropic := list{
		object{"role": "user", "content": "Will it rain?"},
		object{"role": "assistant", "content": list{object{"type": "text", "text": words}, object{"type": "tool_use", "id": "call_1", "name": "weather", "input": parsed}}},
		object{"role": "user", "content": list{object{"type": "tool_result", "tool_use_id": "call_1", "content": "rain"}}},
	}
	gemini := list{
		object{"role": "user", "parts": list{object{"text": "Will it rain?"}}},
		object{"role": "model", "parts": list{object{"text": words}, object{"function_call": object{"id": "call_1", "name": "weather", "args": parsed}}}},
		object{"role": "user", "parts": list{object{"function_response": object{"name": "weather", "response": object{"result": "rain"}}}}},
	}
	bedrock := list{
		object{"role": "user", "content": list{object{"text": "Will it rain?"}}},
		object{"role": "assistant", "content": list{object{"text": words}}},
		object{"role": "user", "content": list{object{"text": "And then?"}}},
	}
	responses := list{
		object{"role": "user", "content": "Will it rain?"},
		object{"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "weather", "arguments": arguments, "status": "completed"},
		object{"type": "function_call_output", "call_id": "call_1", "output": "rain"},
	}
	vercel := list{
		openAI[0],
		object{"role": "user", "content": list{object{"type": "text", "text": "Will it rain?"}}},
		object{"role": "assistant", "content": list{object{"type": "text", "text": words}, object{"type": "tool-call", "toolCallId": "call_1", "toolName": "weather", "input": parsed}}},
		object{"role": "tool", "content": list{object{"type": "tool-result", "toolCallId": "call_1", "toolName": "weather", "output": object{"type": "text", "value": "rain"}}}},
	}
	genkit := list{
		object{"role": "system", "content": list{object{"text": "Be kind."}}},
		object{"role": "user", "content": list{object{"text": "Will it rain?"}}},
		object{"role": "model", "content": list{object{"text": words}, object{"toolRequest": object{"ref": "call_1", "name": "weather", "input": parsed}}}},
		object{"role": "tool", "content": list{object{"toolResponse": object{"ref": "call_1", "name": "weather", "output": "rain"}}}},
	}
	langfuse := func(messages list, more attributes) attributes {
		m := attributes{"langfuse.observation.type": "generation", "langfuse.observation.model.name": "llama", "langfuse.observation.input": text(t, object{"messages": messages})}
		maps.Copy(m, more)
		return m
	}
	pydantic := list{
		object{"event.name": "gen_ai.system.message", "role": "system", "content": "Be kind."},
		object{"event.name": "gen_ai.user.message", "role": "user", "content": "Will it rain?"},
	}
	for _, c := range []struct {
		dialect       string
		first, second attributes
	}{
		{
			"conventions, in JSON",
			chat(attributes{"gen_ai.input.messages": text(t, modern[:2]), "gen_ai.output.messages": text(t, output), "gen_ai.response.finish_reasons": list{"tool_calls"}}),
			chat(attributes{"gen_ai.input.messages": text(t, modern)}),
		},
		{
			"conventions, structured",
			chat(attributes{"gen_ai.input.messages": modern[:2], "gen_ai.output.messages": output}), chat(attributes{"gen_ai.input.messages": modern}),
		},
		{
			"LiteLLM", chat(attributes{"gen_ai.input.messages": text(t, openAI[:2]), "gen_ai.output.messages": text(t, list{answer})}),
			chat(attributes{"gen_ai.input.messages": text(t, openAI)}),
		},
		{
			"Traceloop, flattened",
			flat("gen_ai.completion.", list{answer}, flat("gen_ai.prompt.", openAI[:2], attributes{"llm.request.type": "chat", "gen_ai.system": "OpenAI"})),
			flat("gen_ai.prompt.", openAI, attributes{"llm.request.type": "chat", "gen_ai.system": "OpenAI"}),
		},
		{
			"OpenInference, document",
			openInference(openAI[:2], attributes{"output.mime_type": "application/json", "output.value": text(t, object{"id": "x", "choices": list{object{"index": 0, "finish_reason": "tool_calls", "message": answer}}})}),
			openInference(openAI, nil),
		},
		{
			"OpenInference, flattened",
			flat("llm.output_messages.", list{answer}, flat("llm.input_messages.", openAI[:2], attributes{"openinference.span.kind": "LLM", "output.value": words, "output.mime_type": "text/plain"})),
			flat("llm.input_messages.", openAI, attributes{"openinference.span.kind": "LLM"}),
		},
		{
			"OpenInference, parts",
			openInference(openAI[:2], attributes{
				"llm.output_messages.0.message.role":                                      "assistant",
				"llm.output_messages.0.message.contents.0.message_content.type":           "text",
				"llm.output_messages.0.message.contents.0.message_content.text":           words,
				"llm.output_messages.0.message.tool_calls.0.tool_call.id":                 "call_1",
				"llm.output_messages.0.message.tool_calls.0.tool_call.function.name":      "weather",
				"llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": arguments,
			}),
			openInference(openAI, nil),
		},
		{
			"Anthropic",
			openInference(anthropic[:1], attributes{"output.value": text(t, object{"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "stop_reason": "tool_use", "content": anthropic[1].(object)["content"]})}),
			openInference(anthropic, nil),
		},
		{
			"Gemini",
			attributes{"openinference.span.kind": "LLM", "input.value": text(t, object{"model": "gemini", "contents": gemini[:1]}), "output.value": text(t, object{"candidates": list{object{"content": gemini[1], "finish_reason": "STOP"}}})},
			attributes{"openinference.span.kind": "LLM", "input.value": text(t, object{"model": "gemini", "contents": gemini})},
		},
		{
			"Google's kit",
			chat(attributes{"gcp.vertex.agent.llm_request": text(t, object{"contents": gemini[:1]}), "gcp.vertex.agent.llm_response": text(t, object{"content": gemini[1], "partial": false})}),
			chat(attributes{"gcp.vertex.agent.llm_request": text(t, object{"contents": gemini})}),
		},
		{
			"Bedrock",
			openInference(bedrock[:1], attributes{"output.value": text(t, object{"output": object{"message": bedrock[1]}, "stopReason": "end_turn"})}),
			openInference(bedrock, nil),
		},
		{
			"Responses API, one item",
			attributes{"openinference.span.kind": "LLM", "input.value": text(t, object{"input": responses[:1]}), "output.value": text(t, object{"id": "resp_1", "output": responses[1:2]})},
			attributes{"openinference.span.kind": "LLM", "input.value": text(t, object{"input": responses})},
		},
		{
			"Vercel",
			attributes{
				"ai.operationId": "ai.generateText.doGenerate", "ai.prompt.messages": text(t, vercel[:2]), "ai.response.text": words,
				"ai.response.toolCalls": text(t, list{object{"toolCallType": "function", "toolCallId": "call_1", "toolName": "weather", "args": arguments}}), "ai.response.finishReason": "tool-calls",
			},
			attributes{"ai.operationId": "ai.generateText.doGenerate", "ai.prompt.messages": text(t, vercel)},
		},
		{"Langfuse", langfuse(openAI[:2], attributes{"langfuse.observation.output": text(t, answer)}), langfuse(openAI, nil)},
		{
			"Langfuse, a stream", langfuse(openAI[:2], attributes{"langfuse.observation.output": "It rains."}),
			langfuse(append(slices.Clone(openAI[:2]), object{"role": "assistant", "content": "It rains."}, object{"role": "user", "content": "Oh."}), nil),
		},
		{
			"genkit",
			attributes{"genkit:metadata:subtype": "model", "genkit:input": text(t, object{"messages": genkit[:2]}), "genkit:output": text(t, object{"finishReason": "stop", "message": genkit[2]})},
			attributes{"genkit:metadata:subtype": "model", "genkit:input": text(t, object{"messages": genkit})},
		},
		{
			"pydantic-ai",
			chat(attributes{"events": text(t, append(slices.Clone(pydantic), object{"event.name": "gen_ai.choice", "index": 0, "message": answer}))}),
			chat(attributes{"events": text(t, append(slices.Clone(pydantic), object{"event.name": "gen_ai.assistant.message", "role": "assistant", "content": words, "tool_calls": list{call}},
				object{"event.name": "gen_ai.tool.message", "role": "tool", "content": "rain"}))}),
		},
		{
			"logfire",
			chat(attributes{"request_data": text(t, object{"messages": openAI[:2]}), "response_data": text(t, object{"message": answer, "usage": object{"total_tokens": 9}})}),
			chat(attributes{"request_data": text(t, object{"messages": openAI})}),
		},
	} {
		t.Run(c.dialect, func(t *testing.T) {
			a := newAnnotator(t, annotate.Config{})
			var turns [2]ended
			for i, in := range []attributes{c.first, c.second} {
				delete(in, "gen_ai.usage.output_tokens")
				td, span := oneSpan(t, in)
				a.Traces(td)
				var ok bool
				if turns[i], ok = endsOf(t, span.Attributes()); !ok {
					t.Fatalf("turn %d has no cells", i)
				}
			}
			if turns[0].reply == (blockhash.End{}) {
				t.Fatal("the reply is not known")
			}
			if !turns[1].goesOn(&turns[0]) {
				t.Errorf("the reply ends as %v, and the next prompt has the ends %v after %v", turns[0].reply, turns[1].chain.Ends, turns[0].chain.Ends)
			}
		})
	}
}

// TestRepliesInEvents does the same for replies in the events of a span.
func TestRepliesInEvents(t *testing.T) {
	type event struct {
		name string
		m    attributes
	}
	user := event{"gen_ai.user.message", attributes{"content": "Will it rain?"}}
	azure := event{"gen_ai.user.message", attributes{"gen_ai.event.content": `{"content":"Will it rain?"}`}}
	strands := event{"gen_ai.user.message", attributes{"content": `[{"text": "Will it rain?"}]`}}
	for _, c := range []struct {
		producer      string
		first, second []event
	}{
		{
			"conventions 1.36",
			[]event{user, {"gen_ai.choice", attributes{"index": 0, "finish_reason": "stop", "message": "It rains."}}},
			[]event{user, {"gen_ai.assistant.message", attributes{"content": "It rains."}}, user},
		},
		{
			"the message as an object",
			[]event{user, {"gen_ai.choice", attributes{"message": object{"role": "assistant", "content": "It rains."}}}},
			[]event{user, {"gen_ai.assistant.message", attributes{"content": "It rains."}}, user},
		},
		{
			"Azure",
			[]event{azure, {"gen_ai.choice", attributes{"gen_ai.event.content": `{"index":0,"finish_reason":"stop","message":{"content":"It rains."}}`}}},
			[]event{azure, {"gen_ai.assistant.message", attributes{"gen_ai.event.content": `{"role":"assistant","content":"It rains."}`}}, azure},
		},
		{
			"Strands",
			[]event{strands, {"gen_ai.choice", attributes{"finish_reason": "end_turn", "message": `[{"text": "It rains."}]`}}},
			[]event{strands, {"gen_ai.assistant.message", attributes{"content": `[{"text": "It rains."}]`}}, strands},
		},
		{
			"inference details",
			[]event{{semconv.EventInferenceDetails, attributes{"gen_ai.input.messages": `[{"role":"user","content":"Will it rain?"}]`, "gen_ai.output.messages": `[{"role":"assistant","content":"It rains."}]`}}},
			[]event{{semconv.EventInferenceDetails, attributes{"gen_ai.input.messages": `[{"role":"user","content":"Will it rain?"},{"role":"assistant","content":"It rains."},{"role":"user","content":"Oh."}]`}}},
		},
		{
			"conventions 1.26",
			[]event{{"gen_ai.content.prompt", attributes{"gen_ai.prompt": `[{"role":"user","content":"Will it rain?"}]`}}, {"gen_ai.content.completion", attributes{"gen_ai.completion": `[{"role":"assistant","content":"It rains."}]`}}},
			[]event{{"gen_ai.content.prompt", attributes{"gen_ai.prompt": `[{"role":"user","content":"Will it rain?"},{"role":"assistant","content":"It rains."},{"role":"user","content":"Oh."}]`}}},
		},
	} {
		t.Run(c.producer, func(t *testing.T) {
			var turns [2]ended
			for i, events := range [][]event{c.first, c.second} {
				td, span := oneSpan(t, chat(nil))
				for _, e := range events {
					added := span.Events().AppendEmpty()
					added.SetName(e.name)
					if err := added.Attributes().FromRaw(e.m); err != nil {
						t.Fatal(err)
					}
				}
				newAnnotator(t, annotate.Config{}).Traces(td)
				turns[i], _ = endsOf(t, span.Attributes())
			}
			if turns[0].reply == (blockhash.End{}) || !turns[1].goesOn(&turns[0]) {
				t.Errorf("the reply ends as %v, and the next prompt has the ends %v after %v", turns[0].reply, turns[1].chain.Ends, turns[0].chain.Ends)
			}
		})
	}
}

// TestEndsTellSharedMessages: prompts of random conversations have as many ends in common as they share messages from the start, in any
// dialect.
func TestEndsTellSharedMessages(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	message := func(i int) object {
		role := []string{"user", "assistant", "tool", "user", "critic"}[r.IntN(5)]
		if i == 0 && r.IntN(2) == 0 {
			role = "system"
		}
		// Long enough that all ends are kept.
		return object{"role": role, "content": strings.Repeat("naïve “words” \n", 45+r.IntN(12)) + string(rune('a'+r.IntN(26)))}
	}
	dialects := []func(list) attributes{
		func(m list) attributes { return chat(attributes{"gen_ai.input.messages": text(t, m)}) },
		func(m list) attributes { return chat(attributes{"gen_ai.input.messages": m}) },
		func(m list) attributes {
			return attributes{"openinference.span.kind": "LLM", "input.value": text(t, object{"messages": m})}
		},
		func(m list) attributes {
			all := chat(nil)
			for i, message := range m {
				at := fmt.Sprintf("gen_ai.prompt.%d.", i)
				all[at+"role"], all[at+"content"] = message.(object)["role"], message.(object)["content"]
			}
			return all
		},
		func(m list) attributes {
			return attributes{"langfuse.observation.type": "generation", "langfuse.observation.input": text(t, m)}
		},
	}
	a := newAnnotator(t, annotate.Config{})
	annotated := func(m list) ended {
		in := dialects[r.IntN(len(dialects))](m)
		delete(in, "gen_ai.usage.input_tokens")
		td, span := oneSpan(t, in)
		a.Traces(td)
		e, ok := endsOf(t, span.Attributes())
		if !ok || len(e.chain.Ends) != len(m) || e.chain.Ends[len(m)-1].Bytes != e.chain.Bytes {
			t.Fatalf("%d messages have %d ends", len(m), len(e.chain.Ends))
		}
		return e
	}
	for range 300 {
		shared := list{}
		for i := range r.IntN(8) {
			shared = append(shared, message(i))
		}
		x, y := slices.Clone(shared), slices.Clone(shared)
		for range 1 + r.IntN(3) {
			x, y = append(x, message(len(x))), append(y, message(len(y)))
		}
		want, got := 0, 0
		for want < min(len(x), len(y)) && maps.Equal(x[want].(object), y[want].(object)) {
			want++
		}
		ex, ey := annotated(x).chain.Ends, annotated(y).chain.Ends
		for got < min(len(ex), len(ey)) && ex[got] == ey[got] {
			got++
		}
		if got != want {
			t.Fatalf("prompts that share %d of %d and %d messages share %d ends", want, len(x), len(y), got)
		}
	}
}
