// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/genai"
)

// documentKeys are attributes whose value is parsed, and which direct a span to each parser.
var documentKeys = []string{
	"gen_ai.input.messages", "gen_ai.system_instructions", "gen_ai.tool.definitions", "gen_ai.response.finish_reasons", "input.value",
	"output.value", "llm.invocation_parameters", "langfuse.observation.usage_details", "langfuse.observation.completion_start_time",
	"genkit:input", "genkit:output", "ai.prompt.messages", "ai.prompt.tools", "gen_ai.prompt.0.content", "gen_ai.prompt.1.tool_calls.0.arguments",
	"llm.input_messages.0.message.contents.0.message_content.text", "llm.tools.0.tool.json_schema", "llm.prompts.7.content", "inference_time",
	"gen_ai.output.messages", "llm.output_messages.0.message.content", "gen_ai.completion.0.tool_calls.0.arguments", "ai.response.text", "ai.response.toolCalls",
	"langfuse.observation.output", "gcp.vertex.agent.llm_response", "response_data", "events",
}

// FuzzSpan checks the reader's contract on any input: it returns, its strings are clean, what it visits and allocates is proportional to
// what it read, and neither the order of attributes nor earlier spans change a record.
func FuzzSpan(f *testing.F) {
	const scopes = "openinference.instrumentation.openai\n@traceloop/instrumentation-openai\nai\ngenkit-tracer\nvllm.llm_engine\nlangfuse-sdk\n"
	for i := range documentKeys {
		f.Add(i, `{"choices":[{"index":0,"message":{"role":"assistant","content":"a\u00e9","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{}"}}]}}]}`, `{"gen_ai.operation.name":"chat"}`, "chat m", uint8(0))
		f.Add(i, `[{"toolCallId":"1","toolName":"f","input":{"b":1}}]`, `{"ai.operationId":"ai.generateText.doGenerate","ai.response.text":"x"}`, "chat m", uint8(2))
		f.Add(i, `[{"role":"user","parts":[{"type":"text","content":"a\u00e9"}]},{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}]`, `{"gen_ai.operation.name":"chat"}`, "chat m", uint8(0))
		f.Add(i, `{"messages":[{"content":[{"text":"hi"}]}],"tools":["{\"name\":\"f\"}"],"usage":{"inputTokens":1}}`, `{"openinference.span.kind":"LLM","session.id":"s"}`, "ChatCompletion", uint8(3))
		f.Add(i, `{"messages":[],"mod`, `{"openinference.span.kind":"LLM"}`, "ChatCompletion", uint8(1))
		f.Add(i, `"[{\"role\":\"us`, `{"genkit:metadata:subtype":"model","gen_ai.usage.input_tokens":"3"}`, "generate", uint8(7))
	}
	for _, attributes := range []string{
		`{"gen_ai.system":"openai","gen_ai.request.model":"m","gen_ai.usage.prompt_tokens":12,"gen_ai.usage.completion_tokens":3,"gen_ai.response.finish_reasons":["stop"],"gen_ai.response.id":"chatcmpl-1","llm.request.type":"chat","gen_ai.prompt.0.role":"user","gen_ai.prompt.0.content":"hello"}`,
		`{"ai.operationId":"ai.streamText.doStream","ai.model.id":"m","ai.usage.promptTokens":9,"ai.usage.inputTokens":10,"ai.response.finishReason":"tool-calls","ai.telemetry.metadata.sessionId":"s","ai.settings.maxOutputTokens":5}`,
		`{"llm.token_count.prompt":4,"llm.token_count.completion":2,"llm.token_count.prompt_details.cache_read":8,"llm.model_name":"m","openinference.span.kind":"LLM","input.mime_type":"application/json"}`,
		`{"langfuse.observation.type":"generation","langfuse.observation.model.name":"m","langfuse.session.id":"a","session.id":"b","langfuse.observation.level":"ERROR"}`,
		`{"gen_ai.request.id":"r","gen_ai.latency.time_to_first_token":0.25,"gen_ai.usage.prompt_tokens":5,"gen_ai.request.max_tokens":7,"http.response.status_code":500,"error.type":"a b"}`,
		`{"inference_time":"1.5s","time_per_token":"50ms","total_time":"2s","gen_ai.conversation.id":"c","user.id":"u","gen_ai.agent.name":"x"}`,
	} {
		f.Add(5, `[{"role":"system","content":"be kind"},{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]`, attributes, "chat", uint8(1))
	}
	for i, key := range documentKeys {
		f.Add(i, "not JSON", `{"`+key+`":{"a":[1,2.5,null,true]}}`, scopes, uint8(i))
	}
	used := genai.NewReader(genai.Options{})
	tight := genai.Limits{Bytes: 1 << 10, Nodes: 100}
	small := genai.NewReader(genai.Options{Limits: tight})
	f.Fuzz(func(t *testing.T, which int, value, attributes, name string, turn uint8) {
		d := json.NewDecoder(strings.NewReader(attributes))
		d.UseNumber()
		raw := map[string]any{}
		if d.Decode(&raw) != nil || raw == nil {
			raw = map[string]any{}
		}
		raw[documentKeys[uint(which)%uint(len(documentKeys))]] = value
		scope, name, _ := strings.Cut(name, "\n")
		spanOf := func(keys []string) ptrace.Span {
			span := ptrace.NewSpan()
			span.SetName(name)
			span.SetStartTimestamp(1e9)
			span.SetEndTimestamp(3e9)
			for _, key := range keys {
				if err := span.Attributes().PutEmpty(key).FromRaw(numbered(raw[key])); err != nil {
					t.Fatal(err)
				}
			}
			span.Events().AppendEmpty().SetName("gen_ai.user.message")
			return span
		}
		keys := slices.Sorted(maps.Keys(raw))
		span := spanOf(keys)

		size := len(value) + len(attributes)
		before := allocated()
		rec := used.Span(scope, span)
		checkRecord(t, rec, size)
		want := described(rec)
		if n := allocated() - before; n > 1<<20+400*uint64(size) {
			t.Errorf("%d bytes allocated to read %d", n, size)
		}
		if got := described(genai.NewReader(genai.Options{}).Span(scope, span)); got != want {
			t.Fatalf("by a new reader %s, by a used one %s", got, want)
		}
		n := int(turn) % len(keys)
		keys = slices.Concat(keys[n:], keys[:n])
		if turn%2 > 0 {
			slices.Reverse(keys)
		}
		if got := described(used.Span(scope, spanOf(keys))); got != want {
			t.Fatalf("attributes in the order %q give %s, sorted they give %s", keys, got, want)
		}
		// Under tight limits, less of a document is read, and never more.
		checkRecord(t, small.Span(scope, span), size)

		log := plog.NewLogRecord()
		log.SetEventName("gen_ai.user.message")
		log.Body().SetStr(value)
		checkRecord(t, used.Log(scope, log), len(value))
		checkRecord(t, used.Log("dynamo.request_trace", dynamoLog(value)), len(value))
	})
}

