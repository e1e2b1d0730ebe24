// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai_test

import (
	"encoding/json"
	"maps"
	"runtime/debug"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/genai"
)

// inference returns a reader's record of a request with additional attributes.
func inference(t testing.TB, options genai.Options, attrs map[string]any) *genai.Record {
	t.Helper()
	attrs["gen_ai.operation.name"] = "chat"
	return genai.NewReader(options).Span("", newSpan(t, "chat m", attrs))
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		reason string
		value  any
		want   genai.Opt[int64]
	}{
		{"int", 7, n(7)},
		{"zero is a count", 0, n(0)},
		{"integral double", 7.0, n(7)},
		{"string", " 7 ", n(7)},
		{"string of a double", "7.0", n(7)},
		{"negative", -1, genai.Opt[int64]{}},
		{"fraction", 7.5, genai.Opt[int64]{}},
		{"beyond any count", 1e18, genai.Opt[int64]{}},
		{"beyond int64", "99999999999999999999", genai.Opt[int64]{}},
		{"not a number", "NaN", genai.Opt[int64]{}},
		{"infinite", "Inf", genai.Opt[int64]{}},
		{"bool", true, genai.Opt[int64]{}},
		{"list", []any{7}, genai.Opt[int64]{}},
		{"empty", nil, genai.Opt[int64]{}},
	} {
		if got := inference(t, genai.Options{}, map[string]any{"gen_ai.usage.input_tokens": c.value}).InputTokens; got != c.want {
			t.Errorf("%s: %v, want %v", c.reason, got, c.want)
		}
	}
}

func TestPrecedence(t *testing.T) {
	rec := inference(t, genai.Options{}, map[string]any{
		"gen_ai.usage.input_tokens": "?", "gen_ai.usage.prompt_tokens": 5, "llm.token_count.prompt": 6,
		"gen_ai.request.model": strings.Repeat("m", 257), "llm.request.model": "m", "gen_ai.response.id": "a\xffb",
	})
	if rec.InputTokens != n(5) {
		t.Errorf("%v input tokens: what cannot be read must not affect what can", rec.InputTokens)
	}
	if rec.RequestModel != "m" {
		t.Errorf("model %q: an overlong value does not count", rec.RequestModel)
	}
	if want := "a\uFFFDb"; rec.ResponseID != want {
		t.Errorf("id %q, want %q: an invalid byte becomes U+FFFD", rec.ResponseID, want)
	}
	broken := strings.Repeat("a\xff", 128) // 256 bytes that become 512
	rec = inference(t, genai.Options{}, map[string]any{"gen_ai.response.id": broken, "langfuse.observation.model.parameters": `{"model":"` + broken + `"}`})
	if rec.ResponseID != "" || rec.RequestModel != "" {
		t.Errorf("id of %d bytes, model of %d: too long once they are valid", len(rec.ResponseID), len(rec.RequestModel))
	}
}

