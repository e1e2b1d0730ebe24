// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"math"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/moonloop/moonloop/semconv"
)

// eventsExporter exports spans by OTLP as the SDK does, but encodes token events directly. For each event and each attribute, the SDK
// makes a struct, then a message, then bytes. That costs six times as much, and with an event for each token it is most of the cost of an
// export. Everything else of a span, and the connection, is left to the SDK.
type eventsExporter struct{ *otlptrace.Exporter }

func newEventsExporter(ctx context.Context, client otlptrace.Client) (sdktrace.SpanExporter, error) {
	e, err := otlptrace.New(ctx, eventsClient{client})
	if err != nil {
		return nil, err
	}
	return eventsExporter{e}, nil
}

// tokenSpans are the spans of an export that have token events.
type tokenSpans map[trace.SpanID]*tokenSpan

type tokenSpansKey struct{}

// ExportSpans implements [sdktrace.SpanExporter].
func (e eventsExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	with, others := tokenSpans{}, make([]sdktrace.ReadOnlySpan, len(spans))
	for i, s := range spans {
		if t, ok := s.(*tokenSpan); ok {
			with[t.SpanContext().SpanID()] = t
			s = eventless{t}
		}
		others[i] = s
	}
	return e.Exporter.ExportSpans(context.WithValue(ctx, tokenSpansKey{}, with), others)
}

// eventless is a span without its token events.
type eventless struct{ *tokenSpan }

// Events returns none.
func (eventless) Events() []sdktrace.Event { return nil }

// eventsClient adds the token events to the messages of spans.
type eventsClient struct{ otlptrace.Client }

// UploadTraces implements [otlptrace.Client]. Encoding a message preserves unknown fields, so the events are added as unknown fields.
func (c eventsClient) UploadTraces(ctx context.Context, all []*tracepb.ResourceSpans) error {
	with, _ := ctx.Value(tokenSpansKey{}).(tokenSpans)
	for _, of := range all {
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				if t := with[trace.SpanID(s.GetSpanId())]; t != nil {
					s.ProtoReflect().SetUnknown(t.appendEvents(make([]byte, 0, t.eventsSize())))
				}
			}
		}
	}
	return c.Client.UploadTraces(ctx, all)
}

// The fields of OTLP's messages.
const (
	spanEvents      = 11
	eventTime       = 1
	eventName       = 2
	eventAttributes = 3
	keyValueKey     = 1
	keyValueValue   = 2
	anyInt          = 3
	anyDouble       = 4
)

// appendEvents appends the span's token events, as fields of the span's message; see Events.
func (t *tokenSpan) appendEvents(b []byte) []byte {
	for i, at := range t.at {
		b = protowire.AppendTag(b, spanEvents, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(t.eventSize(i))) //nolint:gosec // a size
		b = protowire.AppendTag(b, eventTime, protowire.Fixed64Type)
		b = protowire.AppendFixed64(b, uint64(t.clk.Wall(time.Duration(at)).UnixNano()))
		b = protowire.AppendTag(b, eventName, protowire.BytesType)
		b = protowire.AppendString(b, semconv.EventToken)
		b = appendInt(b, semconv.TokenIndex, int64(i))
		if t.tokens != nil {
			b = appendInt(b, semconv.TokenCount, int64(t.tokens[i]))
		}
		if i > 0 {
			b = appendKey(b, semconv.TokenGap, doubleSize)
			b = protowire.AppendTag(b, anyDouble, protowire.Fixed64Type)
			b = protowire.AppendFixed64(b, math.Float64bits(time.Duration(at-t.at[i-1]).Seconds()))
		}
	}
	return b
}

// appendInt appends an attribute.
func appendInt(b []byte, key string, v int64) []byte {
	b = appendKey(b, key, intSize(v))
	b = protowire.AppendTag(b, anyInt, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(v)) //nolint:gosec // two's complement, as on the wire
}

// appendKey appends the beginning of an attribute, up to its value of n bytes.
func appendKey(b []byte, key string, n int) []byte {
	b = protowire.AppendTag(b, eventAttributes, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(field(len(key))+field(n))) //nolint:gosec // a size
	b = protowire.AppendTag(b, keyValueKey, protowire.BytesType)
	b = protowire.AppendString(b, key)
	b = protowire.AppendTag(b, keyValueValue, protowire.BytesType)
	return protowire.AppendVarint(b, uint64(n)) //nolint:gosec // a size
}