// numbered converts the decoder's numbers, which are texts, to integers if possible, and otherwise to floats.
func numbered(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		n, _ := v.Float64() // too large ones become infinite, which readers must handle, too
		return n
	case []any:
		for i := range v {
			v[i] = numbered(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = numbered(v[k])
		}
	}
	return v
}

// described returns everything that a record contains as a text.
func described(rec *genai.Record) string {
	facts := *rec
	facts.Content, facts.Reply, facts.Tools = genai.Content{}, genai.Reply{}, genai.ToolIDs{} // the walks below describe them
	var b strings.Builder
	fmt.Fprintf(&b, "%+v", facts)
	walked := rec.Content.Walk(func(p genai.Piece) bool {
		fmt.Fprintf(&b, " %d %q %q", p.Kind, p.Role, p.Text)
		return true
	})
	tokens, ok := rec.Content.Tokens(nil)
	fmt.Fprintf(&b, " %+v %v %t", walked, tokens, ok)
	ok = rec.Reply.Walk(func(p genai.Piece) bool {
		fmt.Fprintf(&b, " %d %q %q", p.Kind, p.Role, p.Text)
		return true
	})
	fmt.Fprintf(&b, " %t %q %q %t %d", ok, rec.Tools.Made, rec.Tools.Given, rec.Tools.Spoke, rec.Tools.SurplusMade+rec.Tools.SurplusGiven)
	return b.String()
}

