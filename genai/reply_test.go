// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai_test

import (
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/genai"
)

// walkReply renders a reply: its role, then its pieces. ok is the result of the walk.
func walkReply(rec *genai.Record) (reply string, ok bool) {
	var b strings.Builder
	ok = rec.Reply.Walk(func(p genai.Piece) bool {
		if p.Kind == genai.PieceMessage {
			b.WriteString("<|" + p.Role + "|>")
		}
		b.WriteString(p.Text)
		return true
	})
	return b.String(), ok
}

// TestReplies has a reply in each row, and the message that it becomes in the next prompt; "" means not known, because the telemetry may
// have only a part of it, or something else.
func TestReplies(t *testing.T) {
	type attrs = map[string]any
	const (
		fine = "<|assistant|>Fine."
		call = `{"function":{"arguments":"{\"a\":2,\"b\":1}","name":"f"},"id":"1","type":"function"}`
	)
	modern := func(parts string) string {
		return `[{"role":"assistant","parts":[` + parts + `],"finish_reason":"stop"}]`
	}
	const text = `{"type":"text","content":"Fine."}`
	choices := func(list string) attrs {
		return attrs{"openinference.span.kind": "LLM", "output.value": `{"id":"x","choices":[` + list + `]}`}
	}
	const choice = `{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Fine."}}`
	for _, c := range []struct {
		reason string
		attrs  attrs
		want   string
		events []event
	}{
		{"one text", attrs{"gen_ai.output.messages": modern(text)}, fine, nil},
		{"two parts are joined", attrs{"gen_ai.output.messages": modern(text + `,{"type":"text","content":" Well."}`)}, fine + " Well.", nil},
		{"a call alone", attrs{"gen_ai.output.messages": modern(`{"type":"tool_call","id":"1","name":"f","arguments":"{\"b\": 1, \"a\": 2}"}`)}, "<|assistant|>" + call, nil},
		{"reasoning in the message is a part of it", attrs{"gen_ai.output.messages": modern(`{"type":"reasoning","content":"Hm. "},` + text), "gen_ai.usage.reasoning_tokens": 2}, "<|assistant|>Hm. Fine.", nil},
		{"a model's role is the assistant's", attrs{"gen_ai.output.messages": `[{"role":"model","parts":[` + text + `]}]`}, fine, nil},
		{"a reply that its limit ended is whole: it is what was generated", attrs{"gen_ai.output.messages": modern(text), "gen_ai.response.finish_reasons": []any{"length"}}, fine, nil},
		{"one choice", choices(choice), fine, nil},
		{"flattened messages replace an unknown document", attrs{
			"openinference.span.kind": "LLM", "output.value": `{"generations":[[{"text":"Fine."}]]}`,
			"llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "Fine.",
		}, fine, nil},
		{"flattened messages replace a document that was cut", attrs{
			"openinference.span.kind": "LLM", "output.value": `{"choices":[{"message":{"role":"assistant","content":"Fi`,
			"llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "Fine.",
		}, fine, nil},
		{"a text that is JSON stays a text", attrs{"ai.operationId": "ai.generateText.doGenerate", "ai.response.text": `{"role":"user","content":"hi"}`}, `<|assistant|>{"role":"user","content":"hi"}`, nil},

		{"two choices", choices(choice + "," + choice), "", nil},
		{"two choices, of which the first is flattened, too", attrs{
			"openinference.span.kind": "LLM", "output.value": `{"choices":[` + choice + "," + choice + `]}`,
			"llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "Fine.",
		}, "", nil},
		{"two messages", attrs{"gen_ai.output.messages": `[{"role":"assistant","parts":[` + text + `]},{"role":"assistant","parts":[` + text + `]}]`}, "", nil},
		{"two flattened messages", attrs{"gen_ai.completion.0.content": "Fine.", "gen_ai.completion.1.content": "Bad."}, "", nil},
		{"the second of two flattened messages", attrs{"gen_ai.completion.1.content": "Fine."}, "", nil},
		{"one message, though two choices were asked for", attrs{"gen_ai.output.messages": modern(text), "gen_ai.request.choice.count": 2}, "", nil},
		{"items of the responses API are a message each", attrs{"openinference.span.kind": "LLM", "output.value": `{"output":[{"type":"reasoning","summary":[]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Fine."}]}]}`}, "", nil},
		{"no message", attrs{"gen_ai.output.messages": `[]`}, "", nil},
		{"a message without a role", attrs{"gen_ai.output.messages": `[{"parts":[` + text + `]}]`}, "", nil},
		{"the user's message", attrs{"gen_ai.output.messages": `[{"role":"user","parts":[` + text + `]}]`}, "", nil},
		{"an empty text", attrs{"gen_ai.output.messages": modern(`{"type":"text","content":""}`)}, "", nil},
		{"a text that is not recorded", attrs{"gen_ai.output.messages": modern(`{"type":"text"}`)}, "", nil},
		{"a text that is recorded, next to one that is not", attrs{"gen_ai.output.messages": modern(text + `,{"type":"text"}`)}, "", nil},
		{"a call that is not recorded", attrs{"gen_ai.output.messages": `[{"role":"assistant","content":"Fine.","tool_calls":[{"id":"1","type":"function","function":{"name":"f"}}]}]`}, "", nil},
		{"a reply that ended with a call, which is missing", attrs{"gen_ai.output.messages": modern(text), "gen_ai.response.finish_reasons": []any{"tool_calls"}}, "", nil},
		{"a text that was redacted", attrs{"gen_ai.output.messages": modern(`{"type":"text","content":"__REDACTED__"}`)}, "", nil},
		{"a text that was cut", attrs{"gen_ai.output.messages": modern(`{"type":"text","content":"Fine... [truncated]"}`)}, "", nil},
		{"a document that was cut", attrs{"gen_ai.output.messages": modern(text)[:50]}, "", nil},
		{"a text of exactly the length at which exporters cut texts", attrs{"ai.operationId": "ai.generateText.doGenerate", "ai.response.text": strings.Repeat("x", 2048)}, "", nil},
		{"an image", attrs{"gen_ai.output.messages": modern(`{"type":"blob","modality":"image","mime_type":"image/png","content":"eA=="}`)}, "", nil},
		{"reasoning that was counted is missing", attrs{"gen_ai.output.messages": modern(text), "gen_ai.usage.reasoning_tokens": 200, "gen_ai.usage.output_tokens": 202}, "", nil},
		{"reasoning that may or may not be sent again", attrs{"ai.operationId": "ai.generateText.doGenerate", "ai.response.text": "Fine.", "ai.response.reasoning": "Hm."}, "", nil},
		{"more tokens than the text can have", attrs{"gen_ai.output.messages": modern(text), "gen_ai.usage.output_tokens": 50}, "", nil},
		{"a request that failed", attrs{"gen_ai.output.messages": modern(text), "error.type": "timeout"}, "", nil},
		{"a completion, whose next prompt is a longer text", attrs{"gen_ai.operation.name": "text_completion", "gen_ai.output.messages": modern(text)}, "", nil},
		{"a text next to which there may be calls that are not recorded", attrs{"openinference.span.kind": "LLM", "output.value": "Fine.", "output.mime_type": "text/plain"}, "", nil},
		{"a JSON text next to which there may be calls that are not recorded", attrs{"openinference.span.kind": "LLM", "output.value": `{"role":"assistant","content":"Fine."}`, "output.mime_type": "text/plain"}, "", nil},
		{"an unknown document", attrs{"openinference.span.kind": "LLM", "output.value": `{"generations":[[{"text":"Fine."}]]}`}, "", nil},
		{"JSON that is the text", attrs{"langfuse.observation.type": "generation", "langfuse.observation.output": `{"answer":"Fine."}`}, "", nil},
		{"a part of a stream", attrs{"gcp.vertex.agent.llm_response": `{"content":{"role":"model","parts":[{"text":"Fine."}]},"partial":true}`}, "", nil},
		{"calls that are not a list", attrs{"ai.operationId": "ai.generateText.doGenerate", "ai.response.text": "Fine.", "ai.response.toolCalls": "f(1)"}, "", nil},

		{"the event of a choice", attrs{}, fine, []event{{"gen_ai.choice", 1, attrs{"index": 0, "message": "Fine."}}}},
		{"two events", attrs{}, "", []event{{"gen_ai.choice", 1, attrs{"index": 0, "message": "Fine."}}, {"gen_ai.choice", 1, attrs{"index": 1, "message": "Bad."}}}},
		{"the event of the second choice", attrs{}, "", []event{{"gen_ai.choice", 1, attrs{"index": 1, "message": "Fine."}}}},
		{"an event without the text", attrs{}, "", []event{{"gen_ai.choice", 1, attrs{"index": 0, "finish_reason": "stop"}}}},
		{"an event that was cut", attrs{}, "", []event{{"gen_ai.choice", 1, attrs{"gen_ai.event.content": `{"message":{"content":"Fi`}}}},
		{"choices in a list of events", attrs{"events": `[{"event.name":"gen_ai.choice","message":{"content":"Fine."}},{"event.name":"gen_ai.choice","message":{"content":"Bad."}}]`}, "", nil},
	} {
		if _, ok := c.attrs["gen_ai.operation.name"]; !ok {
			c.attrs["gen_ai.operation.name"] = "chat"
		}
		got, ok := walkReply(genai.NewReader(genai.Options{}).Span("", newSpan(t, "chat m", c.attrs, c.events...)))
		if ok != (c.want != "") || ok && got != c.want {
			t.Errorf("%s: %q, %t; want %q", c.reason, got, ok, c.want)
		}
	}
}

