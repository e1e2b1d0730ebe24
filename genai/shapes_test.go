// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/genai"
)

// TestShapesOfContent has prompts in observed shapes that are easily misread: content that occurs twice, next to the prompt, below another
// key, or not at all.
func TestShapesOfContent(t *testing.T) {
	type attrs = map[string]any
	const (
		brief   = "<|system|>\nBe brief.\n"
		hi      = "<|user|>\nhi\n<|assistant|>\n"
		persona = "You are a pirate, and you talk like one."
	)
	image := func(url string) string {
		return `[{"role":"user","content":"Look: "},{"role":"user","content":[{"type":"text","text":"what?"},{"type":"image_url","image_url":{"url":"` + url + `"}}]},{"role":"user","content":"and?"}]`
	}
	const untilImage = "<|user|>\nLook: \n<|user|>\nwhat?\n<|assistant|>\n"
	for _, c := range []struct {
		reason string
		attrs  attrs
		events []event
		extent genai.Extent
		prompt string
	}{
		{
			"Google's Agent Development Kit: instructions in the config",
			attrs{"gcp.vertex.agent.llm_request": `{"model":"m","contents":[{"role":"user","parts":[{"text":"hi"}]}],"config":{"system_instruction":"Be brief.","temperature":0.1}}`},
			nil,
			genai.ExtentComplete, brief + hi,
		},
		{
			"Google's Agent Development Kit: tools in the config",
			attrs{"gcp.vertex.agent.llm_request": `{"contents":[{"role":"user","parts":[{"text":"hi"}]}],"config":{"tools":[{"function_declarations":[{"name":"f"},{"name":"g"}]}]}}`},
			nil,
			genai.ExtentComplete, "<|tools|>\n" + `{"function":{"name":"f"},"type":"function"}{"function":{"name":"g"},"type":"function"}` + "\n" + hi,
		},
		{
			"an unknown member of the config",
			attrs{"gcp.vertex.agent.llm_request": `{"contents":"hi","config":{"style":"` + persona + `"}}`},
			nil, genai.ExtentGaps, hi,
		},
		{
			"an unknown member of the body",
			attrs{"input.value": `{"messages":[{"role":"user","content":"hi"}],"documents":[{"text":"` + persona + `"}]}`},
			nil, genai.ExtentGaps, hi,
		},
		{
			"options are not text",
			attrs{"input.value": `{"messages":[{"role":"user","content":"hi"}],"cache_policy":"ephemeral","beams":3,"metadata":{"note":"` + persona + `"}}`},
			nil, genai.ExtentComplete, hi,
		},
		{
			"a stored prompt, in addition to the messages",
			attrs{"input.value": `{"input":"hi","conversation":"conv_1"}`},
			nil, genai.ExtentGaps, hi,
		},
		{
			"flattened messages replace a document that is not understood",
			attrs{
				"input.value":                          `{"contents":"hi","persona":"` + persona + `"}`,
				"llm.input_messages.0.message.role":    "system",
				"llm.input_messages.0.message.content": "Be brief.", "llm.input_messages.1.message.role": "user", "llm.input_messages.1.message.content": "hi",
			},
			nil, genai.ExtentComplete, brief + hi,
		},
		{
			"flattened messages replace a document that lacks the instructions",
			attrs{
				"input.value":                          `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`,
				"llm.input_messages.0.message.role":    "system",
				"llm.input_messages.0.message.content": "Be brief.", "llm.input_messages.1.message.role": "user", "llm.input_messages.1.message.content": "hi",
			},
			nil, genai.ExtentComplete, brief + hi,
		},
		{
			"flattened messages replace a document that was cut",
			attrs{
				"input.value":                       `{"contents":[{"role":"user","parts":[{"te`,
				"llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "hi",
			},
			nil, genai.ExtentComplete, hi,
		},
		{
			"flattened messages replace the text of the last message",
			attrs{
				"input.value": "hi", "llm.input_messages.0.message.role": "system", "llm.input_messages.0.message.content": "Be brief.",
				"llm.input_messages.1.message.role": "user", "llm.input_messages.1.message.content": "hi",
			},
			nil, genai.ExtentComplete, brief + hi,
		},
		{
			"flattened messages with a gap replace nothing",
			attrs{"input.value": `{"contents":"hi","persona":"` + persona + `"}`, "llm.input_messages.1.message.role": "user", "llm.input_messages.1.message.content": "hi"},
			nil,
			genai.ExtentGaps, hi,
		},
		{
			"a function's keyword arguments, next to the list of its positional ones",
			attrs{"input.value": `{"args":[],"kwargs":{"messages":[{"role":"user","content":"hi"}]}}`},
			nil, genai.ExtentComplete, hi,
		},
		{
			"Azure: the message as JSON in one attribute",
			attrs{},
			[]event{
				{"gen_ai.system.message", 0, attrs{"gen_ai.system": "az.ai.inference", "gen_ai.event.content": `{"role":"system","content":"Be brief."}`}},
				{"gen_ai.user.message", 0, attrs{"gen_ai.event.content": "hi"}},
				{"gen_ai.choice", 0, attrs{"gen_ai.event.content": `{"message":{"content":"hello"}}`}},
			},
			genai.ExtentComplete, brief + hi,
		},
		{
			"Azure, cut: nothing after the cut is used",
			attrs{},
			[]event{
				{"gen_ai.system.message", 0, attrs{"gen_ai.event.content": `{"role":"system","content":"Be brief`}},
				{"gen_ai.user.message", 0, attrs{"gen_ai.event.content": `{"content":"hi"}`}},
			},
			genai.ExtentCut, "<|system|>\nBe brief\n<|assistant|>\n",
		},
		{
			"pydantic-ai: events in a list, the last of which is the reply",
			attrs{"events": `[{"event.name":"gen_ai.system.message","role":"system","content":"Be brief.","gen_ai.message.index":0},` +
				`{"event.name":"gen_ai.user.message","role":"user","content":"hi","gen_ai.message.index":1},{"event.name":"gen_ai.choice","index":0,"message":{"role":"assistant","content":"hello"}}]`},
			nil,
			genai.ExtentComplete, brief + hi,
		},
		{
			"instructions that a message repeats",
			attrs{"gen_ai.system_instructions": `[{"type":"text","content":"Be brief."}]`, "gen_ai.input.messages": `[{"role":"system","content":"Be brief."},{"role":"user","content":"hi"}]`},
			nil,
			genai.ExtentComplete, brief + hi,
		},
		{
			"instructions that no message repeats",
			attrs{"gen_ai.system_instructions": "Be brief.", "gen_ai.input.messages": `[{"role":"system","content":"Be kind."},{"role":"user","content":"hi"}]`},
			nil,
			genai.ExtentComplete, brief + "<|system|>\nBe kind.\n" + hi,
		},
		{
			"an unknown member of a message comes before its text",
			attrs{"gen_ai.input.messages": `[{"role":"user","content":"hi","background":"` + persona + `","n":1,"mode":"fast"}]`},
			nil,
			genai.ExtentComplete, "<|user|>\n" + `{"background":"` + persona + `"}` + "hi\n<|assistant|>\n",
		},
		{"a list in a list of parts", attrs{"gen_ai.input.messages": `[{"role":"user","content":["hi",["you there"]]}]`}, nil, genai.ExtentGaps, hi},
		{"the name of a prompt is not a prompt", attrs{"gen_ai.prompt.name": "greeting", "gen_ai.prompt.version": "of last summer"}, nil, genai.ExtentNone, ""},
		{"a missing image ends what is known", attrs{"gen_ai.input.messages": image("__REDACTED__")}, nil, genai.ExtentCut, untilImage},
		{"an image without bytes", attrs{"gen_ai.input.messages": image("data:image/png;base64,")}, nil, genai.ExtentCut, untilImage},
		{"an image with only its beginning", attrs{"gen_ai.input.messages": image("data:image/png;base64,iVBORw0KGgo...")}, nil, genai.ExtentCut, untilImage},
		{"a word in place of an image", attrs{"gen_ai.input.messages": image("<image omitted>")}, nil, genai.ExtentCut, untilImage},
		{"a blob without content", attrs{"gen_ai.input.messages": `[{"role":"user","parts":[{"type":"text","content":"hi"},{"type":"blob","modality":"image","mime_type":"image/png"}]}]`}, nil, genai.ExtentCut, hi},
		{"a file of which only the name is known", attrs{"gen_ai.input.messages": `[{"role":"user","content":[{"type":"text","text":"hi"},{"type":"file","file":{"filename":"a.pdf"}}]}]`}, nil, genai.ExtentCut, hi},
		{
			"a file that an id names",
			attrs{"gen_ai.input.messages": `[{"role":"user","content":[{"type":"text","text":"hi"},{"type":"file","file":{"file_id":"file-1"}}]}]`},
			nil,
			genai.ExtentComplete, "<|user|>\nhi" + `{"file":{"file_id":"file-1"},"type":"file"}` + "\n<|assistant|>\n",
		},
		{"a text that was cut", attrs{"gen_ai.input.messages": `[{"role":"user","content":"hi... [truncated]"},{"role":"user","content":"you"}]`}, nil, genai.ExtentCut, hi},
		{"a text with the mark of a cut at its beginning", attrs{"gen_ai.input.messages": `[{"role":"user","content":"[truncated] is a mark"}]`}, nil, genai.ExtentComplete, "<|user|>\n[truncated] is a mark\n<|assistant|>\n"},
		{
			"a request that was cut: instructions may follow the messages",
			attrs{"input.value": `{"input":[{"role":"user","content":"hi"},{"role":"us`},
			nil, genai.ExtentGaps, "",
		},
		{
			"a request that was cut after a system message: tools may follow, which would come directly after that message",
			attrs{"input.value": `{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"hi"},{"role":"us`},
			nil, genai.ExtentCut, brief + "<|assistant|>\n",
		},
		{
			"a request that was cut after its tools",
			attrs{"input.value": `{"tools":[{"name":"f"}],"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"hi"},{"role":"us`},
			nil,
			genai.ExtentCut, "<|tools|>\n" + `{"function":{"name":"f"},"type":"function"}` + "\n" + brief + hi,
		},
	} {
		c.attrs["gen_ai.operation.name"] = "chat"
		if _, ok := c.attrs["input.value"]; ok {
			c.attrs["openinference.span.kind"] = "LLM"
		}
		prompt, extent := walk(genai.NewReader(genai.Options{}).Span("", newSpan(t, "chat m", c.attrs, c.events...)))
		if prompt != c.prompt || extent != c.extent {
			t.Errorf("%s: %v\n%s\nwant %v\n%s", c.reason, extent, prompt, c.extent, c.prompt)
		}
	}
}

