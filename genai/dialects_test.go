// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/genai"
)

const (
	second = uint64(1e9)
	start  = 1_795_222_048 * second
)

// event is a span event at an offset from the span's start.
type event struct {
	name  string
	after float64 // s
	attrs map[string]any
}

// newSpan makes a span that lasts two seconds.
func newSpan(t testing.TB, name string, attrs map[string]any, events ...event) ptrace.Span {
	t.Helper()
	span := ptrace.NewSpan()
	span.SetName(name)
	span.SetStartTimestamp(pcommon.Timestamp(start))
	span.SetEndTimestamp(pcommon.Timestamp(start + 2*second))
	if err := span.Attributes().FromRaw(attrs); err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		added := span.Events().AppendEmpty()
		added.SetName(e.name)
		added.SetTimestamp(pcommon.Timestamp(int64(start) + int64(e.after*1e9)))
		if err := added.Attributes().FromRaw(e.attrs); err != nil {
			t.Fatal(err)
		}
	}
	return span
}

// walk renders a prompt.
func walk(rec *genai.Record) (prompt string, extent genai.Extent) {
	var text rendered
	extent = rec.Content.Walk(text.visit).Extent
	if len(text.messages) == 0 {
		return "", extent
	}
	return text.String(), extent
}

// withoutContent compares records; prompts and replies are compared by their walk.
var withoutContent = cmp.Options{cmpopts.IgnoreFields(genai.Record{}, "Content", "Reply"), cmpopts.EquateEmpty()}

func n(v int64) genai.Opt[int64]           { return genai.Some(v) }
func seconds(v float64) genai.Opt[float64] { return genai.Some(v) }

const hello = "<|system|>\nBe brief.\n<|user|>\nhi\n<|assistant|>\n"

