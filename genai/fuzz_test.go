// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai_test

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/genai"
)

// documentKeys are attributes whose value is parsed, and what makes a span reach each parser.
var documentKeys = []string{
	"gen_ai.input.messages", "gen_ai.system_instructions", "gen_ai.tool.definitions", "gen_ai.response.finish_reasons", "input.value",
	"output.value", "llm.invocation_parameters", "langfuse.observation.usage_details", "langfuse.observation.completion_start_time",
	"genkit:input", "genkit:output", "ai.prompt.messages", "ai.prompt.tools", "gen_ai.prompt.0.content", "gen_ai.prompt.1.tool_calls.0.arguments",
	"llm.input_messages.0.message.contents.0.message_content.text", "llm.tools.0.tool.json_schema", "llm.prompts.7.content", "inference_time",
}

// FuzzSpan holds the reader to its contract on anything: it returns, its strings are clean, and what it visits is
// not larger than what it read.
func FuzzSpan(f *testing.F) {
	for i := range documentKeys {
		f.Add(i, `[{"role":"user","parts":[{"type":"text","content":"a\u00e9"}]},{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}]`, `{"gen_ai.operation.name":"chat"}`)
		f.Add(i, `{"messages":[{"content":[{"text":"hi"}]}],"tools":["{\"name\":\"f\"}"],"usage":{"inputTokens":1}}`, `{"openinference.span.kind":"LLM","session.id":"s"}`)
		f.Add(i, `"[{\"role\":\"us`, `{"genkit:metadata:subtype":"model","gen_ai.usage.input_tokens":"3"}`)
	}
	f.Fuzz(func(t *testing.T, which int, value, attributes string) {
		span := ptrace.NewSpan()
		var raw map[string]any
		if json.Unmarshal([]byte(attributes), &raw) == nil {
			if err := span.Attributes().FromRaw(raw); err != nil {
				t.Skip(err)
			}
		}
		span.Attributes().PutStr(documentKeys[uint(which)%uint(len(documentKeys))], value)
		span.Events().AppendEmpty().SetName("gen_ai.user.message")

		reader := genai.NewReader(genai.Options{})
		rec := reader.Span("", span)
		checkRecord(t, rec, len(value)+len(attributes))

		log := plog.NewLogRecord()
		log.SetEventName("gen_ai.user.message")
		log.Body().SetStr(value)
		checkRecord(t, reader.Log("", log), len(value))
		checkRecord(t, reader.Dynamo(value), len(value))
	})
}

func checkRecord(t *testing.T, rec *genai.Record, size int) {
	t.Helper()
	for _, s := range append([]string{rec.Operation, rec.Provider, rec.RequestModel, rec.ResponseModel, rec.ResponseID, rec.ErrorType, rec.SessionID()}, rec.FinishReasons...) {
		if len(s) > 256 || !utf8.ValidString(s) {
			t.Errorf("a field holds %d bytes, valid UTF-8: %t", len(s), utf8.ValidString(s))
		}
	}
	if rec.InputTokens.V < 0 || rec.TimeToFirstToken.V < 0 {
		t.Errorf("less than nothing: %v, %v", rec.InputTokens, rec.TimeToFirstToken)
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
	if (walked.Extent == genai.ExtentNone) != (walked.Messages == walked.Textless) {
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
