// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/convert"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// requestOf returns a line with one request: of production if run is "", else of that replay. Without facts, it does not become a row.
func requestOf(run string, id byte, facts bool) string {
	resource, usage := "", ""
	if run != "" {
		resource = fmt.Sprintf(`{"key":"mooncake.run.id","value":{"stringValue":%q}}`, run)
	}
	if facts && run != "" {
		usage = `,{"key":"mooncake.row","value":{"intValue":"0"}},{"key":"mooncake.identity","value":{"stringValue":"trace"}},` +
			`{"key":"mooncake.input_length","value":{"intValue":"12"}},{"key":"mooncake.output_length","value":{"intValue":"3"}},` +
			`{"key":"mooncake.timestamp","value":{"doubleValue":5}}`
	}
	if facts && run == "" {
		usage = `,{"key":"gen_ai.usage.input_tokens","value":{"intValue":"12"}},{"key":"gen_ai.usage.output_tokens","value":{"intValue":"3"}}`
	}
	return fmt.Sprintf(`{"resourceSpans":[{"resource":{"attributes":[%s]},"scopeSpans":[{"spans":[{"traceId":"5b8efff798038103d269b633813fc6%02x",`+
		`"spanId":"eee19b7ec3c1b1%02x","name":"chat m","startTimeUnixNano":"1795222780963004192","endTimeUnixNano":"1795222780963004193",`+
		`"attributes":[{"key":"gen_ai.operation.name","value":{"stringValue":"chat"}}%s]}]}]}]}`, resource, id, id, usage)
}

// TestLostOnce: losses that belong to no trace are in only one sidecar, however many traces there are.
func TestLostOnce(t *testing.T) {
	var traces []*trace
	file := strings.Join([]string{
		`{"resourceMetrics":[]}`, requestOf("run-b", 1, true), requestOf("", 2, true), requestOf("run-a", 3, true), `{"resourceProfiles":[]}`,
	}, "\n")
	result, err := convert.Convert(t.Context(), convert.Options{Format: convert.OTLP, Annotate: annotate.Config{Key: testKey(t)}}, memory(&traces), source("f", file))
	if err != nil {
		t.Fatal(err)
	}
	if len(traces) != 3 || len(result.Traces) != 3 {
		t.Fatalf("%d traces, %d in the result, want production and two runs", len(traces), len(result.Traces))
	}
	written, told := map[string]int64{}, map[string]int64{}
	for i := range traces {
		for _, d := range traces[i].meta.Dropped {
			written[d.What+": "+d.Reason] += d.Count
		}
		for _, d := range result.Traces[i].Meta.Dropped {
			told[d.What+": "+d.Reason] += d.Count
		}
		if n := len(traces[i].meta.Transformations); n == 0 || traces[i].meta.Transformations[0].Name != "convert" {
			t.Errorf("a sidecar does not say how its trace was made")
		}
	}
	want := map[string]int64{"lines: metrics": 1, "lines: profiles": 1}
	if diff := cmp.Diff(want, written); diff != "" {
		t.Errorf("dropped (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("dropped, in the result (-want +got):\n%s", diff)
	}
}

// TestNothingTellsAll: if there are no rows, the error lists the losses of all traces.
func TestNothingTellsAll(t *testing.T) {
	file := strings.Join([]string{`{"resourceMetrics":[]}`, requestOf("", 1, false), requestOf("", 2, false), requestOf("run-a", 3, false)}, "\n")
	var traces []*trace
	_, err := convert.Convert(t.Context(), convert.Options{Format: convert.OTLP}, memory(&traces), source("f", file))
	for _, want := range []string{"1 lines: metrics", "2 rows: no token counts", "1 spans: of a replay without a row"} {
		if err == nil || strings.Count(err.Error(), want) != 1 {
			t.Errorf("error %v, want it to have %q once", err, want)
		}
	}
}