// TestImages: one image has one form, whoever wrote it.
func TestImages(t *testing.T) {
	const want = `{"image_url":{"url":"data:image/png;base64,eA=="},"type":"image_url"}`
	for name, part := range map[string]string{
		"Gemini":                `{"inline_data":{"mime_type":"image/png","data":"eA=="}}`,
		"Gemini, REST":          `{"inlineData":{"mimeType":"image/png","data":"eA=="}}`,
		"Vercel":                `{"type":"image","image":"data:image/png;base64,eA=="}`,
		"Vercel, bytes":         `{"type":"image","image":"eA==","mediaType":"image/png"}`,
		"Anthropic":             `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"eA=="}}`,
		"Anthropic, by address": `{"type":"image","source":{"type":"url","url":"data:image/png;base64,eA=="}}`,
		"pydantic-ai":           `{"kind":"binary","media_type":"image/png","content":"eA=="}`,
		"pydantic-ai, address":  `{"kind":"image-url","url":"data:image/png;base64,eA=="}`,
		"OpenInference":         `{"type":"image","image":{"image":{"url":"data:image/png;base64,eA=="}}}`,
	} {
		var got []genai.Piece
		walked := inference(t, genai.Options{}, map[string]any{"gen_ai.input.messages": `[{"role":"user","content":[` + part + `]}]`}).Content.Walk(func(p genai.Piece) bool {
			got = append(got, p)
			return true
		})
		if diff := cmp.Diff([]genai.Piece{{Kind: genai.PieceMessage, Role: "user"}, {Kind: genai.PieceMedia, Role: "user", Text: want}}, got); diff != "" || walked.Extent != genai.ExtentComplete {
			t.Errorf("%s: %v (-want +got):\n%s", name, walked.Extent, diff)
		}
	}
}

