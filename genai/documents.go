// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"slices"
	"strings"
)

// documents fills in what stands in JSON within attributes, where no attribute of its own says it.
func (r *Reader) documents() {
	rec, s, t := &r.record, &r.scan, &r.doc
	if s.has(fieldUsageDetails) {
		t.load(s.values[fieldUsageDetails], &r.limits)
		r.usageDetails()
	}
	if s.has(fieldInvocation) {
		t.load(s.values[fieldInvocation], &r.limits)
		r.parameters(0)
		rec.Stream = rec.Stream.or(t.bool(t.get(0, "stream")))
		rec.Choices = rec.Choices.or(t.int(t.get(0, "n")))
		if rec.RequestModel == "" {
			rec.RequestModel = t.str(t.get(0, "model"))
		}
		if rec.PreviousResponseID == "" {
			rec.PreviousResponseID = t.str(t.get(0, "previous_response_id"))
		}
	}
	if rec.Kind != KindInference {
		return
	}
	if s.has(fieldGenkitInput) && !rec.MaxTokens.Set {
		t.load(s.values[fieldGenkitInput], &r.limits)
		r.parameters(t.get(0, "config"))
	}
	if s.has(fieldGenkitOutput) {
		t.load(s.values[fieldGenkitOutput], &r.limits)
		r.genkitOutput()
	}
	if s.has(fieldOutputValue) && (rec.ResponseID == "" || !rec.InputTokens.Set) && s.marks&markOpenInference != 0 {
		t.load(s.values[fieldOutputValue], &r.limits)
		if rec.ResponseID == "" {
			rec.ResponseID = t.str(t.get(0, "id"))
		}
		usage := t.get(0, "usage")
		rec.InputTokens = rec.InputTokens.or(t.int(t.get(usage, "prompt_tokens", "input_tokens")))
		rec.OutputTokens = rec.OutputTokens.or(t.int(t.get(usage, "completion_tokens", "output_tokens")))
		details := t.get(usage, "prompt_tokens_details", "input_tokens_details")
		rec.CachedTokens = rec.CachedTokens.or(t.int(t.get(details, "cached_tokens")))
	}
}

func (r *Reader) parameters(n int32) {
	limit := r.doc.int(r.doc.get(n, "max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens", "maxTokens"))
	r.record.MaxTokens = r.record.MaxTokens.or(limit)
}

// usageDetails reads Langfuse's usage, whose input is without the cached tokens and whose output is without the
// reasoning ones. The provider's own names, which some users pass on, include them.
func (r *Reader) usageDetails() {
	rec, t := &r.record, &r.doc
	input, output := t.int(t.get(0, "input")), t.int(t.get(0, "output"))
	cached := t.int(t.get(0, "input_cached_tokens", "input_cache_read", "cache_read_input_tokens"))
	written := t.int(t.get(0, "input_cache_creation", "cache_creation_input_tokens"))
	reasoning := t.int(t.get(0, "output_reasoning_tokens", "output_reasoning"))
	if t.kind(0) == nodeObject && input.Set {
		for key := int32(1); key < t.nodes[0].next; key = t.nodes[key+1].next {
			if name := t.nodes[key].text; strings.HasPrefix(name, "input_cache") || slices.Contains(anthropicCache, name) {
				input.V += t.int(key + 1).V
			}
		}
	}
	if output.Set {
		output.V += reasoning.V
	}
	rec.InputTokens = rec.InputTokens.or(input).or(t.int(t.get(0, "prompt_tokens")))
	rec.OutputTokens = rec.OutputTokens.or(output).or(t.int(t.get(0, "completion_tokens")))
	rec.CachedTokens = rec.CachedTokens.or(cached)
	rec.CacheWriteTokens = rec.CacheWriteTokens.or(written)
	rec.ReasoningTokens = rec.ReasoningTokens.or(reasoning)
}

// anthropicCache are names of cached input that Langfuse takes over from Anthropic.
var anthropicCache = []string{"cache_read_input_tokens", "cache_creation_input_tokens"}

// genkitOutput reads the reply of a genkit model. Its usage leaves out zeros, and streams have characters only.
func (r *Reader) genkitOutput() {
	rec, t := &r.record, &r.doc
	usage := t.get(0, "usage")
	positive := func(names ...string) Opt[int64] {
		n := t.int(t.get(usage, names...))
		n.Set = n.Set && n.V > 0
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
	if rec.ResponseID == "" {
		rec.ResponseID = t.str(t.path(0, "custom", "id"))
	}
	if rec.ResponseModel == "" {
		rec.ResponseModel = t.str(t.path(0, "custom", "model"))
	}
	if len(rec.FinishReasons) == 0 {
		rec.addReason(t.str(t.get(0, "finishReason")))
	}
}
