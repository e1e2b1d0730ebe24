// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake"
)

// agentSpan returns a span in OTLP JSON, with attributes. Its begin and end are in ms.
func agentSpan(id, parent string, from, to int, attributes, more string) string {
	return fmt.Sprintf(`{"traceId": "0102030405060708090a0b0c0d0e0f10", "spanId": "00000000000000%s", "parentSpanId": %q, "name": "s", "kind": 1,
		"startTimeUnixNano": "%d", "endTimeUnixNano": "%d", "attributes": [%s]%s}`,
		id, parent, 1_750_000_000_000_000_000+from*1_000_000, 1_750_000_000_000_000_000+to*1_000_000, attributes, more)
}

func attribute(name, value string) string {
	return fmt.Sprintf(`{"key": %q, "value": {"stringValue": %q}}`, name, value)
}

// TestAgents: spans of agents become a graph, in each dialect that distinguishes agents and tools, without any text.
func TestAgents(t *testing.T) {
	for _, dialect := range []struct{ name, agent, tool, chat string }{
		{"OpenTelemetry", attribute("gen_ai.operation.name", "invoke_agent"), attribute("gen_ai.operation.name", "execute_tool"), attribute("gen_ai.operation.name", "chat")},
		{"OpenInference", attribute("openinference.span.kind", "AGENT"), attribute("openinference.span.kind", "TOOL"), attribute("openinference.span.kind", "LLM")},
		{"Traceloop", attribute("traceloop.span.kind", "agent"), attribute("traceloop.span.kind", "tool"), attribute("gen_ai.operation.name", "chat")},
		{"Langfuse", attribute("langfuse.observation.type", "agent"), attribute("langfuse.observation.type", "tool"), attribute("langfuse.observation.type", "generation")},
	} {
		t.Run(dialect.name, func(t *testing.T) {
			chat := func(id, parent string, from, to int, more string) string {
				tokens := `, {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "600"}}, {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "9"}}`
				return agentSpan(id, parent, from, to, dialect.chat+","+attribute("gen_ai.request.model", "m")+tokens, more)
			}
			const under = "00000000000000"
			spans := []string{
				agentSpan("a0", "", 0, 1000, dialect.agent, ""),
				chat("01", under+"a0", 10, 100, ""),
				agentSpan("b0", under+"a0", 120, 400, dialect.tool, ""), // concurrent with the next
				chat("02", under+"b0", 130, 200, ""),
				agentSpan("c0", under+"a0", 120, 500, dialect.tool, ""),
				chat("03", under+"c0", 250, 490, ""),
				chat("04", under+"a0", 510, 600, fmt.Sprintf(`, "links": [{"traceId": "0102030405060708090a0b0c0d0e0f10", "spanId": "%s03"}]`, under)),
			}
			body := `{"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": [` + strings.Join(spans, ",") + `]}]}]}`
			got, meta := convert(t, Options{Format: OTLP}, text("spans.json", strings.ReplaceAll(body, "\n", "")))
			names, rows := map[string]int{}, []string{}
			for line := range strings.Lines(got) {
				r, err := mooncake.ParseRow([]byte(strings.TrimSpace(line)))
				if err != nil {
					t.Fatal(err)
				}
				row := fmt.Sprintf("%d:", r.OTel.SpanID[7])
				for i, id := range r.WaitFor {
					row += fmt.Sprintf(" %d %s", names[id], r.Evidence[i])
				}
				names[r.RequestID] = int(r.OTel.SpanID[7])
				rows = append(rows, fmt.Sprintf("%s %g+%g", row, r.Delay.V, r.ToolWait.V))
			}
			want := []string{"1: 0+0", "2: 1 parent 20+10", "3: 1 parent 20+130", "4: 3 link 2 parent 10+10"}
			if diff := cmp.Diff(want, rows); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if all := fmt.Sprint(meta.Transformations); !strings.Contains(all, "graph_edges:map[link:1 parent:3]") {
				t.Errorf("the sidecar does not count the edges: %s", all)
			}
		})
	}
}
