// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/convert"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// TestToolCallsOfProducers: in telemetry of real instrumentations, the request that received a tool's result waits for the request whose
// reply called the tool. The call's id alone shows it: without parents and links, and without any text. If the two requests are in two OTel
// traces, both must name their session; some producers leave that to spans above them.
func TestToolCallsOfProducers(t *testing.T) {
	for _, c := range []struct {
		producer       string
		logs, sessions bool
	}{
		{"js-openinference-openai", false, true},
		{"js-traceloop-openai", false, false},
		{"vercel-ai7-otel", false, false},
		{"otel-js-openai", true, false},
		{"otel-js-openai-nocontent", true, false},
	} {
		for _, change := range []string{"as it is", "no parents", "two traces"} {
			t.Run(c.producer+", "+change, func(t *testing.T) {
				spans := producerFile(t, c.producer+".traces.jsonl")
				truth := truthOf(t, c.producer)
				if change != "as it is" {
					spans = changed(t, spans, func(span ptrace.Span) {
						span.SetParentSpanID(pcommon.SpanID{})
						span.Links().RemoveIf(func(ptrace.SpanLink) bool { return true })
						if change == "two traces" {
							id := span.SpanID()
							span.SetTraceID(pcommon.TraceID(append(id[:], id[:]...)))
						}
					})
				}
				files := []capture.Source{source("traces.jsonl", spans)}
				if c.logs {
					logs := producerFile(t, c.producer+".logs.jsonl")
					if change == "two traces" {
						logs = "" // the log records name spans of the one trace
					}
					files = append(files, source("logs.jsonl", logs))
				}
				var traces []*trace
				opt := convert.Options{Format: convert.OTLP, Annotate: annotate.Config{Key: testKey(t)}}
				opt.Compile.MissingTokens = capture.MissingEstimate // some producers do not count the tokens of the call
				if _, err := convert.Convert(t.Context(), opt, memory(&traces), files...); err != nil {
					t.Fatal(err)
				}
				labels, waits := map[string]string{}, []string{}
				for _, row := range traces[0].rows(t) {
					start := traces[0].meta.TimeBase.Add(time.Duration(row.Timestamp.V * 1e6))
					nearest := time.Hour
					for _, r := range truth { // these were sent one after the other
						if apart := time.Unix(0, r.Received).Sub(start).Abs(); apart < nearest {
							nearest, labels[row.RequestID] = apart, r.Case
						}
					}
					for i, id := range row.WaitFor {
						if row.Evidence[i] == mooncake.EvidenceToolCall {
							waits = append(waits, labels[row.RequestID]+" after "+labels[id])
						}
					}
				}
				want := []string{"tool_result after tool_call"}
				if change == "two traces" && !c.sessions {
					want = []string{}
				}
				if diff := cmp.Diff(want, waits); diff != "" {
					t.Errorf("edges by ids (-want +got):\n%s", diff)
				}
				var n int64
				for _, step := range traces[0].meta.Transformations {
					if edges, ok := step.Parameters["graph_edges"].(map[string]any); ok {
						n, _ = edges["tool_call"].(int64)
					}
				}
				if int(n) != len(want) {
					t.Errorf("the sidecar counts %d edges by ids", n)
				}
			})
		}
	}
}

// changed returns a file of spans after it has changed each span.
func changed(t *testing.T, content string, change func(ptrace.Span)) string {
	t.Helper()
	var lines []string
	for line := range strings.SplitSeq(strings.TrimSpace(content), "\n") {
		td, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces([]byte(line))
		must(t, err)
		eachSpan(td, change)
		b, err := new(ptrace.JSONMarshaler).MarshalTraces(td)
		must(t, err)
		lines = append(lines, string(b))
	}
	return strings.Join(lines, "\n") + "\n"
}
