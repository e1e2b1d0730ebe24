// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate_test

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/receiver/annotate"
	"github.com/moonloop/moonloop/semconv"
)

// attributes are the attributes of a span, or other values by their names.
type attributes = map[string]any

// oneSpan returns telemetry of one span, and the span.
func oneSpan(t testing.TB, raw attributes) (ptrace.Traces, ptrace.Span) {
	t.Helper()
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "shop")
	span := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	span.SetName("a span")
	span.SetTraceID(pcommon.TraceID{1})
	span.SetSpanID(pcommon.SpanID{2})
	span.SetStartTimestamp(1_000_000_000)
	span.SetEndTimestamp(3_000_000_000)
	if err := span.Attributes().FromRaw(raw); err != nil {
		t.Fatal(err)
	}
	return td, span
}

// chainOf returns the chain of a canonical prompt.
func chainOf(t testing.TB, key blockhash.Key, prompt string) []byte {
	t.Helper()
	h, err := blockhash.NewHasher(key, blockhash.TextDomain(key))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = h.WriteString(prompt)
	cells, _ := h.Chain().AppendBinary(nil)
	return cells
}

// chained returns the attributes of a span with a canonical prompt whose texts have no line breaks, and with the reply to it, "" for none.
// A last message without its line break has no end.
func chained(t testing.TB, key blockhash.Key, prompt, reply string) attributes {
	t.Helper()
	m := attributes{semconv.Cells: chainOf(t, key, prompt)}
	h, err := blockhash.NewHasher(key, blockhash.TextDomain(key))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(prompt, "\n")
	for ; len(lines) > 2; lines = lines[2:] {
		h.Role(strings.TrimSuffix(lines[0], "\n"))
		h.Text(strings.TrimSuffix(lines[1], "\n"))
	}
	if ends := h.Chain().AppendEnds(nil); len(ends) > 0 {
		m[semconv.CellsEnds] = ends
	}
	if reply != "" {
		h.Role("assistant")
		h.Text(reply)
		end, _ := h.End()
		m[semconv.CellsReply], err = end.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// chat returns the attributes of a request in the current conventions.
func chat(more attributes) attributes {
	m := attributes{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "llama",
		"gen_ai.usage.input_tokens": int64(100), "gen_ai.usage.output_tokens": int64(7),
	}
	for name, value := range more {
		if value == nil {
			delete(m, name)
			continue
		}
		m[name] = value
	}
	return m
}

const hello = `[{"role":"user","parts":[{"type":"text","content":"Hello there, how are you today? Please tell me all about it."}]}]`

// helloPrompt is the canonical form of hello.
const helloPrompt = "user\nHello there, how are you today? Please tell me all about it.\n"

// TestSpan has one row for each rule of annotation and cleaning.
func TestSpan(t *testing.T) {
	key := testKey(t, 'k')
	identity := func(more ...attributes) attributes {
		m := attributes{
			semconv.Identity: "text", semconv.HashDomain: blockhash.TextDomain(key), semconv.HashKey: key.Fingerprint(),
		}
		maps.Copy(m, chained(t, key, helloPrompt, ""))
		for _, more := range more {
			maps.Copy(m, more)
		}
		maps.DeleteFunc(m, func(_ string, value any) bool { return value == nil })
		return m
	}
	none := attributes{semconv.Identity: "none"}
	long := strings.Repeat("word ", 60)
	cut := hello[:len(hello)-len(` about it."}]}]`)]
	for _, c := range []struct {
		reason  string
		in      attributes
		want    attributes // in addition to unchanged ones
		without []string   // names of attributes that are removed
		dropped reasons
		removed named
	}{
		{
			reason: "a prompt becomes cells; the text is removed", in: chat(attributes{"gen_ai.input.messages": hello}),
			want: identity(nil), without: []string{"gen_ai.input.messages"}, removed: named{"gen_ai.input.messages": 1},
		},
		{
			reason: "a prompt that is cut is a prefix", in: chat(attributes{"gen_ai.input.messages": cut}),
			want: identity(attributes{
				semconv.Cells: chainOf(t, key, "user\nHello there, how are you today? Please tell me all"), semconv.CellsPrefix: true, semconv.CellsEnds: nil,
			}),
			without: []string{"gen_ai.input.messages"}, removed: named{"gen_ai.input.messages": 1},
		},
		{
			reason: "a request without content gets the identity none", in: chat(nil), want: none,
		},
		{
			reason: "messages without text are not a prompt",
			in:     chat(attributes{"gen_ai.input.messages": `[{"role":"user","parts":[{"type":"text"}]}]`}), want: none,
			without: []string{"gen_ai.input.messages"}, removed: named{"gen_ai.input.messages": 1},
			dropped: reasons{annotate.ReasonPromptTextless: 1},
		},
		{
			reason:  "a hole in a prompt leaves no identity",
			in:      chat(attributes{"gen_ai.input.messages": `[{"role":"user","parts":[{"type":"text"}]},` + hello[1:]}),
			want:    none,
			without: []string{"gen_ai.input.messages"}, removed: named{"gen_ai.input.messages": 1},
			dropped: reasons{annotate.ReasonPromptGaps: 1},
		},
		{
			reason: "a prompt whose history the server keeps is not the whole one",
			in:     chat(attributes{"gen_ai.input.messages": hello, "gen_ai.request.previous_response.id": "resp_1"}), want: attributes{semconv.Identity: "none", semconv.PromptRemote: true},
			without: []string{"gen_ai.input.messages"}, removed: named{"gen_ai.input.messages": 1},
			dropped: reasons{annotate.ReasonPromptGaps: 1},
		},
		{
			reason: "a span that another receiver has annotated is cleaned, not read",
			in:     chat(attributes{semconv.Identity: "none", "gen_ai.input.messages": hello}), want: none,
			without: []string{"gen_ai.input.messages"}, removed: named{"gen_ai.input.messages": 1},
		},
		{
			reason: "the span of a replay is cleaned, not read",
			in:     chat(attributes{semconv.Row: int64(3), "gen_ai.input.messages": hello}), want: attributes{},
			without: []string{"gen_ai.input.messages"}, removed: named{"gen_ai.input.messages": 1},
		},
		{
			reason: "an incomplete annotation is replaced, and its values are counted", want: none,
			in:      chat(attributes{semconv.Cells: []byte("12345678"), semconv.HashDomain: "00000000", semconv.Identity: int64(7)}),
			without: []string{semconv.Cells, semconv.HashDomain}, removed: named{"mooncake.*": 3},
		},
		{
			reason: "every attribute of an incomplete annotation is removed", want: none,
			in: chat(attributes{
				semconv.CellsEnds: make([]byte, 12), semconv.CellsReply: make([]byte, 12), semconv.HashRanges: []any{int64(0), int64(4)},
				semconv.FineBlockSize: int64(16), semconv.Replies: []any{int64(1), int64(2), int64(3)},
				semconv.ToolCalls: []any{int64(1)}, semconv.ToolResults: []any{int64(2)},
			}),
			without: []string{semconv.CellsEnds, semconv.CellsReply, semconv.HashRanges, semconv.FineBlockSize, semconv.Replies, semconv.ToolCalls, semconv.ToolResults}, removed: named{"mooncake.*": 7},
		},
		{
			reason: "a reply ends where it will end in the next prompt", want: identity(chained(t, key, helloPrompt, "Fine.")),
			in:      chat(attributes{"gen_ai.input.messages": hello, "gen_ai.output.messages": `[{"role":"assistant","parts":[{"type":"text","content":"Fine."}]}]`}),
			without: []string{"gen_ai.input.messages", "gen_ai.output.messages"}, removed: named{"gen_ai.input.messages": 1, "gen_ai.output.messages": 1},
		},
		{
			reason: "a reply to a prompt that is cut has no end",
			in:     chat(attributes{"gen_ai.input.messages": cut, "gen_ai.output.messages": `[{"role":"assistant","parts":[{"type":"text","content":"Fine."}]}]`}),
			want: identity(attributes{
				semconv.Cells: chainOf(t, key, "user\nHello there, how are you today? Please tell me all"), semconv.CellsPrefix: true, semconv.CellsEnds: nil,
			}),
			without: []string{"gen_ai.input.messages", "gen_ai.output.messages"}, removed: named{"gen_ai.input.messages": 1, "gen_ai.output.messages": 1},
		},
		{
			reason: "a prompt that is cut has the ends of the messages before",
			in:     chat(attributes{"gen_ai.input.messages": `[{"role":"system","content":"Be kind."},` + cut[1:]}),
			want: identity(attributes{semconv.CellsPrefix: true, semconv.Cells: nil, semconv.CellsEnds: nil}, chained(t, key,
				"system\nBe kind.\nuser\nHello there, how are you today? Please tell me all", "")),
			without: []string{"gen_ai.input.messages"}, removed: named{"gen_ai.input.messages": 1},
		},
		{
			reason: "older names become current ones, numbers in strings become numbers",
			in: attributes{
				"gen_ai.system": "openai", "llm.request.type": "chat", "gen_ai.request.model": "llama",
				"gen_ai.usage.prompt_tokens": "100", "gen_ai.usage.completion_tokens": 7.0,
				"gen_ai.usage.cache_read_input_tokens": int64(64), "gen_ai.usage.reasoning_tokens": int64(3),
				"gen_ai.response.finish_reasons": `["stop"]`, "gen_ai.latency.time_to_first_token": 0.25,
				"gen_ai.request.id": "chatcmpl-1",
			},
			want: attributes{
				semconv.Identity: "none", "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai",
				"gen_ai.usage.input_tokens": int64(100), "gen_ai.usage.output_tokens": int64(7),
				"gen_ai.usage.cache_read.input_tokens": int64(64), "gen_ai.usage.reasoning.output_tokens": int64(3),
				"gen_ai.response.finish_reasons": []any{"stop"}, "gen_ai.response.time_to_first_chunk": 0.25,
				"gen_ai.response.id": "chatcmpl-1",
			},
		},
		{
			reason: "an estimate of the output is not usage",
			in: chat(attributes{
				"gen_ai.usage.output_tokens": nil, "gen_ai.request.max_tokens": int64(50), "gen_ai.response.finish_reasons": []any{"length"},
			}),
			want: attributes{semconv.Identity: "none", semconv.OutputEstimate: int64(50)}, dropped: reasons{annotate.ReasonUsageEstimate: 1},
		},
		{
			reason: "a session gets a keyed hash, and its id stays if that is short", in: chat(attributes{"session.id": "sess-A"}),
			want: attributes{semconv.Identity: "none", semconv.Session: key.Session("sess-A")},
		},
		{
			reason: "an application's own span names a session, too", in: attributes{"session.id": "sess-A", "http.route": "/api"},
			want: attributes{semconv.Session: key.Session("sess-A")},
		},
		{
			reason: "an existing session stays", in: attributes{"session.id": "sess-A", semconv.Session: "0123456789abcdef"},
			want: attributes{},
		},
		{
			reason: "numbers stay on GenAI telemetry; unknown strings and lists are removed",
			in:     chat(attributes{"new.number": 1.5, "new.flag": true, "new.text": "Hello", "new.list": []any{int64(1), int64(2)}}),
			want:   none, without: []string{"new.text", "new.list"}, removed: named{"other": 2},
		},
		{
			reason: "ids, models, reasons and addresses stay where they are short",
			in:     chat(attributes{"server.address": "engine", "gen_ai.response.id": "chatcmpl-1", "user.id": long}),
			want:   none, without: []string{"user.id"}, removed: named{"user.id": 1},
		},
		{
			reason: "a text as a model's name is removed", in: chat(attributes{"gen_ai.request.model": long}),
			want: none, without: []string{"gen_ai.request.model"}, removed: named{"gen_ai.request.model": 1},
		},
		{
			reason: "a wrapper repeats the prompt and loses it; it is not a request",
			in:     attributes{"traceloop.span.kind": "workflow", "traceloop.entity.name": "joke", "traceloop.entity.input": "Hello"},
			want:   attributes{}, without: []string{"traceloop.entity.input"}, removed: named{"traceloop.entity.input": 1},
		},
		{
			reason: "a span that is not a request does not become one when the attribute that said so is removed",
			in:     attributes{"genkit:input": "Hello", "gen_ai.usage.input_tokens": int64(9), "gen_ai.request.model": "llama"},
			want:   attributes{"openinference.span.kind": "CHAIN"}, without: []string{"genkit:input"}, removed: named{"genkit:input": 1},
		},
		{
			reason: "a tool's arguments and result are content",
			in: attributes{
				"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather",
				"gen_ai.tool.call.arguments": `{"city":"Bern"}`, "gen_ai.tool.call.result": "rain",
			},
			want: attributes{}, without: []string{"gen_ai.tool.call.arguments", "gen_ai.tool.call.result"},
			removed: named{"gen_ai.tool.call.arguments*": 1, "gen_ai.tool.call.result*": 1},
		},
		{
			reason: "other telemetry keeps what is not denied",
			in:     attributes{"shop.cart": "three apples", "db.query.summary": "SELECT cart", "tags": []any{"a", "b"}}, want: attributes{},
		},
		{
			reason: "statements and parameters of databases are removed from other telemetry",
			in:     attributes{"db.query.text": "INSERT 'Hello'", "db.query.parameter.1": "Hello", "db.operation.name": "INSERT"},
			want:   attributes{}, without: []string{"db.query.text", "db.query.parameter.1"},
			removed: named{"db.query.text": 1, "db.query.parameter.*": 1},
		},
		{
			reason: "values above 1 KiB are removed from other telemetry, nested or not",
			in:     attributes{"note": strings.Repeat("x", 1025), "fits": strings.Repeat("x", 1024), "deep": attributes{"a": attributes{"b": strings.Repeat("x", 1023)}}},
			want:   attributes{}, without: []string{"note", "deep"}, removed: named{"other": 2},
		},
		{
			reason: "content within a map is content", in: attributes{"request": attributes{"messages": []any{"Hello"}}},
			want: attributes{}, without: []string{"request"}, removed: named{"other": 1},
		},
		{
			reason: "what the configuration denies is removed, numbers too, after it was read",
			in:     chat(attributes{"tenant.id": "t-1", "tenant.size": int64(5), "chat.id": "c-1"}),
			want:   attributes{semconv.Identity: "none", semconv.Session: key.Session("c-1")}, without: []string{"tenant.id", "tenant.size"},
			removed: named{"tenant.*": 2},
		},
		{
			reason: "token ids identify the prompt as blocks of tokens",
			in:     chat(attributes{"gen_ai.operation.name": "text_completion", "input.value": `{"model":"llama","prompt":[1,2,3,4,5,6]}`}),
			want: attributes{
				semconv.Identity: "tokens", semconv.BlockSize: int64(4), semconv.HashKey: key.Fingerprint(),
				semconv.HashDomain: blockhash.Domain("tokens", key.Fingerprint(), "", "llama"),
				semconv.HashIDs:    tokenIDs(t, key, "llama", 4, 1, 2, 3, 4, 5, 6),
			},
			without: []string{"input.value"}, removed: named{"input.value": 1},
		},
	} {
		t.Run(c.reason, func(t *testing.T) {
			a := newAnnotator(t, annotate.Config{Key: key, BlockSize: 4, SessionKeys: []string{"chat.id"}, Deny: []string{"tenant.*"}})
			td, span := oneSpan(t, c.in)
			want := attributes{}
			maps.Copy(want, span.Attributes().AsRaw())
			for _, name := range c.without {
				delete(want, name)
			}
			maps.Copy(want, c.want)
			counts := a.Traces(td)
			if diff := cmp.Diff(want, span.Attributes().AsRaw()); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.dropped, counts.Dropped); diff != "" {
				t.Errorf("dropped (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.removed, counts.Removed); diff != "" {
				t.Errorf("removed (-want +got):\n%s", diff)
			}
			if span.Name() != "a span" || span.StartTimestamp() != 1_000_000_000 || span.SpanID() != (pcommon.SpanID{2}) {
				t.Errorf("name, time or id of the span has changed")
			}
		})
	}
}

// tokenIDs returns the ids of the blocks of a prompt of tokens, as in an attribute.
func tokenIDs(t testing.TB, key blockhash.Key, model string, size int, tokens ...uint32) []any {
	t.Helper()
	h, err := blockhash.NewHasher(key, blockhash.Domain("tokens", key.Fingerprint(), "", model))
	if err != nil {
		t.Fatal(err)
	}
	var ids []any
	for _, id := range h.Tokens(nil, tokens, size) {
		ids = append(ids, int64(id))
	}
	return ids
}

// TestDoubtfulUsage: a producer that invents counts is recognised by its scope, and its counts are removed.
func TestDoubtfulUsage(t *testing.T) {
	td, span := oneSpan(t, chat(attributes{"gen_ai.usage.total_tokens": int64(107)}))
	td.ResourceSpans().At(0).ScopeSpans().At(0).Scope().SetName("@openlit/instrumentation")
	counts := newAnnotator(t, annotate.Config{}).Traces(td)
	for name := range span.Attributes().All() {
		if strings.HasPrefix(name, "gen_ai.usage.") {
			t.Errorf("%s still exists", name)
		}
	}
	if counts.Dropped[annotate.ReasonUsageDoubtful] != 1 || counts.WithoutTokens != 1 {
		t.Errorf("counted %v, without tokens %d", counts.Dropped, counts.WithoutTokens)
	}
}

// TestFailure: status codes stay, messages are removed, and the kind of an error is found where producers put it.
func TestFailure(t *testing.T) {
	td, span := oneSpan(t, chat(nil))
	span.Status().SetCode(ptrace.StatusCodeError)
	span.Status().SetMessage("Invalid prompt: Hello")
	event := span.Events().AppendEmpty()
	event.SetName("exception")
	event.Attributes().PutStr("exception.type", "BadRequestError")
	event.Attributes().PutStr("exception.message", "Invalid prompt: Hello")
	event.Attributes().PutStr("exception.stacktrace", "BadRequestError: Invalid prompt: Hello\n at x")
	counts := newAnnotator(t, annotate.Config{}).Traces(td)
	if span.Status().Code() != ptrace.StatusCodeError || span.Status().Message() != "" {
		t.Errorf("status is %v %q", span.Status().Code(), span.Status().Message())
	}
	if diff := cmp.Diff(attributes{"exception.type": "BadRequestError"}, event.Attributes().AsRaw()); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
	if v, _ := span.Attributes().Get("error.type"); v.AsString() != "BadRequestError" {
		t.Errorf("error.type is %q", v.AsString())
	}
	want := named{"(status message)": 1, "exception.message": 1, "exception.stacktrace": 1}
	if diff := cmp.Diff(want, counts.Removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
}

// TestEvents: a GenAI event is cleaned as GenAI telemetry on any span; other events are cleaned like their span.
func TestEvents(t *testing.T) {
	td, span := oneSpan(t, attributes{"http.route": "/api"})
	for _, name := range []string{"gen_ai.user.message", "sale"} {
		event := span.Events().AppendEmpty()
		event.SetName(name)
		event.Attributes().PutStr("note", "Hello")
		event.Attributes().PutInt("number", 1)
	}
	newAnnotator(t, annotate.Config{}).Traces(td)
	for i, want := range []attributes{{"number": int64(1)}, {"number": int64(1), "note": "Hello"}} {
		if diff := cmp.Diff(want, span.Events().At(i).Attributes().AsRaw()); diff != "" {
			t.Errorf("event %d (-want +got):\n%s", i, diff)
		}
	}
}

// TestTokenEvents: the events of a replay's chunks stay unchanged, unless they contain something that such events do not have.
func TestTokenEvents(t *testing.T) {
	td, span := agentSpan(3)
	span.Events().At(1).Attributes().PutStr("text", "Hello")
	before := ptrace.NewTraces()
	td.CopyTo(before)
	newAnnotator(t, annotate.Config{}).Traces(td)
	before.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Events().At(1).Attributes().Remove("text")
	if diff := cmp.Diff(string(traceJSON(t, before)), string(traceJSON(t, td))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestKeep: the text stays if the configuration says so, and the annotation is the same.
func TestKeep(t *testing.T) {
	td, span := oneSpan(t, chat(attributes{"gen_ai.input.messages": hello}))
	span.Status().SetMessage("all is well")
	kept := newAnnotator(t, annotate.Config{Content: annotate.ContentKeep})
	counts := kept.Traces(td)
	if v, _ := span.Attributes().Get("gen_ai.input.messages"); v.AsString() != hello || span.Status().Message() == "" || counts.Removed != nil {
		t.Errorf("text was removed: %v", counts.Removed)
	}
	if v, _ := span.Attributes().Get(semconv.Cells); !cmp.Equal(v.AsRaw(), any(chainOf(t, testKey(t, 'k'), helloPrompt))) {
		t.Errorf("cells are not those of the prompt")
	}
}

// TestOmitMessageEnds: message ends are left out if the configuration says so, and the cells are the same.
func TestOmitMessageEnds(t *testing.T) {
	in := attributes{"gen_ai.input.messages": hello, "gen_ai.output.messages": `[{"role":"assistant","parts":[{"type":"text","content":"Fine."}]}]`}
	for _, omit := range []bool{false, true} {
		a := newAnnotator(t, annotate.Config{OmitMessageEnds: omit})
		td, span := oneSpan(t, chat(in))
		a.Traces(td)
		made, _ := a.Logs(logsOf(t, message{semconv.EventInferenceDetails, in, 1, 2}))
		for what, m := range map[string]pcommon.Map{"span": span.Attributes(), "log record": spans(made)[0].Attributes()} {
			_, ends := m.Get(semconv.CellsEnds)
			_, reply := m.Get(semconv.CellsReply)
			if _, cells := m.Get(semconv.Cells); ends == omit || reply == omit || !cells {
				t.Errorf("%s, left out %t: ends %t, reply %t, cells %t", what, omit, ends, reply, cells)
			}
		}
	}
}

// TestPromptOrder: a span names the configured order in which the template of its model writes the prompt, next to the cells of the text
// in its original order.
func TestPromptOrder(t *testing.T) {
	a := newAnnotator(t, annotate.Config{PromptOrder: []annotate.ModelOrder{
		{Model: "exact", Order: "as_sent"}, {Model: "dated-2024", Order: "tools_last"}, {Model: "ex*", Order: "both_last"}, {Model: "*", Order: "system_last"},
	}})
	plain := newAnnotator(t, annotate.Config{})
	for _, test := range []struct{ asked, answered, want string }{
		{"exact", "", "as_sent"},
		{"exactly", "", "both_last"},
		{"dated", "dated-2024", "tools_last"},
		{"", "exactly", "both_last"},
		{"other", "another", "system_last"},
		{"", "", "system_last"},
	} {
		in := attributes{"gen_ai.input.messages": hello, "gen_ai.request.model": test.asked, "gen_ai.response.model": test.answered, semconv.PromptOrder: "tools_last"}
		td, span := oneSpan(t, chat(in))
		a.Traces(td)
		got, _ := span.Attributes().Get(semconv.PromptOrder)
		if got.AsString() != test.want {
			t.Errorf("asked %q, answered by %q: order %q, want %q", test.asked, test.answered, got.AsString(), test.want)
		}
		other, without := oneSpan(t, chat(in))
		plain.Traces(other)
		if v, ok := without.Attributes().Get(semconv.PromptOrder); ok {
			t.Errorf("order %q without a configuration: the sender's own was kept", v.AsString())
		}
		cells, _ := span.Attributes().Get(semconv.Cells)
		same, _ := without.Attributes().Get(semconv.Cells)
		if !cmp.Equal(cells.AsRaw(), same.AsRaw()) {
			t.Error("the cells are not those of the text as it came")
		}
		// The next receiver keeps a valid order on the span, and removes an invalid one.
		before := traceJSON(t, td)
		plain.Traces(td)
		if !bytes.Equal(before, traceJSON(t, td)) {
			t.Error("the next receiver changed the span")
		}
		span.Attributes().PutStr(semconv.PromptOrder, "anything")
		plain.Traces(td)
		if v, ok := span.Attributes().Get(semconv.PromptOrder); ok {
			t.Errorf("order %q passed", v.AsString())
		}
	}
	// For text in log records, the span names the order, too.
	td, span := oneSpan(t, chat(attributes{"gen_ai.request.model": "exactly"}))
	a.Traces(td)
	if v, _ := span.Attributes().Get(semconv.PromptOrder); v.AsString() != "both_last" {
		t.Errorf("a span without text: order %q", v.AsString())
	}
}

func traceJSON(t testing.TB, td ptrace.Traces) []byte {
	t.Helper()
	text, err := (&ptrace.JSONMarshaler{}).MarshalTraces(td)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// agentSpan returns a span as a replay makes it, with this many token events.
func agentSpan(tokens int) (ptrace.Traces, ptrace.Span) {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "moonloop")
	rs.Resource().Attributes().PutStr(semconv.RunID, "run-1")
	span := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	span.SetName("chat llama")
	span.SetTraceID(pcommon.TraceID{1})
	span.SetSpanID(pcommon.SpanID{2})
	m := span.Attributes()
	m.PutStr("gen_ai.operation.name", "chat")
	m.PutStr("gen_ai.request.model", "llama")
	m.PutStr("gen_ai.provider.name", "_OTHER")
	m.PutInt("gen_ai.usage.input_tokens", 20000)
	m.PutInt("gen_ai.usage.output_tokens", int64(tokens))
	m.PutStr("server.address", "localhost")
	m.PutInt(semconv.Row, 7)
	m.PutStr(semconv.Identity, semconv.IdentityTrace)
	m.PutStr(semconv.HashDomain, "01234567")
	m.PutInt(semconv.BlockSize, 512)
	m.PutDouble(semconv.Timestamp, 1500)
	ids := m.PutEmptySlice(semconv.HashIDs)
	for i := range 40 {
		ids.AppendEmpty().SetInt(int64(i))
	}
	gaps := m.PutEmptySlice(semconv.TokenGaps)
	for i := range tokens {
		gaps.AppendEmpty().SetInt(int64(i))
		event := span.Events().AppendEmpty()
		event.SetName(semconv.EventToken)
		event.Attributes().PutInt(semconv.TokenIndex, int64(i))
		event.Attributes().PutDouble(semconv.TokenGap, 0.01)
	}
	return td, span
}
