// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate_test

import (
	"encoding/json"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/receiver/annotate"
)

// application returns the attributes of a span that is unrelated to models.
func application() attributes {
	return attributes{
		"http.request.method": "POST", "url.path": "/api/cart", "http.response.status_code": int64(200), "server.address": "shop",
		"network.protocol.version": "1.1", "user_agent.original": "curl/8.5", "http.route": "/api/cart", "client.address": "10.0.0.1",
	}
}

// BenchmarkTraces annotates fresh copies of a batch of 100 spans. The time for the copy is not counted.
func BenchmarkTraces(b *testing.B) {
	text := strings.Repeat("The quick brown fox jumps over the lazy dog. ", 2000) // 90 kB
	escaped, err := json.Marshal(strings.Repeat("Der schnelle Fuchs springt.\n", 3000))
	if err != nil {
		b.Fatal(err)
	}
	turns := `{"role":"system","parts":[{"type":"text","content":"` + text[:8000] + `"}]}`
	for range 12 {
		turns += `,{"role":"user","parts":[{"type":"text","content":"` + text[:500] + `"}]},{"role":"assistant","parts":[{"type":"text","content":"` + text[:1200] + `"}]}`
	}
	for _, c := range []struct {
		name  string
		bytes int // of text in a span
		make  func() (ptrace.Traces, ptrace.Span)
	}{
		{"application", 0, func() (ptrace.Traces, ptrace.Span) { return oneSpan(b, application()) }},
		{"no content", 0, func() (ptrace.Traces, ptrace.Span) { return oneSpan(b, chat(nil)) }},
		{"text", len(text), func() (ptrace.Traces, ptrace.Span) {
			return oneSpan(b, chat(attributes{"gen_ai.input.messages": `[{"role":"user","parts":[{"type":"text","content":"` + text + `"}]}]`}))
		}},
		{"escaped text", len(escaped), func() (ptrace.Traces, ptrace.Span) {
			return oneSpan(b, chat(attributes{"gen_ai.input.messages": `[{"role":"user","parts":[{"type":"text","content":` + string(escaped) + `}]}]`}))
		}},
		{"conversation and reply", len(turns), func() (ptrace.Traces, ptrace.Span) {
			return oneSpan(b, chat(attributes{
				"gen_ai.input.messages":      `[` + turns + `]`,
				"gen_ai.output.messages":     `[{"role":"assistant","finish_reason":"stop","parts":[{"type":"text","content":"` + text[:1200] + `"}]}]`,
				"gen_ai.usage.output_tokens": int64(300),
			}))
		}},
		{"replay, 2000 events", 0, func() (ptrace.Traces, ptrace.Span) { return agentSpan(2000) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			const batch = 100
			td, span := c.make()
			list := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
			for range batch - 1 {
				span.CopyTo(list.AppendEmpty())
			}
			a := newAnnotator(b, annotate.Config{})
			b.SetBytes(int64(batch * c.bytes))
			b.ReportAllocs()
			work := ptrace.NewTraces()
			for b.Loop() {
				b.StopTimer()
				td.CopyTo(work)
				b.StartTimer()
				a.Traces(work)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batch, "ns/span")
		})
	}
}