// TestShapesOfFacts has facts in the places where producers were observed to put them.
func TestShapesOfFacts(t *testing.T) {
	read := func(scope string, attrs map[string]any) *genai.Record {
		return genai.NewReader(genai.Options{}).Span(scope, newSpan(t, "s", attrs))
	}
	long := "s" + strings.Repeat("x", 300)
	for name, id := range map[string]string{"spring.ai.chat.client.conversation.id": "sA", "gen_ai.thread.id": "sA", "gen_ai.conversation.id": long, "session.id": long + "\xff"} {
		if got := read("", map[string]any{"gen_ai.operation.name": "framework", name: id}).Session; got != id {
			t.Errorf("%s: a session of %d bytes, want %d", name, len(got), len(id))
		}
	}
	if kind := read("pydantic-ai", map[string]any{"agent_name": "a", "model_name": "m", "gen_ai.usage.input_tokens": 9, "all_messages_events": "[]"}).Kind; kind != genai.KindWrapper {
		t.Errorf("pydantic-ai's agent is a %v", kind)
	}
	for _, c := range []struct {
		stream   any
		doubtful bool
	}{{false, false}, {"false", false}, {true, true}, {nil, true}} {
		rec := read("@openlit/instrumentation-openai", map[string]any{"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 9, "gen_ai.request.is_stream": c.stream})
		if rec.UsageDoubtful != c.doubtful {
			t.Errorf("OpenLIT, stream %v: usage doubtful is %v", c.stream, rec.UsageDoubtful)
		}
	}
}