func TestDialects(t *testing.T) {
	type attrs = map[string]any
	const modern = `[{"role":"system","parts":[{"type":"text","content":"Be brief."}]},{"role":"user","parts":[{"type":"text","content":"hi"}]}]`
	const plain = `[{"role":"system","content":"Be brief."},{"role":"user","content":"hi"}]`
	for _, c := range []struct {
		reason, scope, name string
		attrs               attrs
		events              []event
		want                genai.Record
		prompt              string
	}{
		{
			reason: "OTel up to 1.36", scope: "opentelemetry.instrumentation.openai_v2", name: "chat m",
			attrs: attrs{
				"gen_ai.operation.name": "chat", "gen_ai.system": "openai", "gen_ai.request.model": "m",
				"gen_ai.response.model": "m-1", "gen_ai.response.id": "r", "gen_ai.request.max_tokens": 16,
				"gen_ai.usage.input_tokens": 12, "gen_ai.usage.output_tokens": 3,
				"gen_ai.response.finish_reasons": []any{"stop"},
			},
			events: []event{
				{"gen_ai.system.message", 0, attrs{"content": "Be brief."}},
				{"gen_ai.user.message", 0, attrs{"content": "hi"}},
				{"gen_ai.choice", 1, attrs{"message": "hello"}},
			},
			want: genai.Record{
				Dialect: genai.DialectOTel136, Kind: genai.KindInference, Operation: "chat", Provider: "openai",
				RequestModel: "m", ResponseModel: "m-1", ResponseID: "r", MaxTokens: n(16), InputTokens: n(12),
				OutputTokens: n(3), FinishReasons: []string{"stop"},
			},
			prompt: hello,
		},
		{
			reason: "OTel 1.41, structured messages, zero is not absent", name: "chat m",
			attrs: attrs{
				"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "m",
				"gen_ai.request.stream": true, "gen_ai.conversation.id": "c", "gen_ai.request.choice.count": 2,
				"gen_ai.response.time_to_first_chunk": 0.25, "gen_ai.usage.input_tokens": 12,
				"gen_ai.usage.output_tokens": 0, "gen_ai.usage.cache_read.input_tokens": 0,
				"gen_ai.usage.cache_creation.input_tokens": 4, "gen_ai.usage.reasoning.output_tokens": 0,
				"gen_ai.input.messages": []any{
					attrs{"role": "user", "parts": []any{attrs{"type": "text", "content": "hi"}}},
				},
				"gen_ai.system_instructions": []any{attrs{"type": "text", "content": "Be brief."}},
			},
			want: genai.Record{
				Dialect: genai.DialectOTel, Kind: genai.KindInference, Operation: "chat", Provider: "openai",
				RequestModel: "m", Stream: genai.Some(true), Choices: n(2), TimeToFirstToken: seconds(0.25),
				InputTokens: n(12), OutputTokens: n(0), CachedTokens: n(0), CacheWriteTokens: n(4), ReasoningTokens: n(0),
				Session: "c",
			},
			prompt: hello,
		},
		{
			reason: "the newest names; with a history at the server the prompt is not whole", name: "chat m",
			attrs: attrs{
				"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai",
				"gen_ai.usage.cache_write.input_tokens": 5, "gen_ai.request.previous_response.id": "before",
				"gen_ai.response.finish_reasons": []any{"error"}, "error.type": "timeout",
			},
			want: genai.Record{
				Dialect: genai.DialectOTel, Kind: genai.KindInference, Operation: "chat", Provider: "openai",
				CacheWriteTokens: n(5), PreviousResponseID: "before", FinishReasons: []string{"error"}, ErrorType: "timeout",
			},
		},
		{
			reason: "OpenInference: id and counts in output.value; the request in input.value takes precedence over flattened messages",
			scope:  "@arizeai/openinference-instrumentation-openai", name: "OpenAI Chat Completions",
			attrs: attrs{
				"openinference.span.kind": "LLM", "llm.model_name": "m-1", "llm.system": "openai",
				"llm.invocation_parameters": `{"model":"m","max_completion_tokens":16,"stream":false,"n":1}`,
				"input.value":               `{"model":"m","messages":` + plain + `}`, "input.mime_type": "application/json",
				"output.value":                      `{"id":"r","usage":{"prompt_tokens":12,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":8}}}`,
				"llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "only half",
				"llm.finish_reason": "stop", "session.id": "s", "user.id": "u",
			},
			want: genai.Record{
				Dialect: genai.DialectOpenInference, Kind: genai.KindInference, Operation: "chat", Provider: "openai",
				RequestModel: "m", ResponseModel: "m-1", ResponseID: "r", Stream: genai.Some(false), MaxTokens: n(16), Choices: n(1),
				InputTokens: n(12), OutputTokens: n(3), CachedTokens: n(8), FinishReasons: []string{"stop"},
				Session: "s",
			},
			prompt: hello,
		},
		{
			reason: "OpenInference, flattened only", name: "ChatCompletion",
			attrs: attrs{
				"openinference.span.kind":                                                 "LLM",
				"llm.input_messages.0.message.role":                                       "system",
				"llm.input_messages.0.message.content":                                    "Be brief.",
				"llm.input_messages.1.message.role":                                       "user",
				"llm.input_messages.1.message.contents.0.message_content.type":            "text",
				"llm.input_messages.1.message.contents.0.message_content.text":            "What is this?",
				"llm.input_messages.1.message.contents.1.message_content.type":            "image",
				"llm.input_messages.1.message.contents.1.message_content.image.image.url": "data:x",
				"llm.input_messages.2.message.role":                                       "assistant",
				"llm.input_messages.2.message.tool_calls.0.tool_call.id":                  "c1",
				"llm.input_messages.2.message.tool_calls.0.tool_call.function.name":       "see",
				"llm.input_messages.2.message.tool_calls.0.tool_call.function.arguments":  `{"z": 1, "a": [true,null]}`,
				"llm.input_messages.3.message.role":                                       "tool",
				"llm.input_messages.3.message.content":                                    "a cat",
				"llm.tools.0.tool.json_schema":                                            `{"type":"function","function":{"parameters":{"b":1,"a":2},"name":"see"}}`,
			},
			want: genai.Record{Dialect: genai.DialectOpenInference, Kind: genai.KindInference, Operation: "chat"},
			prompt: `<|tools|>
{"function":{"name":"see","parameters":{"a":2,"b":1}},"type":"function"}
<|system|>
Be brief.
<|user|>
What is this?{"image_url":{"url":"data:x"},"type":"image_url"}
<|assistant|>
{"function":{"arguments":"{\"a\":[true,null],\"z\":1}","name":"see"},"id":"c1","type":"function"}
<|tool|>
a cat
<|assistant|>
`,
		},
		{
			reason: "Envoy AI Gateway stamps the first token when it sends the last: its time is not used", scope: "envoyproxy/ai-gateway",
			name: "ChatCompletion",
			attrs: attrs{
				"openinference.span.kind": "LLM", "llm.token_count.prompt": 12, "llm.token_count.completion": 3,
				"llm.token_count.prompt_details.cache_creation": 2, "session.id": "s",
			},
			events: []event{{"First Token Stream Event", 1.999, nil}},
			want: genai.Record{
				Dialect: genai.DialectEnvoy, Kind: genai.KindInference, Operation: "chat", InputTokens: n(12), OutputTokens: n(3),
				CacheWriteTokens: n(2), Session: "s",
			},
		},
		{
			reason: "Traceloop Python before 2026-03-29: flattened, one event per chunk", scope: "opentelemetry.instrumentation.openai.v1",
			name: "openai.chat",
			attrs: attrs{
				"gen_ai.system": "OpenAI", "llm.request.type": "chat", "gen_ai.request.model": "m", "llm.is_streaming": "True",
				"gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": "Be brief.",
				"gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": "hi",
				"traceloop.association.properties.session_id": "s", "gen_ai.usage.prompt_tokens": 12,
				"gen_ai.usage.cache_read_input_tokens": 8, "llm.request.functions.0.name": "f",
			},
			events: []event{
				{"llm.content.completion.chunk", 0.5, nil}, {"llm.content.completion.chunk", 1, nil}, {"llm.content.completion.chunk", 1.5, nil},
			},
			want: genai.Record{
				Dialect: genai.DialectTraceloop, Kind: genai.KindInference, Operation: "chat", Provider: "OpenAI", RequestModel: "m",
				Stream: genai.Some(true), InputTokens: n(12), CachedTokens: n(8), OutputEstimate: n(3), TimeToFirstToken: seconds(0.5),
				Session: "s",
			},
			prompt: "<|tools|>\n" + `{"function":{"name":"f"},"type":"function"}` + "\n" + hello,
		},
		{
			reason: "the oldest Traceloop", name: "openai.completion",
			attrs: attrs{
				"llm.request.type": "completion", "llm.request.model": "m", "llm.prompts.0.content": "once",
				"llm.usage.prompt_tokens": 1, "llm.usage.completion_tokens": 2,
			},
			want: genai.Record{
				Dialect: genai.DialectTraceloop, Kind: genai.KindInference, Operation: "completion",
				RequestModel: "m", InputTokens: n(1), OutputTokens: n(2),
			},
			prompt: "<|user|>\nonce\n<|assistant|>\n",
		},
		{
			reason: "Vercel v5: milliseconds", scope: "ai", name: "ai.streamText.doStream",
			attrs: attrs{
				"operation.name": "ai.streamText.doStream turn", "ai.operationId": "ai.streamText.doStream", "ai.model.id": "m", "ai.model.provider": "p.chat",
				"gen_ai.system": "p.chat", "ai.response.id": "r", "ai.usage.inputTokens": 12, "ai.usage.outputTokens": 3,
				"ai.usage.cachedInputTokens": 8, "ai.response.msToFirstChunk": 250.0, "ai.response.finishReason": "tool-calls",
				"ai.prompt.messages": `[{"role":"system","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"hi"}]}]`,
				"ai.prompt.tools":    []any{`{"type":"function","name":"f","inputSchema":{"x":1}}`}, "ai.telemetry.metadata.sessionId": "s",
			},
			want: genai.Record{
				Dialect: genai.DialectVercel, Kind: genai.KindInference, Operation: "chat", Provider: "p.chat", RequestModel: "m",
				ResponseID: "r", Stream: genai.Some(true), InputTokens: n(12), OutputTokens: n(3), CachedTokens: n(8),
				FinishReasons: []string{"tool-calls"}, TimeToFirstToken: seconds(0.25),
				Session: "s",
			},
			prompt: "<|tools|>\n" + `{"function":{"name":"f","parameters":{"x":1}},"type":"function"}` + "\n" + hello,
		},
		{
			reason: "Langfuse: input without the cached tokens, output without the reasoning ones; failure only in the level",
			scope:  "langfuse-sdk", name: "OpenAI.chat",
			attrs: attrs{
				"langfuse.observation.type": "generation", "langfuse.observation.model.name": "m",
				"langfuse.observation.usage_details":         `{"input":9,"output":16,"total":41,"input_cached_tokens":12,"input_audio_tokens":7,"output_reasoning_tokens":4}`,
				"langfuse.observation.completion_start_time": `"2026-11-21T00:47:28.500Z"`,
				"langfuse.observation.model.parameters":      `{"max_tokens":16}`, "langfuse.observation.level": "ERROR",
				"langfuse.observation.input": `{"messages":` + plain + `}`, "session.id": "s",
			},
			want: genai.Record{
				Dialect: genai.DialectLangfuse, Kind: genai.KindInference, Operation: "chat", RequestModel: "m", MaxTokens: n(16),
				InputTokens: n(21), OutputTokens: n(20), CachedTokens: n(12), ReasoningTokens: n(4), ErrorType: "_OTHER",
				TimeToFirstToken: seconds(0.5), Session: "s",
			},
			prompt: hello,
		},
		{
			reason: "genkit: the reply is a document, zeros are left out", scope: "genkit-tracer", name: "lab/m",
			attrs: attrs{
				"genkit:name": "lab/m", "genkit:metadata:subtype": "model",
				"genkit:input":  `{"config":{"max_tokens":16},"messages":[{"content":[{"text":"Be brief."}],"role":"system"},{"content":[{"text":"hi"}],"role":"user"},{"content":[{"toolRequest":{"name":"f","ref":"1","input":{}}}],"role":"model"},{"content":[{"toolResponse":{"name":"f","ref":"1","output":{"b":1,"a":2}}}],"role":"tool"}],"tools":[{"name":"f","inputSchema":{}}]}`,
				"genkit:output": `{"custom":{"id":"r","model":"m-1"},"finishReason":"stop","usage":{"inputTokens":12,"outputTokens":3}}`,
			},
			want: genai.Record{
				Dialect: genai.DialectGenkit, Kind: genai.KindInference, Operation: "chat", RequestModel: "lab/m", ResponseModel: "m-1",
				ResponseID: "r", MaxTokens: n(16), InputTokens: n(12), OutputTokens: n(3), CachedTokens: n(0), FinishReasons: []string{"stop"},
			},
			prompt: `<|tools|>
{"function":{"name":"f","parameters":{}},"type":"function"}
<|system|>
Be brief.
<|user|>
hi
<|assistant|>
{"function":{"arguments":"{}","name":"f"},"id":"1","type":"function"}
<|tool|>
{"a":2,"b":1}
<|assistant|>
`,
		},
		{
			reason: "genkit stream: characters only", scope: "genkit-tracer", name: "lab/m",
			attrs: attrs{"genkit:metadata:subtype": "model", "genkit:output": `{"usage":{"inputTokens":0,"inputCharacters":99,"outputCharacters":10}}`},
			want:  genai.Record{Dialect: genai.DialectGenkit, Kind: genai.KindInference, Operation: "chat", OutputEstimate: n(3)},
		},
		{
			reason: "LiteLLM: everything is a string", scope: "litellm", name: "litellm_request",
			attrs: attrs{
				"gen_ai.request.model": "m", "gen_ai.response.finish_reasons": `["stop"]`, "llm.is_streaming": "False", "gen_ai.usage.prompt_tokens": "12",
				"gen_ai.usage.completion_tokens": "3", "metadata.session_id": "s", "gen_ai.input.messages": modern, "gen_ai.request.id": "r",
			},
			want: genai.Record{
				Dialect: genai.DialectLiteLLM, Kind: genai.KindInference, Operation: "chat", RequestModel: "m", ResponseID: "r", Stream: genai.Some(false),
				InputTokens: n(12), OutputTokens: n(3), FinishReasons: []string{"stop"}, Session: "s",
			},
			prompt: hello,
		},
		{
			reason: "OpenLIT: system in both places, first token wrong, counts perhaps made up", scope: "@openlit/openai", name: "chat m",
			attrs: attrs{
				"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.usage.input_tokens": 12.0,
				"gen_ai.usage.output_tokens": 3.0, "gen_ai.server.time_to_first_token": 0.002, "gen_ai.input.messages": modern,
				"gen_ai.system_instructions": `[{"type":"text","content":"Be brief."}]`,
			},
			want: genai.Record{
				Dialect: genai.DialectOpenLIT, Kind: genai.KindInference, Operation: "chat", Provider: "openai", InputTokens: n(12),
				OutputTokens: n(3), UsageDoubtful: true,
			},
			prompt: hello,
		},
		{
			reason: "vLLM names no model", name: "llm_request",
			attrs: attrs{
				"gen_ai.usage.prompt_tokens": 14, "gen_ai.usage.completion_tokens": 8, "gen_ai.request.id": "chatcmpl-1",
				"gen_ai.latency.time_to_first_token": 0.1155, "gen_ai.request.n": 1, "gen_ai.request.max_tokens": 16,
			},
			want: genai.Record{
				Dialect: genai.DialectVLLM, Kind: genai.KindInference, ResponseID: "chatcmpl-1", Choices: n(1), MaxTokens: n(16),
				InputTokens: n(14), OutputTokens: n(8), TimeToFirstToken: seconds(0.1155),
			},
		},
		{
			reason: "TensorRT-LLM", name: "llm_request",
			attrs: attrs{"gen_ai.usage.prompt_tokens": 14, "gen_ai.latency.kv_cache_transfer_time": 0.1},
			want:  genai.Record{Dialect: genai.DialectTensorRTLLM, Kind: genai.KindInference, InputTokens: n(14)},
		},
		{
			reason: "SGLang", name: " Req 0123abcd",
			attrs: attrs{
				"rid": "0123abcd4567", "module": "sglang::request", "gen_ai.usage.prompt_tokens": 14, "gen_ai.usage.completion_tokens": 8,
				"gen_ai.usage.cached_tokens": 10, "gen_ai.response.model": "m", "gen_ai.response.finish_reasons": "stop",
			},
			want: genai.Record{
				Dialect: genai.DialectSGLang, Kind: genai.KindInference, ResponseID: "0123abcd4567", ResponseModel: "m",
				InputTokens: n(14), OutputTokens: n(8), CachedTokens: n(10), FinishReasons: []string{"stop"},
			},
		},
		{
			reason: "TGI: durations in Rust's spelling", name: "generate_stream",
			attrs: attrs{"total_time": "1.23s", "queue_time": "12.5µs", "inference_time": "1.2s", "time_per_token": "40.01ms"},
			want:  genai.Record{Dialect: genai.DialectTGI, Kind: genai.KindInference, Stream: genai.Some(true), OutputEstimate: n(30)},
		},
		{
			reason: "agentgateway", name: "POST /*",
			attrs: attrs{"gen_ai.operation.name": "chat", "gen_ai.usage.reasoning_tokens": 2, "agw.ai.time_to_first_token": 0.5},
			want:  genai.Record{Dialect: genai.DialectAgentgateway, Kind: genai.KindInference, Operation: "chat", ReasoningTokens: n(2), TimeToFirstToken: seconds(0.5)},
		},
		{
			reason: "llm-d: around the engine's span, in milliseconds", name: "forward_request",
			attrs: attrs{"llm_d.pd_proxy.true_ttft_ms": 120.0, "llm_d.pd_proxy.request_id": "r"},
			want:  genai.Record{Dialect: genai.DialectLLMD, Kind: genai.KindWrapper, ResponseID: "r", TimeToFirstToken: seconds(0.12)},
		},
		{
			reason: "llm-d's priority", name: "gateway.request_orchestration", attrs: attrs{"target_model": "m", "request_prio": 3},
			want: genai.Record{Dialect: genai.DialectLLMD, Kind: genai.KindWrapper, RequestModel: "m", Priority: n(3)},
		},
		{
			reason: "no known dialect: usage under known names", scope: "acme", name: "call",
			attrs: attrs{"gen_ai.usage.input_tokens": 12, "gen_ai.acme": "x", "gen_ai.request.model": "m"},
			want:  genai.Record{Dialect: genai.DialectUnknown, Kind: genai.KindInference, RequestModel: "m", InputTokens: n(12)},
		},
		{
			reason: "a reply that its limit cut off is as long as the limit", name: "chat m",
			attrs: attrs{"gen_ai.operation.name": "chat", "gen_ai.provider.name": "x", "gen_ai.request.max_tokens": 9, "gen_ai.response.finish_reasons": []any{"length"}},
			want: genai.Record{
				Dialect: genai.DialectOTel, Kind: genai.KindInference, Operation: "chat", Provider: "x", MaxTokens: n(9),
				FinishReasons: []string{"length"}, OutputEstimate: n(9),
			},
		},
	} {
		t.Run(c.reason, func(t *testing.T) {
			c.want.StartUnixNano, c.want.EndUnixNano = start, start+2*second
			got := genai.NewReader(genai.Options{}).Span(c.scope, newSpan(t, c.name, c.attrs, c.events...))
			if diff := cmp.Diff(&c.want, got, withoutContent); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
			prompt, extent := walk(got)
			if diff := cmp.Diff(c.prompt, prompt); diff != "" {
				t.Errorf("prompt (-want +got):\n%s", diff)
			}
			if wantExtent := map[bool]genai.Extent{true: genai.ExtentComplete}[c.prompt != ""]; extent != wantExtent {
				t.Errorf("extent %v, want %v", extent, wantExtent)
			}
		})
	}
}

