// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// spanLine returns one export request as the file exporter writes it: the rows given, each with two children.
func spanLine(t *testing.T, rows ...requestSpan) string {
	t.Helper()
	traces := ptrace.NewTraces()
	spans := traces.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(ms int) pcommon.Timestamp {
		return pcommon.NewTimestampFromTime(begin.Add(time.Duration(ms) * time.Millisecond))
	}
	for _, row := range rows {
		id := byte(row.row + 1)
		span := spans.AppendEmpty()
		span.SetTraceID(pcommon.TraceID{id})
		span.SetSpanID(pcommon.SpanID{id})
		span.SetStartTimestamp(at(0))
		span.SetEndTimestamp(at(30))
		span.SetDroppedEventsCount(1)
		span.Attributes().PutInt("mooncake.row", row.row)
		span.Attributes().PutDouble("mooncake.timestamp", row.timestamp)
		span.Attributes().PutInt("mooncake.input_length", row.inputLength)
		span.Attributes().PutInt("mooncake.output_length", row.outputLength)
		span.Attributes().PutInt("gen_ai.usage.input_tokens", row.promptTokens)
		ids := span.Attributes().PutEmptySlice("mooncake.hash_ids")
		for _, id := range row.hashIDs {
			ids.AppendEmpty().SetInt(int64(id))
		}
		span.Events().AppendEmpty().SetName(tokenEvent)
		span.Events().AppendEmpty().SetName("another")
		for phase, name := range []string{"queue", "prefill"} {
			child := spans.AppendEmpty()
			child.SetName(name)
			child.SetTraceID(span.TraceID())
			child.SetParentSpanID(span.SpanID())
			child.SetSpanID(pcommon.SpanID{id, byte(phase + 1)})
			child.SetStartTimestamp(at(10 * phase))
			child.SetEndTimestamp(at(10*phase + 10*(phase+1)))
		}
	}
	line, err := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
	if err != nil {
		t.Fatal(err)
	}
	return string(line) + "\n"
}

var (
	rowZero = requestSpan{row: 0, timestamp: 0, inputLength: 1000, outputLength: 5, hashIDs: []uint64{0, 1 << 63}, promptTokens: 1001}
	rowOne  = requestSpan{row: 1, timestamp: 27.5, inputLength: 7, outputLength: 0, promptTokens: 7}
	rowTwo  = requestSpan{row: 2, timestamp: 3000000, inputLength: 512, outputLength: 1, hashIDs: []uint64{0}, promptTokens: 512}
)

func TestReadSpanFile(t *testing.T) {
	// The second line repeats a whole export request, as a sender does after an acknowledgement was lost.
	again := spanLine(t, rowTwo, rowZero)
	file, err := readSpanFile(strings.NewReader(again + again + spanLine(t, rowOne)))
	if err != nil {
		t.Fatal(err)
	}
	got := []int{file.spans, file.copies, len(file.requests), file.tokenEvents, file.droppedEvents}
	if diff := cmp.Diff([]int{15, 6, 3, 3, 3}, got); diff != "" {
		t.Errorf("spans, copies, requests, token events, dropped events (-want +got):\n%s", diff)
	}
	for _, request := range file.requests {
		if lasts := uint64(request.end - request.start); file.phases[request.spanID] != lasts {
			t.Errorf("row %d: phases last %d ns, want %d", request.row, file.phases[request.spanID], lasts)
		}
		if request.cachedTokens != -1 {
			t.Errorf("row %d: %d cached tokens, but the span does not say", request.row, request.cachedTokens)
		}
	}
	if got := file.requests[1].promptTokens; got != 1001 {
		t.Errorf("row 0: prompt tokens %d, want the engine's 1001, not the row's 1000", got)
	}

	var trace bytes.Buffer
	if err := file.rebuild(&trace); err != nil {
		t.Fatal(err)
	}
	want := `{"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [0, 9223372036854775808]}
{"timestamp": 27.5, "input_length": 7, "output_length": 0, "hash_ids": []}
{"timestamp": 3000000, "input_length": 512, "output_length": 1, "hash_ids": [0]}
`
	if diff := cmp.Diff(want, trace.String()); diff != "" {
		t.Errorf("rebuilt trace (-want +got):\n%s", diff)
	}
}

func TestReadSpanFileRejects(t *testing.T) {
	whole := spanLine(t, rowZero)
	for reason, input := range map[string]string{
		"a line cut short":              whole[:len(whole)/2],
		"a row without its length":      strings.ReplaceAll(whole, "mooncake.input_length", "input_length"),
		"a length that is not a number": strings.ReplaceAll(whole, `{"intValue":"1000"}`, `{"stringValue":"1000"}`),
	} {
		if input == whole {
			t.Fatalf("%s: the input was not changed", reason)
		}
		if _, err := readSpanFile(strings.NewReader(input)); err == nil {
			t.Errorf("%s: no error", reason)
		}
	}
}

func TestRebuildRejects(t *testing.T) {
	for reason, rows := range map[string][]int64{
		"a row is missing":   {0, 2},
		"a row occurs twice": {0, 1, 1},
		"a negative row":     {0, -1},
	} {
		file := &spanFile{}
		for _, row := range rows {
			file.requests = append(file.requests, requestSpan{row: row})
		}
		if err := file.rebuild(&bytes.Buffer{}); err == nil {
			t.Errorf("%s %s: no error", reason, fmt.Sprint(rows))
		}
	}
}
