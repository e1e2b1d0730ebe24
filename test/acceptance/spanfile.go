// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// maxLine bounds a line of the Collector's file: one export request, of at most 4 MiB as protobuf, as JSON.
const maxLine = 256 << 20

// tokenEvent is the name of the span event of an output chunk.
const tokenEvent = "mooncake.token"

// requestSpan has what these tests need of a request's span.
type requestSpan struct {
	traceID      pcommon.TraceID
	spanID       pcommon.SpanID
	row          int64
	timestamp    float64 // ms
	inputLength  int64
	outputLength int64
	hashIDs      []uint64
	// promptTokens and cachedTokens are the engine's counts, -1 where the span has none.
	promptTokens, cachedTokens int64
	start, end                 pcommon.Timestamp
	failed                     bool
}

// spanFile is the content of a file exporter's file.
type spanFile struct {
	spans         int // all of them, copies included
	copies        int // spans that had been there before: sent again after a lost acknowledgement
	requests      []requestSpan
	phases        map[pcommon.SpanID]uint64 // total duration in ns of a span's children, by span
	tokenEvents   int
	droppedEvents int // as the spans themselves say
}

// readSpanFile reads OTLP JSON lines. Request spans are those with a mooncake.row; copies are left out of
// everything but their count.
func readSpanFile(r io.Reader) (*spanFile, error) {
	file := &spanFile{phases: map[pcommon.SpanID]uint64{}}
	seen := map[pcommon.SpanID]bool{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	var decode ptrace.JSONUnmarshaler
	for n := 1; lines.Scan(); n++ {
		traces, err := decode.UnmarshalTraces(lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		for _, resource := range traces.ResourceSpans().All() {
			for _, scope := range resource.ScopeSpans().All() {
				for _, span := range scope.Spans().All() {
					file.spans++
					if seen[span.SpanID()] {
						file.copies++
						continue
					}
					seen[span.SpanID()] = true
					if err := file.add(span); err != nil {
						return nil, fmt.Errorf("line %d: span %s: %w", n, span.SpanID(), err)
					}
				}
			}
		}
	}
	return file, lines.Err()
}

// add records a span that is not a copy.
func (f *spanFile) add(span ptrace.Span) error {
	if parent := span.ParentSpanID(); !parent.IsEmpty() {
		f.phases[parent] += uint64(span.EndTimestamp() - span.StartTimestamp())
	}
	f.droppedEvents += int(span.DroppedEventsCount())
	for _, event := range span.Events().All() {
		if event.Name() == tokenEvent {
			f.tokenEvents++
		}
	}
	row, ok := span.Attributes().Get("mooncake.row")
	if !ok {
		return nil
	}
	request := requestSpan{
		traceID: span.TraceID(), spanID: span.SpanID(), row: row.Int(), promptTokens: -1, cachedTokens: -1,
		start: span.StartTimestamp(), end: span.EndTimestamp(), failed: span.Status().Code() == ptrace.StatusCodeError,
	}
	var problems []error
	for _, want := range []struct {
		key  string
		kind pcommon.ValueType
		take func(pcommon.Value)
	}{
		{"mooncake.timestamp", pcommon.ValueTypeDouble, func(v pcommon.Value) { request.timestamp = v.Double() }},
		{"mooncake.input_length", pcommon.ValueTypeInt, func(v pcommon.Value) { request.inputLength = v.Int() }},
		{"mooncake.output_length", pcommon.ValueTypeInt, func(v pcommon.Value) { request.outputLength = v.Int() }},
		{"mooncake.hash_ids", pcommon.ValueTypeSlice, func(v pcommon.Value) {
			for _, id := range v.Slice().All() {
				request.hashIDs = append(request.hashIDs, uint64(id.Int())) //nolint:gosec // the two's complement is the id
			}
		}},
	} {
		if value, ok := span.Attributes().Get(want.key); ok && value.Type() == want.kind {
			want.take(value)
		} else {
			problems = append(problems, fmt.Errorf("row %d: no attribute %s of type %s", request.row, want.key, want.kind))
		}
	}
	if value, ok := span.Attributes().Get("gen_ai.usage.input_tokens"); ok {
		request.promptTokens = value.Int()
	}
	if value, ok := span.Attributes().Get("gen_ai.usage.cache_read.input_tokens"); ok {
		request.cachedTokens = value.Int()
	}
	f.requests = append(f.requests, request)
	return errors.Join(problems...)
}

// rebuild writes the trace that the request spans describe, in the order of their rows, in the public traces' format. A row that is
// missing, or that two spans have, is an error.
func (f *spanFile) rebuild(w io.Writer) error {
	inOrder := make([]*requestSpan, len(f.requests))
	for i := range f.requests {
		span := &f.requests[i]
		if span.row < 0 || span.row >= int64(len(inOrder)) {
			return fmt.Errorf("row %d of %d request spans: a row is missing", span.row, len(inOrder))
		}
		if inOrder[span.row] != nil {
			return fmt.Errorf("two request spans of row %d", span.row)
		}
		inOrder[span.row] = span
	}
	buffered := bufio.NewWriter(w)
	for _, span := range inOrder {
		fmt.Fprintf(buffered, `{"timestamp": %s, "input_length": %d, "output_length": %d, "hash_ids": [`,
			number(span.timestamp), span.inputLength, span.outputLength)
		for i, id := range span.hashIDs {
			if i > 0 {
				fmt.Fprint(buffered, ", ")
			}
			fmt.Fprint(buffered, id)
		}
		fmt.Fprint(buffered, "]}\n")
	}
	return buffered.Flush()
}

// number prints a timestamp without an exponent where it is whole, as traces do.
func number(ms float64) string {
	if whole := int64(ms); float64(whole) == ms {
		return strconv.FormatInt(whole, 10)
	}
	text, _ := json.Marshal(ms) // a finite float always has a JSON form; a span cannot carry another in JSON
	return string(text)
}