func TestKinds(t *testing.T) {
	type attrs = map[string]any
	reader := genai.NewReader(genai.Options{})
	for _, c := range []struct {
		reason, name string
		attrs        attrs
		want         genai.Kind
	}{
		{"an application's span", "POST /chat", attrs{"session.id": "s", "http.request.method": "POST"}, genai.KindOther},
		{"an agent repeats its requests", "invoke_agent m", attrs{"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 9}, genai.KindWrapper},
		{"a workflow under its name in the next conventions", "turn", attrs{"gen_ai.operation.name": "handle_conversation_turn"}, genai.KindWrapper},
		{"a tool", "execute_tool f", attrs{"gen_ai.operation.name": "execute_tool"}, genai.KindTool},
		{"embeddings", "embeddings m", attrs{"gen_ai.operation.name": "embeddings", "gen_ai.usage.input_tokens": 9}, genai.KindOther},
		{"a reply fetched again", "fetch_response", attrs{"gen_ai.operation.name": "fetch_response", "gen_ai.usage.input_tokens": 9}, genai.KindOther},
		{"memory", "search_memory", attrs{"gen_ai.operation.name": "search_memory", "gen_ai.usage.input_tokens": 9}, genai.KindOther},
		{"OpenInference chain", "c", attrs{"openinference.span.kind": "CHAIN", "llm.token_count.prompt": 9}, genai.KindWrapper},
		{"OpenInference tool", "f", attrs{"openinference.span.kind": "TOOL"}, genai.KindTool},
		{"OpenInference embedding", "e", attrs{"openinference.span.kind": "EMBEDDING"}, genai.KindOther},
		{"Langfuse span", "s", attrs{"langfuse.observation.type": "span"}, genai.KindWrapper},
		{"Langfuse calls embeddings a generation", "OpenAI.embeddings", attrs{"langfuse.observation.type": "generation"}, genai.KindOther},
		{"Traceloop workflow", "w.workflow", attrs{"traceloop.span.kind": "workflow"}, genai.KindWrapper},
		{"Traceloop tool", "t.tool", attrs{"traceloop.span.kind": "tool"}, genai.KindTool},
		{"Vercel's parent repeats usage", "ai.streamText", attrs{"ai.operationId": "ai.streamText", "ai.usage.inputTokens": 9}, genai.KindWrapper},
		{"Vercel tool", "ai.toolCall", attrs{"ai.operationId": "ai.toolCall"}, genai.KindTool},
		{"Vercel embedding", "e", attrs{"ai.operationId": "ai.embed.doEmbed"}, genai.KindOther},
		{"genkit util repeats input and output", "generate", attrs{"genkit:metadata:subtype": "util", "genkit:output": `{"usage":{"inputTokens":9}}`}, genai.KindWrapper},
		{"LiteLLM's copy below the request", "raw_gen_ai_request", attrs{"gen_ai.usage.input_tokens": 9}, genai.KindWrapper},
		{"llm-d's scorer has a model and no usage", "llm_d.epp.scorer", attrs{"llm_d.x": 1, "gen_ai.request.model": "m", "gen_ai.request.id": "r"}, genai.KindWrapper},
		{"an engine's inner span", "llm_request", attrs{"code.function": "f"}, genai.KindOther},
		{"an unknown producer's scorer: a model alone does not make a request", "score", attrs{"gen_ai.request.model": "m"}, genai.KindOther},
		{"one of SGLang's slices", "prefill_forward", attrs{"rid": "r"}, genai.KindOther},
	} {
		if got := reader.Span("", newSpan(t, c.name, c.attrs)).Kind; got != c.want {
			t.Errorf("%s: %v, want %v", c.reason, got, c.want)
		}
	}
}

// TestSessions removes the best of several sessions, one by one.
func TestSessions(t *testing.T) {
	reader := genai.NewReader(genai.Options{SessionKeys: []string{"acme.thread", "session.id"}})
	span := newSpan(t, "GET /", map[string]any{
		"session.id": 42, "acme.thread": "mine", "gen_ai.conversation.id": "c", "metadata.session_id": "",
		"langfuse.session.id": []any{"no string"},
	})
	for _, best := range []struct{ key, id string }{{"acme.thread", "mine"}, {"session.id", "42"}, {"gen_ai.conversation.id", "c"}, {}} {
		if rec := reader.Span("", span); rec.Session != best.id || rec.Kind != genai.KindOther {
			t.Errorf("session %q on a span of kind %v, want %q of %s", rec.Session, rec.Kind, best.id, best.key)
		}
		span.Attributes().Remove(best.key)
	}
}

// TestClasses removes the best of several classes, one by one, as TestSessions does. A class is one word, which may be the only element of
// a list.
func TestClasses(t *testing.T) {
	reader := genai.NewReader(genai.Options{ClassKeys: []string{"http.request.header.x-class", "tier"}})
	span := newSpan(t, "GET /", map[string]any{
		"tier": "gold", "http.request.header.x-class": []any{"batch"}, "openai.request.service_tier": "flex", "request_prio": 7,
	})
	for _, best := range []struct{ key, class string }{{"http.request.header.x-class", "batch"}, {"tier", "gold"}, {"openai.request.service_tier", "flex"}, {}} {
		if rec := reader.Span("", span); rec.Class != best.class || rec.Kind != genai.KindOther || rec.Priority != genai.Some[int64](7) {
			t.Errorf("class %q, priority %v on a span of kind %v, want %q of %s", rec.Class, rec.Priority, rec.Kind, best.class, best.key)
		}
		span.Attributes().Remove(best.key)
	}
	for _, none := range []any{"two words", "", []any{"a", "b"}, []any{}, map[string]any{"a": "b"}, "{}", strings.Repeat("x", 257)} {
		if rec := reader.Span("", newSpan(t, "GET /", map[string]any{"tier": none})); rec.Class != "" {
			t.Errorf("%v is the class %q", none, rec.Class)
		}
	}
}

func TestLogs(t *testing.T) {
	type attrs = map[string]any
	reader := genai.NewReader(genai.Options{})
	for _, c := range []struct {
		reason, event string
		attrs         attrs
		body          any
		kind          genai.Kind
		prompt        string
	}{
		{"the event's name is the record's event name", "gen_ai.user.message", nil, attrs{"content": "hi"}, genai.KindContent, "<|user|>\nhi\n<|assistant|>\n"},
		{"the event's name is in an attribute", "", attrs{"event.name": "gen_ai.system.message"}, attrs{"content": "Be brief."}, genai.KindContent, "<|system|>\nBe brief.\n<|assistant|>\n"},
		{"a role of its own", "gen_ai.user.message", nil, attrs{"role": "customer", "content": "hi"}, genai.KindContent, "<|customer|>\nhi\n<|assistant|>\n"},
		{"a body that is text", "gen_ai.tool.message", nil, "rainy", genai.KindContent, "<|tool|>\nrainy\n<|assistant|>\n"},
		{"content capture is off", "gen_ai.user.message", nil, attrs{}, genai.KindContent, ""},
		{"the reply is not a prompt", "gen_ai.choice", nil, attrs{"finish_reason": "stop", "message": attrs{"content": "hello"}}, genai.KindContent, ""},
		{"details in attributes, LiteLLM's spelling", "", attrs{
			"event_name":            "gen_ai.client.inference.operation.details",
			"gen_ai.input.messages": `[{"role":"user","parts":[{"type":"text","content":"hi"}]}]`,
		}, nil, genai.KindContent, "<|user|>\nhi\n<|assistant|>\n"},
		{"details in the body", "gen_ai.client.inference.operation.details", nil, attrs{
			"gen_ai.input.messages": []any{attrs{"role": "user", "parts": []any{attrs{"type": "text", "content": "hi"}}}},
		}, genai.KindContent, "<|user|>\nhi\n<|assistant|>\n"},
		{"somebody's log", "", nil, "gen_ai.user.message", genai.KindOther, ""},
	} {
		log := plog.NewLogRecord()
		log.SetEventName(c.event)
		if err := log.Attributes().FromRaw(c.attrs); err != nil {
			t.Fatal(err)
		}
		if err := log.Body().FromRaw(c.body); err != nil {
			t.Fatal(err)
		}
		rec := reader.Log("", log)
		if rec.Kind != c.kind {
			t.Errorf("%s: kind %v, want %v", c.reason, rec.Kind, c.kind)
		}
		prompt, extent := walk(rec)
		if extent == genai.ExtentNone {
			prompt = ""
		}
		if prompt != c.prompt {
			t.Errorf("%s: prompt %q, want %q", c.reason, prompt, c.prompt)
		}
	}
}

func TestDynamo(t *testing.T) {
	const payload = `{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":1795222050000,
		"agent_context":{"session_id":"s"},"request":{"request_id":"r","model":"m","input_tokens":130,"output_tokens":7,"cached_tokens":64,
		"request_received_ms":1795222048123,"ttft_ms":12.5,"total_time_ms":1000.25,
		"replay":{"trace_block_size":64,"input_length":130,"input_sequence_hashes":[9223372036854775808,18446744073709551615,9007199254740993]}}}`
	want := &genai.Record{
		Dialect: genai.DialectDynamo, Kind: genai.KindInference, RequestModel: "m", ResponseID: "r",
		StartUnixNano: 1_795_222_048_123_000_000, EndUnixNano: 1_795_222_049_123_250_000,
		InputTokens: n(130), OutputTokens: n(7), CachedTokens: n(64), TimeToFirstToken: seconds(0.0125),
		Session: "s",
		Engine:  genai.Engine{BlockSize: 64, Hashes: []uint64{1 << 63, 1<<64 - 1, 1<<53 + 1}, Complete: true},
	}
	reader := genai.NewReader(genai.Options{})
	if diff := cmp.Diff(want, reader.Log("dynamo.request_trace", dynamoLog(payload)), withoutContent); diff != "" {
		t.Errorf("a log record (-want +got):\n%s", diff)
	}
	for _, c := range []struct {
		reason, payload string
		kind            genai.Kind
		engine          genai.Engine
		start           uint64
	}{
		{"a tool", `{"event_type":"tool_end","tool":{}}`, genai.KindTool, genai.Engine{}, 0},
		{"a payload record", `{"event_type":"request_payload","payload":{}}`, genai.KindContent, genai.Engine{}, 0},
		{"no JSON", `request_end`, genai.KindOther, genai.Engine{}, 0},
		{
			"a hash that is not a uint64: those before it are kept", `{"request":{"replay":{"trace_block_size":16,"input_sequence_hashes":[1,18446744073709551616,3]}}}`,
			genai.KindInference,
			genai.Engine{BlockSize: 16, Hashes: []uint64{1}},
			0,
		},
		{
			"cut within the hashes", `{"request":{"replay":{"trace_block_size":16,"input_sequence_hashes":[1,2`,
			genai.KindInference,
			genai.Engine{BlockSize: 16, Hashes: []uint64{1}},
			0,
		},
		{"without an arrival: the end minus the time it took", `{"event_time_unix_ms":5000,"request":{"total_time_ms":1000}}`, genai.KindInference, genai.Engine{}, 4 * second},
	} {
		got := reader.Log("dynamo.request_trace", dynamoLog(c.payload))
		if diff := cmp.Diff(c.engine, got.Engine, cmpopts.EquateEmpty()); diff != "" || got.Kind != c.kind || got.StartUnixNano != c.start {
			t.Errorf("%s: kind %v, start %d (-want +got):\n%s", c.reason, got.Kind, got.StartUnixNano, diff)
		}
	}
}

// dynamoLog returns a log record of Dynamo's request trace.
func dynamoLog(payload string) plog.LogRecord {
	log := plog.NewLogRecord()
	log.Attributes().PutStr("payload", payload)
	log.Body().SetStr("request_end")
	return log
}