// allocated returns the number of bytes allocated so far.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func checkRecord(t *testing.T, rec *genai.Record, size int) {
	t.Helper()
	for _, s := range append([]string{rec.Operation, rec.Provider, rec.RequestModel, rec.ResponseModel, rec.ResponseID, rec.ErrorType, rec.Session}, rec.FinishReasons...) {
		if len(s) > 256 || !utf8.ValidString(s) {
			t.Errorf("a field has %d bytes, valid UTF-8: %t", len(s), utf8.ValidString(s))
		}
	}
	if rec.InputTokens.V < 0 || rec.TimeToFirstToken.V < 0 {
		t.Errorf("negative values: %v, %v", rec.InputTokens, rec.TimeToFirstToken)
	}
	var bytes int64
	walked := rec.Content.Walk(func(p genai.Piece) bool {
		bytes += int64(len(p.Text))
		return true
	})
	if bytes != walked.Bytes || walked.Textless > walked.Messages {
		t.Errorf("%d bytes visited, said to be %+v", bytes, walked)
	}
	if limit := int64(16*size + 1024); bytes > limit {
		t.Errorf("%d bytes visited of %d", bytes, size)
	}
	messages := 0
	bytes = 0
	whole := rec.Reply.Walk(func(p genai.Piece) bool {
		if bytes += int64(len(p.Text)); p.Kind == genai.PieceMessage {
			messages++
		}
		return true
	})
	if limit := int64(16*size + 1024); bytes > limit || whole && (bytes == 0 || messages != 1 || !rec.Reply.Present()) {
		t.Errorf("a reply of %d messages, %d bytes of %d: whole %t", messages, bytes, size, whole)
	}
	// A prompt without text may still be known to be incomplete: the walk ended at its first message, a medium.
	empty := walked.Messages == walked.Textless
	if walked.Extent == genai.ExtentNone && !empty || walked.Extent == genai.ExtentComplete && empty {
		t.Errorf("%+v", walked)
	}
}

func benchmarkSpan(b *testing.B, producer string, walk bool) {
	b.Helper()
	var scopes []string
	var spans []ptrace.Span
	bytes := 0
	reader := genai.NewReader(genai.Options{})
	eachSpan(b, filepath.Join(producers(b), producer+".traces.jsonl"), func(scope string, span ptrace.Span) {
		if reader.Span(scope, span).Kind == genai.KindInference {
			scopes, spans = append(scopes, scope), append(spans, span)
		}
	})
	visit := func(p genai.Piece) bool {
		bytes += len(p.Text)
		return true
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		rec := reader.Span(scopes[i], spans[i])
		if walk {
			rec.Content.Walk(visit)
		}
		i = (i + 1) % len(spans)
	}
	if walk {
		b.ReportMetric(float64(bytes)/float64(b.N), "prompt-B/op")
	}
}

func BenchmarkSpan(b *testing.B) {
	for _, producer := range []string{"otel-js-openai", "js-traceloop-openai", "js-openinference-openai", "vercel-ai7-otel", "go-genkit"} {
		b.Run(producer+"/record", func(b *testing.B) { benchmarkSpan(b, producer, false) })
		b.Run(producer+"/walk", func(b *testing.B) { benchmarkSpan(b, producer, true) })
	}
}
