// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/genai"
)

// TestParts: a part has one canonical form, whoever wrote it.
func TestParts(t *testing.T) {
	const (
		call  = `{"function":{"arguments":"{\"a\":1}","name":"f"},"id":"1","type":"function"}`
		image = `{"image_url":{"url":"data:image/png;base64,eA=="},"type":"image_url"}`
	)
	for _, c := range []struct {
		reason, message string
		want            []genai.Piece
	}{
		{"call, conventions", `{"parts":[{"type":"tool_call","id":"1","name":"f","arguments":{"a":1}}]}`, []genai.Piece{{Kind: genai.PieceToolCall, Text: call}}},
		{"call, chat completions", `{"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{ \"a\": 1 }"}}]}`, []genai.Piece{{Kind: genai.PieceToolCall, Text: call}}},
		{"call, Vercel", `{"content":[{"type":"tool-call","toolCallId":"1","toolName":"f","input":{"a":1}}]}`, []genai.Piece{{Kind: genai.PieceToolCall, Text: call}}},
		{"call, Anthropic", `{"content":[{"type":"tool_use","id":"1","name":"f","input":{"a":1}}]}`, []genai.Piece{{Kind: genai.PieceToolCall, Text: call}}},
		{"call, genkit", `{"content":[{"toolRequest":{"ref":"1","name":"f","input":{"a":1}}}]}`, []genai.Piece{{Kind: genai.PieceToolCall, Text: call}}},
		{"call, Gemini, which has no ids", `{"parts":[{"functionCall":{"name":"f","args":{}}}]}`, []genai.Piece{{Kind: genai.PieceToolCall, Text: `{"function":{"arguments":"{}","name":"f"},"type":"function"}`}}},
		{"call, in the old form with only one per message", `{"content":null,"function_call":{"name":"f","arguments":"not JSON\n"}}`, []genai.Piece{{Kind: genai.PieceToolCall, Text: `{"function":{"arguments":"not JSON\n","name":"f"},"type":"function"}`}}},
		{"result, conventions", `{"parts":[{"type":"tool_call_response","response":"ok"}]}`, []genai.Piece{{Kind: genai.PieceText, Text: "ok"}}},
		{"result, the conventions' earlier examples", `{"parts":[{"type":"tool_call_response","result":{"b":null,"a":[1.5,false]}}]}`, []genai.Piece{{Kind: genai.PieceToolResult, Text: `{"a":[1.5,false],"b":null}`}}},
		{"result, Vercel", `{"content":[{"type":"tool-result","output":{"type":"text","value":"ok"}}]}`, []genai.Piece{{Kind: genai.PieceText, Text: "ok"}}},
		{"result, Anthropic", `{"content":[{"type":"tool_result","content":[{"type":"text","text":"ok"}]}]}`, []genai.Piece{{Kind: genai.PieceText, Text: "ok"}}},
		{"result, a list that is not a list of parts", `{"parts":[{"type":"tool_call_response","response":[1,2]}]}`, []genai.Piece{{Kind: genai.PieceToolResult, Text: "[1,2]"}}},
		{"result, Gemini", `{"parts":[{"functionResponse":{"name":"f","response":{"x":"y"}}}]}`, []genai.Piece{{Kind: genai.PieceToolResult, Text: `{"x":"y"}`}}},
		{"reasoning", `{"parts":[{"type":"reasoning","content":"hm"},{"type":"text","content":"a"}]}`, []genai.Piece{{Kind: genai.PieceReasoning, Text: "hm"}, {Kind: genai.PieceText, Text: "a"}}},
		{"reasoning, responses API", `{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]}`, []genai.Piece{{Kind: genai.PieceReasoning, Text: "hm"}}},
		{"image, chat completions", `{"content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,eA=="}}]}`, []genai.Piece{{Kind: genai.PieceMedia, Text: image}}},
		{"image, responses API", `{"content":[{"type":"input_image","image_url":"data:image/png;base64,eA=="}]}`, []genai.Piece{{Kind: genai.PieceMedia, Text: image}}},
		{"image, conventions", `{"parts":[{"type":"blob","mime_type":"image/png","modality":"image","content":"eA=="}]}`, []genai.Piece{{Kind: genai.PieceMedia, Text: image}}},
		{"image, genkit", `{"content":[{"media":{"contentType":"image/png","url":"data:image/png;base64,eA=="}}]}`, []genai.Piece{{Kind: genai.PieceMedia, Text: image}}},
		{"audio stays as it is", `{"parts":[{"type":"blob","mime_type":"audio/wav","content":"eA=="}]}`, []genai.Piece{{Kind: genai.PieceMedia, Text: `{"content":"eA==","mime_type":"audio/wav","type":"blob"}`}}},
		{"a part of unknown type, with control characters escaped", `{"parts":[{"type":"new","z":"\u0001\t\r\b\f\"","a":"é"}]}`, []genai.Piece{{Kind: genai.PieceOther, Text: `{"a":"é","type":"new","z":"\u0001\t\r\u0008\u000c\""}`}}},
		{"texts that are not wrapped in parts", `{"content":["a","b"]}`, []genai.Piece{{Kind: genai.PieceText, Text: "a"}, {Kind: genai.PieceText, Text: "b"}}},
		{"one part without a list", `{"content":{"type":"text","text":"a"}}`, []genai.Piece{{Kind: genai.PieceText, Text: "a"}}},
	} {
		// All pieces of a message have its role; an item of the responses API sets its own. Which role that is, is not tested here.
		want := []genai.Piece{{Kind: genai.PieceMessage, Role: "user"}}
		want = append(want, c.want...)
		var got []genai.Piece
		walked := inference(t, genai.Options{}, map[string]any{"gen_ai.input.messages": "[" + c.message + "]"}).Content.Walk(func(p genai.Piece) bool {
			got = append(got, p)
			return true
		})
		for i := range want {
			want[i].Role = got[0].Role
		}
		if diff := cmp.Diff(want, got); diff != "" || walked.Extent != genai.ExtentComplete {
			t.Errorf("%s: %v (-want +got):\n%s", c.reason, walked.Extent, diff)
		}
	}
}

// TestRoles: roles with the same meaning get one name, a missing role counts as the user's, and any other role stays as it is.
func TestRoles(t *testing.T) {
	for role, want := range map[string]string{
		"developer": "system", "model": "assistant", "human": "user", "ai": "assistant", "function": "tool", "critic": "critic", "": "user",
	} {
		rec := inference(t, genai.Options{}, map[string]any{"gen_ai.input.messages": `[{"content":"hi","role":"` + role + `"}]`})
		rec.Content.Walk(func(p genai.Piece) bool {
			if p.Role != want {
				t.Errorf("role %q is %q, want %q", role, p.Role, want)
			}
			return true
		})
	}
}
