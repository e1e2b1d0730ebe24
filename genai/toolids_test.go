// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/genai"
)

// readTools walks all of a record, and returns its ids.
func readTools(rec *genai.Record) genai.ToolIDs {
	rec.Content.Walk(func(genai.Piece) bool { return true })
	rec.ReadTools()
	return rec.Tools
}

// TestToolIDsOfProducers reads telemetry of real instrumentations about one call of a tool. Its server chose the id.
func TestToolIDsOfProducers(t *testing.T) {
	folder := producers(t)
	for producer, want := range map[string]string{
		"js-openinference-openai":  "inference given 1, inference made 1",
		"js-traceloop-openai":      "inference given 1, inference made 1",
		"vercel-ai7-otel":          "inference given 1, inference made 1, tool given 1",
		"otel-js-openai":           "content given 1, content made 1", // in logs
		"otel-js-openai-nocontent": "content given 1, content made 1", // which has no text
	} {
		t.Run(producer, func(t *testing.T) {
			found := map[string]int{}
			read := func(rec *genai.Record) {
				if rec.Kind == genai.KindWrapper || rec.Kind == genai.KindOther {
					return
				}
				ids := readTools(rec)
				for side, ids := range map[string][]string{"made": ids.Made, "given": ids.Given} {
					if len(ids) > 0 {
						found[rec.Kind.String()+" "+side]++
					}
					if len(ids) > 1 || len(ids) == 1 && ids[0] != "call_lab_1" {
						t.Errorf("%s %v", side, ids)
					}
				}
			}
			reader := genai.NewReader(genai.Options{})
			eachSpan(t, filepath.Join(folder, producer+".traces.jsonl"), func(scope string, span ptrace.Span) { read(reader.Span(scope, span)) })
			eachLog(t, filepath.Join(folder, producer+".logs.jsonl"), func(scope string, log plog.LogRecord) { read(reader.Log(scope, log)) })
			if got := counts(found); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// TestToolIDs has a way to write calls and results in each row.
func TestToolIDs(t *testing.T) {
	type attrs = map[string]any
	many := func(n int, format string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(format, i))
		}
		return strings.Join(all, ",")
	}
	long := strings.Repeat("x", 257)
	const call = `{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}`
	for _, c := range []struct {
		reason      string
		attrs       attrs
		made, given string
		surplus     int64
	}{
		{"the conventions", attrs{
			"gen_ai.input.messages":  `[{"role":"user","parts":[{"type":"text","content":"hi"}]},{"role":"assistant","parts":[{"type":"tool_call","id":"a","name":"f"}]},{"role":"tool","parts":[{"type":"tool_call_response","id":"a","response":"1"}]}]`,
			"gen_ai.output.messages": `[{"role":"assistant","parts":[{"type":"text","content":"x"},{"type":"tool_call","id":"b","name":"f"},{"type":"tool_call","id":"c","name":"f"}]}]`,
		}, "b c", "a", 0},
		{"chat completions", attrs{
			"gen_ai.input.messages":  `[{"role":"user","content":"hi"},` + call + `,{"role":"tool","tool_call_id":"a","content":"1"}]`,
			"gen_ai.output.messages": `{"choices":[{"message":` + call + `}]}`,
		}, "a", "a", 0},
		{"the calls of all choices count", attrs{"gen_ai.output.messages": `{"choices":[{"message":` + call + `},{"message":` + strings.Replace(call, `"a"`, `"b"`, 1) + `}]}`}, "a b", "", 0},
		{"the responses API: a call has an id in addition to that of its item", attrs{
			"gen_ai.input.messages":  `[{"type":"message","role":"user","content":"hi"},{"type":"function_call","id":"fc_1","call_id":"a","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":"1"}]`,
			"gen_ai.output.messages": `{"output":[{"type":"reasoning","id":"rs_1"},{"type":"function_call","id":"fc_2","call_id":"b","name":"f","arguments":"{}"}]}`,
		}, "b", "a", 0},
		{"Anthropic's", attrs{
			"gen_ai.input.messages":  `[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"1"},{"type":"text","text":"go on"}]}]`,
			"gen_ai.output.messages": `{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"tool_use","id":"b","name":"f","input":{}}]}`,
		}, "b", "a", 0},
		{"LangChain's", attrs{
			"openinference.span.kind": "LLM",
			"input.value":             `{"messages":[[{"lc":1,"type":"constructor","id":["langchain","AIMessage"],"kwargs":{"content":"","type":"ai","id":"lc_1","tool_calls":[{"name":"f","args":{},"id":"a","type":"tool_call"}]}},{"lc":1,"type":"constructor","id":["langchain","ToolMessage"],"kwargs":{"content":"1","type":"tool","tool_call_id":"a","id":"lc_2"}}]]}`,
			"output.value":            `{"generations":[[{"message":{"kwargs":{"type":"ai","id":"lc_run","tool_calls":[{"name":"f","args":{},"id":"b","type":"tool_call"}],"additional_kwargs":{"tool_calls":[{"id":"b","type":"function"}]}}}}]]}`,
		}, "b", "a", 0},
		{"flattened ids, next to a document without ids", attrs{
			"openinference.span.kind": "LLM",

			"llm.input_messages.0.message.role": "assistant",

			"llm.input_messages.0.message.tool_calls.0.tool_call.id": "a",

			"llm.input_messages.0.message.tool_calls.0.tool_call.function.name": "f",

			"llm.input_messages.1.message.role": "tool",

			"llm.input_messages.1.message.tool_call_id": "a",

			"output.value": `{"choices":[{"message":{"role":"assistant","content":""}}]}`,

			"llm.output_messages.0.message.role": "assistant",

			"llm.output_messages.0.message.tool_calls.0.tool_call.id": "b",

			"llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "f",
		}, "b", "a", 0},
		{"Vercel's", attrs{
			"ai.operationId": "ai.generateText.doGenerate", "ai.response.toolCalls": `[{"toolCallId":"b","toolName":"f","input":"{}"}]`,
			"ai.prompt.messages": `[{"role":"assistant","content":[{"type":"tool-call","toolCallId":"a","toolName":"f","input":{}}]},{"role":"tool","content":[{"type":"tool-result","toolCallId":"a","toolName":"f","output":{"type":"text","value":"1"}}]}]`,
		}, "b", "a", 0},
		{"Gemini's in the prompt, genkit's in the reply", attrs{
			"gen_ai.input.messages":  `[{"role":"model","parts":[{"functionCall":{"id":"a","name":"f","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"id":"a","name":"f","response":{}}}]}]`,
			"gen_ai.output.messages": `{"candidates":[{"message":{"role":"model","content":[{"toolRequest":{"ref":"b","name":"f","input":{}}}]}}]}`,
		}, "b", "a", 0},
		{"a call whose arguments are not recorded has its id", attrs{"gen_ai.output.messages": `[{"role":"assistant","tool_calls":[{"id":"b","type":"function","function":{"name":"f"}}]}]`}, "b", "", 0},

		{"results that the assistant has answered do not end the prompt", attrs{"gen_ai.input.messages": `[` + call + `,{"role":"tool","tool_call_id":"a","content":"1"},{"role":"assistant","content":"so it is"},{"role":"user","content":"and now?"}]`}, "", "", 0},
		{"in a prompt with two rounds of calls, only the results of the second end it", attrs{"gen_ai.input.messages": `[` + call + `,{"role":"tool","tool_call_id":"a","content":"1"},` + strings.Replace(call, `"a"`, `"b"`, 1) + `,{"role":"tool","tool_call_id":"b","content":"1"}]`}, "", "b", 0},
		{"the results of all parallel calls end the prompt, each once", attrs{"gen_ai.input.messages": `[` + call + `,{"role":"tool","tool_call_id":"a","content":"1"},{"role":"tool","tool_call_id":"b","content":"1"},{"role":"tool","tool_call_id":"a","content":"1"}]`}, "", "a b", 0},
		{"a prompt whose end was cut off has no results there", attrs{"gen_ai.input.messages": `[` + call + `,{"role":"tool","tool_call_id":"a","content":"1"},{"role":"us`}, "", "", 0},
		{"a message's own id is not the id of a call", attrs{"gen_ai.input.messages": `[{"role":"tool","id":"msg_1","parts":[{"type":"tool_call_response","response":"1"}]}]`}, "", "", 0},
		{"a text has no ids", attrs{"gen_ai.input.messages": `[{"role":"user","content":"{\"role\":\"tool\",\"tool_call_id\":\"a\"}"}]`}, "", "", 0},
		{"an id that is too long does not count", attrs{"gen_ai.input.messages": `[{"role":"tool","tool_call_id":"` + long + `","content":"1"},{"role":"tool","tool_call_id":"b","content":"1"}]`}, "", "b", 1},
		{"an id that is a number, empty or null does not count", attrs{"gen_ai.input.messages": `[{"role":"tool","tool_call_id":7,"content":"1"},{"role":"tool","tool_call_id":"","content":"1"},{"role":"tool","tool_call_id":null,"content":"1"}]`}, "", "", 2},
		{
			"of very many ids the last ones are kept",
			attrs{
				"gen_ai.input.messages":  `[` + many(1000, `{"role":"tool","tool_call_id":"%d","content":"1"}`) + `]`,
				"gen_ai.output.messages": `[{"role":"assistant","tool_calls":[` + many(65, `{"id":"%d"}`) + `]}]`,
			},
			strings.ReplaceAll(many(65, "%d"), ",", " ")[2:], strings.Join(strings.Split(many(1000, "%d"), ",")[936:], " "), 937,
		},
	} {
		t.Run(c.reason, func(t *testing.T) {
			if c.attrs["openinference.span.kind"] == nil && c.attrs["ai.operationId"] == nil {
				c.attrs["gen_ai.operation.name"], c.attrs["gen_ai.provider.name"] = "chat", "openai"
			}
			reader := genai.NewReader(genai.Options{})
			got := readTools(reader.Span("", newSpan(t, "chat m", c.attrs)))
			if diff := cmp.Diff([]string{c.made, c.given}, []string{strings.Join(got.Made, " "), strings.Join(got.Given, " ")}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if n := got.SurplusMade + got.SurplusGiven; n != c.surplus {
				t.Errorf("surplus %d, want %d", n, c.surplus)
			}
			if again := reader.Span("", newSpan(t, "GET", nil)); len(again.Tools.Made)+len(again.Tools.Given) > 0 {
				t.Errorf("the next span has %v", again.Tools)
			}
		})
	}
}

// TestToolRuns: the span of a tool's run names its call.
func TestToolRuns(t *testing.T) {
	for key, more := range map[string]map[string]any{
		"gen_ai.tool.call.id": {"gen_ai.operation.name": "execute_tool"},
		"ai.toolCall.id":      {"ai.operationId": "ai.toolCall"},
		"tool_call.id":        {"openinference.span.kind": "TOOL"},
	} {
		more[key] = "call_1"
		if got := genai.NewReader(genai.Options{}).Span("", newSpan(t, "execute_tool f", more)).Tools.Given; !slices.Equal(got, []string{"call_1"}) {
			t.Errorf("%s: %v", key, got)
		}
	}
}