// TestRepliesThatSpansDropped: what a limit of the SDK dropped may be a part of the reply, or another choice.
func TestRepliesThatSpansDropped(t *testing.T) {
	for _, dropped := range []uint32{0, 1} {
		flat := newSpan(t, "chat m", map[string]any{"gen_ai.operation.name": "chat", "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "Fine."})
		parts := newSpan(t, "chat m", map[string]any{"ai.operationId": "ai.generateText.doGenerate", "ai.response.text": "Fine."})
		events := newSpan(t, "chat m", map[string]any{"gen_ai.operation.name": "chat"}, event{"gen_ai.choice", 1, map[string]any{"message": "Fine."}})
		flat.SetDroppedAttributesCount(dropped)
		parts.SetDroppedAttributesCount(dropped)
		events.SetDroppedEventsCount(dropped)
		for name, span := range map[string]ptrace.Span{"flattened": flat, "in parts": parts, "in events": events} {
			if _, known := walkReply(genai.NewReader(genai.Options{}).Span("", span)); known != (dropped == 0) {
				t.Errorf("%s, %d dropped: known is %t", name, dropped, known)
			}
		}
	}
}

// TestRepliesInLogs has the event of a choice in the shapes of log records.
func TestRepliesInLogs(t *testing.T) {
	type attrs = map[string]any
	for _, c := range []struct {
		reason string
		body   any
		attrs  attrs
		want   string
	}{
		{"a message", attrs{"index": 0, "finish_reason": "stop", "message": attrs{"role": "assistant", "content": "Fine."}}, nil, "<|assistant|>Fine."},
		{"a message that is a text", attrs{"message": "Fine."}, nil, "<|assistant|>Fine."},
		{"the message itself", attrs{"content": "Fine.", "finish_reason": "stop"}, nil, "<|assistant|>Fine."},
		{"in attributes", nil, attrs{"message": "Fine."}, "<|assistant|>Fine."},
		{
			"a call",
			attrs{"finish_reason": "tool_calls", "message": attrs{"tool_calls": []any{attrs{"id": "1", "type": "function", "function": attrs{"name": "f", "arguments": "{}"}}}}},
			nil,
			`<|assistant|>{"function":{"arguments":"{}","name":"f"},"id":"1","type":"function"}`,
		},
		{"content capture is off", attrs{"index": 0, "finish_reason": "stop", "message": attrs{"role": "assistant"}}, nil, ""},
		{"the second choice", attrs{"index": 1, "message": attrs{"content": "Fine."}}, nil, ""},
		{"an empty body", attrs{}, nil, ""},
		{"a text alone", "Fine.", nil, ""},
	} {
		log := plog.NewLogRecord()
		log.SetEventName("gen_ai.choice")
		if err := log.Body().FromRaw(c.body); err != nil {
			t.Fatal(err)
		}
		if err := log.Attributes().FromRaw(c.attrs); err != nil {
			t.Fatal(err)
		}
		rec := genai.NewReader(genai.Options{}).Log("", log)
		got, ok := walkReply(rec)
		if ok != (c.want != "") || ok && got != c.want {
			t.Errorf("%s: %q, %t; want %q", c.reason, got, ok, c.want)
		}
		if rec.Content.Present() {
			t.Errorf("%s: the reply is taken for a prompt", c.reason)
		}
	}
}
