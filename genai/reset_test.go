// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai_test

import (
	"runtime"
	"strings"
	"testing"
	"unsafe"
	"weak"

	"github.com/moonloop/moonloop/genai"
)

// TestReset: after Reset, a reader no longer refers to the telemetry that it read.
func TestReset(t *testing.T) {
	reader := genai.NewReader(genai.Options{})
	read := func() (prompts []weak.Pointer[byte]) {
		text := strings.Repeat("the patient asked. ", 10)
		documents := map[string]any{
			"gen_ai.input.messages":          `[{"role":"user","content":"` + text + `"},{"role":"user","content":"` + text + `\n"}]`,
			"gen_ai.prompt":                  `[{"content":"` + text + `"}]`,
			"llm.invocation_parameters":      `{"stop":"` + text + `"}`,
			"session.id":                     strings.Repeat("s", 100),
			"gen_ai.response.finish_reasons": `["` + strings.Repeat("f", 100) + `"]`,
			"gen_ai.tool.definitions":        `["{\"type\":\"function\",\"name\":\"` + strings.Repeat("x", 100) + `\"}"]`,
		}
		for _, document := range documents {
			prompts = append(prompts, weak.Make(unsafe.StringData(document.(string))))
		}
		documents["gen_ai.operation.name"] = "chat"
		rec := reader.Span("", newSpan(t, "chat", documents))
		rec.Content.Walk(func(genai.Piece) bool { return true })
		reader.Span("", newSpan(t, "chat", map[string]any{"gen_ai.operation.name": "chat", "gen_ai.input.messages": `[{"content":"hi"}]`}))
		return prompts
	}
	prompts := read()
	held := func() (n int) {
		runtime.GC()
		for _, p := range prompts {
			if p.Value() != nil {
				n++
			}
		}
		return n
	}
	if held() == 0 {
		t.Fatal("the reader has no document before Reset either: this test would notice nothing")
	}
	reader.Reset()
	if n := held(); n > 0 {
		t.Errorf("%d of %d documents are still held", n, len(prompts))
	}
	runtime.KeepAlive(reader)
}
