// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai_test

import (
	"testing"

	"github.com/moonloop/moonloop/genai"
)

// TestWhole: a part that is larger than its whole proves that the producer does not count the part in the whole.
func TestWhole(t *testing.T) {
	const (
		input, cached, written = "gen_ai.usage.input_tokens", "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_write.input_tokens"
		output, reasoning      = "gen_ai.usage.output_tokens", "gen_ai.usage.reasoning.output_tokens"
	)
	for _, c := range []struct {
		reason                string
		attrs                 map[string]any
		wantInput, wantOutput genai.Opt[int64]
		exclusive             bool
	}{
		{"a part of the whole", map[string]any{input: 5010, cached: 5000, output: 7, reasoning: 7}, n(5010), n(7), false},
		{"all of it from the cache", map[string]any{input: 10, cached: 10, output: 7}, n(10), n(7), false},
		{"more from the cache than there is", map[string]any{input: 10, cached: 5000, written: 100, output: 7}, n(5110), n(7), true},
		{"more written to the cache than there is", map[string]any{input: 10, written: 100}, n(110), genai.Opt[int64]{}, true},
		{"cached and written tokens together are more than there are", map[string]any{input: 100, cached: 60, written: 60}, n(220), genai.Opt[int64]{}, true},
		{"more reasoning tokens than output tokens", map[string]any{input: 10, output: 7, reasoning: 90}, n(10), n(97), true},
		{"a part without a whole", map[string]any{cached: 5000, reasoning: 90}, genai.Opt[int64]{}, genai.Opt[int64]{}, false},
	} {
		rec := inference(t, genai.Options{}, c.attrs)
		if rec.InputTokens != c.wantInput || rec.OutputTokens != c.wantOutput || rec.UsageExclusive != c.exclusive {
			t.Errorf("%s: input %v, output %v, exclusive %t", c.reason, rec.InputTokens, rec.OutputTokens, rec.UsageExclusive)
		}
	}
}
