// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai_test

import (
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/genai"
)

// TestNames: names from which a reader takes a prompt are content, names from which it takes facts are not, and no name is both.
func TestNames(t *testing.T) {
	kinds := map[string]genai.NameKind{}
	for name, kind := range genai.Names() {
		if name == "" || strings.Contains(strings.TrimPrefix(strings.TrimSuffix(name, "*"), "*."), "*") || kinds[name] != 0 {
			t.Errorf("%q is not a name, or occurs twice", name)
		}
		kinds[name] = kind
	}
	for _, name := range []string{
		"gen_ai.input.messages", "gen_ai.system_instructions", "gen_ai.tool.definitions", "input.value", "llm.input_messages.*",
		"gen_ai.prompt.*", "genkit:input", "genkit:output", "ai.prompt.messages", "langfuse.observation.input", "output.value",
		"llm.invocation_parameters", "llm.tools.*", "llm.request.functions.*", "gen_ai.tool.call.arguments*", "payload",
		"question", "*.question", "*.input", "*.args", "function_args", "user.message",
	} {
		if kinds[name] != genai.NameContent {
			t.Errorf("%s is not content", name)
		}
	}
	for name, want := range map[string]genai.NameKind{
		"gen_ai.request.model": genai.NameFact, "session.id": genai.NameFact, "gen_ai.prompt.name": genai.NameFact,
		"traceloop.association.properties.session_id": genai.NameFact,
		"gen_ai.operation.name":                       genai.NameWord, "gen_ai.response.id": genai.NameWord, "rid": genai.NameWord,
		"openinference.span.kind": genai.NameWord, "genkit:metadata:subtype": genai.NameWord, "total_time": genai.NameWord,
		"error.type": genai.NameReason, "gen_ai.response.finish_reasons": genai.NameReason,
		"gen_ai.is_streaming": genai.NameNumber, "gen_ai.usage.input_tokens": genai.NameNumber,
	} {
		if kinds[name] != want {
			t.Errorf("%s is of kind %d, want %d", name, kinds[name], want)
		}
	}
}

// TestContentHasAName: no prompt is read from an attribute that is listed as a fact, because nothing would remove its text there.
func TestContentHasAName(t *testing.T) {
	reader := genai.NewReader(genai.Options{})
	for name, kind := range genai.Names() {
		if kind == genai.NameContent {
			continue
		}
		span := ptrace.NewSpan()
		span.Attributes().PutStr("gen_ai.operation.name", "chat")
		span.Attributes().PutStr(name, `[{"role":"user","content":"Hello"}]`)
		rec := reader.Span("", span)
		text := ""
		rec.Content.Walk(func(p genai.Piece) bool { text += p.Text; return true })
		if strings.Contains(text, "Hello") {
			t.Errorf("a prompt is read from %s, which is listed as a fact", name)
		}
	}
}
