// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// wireSize is an OTLP client that measures what it would send.
type wireSize struct{ scope int }

func (*wireSize) Start(context.Context) error { return nil }
func (*wireSize) Stop(context.Context) error  { return nil }
func (w *wireSize) UploadTraces(_ context.Context, spans []*tracepb.ResourceSpans) error {
	scope := spans[0].ScopeSpans[0]
	w.scope = proto.Size(&tracepb.ScopeSpans{Spans: scope.Spans})
	return nil
}

// The size of a span is exact, not an estimate: it is, to the byte, the length of the span as the OTLP exporter encodes it.
func TestSpanSize(t *testing.T) {
	id := func(parent bool) trace.SpanContext {
		state, _ := trace.ParseTraceState("vendor=value")
		c := trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled}
		if parent {
			c.TraceState = state
		}
		return trace.NewSpanContext(c)
	}
	spans := map[string]sdktrace.ReadOnlySpan{
		"bare": tracetest.SpanStub{
			SpanContext: id(false), SpanKind: trace.SpanKindInternal, StartTime: time.Unix(1, 0), EndTime: time.Unix(1, 0),
		}.Snapshot(),
		"everything": tracetest.SpanStub{
			Name: "chat m", SpanKind: trace.SpanKindClient, SpanContext: id(true), Parent: id(true),
			StartTime: time.Unix(1, 0), EndTime: time.Unix(2, 0), Status: sdktrace.Status{Code: codes.Error, Description: "äöü"},
			DroppedAttributes: 300, DroppedEvents: 1, DroppedLinks: 70000,
			Links: []sdktrace.Link{
				{SpanContext: id(false)},
				{SpanContext: id(true), Attributes: []attribute.KeyValue{attribute.Bool("b", true)}, DroppedAttributeCount: 3},
			},
			Events: []sdktrace.Event{
				{Name: "e", Time: time.Unix(1, 5), Attributes: []attribute.KeyValue{attribute.String("s", "")}},
				{Name: "", Time: time.Unix(1, 6), DroppedAttributeCount: 128},
			},
			Attributes: []attribute.KeyValue{
				attribute.Bool("bool", false), attribute.Int64("zero", 0), attribute.Int64("negative", -1),
				attribute.Int64("max", math.MaxInt64), attribute.Float64("double", 0), attribute.String("empty", ""),
				attribute.String("long", strings.Repeat("x", 20_000)), attribute.BoolSlice("bools", []bool{true, false}),
				attribute.Int64Slice("ints", []int64{0, 127, 128, -1, math.MinInt64}), attribute.Int64Slice("no ints", nil),
				attribute.Float64Slice("doubles", make([]float64, 100)), attribute.StringSlice("strings", []string{"", "a"}),
			},
		}.Snapshot(),
	}
	for name, mode := range map[string]Mode{"all": EventsAll, "array": EventsArray, "first": EventsFirst, "none": EventsNone} {
		for chunks, n := range map[string]int{"no": 0, "one": 1, "many": 2000} {
			cleanEnv(t)
			cfg, e := target, &fakeExporter{}
			cfg.SpanExporter, cfg.TokenEvents = e, mode
			p, _ := start(t, cfg)
			r := served(n)
			r.Row.HashIDs = append(make([]uint64, 300), r.Row.HashIDs...)
			if chunks == "many" {
				r.Exchange.Tokens[1999] = 1 << 20
			}
			finish(p, nil, r)
			if name == "all" {
				r.Exchange.Tokens = nil
				finish(p, nil, r)
			}
			shutdown(t, p)
			for i, s := range e.spans {
				spans[name+" events, "+chunks+" chunks, "+s.Name()+string(rune('0'+i))] = s
			}
		}
	}
	for name, s := range spans {
		client := new(wireSize)
		exporter := otlptrace.NewUnstarted(client)
		if err := exporter.ExportSpans(t.Context(), []sdktrace.ReadOnlySpan{s}); err != nil {
			t.Fatal(err)
		}
		if got := spanSize(s); got != client.scope {
			t.Errorf("%s: %d bytes, on the wire %d", name, got, client.scope)
		}
	}
}