func TestContentTraps(t *testing.T) {
	long := strings.Repeat("x", 2048)
	user := func(text string) string { return "<|user|>\n" + text + "\n<|assistant|>\n" }
	for _, c := range []struct {
		reason string
		attrs  map[string]any
		extent genai.Extent
		prompt string
	}{
		{"JSON within JSON", map[string]any{"gen_ai.input.messages": `"[{\"role\":\"user\",\"content\":\"a\\nb\"}]"`}, genai.ExtentComplete, user("a\nb")},
		{
			"escapes: a pair, a lone surrogate, a slash, an invalid escape",
			map[string]any{"gen_ai.input.messages": `[{"role":"user","content":"\u00e9\ud83d\ude00\ud83d \/\q"}]`},
			genai.ExtentComplete, user("é😀\uFFFD /q"),
		},
		{"invalid UTF-8 is hashed as it is", map[string]any{"gen_ai.input.messages": "[{\"role\":\"user\",\"content\":\"a\xff\"}]"}, genai.ExtentComplete, user("a\xff")},
		{"a bare line feed in a string", map[string]any{"gen_ai.input.messages": "[{\"role\":\"user\",\"content\":\"a\nb\"}]"}, genai.ExtentComplete, user("a\nb")},
		{"cut within a text: the readable part is a prefix", map[string]any{"gen_ai.input.messages": `[{"role":"system","content":"Be brief."},{"role":"user","content":"h`}, genai.ExtentCut, "<|system|>\nBe brief.\n<|user|>\nh\n<|assistant|>\n"},
		{"cut within an escape", map[string]any{"gen_ai.input.messages": `[{"role":"user","content":"h\u00`}, genai.ExtentCut, user("h")},
		{"cut at a backslash", map[string]any{"gen_ai.input.messages": `[{"role":"user","content":"h\`}, genai.ExtentCut, user("h")},
		{"cut within a role: the message is not begun", map[string]any{"gen_ai.input.messages": `[{"role":"user","content":"hi"},{"role":"assis`}, genai.ExtentCut, user("hi")},
		{"cut within a tool call: half a call does not count", map[string]any{"gen_ai.input.messages": `[{"role":"user","content":"hi"},{"role":"assistant","parts":[{"type":"tool_call","name":"f","arguments":{"a`}, genai.ExtentCut, "<|user|>\nhi\n<|assistant|>\n\n<|assistant|>\n"},
		{"cut after a key", map[string]any{"gen_ai.input.messages": `[{"role":"user","content":"hi"},{"role":"user","content":`}, genai.ExtentCut, "<|user|>\nhi\n<|user|>\n\n<|assistant|>\n"},
		{"cut between messages", map[string]any{"gen_ai.input.messages": `[{"role":"user","content":"hi"},`}, genai.ExtentCut, user("hi")},
		{"cut within JSON within JSON", map[string]any{"gen_ai.input.messages": `"[{\"role\":\"user\",\"content\":\"hi`}, genai.ExtentCut, user("hi")},
		{"the length of a known limit", map[string]any{"llm.prompts.0.content": long, "llm.request.type": "completion"}, genai.ExtentCut, user(long)},
		{"a longer text is whole", map[string]any{"llm.prompts.0.content": long + "x", "llm.request.type": "completion"}, genai.ExtentComplete, user(long + "x")},
		{"a text cut before other texts leaves a hole", map[string]any{"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": long, "gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": "hi"}, genai.ExtentGaps, "<|user|>\n" + long + "\n" + user("hi")},
		{"a flattened message that is missing", map[string]any{"gen_ai.prompt.0.content": "a", "gen_ai.prompt.2.content": "b"}, genai.ExtentGaps, "<|user|>\na\n" + user("b")},
		{"ten comes after nine", map[string]any{
			"gen_ai.prompt.0.content": "0", "gen_ai.prompt.1.content": "1", "gen_ai.prompt.2.content": "2", "gen_ai.prompt.3.content": "3",
			"gen_ai.prompt.4.content": "4", "gen_ai.prompt.5.content": "5", "gen_ai.prompt.6.content": "6", "gen_ai.prompt.7.content": "7",
			"gen_ai.prompt.8.content": "8", "gen_ai.prompt.9.content": "9", "gen_ai.prompt.10.content": "10",
		}, genai.ExtentComplete, "<|user|>\n0\n<|user|>\n1\n<|user|>\n2\n<|user|>\n3\n<|user|>\n4\n<|user|>\n5\n<|user|>\n6\n<|user|>\n7\n<|user|>\n8\n<|user|>\n9\n" + user("10")},
		{"a prompt that begins like JSON", map[string]any{"input.value": "[sess-A] go", "openinference.span.kind": "LLM"}, genai.ExtentComplete, user("[sess-A] go")},
		{"a prompt that is JSON and said to be text", map[string]any{"input.value": `["a"]`, "input.mime_type": "text/plain", "openinference.span.kind": "LLM"}, genai.ExtentComplete, user(`["a"]`)},
		{"redacted", map[string]any{"gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "__REDACTED__"}, genai.ExtentNone, user("")},
		{"roles without text", map[string]any{"gen_ai.input.messages": `[{"role":"user","parts":[{"type":"text"}]}]`}, genai.ExtentNone, user("")},
		{"some messages without text", map[string]any{"gen_ai.input.messages": `[{"role":"user","content":"hi"},{"role":"user","parts":[]},{"role":"user","content":"x"}]`}, genai.ExtentGaps, "<|user|>\nhi\n<|user|>\n\n" + user("x")},
		{"an empty text is a text", map[string]any{"gen_ai.input.messages": `[{"role":"user","content":""}]`}, genai.ExtentComplete, user("")},
		{"more tokens than bytes: instructions are missing", map[string]any{"gen_ai.input.messages": `[{"role":"user","content":"hi"}]`, "gen_ai.usage.input_tokens": 2027}, genai.ExtentGaps, user("hi")},
		{"an image may be many tokens", map[string]any{"gen_ai.input.messages": `[{"role":"user","parts":[{"type":"uri","modality":"image","uri":"u"}]}]`, "gen_ai.usage.input_tokens": 2027}, genai.ExtentComplete, user(`{"image_url":{"url":"u"},"type":"image_url"}`)},
		{"history at the server", map[string]any{"gen_ai.input.messages": `[{"role":"user","content":"hi"}]`, "gen_ai.request.previous_response.id": "r"}, genai.ExtentGaps, user("hi")},
		{"instructions without messages are not a prompt", map[string]any{"gen_ai.system_instructions": "Be brief."}, genai.ExtentNone, ""},
		{"no messages", map[string]any{"gen_ai.input.messages": `[]`}, genai.ExtentNone, ""},
		{"wrong types", map[string]any{"gen_ai.input.messages": `[1,null,[true],{"role":7,"content":{"x":1}}]`}, genai.ExtentGaps, "<|user|>\n\n<|user|>\n\n<|user|>\n\n<|user|>\n{\"x\":1}\n<|assistant|>\n"},
		{"the responses API", map[string]any{"openinference.span.kind": "LLM", "input.value": `{"instructions":"Be brief.","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]},{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"1","output":"ok"}]}`}, genai.ExtentComplete, "<|system|>\nBe brief.\n<|user|>\nhi\n<|assistant|>\n" + `{"function":{"arguments":"{}","name":"f"},"id":"1","type":"function"}` + "\n<|tool|>\nok\n<|assistant|>\n"},
	} {
		prompt, extent := walk(inference(t, genai.Options{}, c.attrs))
		if prompt != c.prompt || extent != c.extent {
			t.Errorf("%s: %v %q, want %v %q", c.reason, extent, prompt, c.extent, c.prompt)
		}
	}
}

// TestPrefix checks the promise of ExtentCut: wherever a prompt is cut, what is visited is a prefix.
func TestPrefix(t *testing.T) {
	const whole = `[{"role":"system","content":"Be \"brief\"."},{"role":"user","parts":[{"type":"text","content":"a\u00e9\ud83d\ude00"},` +
		`{"type":"uri","modality":"image","uri":"u"}]},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function",` +
		`"function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","content":"ok","n":12,"t":true}]`
	flat := func(messages string) (string, genai.Extent) {
		var b strings.Builder
		walked := inference(t, genai.Options{}, map[string]any{"gen_ai.input.messages": messages}).Content.Walk(func(p genai.Piece) bool {
			if p.Kind == genai.PieceMessage {
				b.WriteString("\x00" + p.Role + "\x00")
			}
			b.WriteString(p.Text)
			return true
		})
		return b.String(), walked.Extent
	}
	want, extent := flat(whole)
	if extent != genai.ExtentComplete {
		t.Fatalf("the whole prompt is said to be %v", extent)
	}
	for i := 2; i < len(whole); i++ {
		got, extent := flat(whole[:i])
		if !strings.HasPrefix(want, got) {
			t.Fatalf("cut at byte %d: %q is not a prefix", i, got)
		}
		if extent != genai.ExtentCut && (extent != genai.ExtentNone || strings.Trim(got, "\x00sytem") != "") {
			t.Fatalf("cut at byte %d: %v, %q", i, extent, got)
		}
	}
}

func TestHostile(t *testing.T) {
	const depth = 1 << 20
	nested := any("x")
	for range 1000 {
		nested = []any{nested}
	}
	for _, c := range []struct {
		reason string
		value  any
	}{
		{"nested arrays", strings.Repeat("[", depth)},
		{"nested objects", strings.Repeat(`{"content":`, depth)},
		{"nested structure", nested},
		{"nested JSON strings", doubleEncoded(12)},
		{"many values", "[" + strings.Repeat("1,", depth) + "1]"},
		{"many escaped quotes", `[{"role":"user","content":"` + strings.Repeat(`\"`, depth) + `"}]`},
		{"many escapes without an end", `[{"content":"` + strings.Repeat(`\n`, depth)},
	} {
		rec := inference(t, genai.Options{}, map[string]any{"gen_ai.input.messages": c.value})
		var pieces int
		walked := rec.Content.Walk(func(genai.Piece) bool { pieces++; return true })
		if pieces > 300_000 {
			t.Errorf("%s: %d pieces (%v)", c.reason, pieces, walked.Extent)
		}
	}
}

// doubleEncoded returns a list of messages that was encoded as JSON this many times too often.
func doubleEncoded(times int) string {
	s := `[{"role":"user","content":"hi"}]`
	for range times {
		b, err := json.Marshal(s)
		if err != nil {
			panic(err)
		}
		s = string(b)
	}
	return s
}

func TestLimits(t *testing.T) {
	message := `{"role":"user","content":"hello"}`
	messages := "[" + strings.Repeat(message+",", 99) + message + "]"
	for _, c := range []struct {
		reason string
		limits genai.Limits
	}{
		{"a limit of bytes", genai.Limits{Bytes: 500}},
		{"a limit of nodes", genai.Limits{Nodes: 50}},
	} {
		walked := inference(t, genai.Options{Limits: c.limits}, map[string]any{"gen_ai.input.messages": messages}).Content.Walk(func(genai.Piece) bool { return true })
		if walked.Extent != genai.ExtentCut || walked.Messages < 8 || walked.Messages > 20 {
			t.Errorf("%s: %+v", c.reason, walked)
		}
	}
}

func TestWalkStops(t *testing.T) {
	rec := inference(t, genai.Options{}, map[string]any{"gen_ai.input.messages": "[" + strings.Repeat(`{"role":"user","content":"a\nb"},`, 4) + `{"role":"user","content":"c"}]`})
	for limit := 1; limit < 8; limit++ {
		visits := 0
		rec.Content.Walk(func(genai.Piece) bool { visits++; return visits < limit })
		if want := min(limit, 8); visits != want {
			t.Errorf("%d visits, want %d", visits, want)
		}
	}
}

// TestReuse checks the reader's promise that nothing of a span is left in the record of the next.
func TestReuse(t *testing.T) {
	reader := genai.NewReader(genai.Options{})
	reader.Span("", newSpan(t, "chat", map[string]any{
		"gen_ai.operation.name": "chat", "session.id": "s", "gen_ai.response.finish_reasons": []any{"stop"}, "gen_ai.usage.input_tokens": 9,
		"gen_ai.input.messages": `[{"content":"hi"}]`,
	})).Content.Walk(func(genai.Piece) bool { return true })
	rec := reader.Span("", newSpan(t, "chat", map[string]any{"gen_ai.operation.name": "chat"}))
	if rec.Session != "" || len(rec.FinishReasons) > 0 || rec.InputTokens.Set || rec.Content.Present() {
		t.Errorf("values of the previous record are left: %+v", rec)
	}
}

func TestErrors(t *testing.T) {
	exception := func(attrs map[string]any) event { return event{"exception", 1, attrs} }
	for _, c := range []struct {
		reason string
		attrs  map[string]any
		events []event
		status ptrace.StatusCode
		want   string
	}{
		{"no sign of an error", nil, nil, ptrace.StatusCodeUnset, ""},
		{"the attribute comes first", map[string]any{"error.type": "timeout", "http.response.status_code": 504}, nil, ptrace.StatusCodeError, "timeout"},
		{"a status code comes before an exception", map[string]any{"http.response.status_code": 429}, []event{exception(map[string]any{"exception.type": "E"})}, ptrace.StatusCodeError, "429"},
		{"a good status code is not an error", map[string]any{"http.response.status_code": 200}, nil, ptrace.StatusCodeUnset, ""},
		{"an exception", nil, []event{exception(map[string]any{"exception.type": "E", "exception.message": "no prompt text"})}, ptrace.StatusCodeUnset, "E"},
		{"an exception without a type", nil, []event{exception(nil)}, ptrace.StatusCodeUnset, "_OTHER"},
		{"a message is not a type", map[string]any{"error.type": "Invalid prompt: the patient asked"}, nil, ptrace.StatusCodeError, "_OTHER"},
		{"a message without spaces is not a type", map[string]any{"error.type": "患者は尋ねた"}, nil, ptrace.StatusCodeError, "_OTHER"},
		{"a document is not a type", map[string]any{"error.type": `{"message":"asked"}`}, nil, ptrace.StatusCodeError, "_OTHER"},
		{"an exception whose type is a message", nil, []event{exception(map[string]any{"exception.type": "the patient asked"})}, ptrace.StatusCodeUnset, "_OTHER"},
		{"a status alone; its message is not looked at", nil, nil, ptrace.StatusCodeError, "_OTHER"},
	} {
		attrs := map[string]any{"gen_ai.operation.name": "chat"}
		maps.Copy(attrs, c.attrs)
		span := newSpan(t, "chat m", attrs, c.events...)
		span.Status().SetCode(c.status)
		span.Status().SetMessage("no prompt text")
		if got := genai.NewReader(genai.Options{}).Span("", span).ErrorType; got != c.want {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
	}
}

func TestFirstToken(t *testing.T) {
	for _, c := range []struct {
		reason  string
		attrs   map[string]any
		events  []event
		dropped uint32
		want    genai.Opt[float64]
	}{
		{"an event", nil, []event{{"First Token Stream Event", 0.5, nil}}, 0, seconds(0.5)},
		{"an event at the end is not the first token: the gateway buffered the reply", nil, []event{{"First Token Stream Event", 1.99, nil}}, 0, genai.Opt[float64]{}},
		{"an event before the start has another clock", nil, []event{{"ai.stream.firstChunk", -1, nil}}, 0, genai.Opt[float64]{}},
		{"the first of the chunks", nil, []event{{"gen_ai.content.completion.chunk", 0.5, nil}, {"gen_ai.content.completion.chunk", 1, nil}}, 0, seconds(0.5)},
		{"the first chunk is unknown if events were dropped: the oldest are dropped first", nil, []event{{"gen_ai.content.completion.chunk", 0.5, nil}}, 3, genai.Opt[float64]{}},
		{"an attribute takes precedence over an event", map[string]any{"gen_ai.response.time_to_first_chunk": 0.25}, []event{{"First Token Stream Event", 0.5, nil}}, 0, seconds(0.25)},
		{"a metric's name, in seconds", map[string]any{"gen_ai.client.operation.time_to_first_chunk": 0.25}, nil, 0, seconds(0.25)},
		{"milliseconds", map[string]any{"ai.stream.msToFirstChunk": "250"}, nil, 0, seconds(0.25)},
		{"a negative time", map[string]any{"gen_ai.response.time_to_first_chunk": -1}, nil, 0, genai.Opt[float64]{}},
		{"the server's time, if there is no other", map[string]any{"gen_ai.server.time_to_first_token": 0.25}, nil, 0, seconds(0.25)},
	} {
		attrs := map[string]any{"gen_ai.operation.name": "chat"}
		maps.Copy(attrs, c.attrs)
		span := newSpan(t, "chat m", attrs, c.events...)
		span.SetDroppedEventsCount(c.dropped)
		if got := genai.NewReader(genai.Options{}).Span("", span).TimeToFirstToken; got != c.want {
			t.Errorf("%s: %v, want %v", c.reason, got, c.want)
		}
	}
}

func TestContentOfEvents(t *testing.T) {
	const messages = `[{"role":"user","content":"hi"}]`
	for _, c := range []struct {
		reason string
		events []event
		want   string
	}{
		{"conventions up to 1.27, messages", []event{{"gen_ai.content.prompt", 0, map[string]any{"gen_ai.prompt": messages}}}, "<|user|>\nhi\n<|assistant|>\n"},
		{"conventions up to 1.27, a bare text", []event{{"gen_ai.content.prompt", 0, map[string]any{"gen_ai.prompt": "hi"}}}, "<|user|>\nhi\n<|assistant|>\n"},
		{"the details as a span event", []event{{"gen_ai.client.inference.operation.details", 0, map[string]any{"gen_ai.input.messages": messages}}}, "<|user|>\nhi\n<|assistant|>\n"},
		{"one event per message, tool calls structured", []event{
			{"gen_ai.user.message", 0, map[string]any{"content": "hi"}},
			{"gen_ai.assistant.message", 0, map[string]any{"tool_calls": []any{map[string]any{"id": "1", "function": map[string]any{"name": "f", "arguments": "{}"}}}}},
		}, "<|user|>\nhi\n<|assistant|>\n" + `{"function":{"arguments":"{}","name":"f"},"id":"1","type":"function"}` + "\n<|assistant|>\n"},
	} {
		span := newSpan(t, "chat m", map[string]any{"gen_ai.operation.name": "chat"}, c.events...)
		prompt, extent := walk(genai.NewReader(genai.Options{}).Span("", span))
		if prompt != c.want || extent != genai.ExtentComplete {
			t.Errorf("%s: %v %q, want %q", c.reason, extent, prompt, c.want)
		}
	}
}

// TestDroppedAttributes: flattened messages are not assumed to be complete if the SDK dropped attributes, but a document that holds all of
// them is.
func TestDroppedAttributes(t *testing.T) {
	for _, c := range []struct {
		attrs map[string]any
		want  genai.Extent
	}{
		{map[string]any{"llm.input_messages.0.message.content": "hi"}, genai.ExtentCut},
		{map[string]any{"input.value": `{"messages":[{"role":"user","content":"hi"}]}`}, genai.ExtentComplete},
	} {
		c.attrs["openinference.span.kind"] = "LLM"
		span := newSpan(t, "ChatCompletion", c.attrs)
		span.SetDroppedAttributesCount(9)
		if _, extent := walk(genai.NewReader(genai.Options{}).Span("", span)); extent != c.want {
			t.Errorf("%v: %v, want %v", c.attrs, extent, c.want)
		}
	}
}

// TestManyMarksOfCuts: a text that ends with the marks of very many cuts needs no stack for each. A process whose stack grows beyond its limit
// ends, whatever it recovers from.
func TestManyMarksOfCuts(t *testing.T) {
	defer debug.SetMaxStack(debug.SetMaxStack(32 << 20))
	marks := strings.Repeat("[truncated]", 1<<19)
	prompt, extent := walk(inference(t, genai.Options{}, map[string]any{"gen_ai.input.messages": []any{map[string]any{"role": "user", "content": "hi " + marks}}}))
	if want := "<|user|>\nhi\n<|assistant|>\n"; prompt != want || extent != genai.ExtentCut {
		t.Errorf("%v: %.60q, want %q", extent, prompt, want)
	}
}
