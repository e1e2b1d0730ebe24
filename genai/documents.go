// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"slices"
	"strings"
)

// documents reads values from JSON documents in attributes, if no attribute of their own had them.
func (r *Reader) documents() {
	rec, s, t := &r.record, &r.scan, &r.doc
	if s.has(fieldUsageDetails) {
		t.load(s.values[fieldUsageDetails])
		r.usageDetails()
	}
	if s.has(fieldInvocation) {
		t.load(s.values[fieldInvocation])
		r.maxTokens(0)
		if !rec.Stream.Set {
			rec.Stream = t.bool(t.get(0, "stream"))
		}
		t.fillCount(&rec.Choices, 0, "n")
		t.fillText(&rec.RequestModel, 0, "model")
		t.fillText(&rec.PreviousResponseID, 0, "previous_response_id")
	}
	if rec.Kind != KindInference {
		return
	}
	if s.has(fieldGenkitInput) && !rec.MaxTokens.Set {
		t.load(s.values[fieldGenkitInput])
		r.maxTokens(t.get(0, "config"))
	}
	if s.has(fieldGenkitOutput) {
		t.load(s.values[fieldGenkitOutput])
		r.genkitOutput()
	}
	if s.has(fieldOutputValue) && (rec.ResponseID == "" || !rec.InputTokens.Set) && s.has(fieldSpanKind) {
		t.load(s.values[fieldOutputValue])
		t.fillText(&rec.ResponseID, 0, "id")
		usage := t.get(0, "usage")
		t.fillCount(&rec.InputTokens, usage, "prompt_tokens", "input_tokens")
		t.fillCount(&rec.OutputTokens, usage, "completion_tokens", "output_tokens")
		t.fillCount(&rec.CachedTokens, t.get(usage, "prompt_tokens_details", "input_tokens_details"), "cached_tokens")
	}
}

// fillCount reads a count from the first of these members that exists, unless the count is known already.
func (t *tree) fillCount(to *Opt[int64], object int32, names ...string) {
	if !to.Set {
		*to = t.int(t.get(object, names...))
	}
}

// fillText reads a short text from a member, unless the text is known already.
func (t *tree) fillText(to *string, object int32, name string) {
	if *to == "" {
		*to = t.str(t.get(object, name))
	}
}

func (r *Reader) maxTokens(object int32) {
	r.doc.fillCount(&r.record.MaxTokens, object, "max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens", "maxTokens")
}

// usageDetails reads Langfuse's usage. Langfuse's input excludes cached tokens, and its output excludes reasoning tokens. Some users record
// the provider's names instead (prompt_tokens, completion_tokens), which include these tokens.
func (r *Reader) usageDetails() {
	rec, t := &r.record, &r.doc
	input, output := t.int(t.get(0, "input")), t.int(t.get(0, "output"))
	if t.kind(0) == nodeObject && input.Set {
		for value := range t.values(0) {
			if name := t.nodes[value-1].text; strings.HasPrefix(name, "input_cache") || slices.Contains(anthropicCache, name) {
				input.V += t.int(value).V
			}
		}
	}
	if output.Set {
		output.V += t.int(t.get(0, reasoningDetails...)).V
	}
	rec.InputTokens, rec.OutputTokens = rec.InputTokens.or(input), rec.OutputTokens.or(output)
	t.fillCount(&rec.InputTokens, 0, "prompt_tokens")
	t.fillCount(&rec.OutputTokens, 0, "completion_tokens")
	t.fillCount(&rec.CachedTokens, 0, "input_cached_tokens", "input_cache_read", "cache_read_input_tokens")
	t.fillCount(&rec.CacheWriteTokens, 0, "input_cache_creation", "cache_creation_input_tokens")
	t.fillCount(&rec.ReasoningTokens, 0, reasoningDetails...)
}

var (
	// reasoningDetails are the names of reasoning tokens in Langfuse's usage.
	reasoningDetails = []string{"output_reasoning_tokens", "output_reasoning"}
	// anthropicCache are Anthropic's names of cached input, which Langfuse also uses.
	anthropicCache = []string{"cache_read_input_tokens", "cache_creation_input_tokens"}
)

// genkitOutput reads the reply of a Genkit model. Genkit's usage omits zeros, and counts characters instead of tokens for streams.
func (r *Reader) genkitOutput() {
	rec, t := &r.record, &r.doc
	usage := t.get(0, "usage")
	positive := func(name string) Opt[int64] {
		n := t.int(t.get(usage, name))
		n.Set = n.V > 0
		return n
	}
	rec.InputTokens = rec.InputTokens.or(positive("inputTokens"))
	rec.OutputTokens = rec.OutputTokens.or(positive("outputTokens"))
	if rec.InputTokens.Set {
		rec.CachedTokens = rec.CachedTokens.or(Some(positive("cachedContentTokens").V))
	}
	rec.ReasoningTokens = rec.ReasoningTokens.or(positive("thoughtsTokens"))
	if characters := positive("outputCharacters"); characters.Set && !rec.OutputTokens.Set {
		const charactersPerToken = 4
		rec.OutputEstimate = Some((characters.V + charactersPerToken - 1) / charactersPerToken)
	}
	t.fillText(&rec.ResponseID, t.get(0, "custom"), "id")
	t.fillText(&rec.ResponseModel, t.get(0, "custom"), "model")
	if len(rec.FinishReasons) == 0 {
		rec.addReason(t.str(t.get(0, "finishReason")))
	}
}
