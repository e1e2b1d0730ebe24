// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/genai"
)

// TestTokens has one row for each shape of a prompt of token ids, and for values that only look like one.
func TestTokens(t *testing.T) {
	for _, c := range []struct {
		reason, name string
		value        any
		want         []uint32
	}{
		{"the body of a completions request", "input.value", `{"model":"m","prompt":[1, 2,4294967295],"max_tokens":4}`, []uint32{1, 2, 1<<32 - 1}},
		{"a body that is written with space", "input.value", "{\"prompt\" :\n [ 5 , 6 ]}", []uint32{5, 6}},
		{"a list of one prompt", "input.value", `{"prompt":[[7,8]]}`, []uint32{7, 8}},
		{"the list alone", "gen_ai.prompt", `[1,2,3]`, []uint32{1, 2, 3}},
		{"a structured list", "gen_ai.prompt", []any{int64(1), int64(2)}, []uint32{1, 2}},
		{"a structured body", "input.value", map[string]any{"prompt": []any{int64(9)}}, []uint32{9}},
		{"several prompts do not count", "input.value", `{"prompt":[[1,2],[3]]}`, nil},
		{"a prompt of text", "input.value", `{"prompt":"Hello"}`, nil},
		{"several prompts of text", "input.value", `{"prompt":["Hello","Bye"]}`, nil},
		{"messages", "gen_ai.input.messages", `[{"role":"user","parts":[{"type":"text","content":"Say [1,2] \"prompt\": [1]"}]}]`, nil},
		{"a list that is cut", "input.value", `{"prompt":[1,2,3`, nil},
		{"numbers and something else", "gen_ai.prompt", `[1,2,"x"]`, nil},
		{"no ids of tokens: negative", "gen_ai.prompt", `[1,-2]`, nil},
		{"no ids of tokens: not whole", "gen_ai.prompt", `[1,2.5]`, nil},
		{"no ids of tokens: too large", "gen_ai.prompt", `[4294967296]`, nil},
		{"an empty list", "gen_ai.prompt", `[]`, nil},
	} {
		t.Run(c.reason, func(t *testing.T) {
			span := ptrace.NewSpan()
			span.Attributes().PutStr("gen_ai.operation.name", "text_completion")
			if err := span.Attributes().PutEmpty(c.name).FromRaw(c.value); err != nil {
				t.Fatal(err)
			}
			rec := genai.NewReader(genai.Options{}).Span("", span)
			before := []uint32{42}
			got, ok := rec.Content.Tokens(before)
			if ok != (c.want != nil) {
				t.Fatalf("ok is %v, tokens %v", ok, got)
			}
			if diff := cmp.Diff(append(before, c.want...), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
