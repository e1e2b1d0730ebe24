// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai_test

import (
	"testing"

	"github.com/moonloop/moonloop/genai"
)

// TestLiteLLM: LiteLLM's types of requests are its functions, each with an asynchronous twin; most generate no text.
func TestLiteLLM(t *testing.T) {
	for _, c := range []struct {
		requestType string
		want        genai.Kind
		operation   string
	}{
		{"completion", genai.KindInference, "chat"},
		{"acompletion", genai.KindInference, "chat"},
		{"aresponses", genai.KindInference, "chat"},
		{"anthropic_messages", genai.KindInference, "chat"},
		{"text_completion", genai.KindInference, "text_completion"},
		{"atext_completion", genai.KindInference, "text_completion"},
		{"embedding", genai.KindOther, "embedding"},
		{"aembedding", genai.KindOther, "embedding"},
		{"arerank", genai.KindOther, "rerank"},
		{"moderation", genai.KindOther, "moderation"},
		{"amoderation", genai.KindOther, "moderation"},
		{"image_generation", genai.KindOther, "image_generation"},
		{"aimage_edit", genai.KindOther, "image_edit"},
		{"transcription", genai.KindOther, "transcription"},
		{"atranscription", genai.KindOther, "transcription"},
		{"aspeech", genai.KindOther, "speech"},
		{"_arealtime", genai.KindOther, "_arealtime"},
		{"asearch", genai.KindOther, "search"},
		{"acreate_batch", genai.KindOther, "create_batch"},
		{"audio", genai.KindOther, "audio"},
	} {
		for _, name := range []string{"litellm_request", "anything"} {
			rec := genai.NewReader(genai.Options{}).Span("litellm", newSpan(t, name, map[string]any{
				"llm.request.type": c.requestType, "gen_ai.request.model": "m", "gen_ai.usage.prompt_tokens": "12",
				"gen_ai.usage.completion_tokens": "3",
			}))
			if rec.Kind != c.want || rec.Operation != c.operation {
				t.Errorf("%s, %s: %v of operation %q, want %v of %q", name, c.requestType, rec.Kind, rec.Operation, c.want, c.operation)
			}
		}
	}
	// The word keeps its meaning for other producers: Traceloop's completion is a text completion.
	rec := genai.NewReader(genai.Options{}).Span("", newSpan(t, "openai.completion", map[string]any{"llm.request.type": "completion"}))
	if rec.Operation != "completion" {
		t.Errorf("operation %q of another producer", rec.Operation)
	}
}
