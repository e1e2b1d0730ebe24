// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/protobuf/encoding/protowire"
)

// The sizes below are those of the OTLP protobuf messages (opentelemetry/proto/trace/v1, common/v1). A field consists of a tag
// and a value. The tag takes 1 byte up to field 15, and 2 bytes above. Bytes, strings and messages begin with their length.

// field is the size of a bytes, string or message field of n bytes.
func field(n int) int { return 1 + protowire.SizeBytes(n) }

// optional is the size of a bytes or string field that is left out when empty.
func optional(n int) int {
	if n == 0 {
		return 0
	}
	return field(n)
}

// number is the size of a varint field that is left out when 0.
func number(n int) int {
	if n <= 0 {
		return 0
	}
	return intSize(int64(n))
}

const (
	fixed64 = 1 + 8 // a double, or an instant
	flags   = 2 + 4 // Span.flags is field 16
	kind    = 1 + 1
	traceID = 1 + 1 + 16
	spanID  = 1 + 1 + 8
)

// spanSize is the number of bytes that a span adds to an OTLP message.
func spanSize(s sdktrace.ReadOnlySpan) int {
	state := optional(len(s.Status().Description))
	if s.Status().Code != codes.Unset {
		state += kind
	}
	n := traceID + spanID + flags + kind + 2*fixed64 + field(state) +
		optional(len(s.SpanContext().TraceState().String())) + optional(len(s.Name())) + attributesSize(s.Attributes()) +
		number(s.DroppedAttributes()) + number(s.DroppedEvents()) + number(s.DroppedLinks())
	if s.Parent().SpanID().IsValid() {
		n += spanID
	}
	for _, l := range s.Links() {
		n += field(traceID + spanID + flags - 1 + attributesSize(l.Attributes) + number(l.DroppedAttributeCount))
	}
	if lazy, ok := s.(*tokenSpan); ok {
		n += lazy.eventsSize()
	} else {
		for _, e := range s.Events() {
			n += field(fixed64 + optional(len(e.Name)) + attributesSize(e.Attributes) + number(e.DroppedAttributeCount))
		}
	}
	return field(n)
}

func attributesSize(kvs []attribute.KeyValue) int {
	n := 0
	for _, kv := range kvs {
		n += keyValueSize(len(kv.Key), valueSize(kv.Value))
	}
	return n
}

// keyValueSize is the size of a field that holds a KeyValue with an AnyValue of n bytes.
func keyValueSize(key, n int) int { return field(optional(key) + field(n)) }

// intSize is the size of an AnyValue with an integer.
func intSize(v int64) int { return 1 + protowire.SizeVarint(uint64(v)) } //nolint:gosec // two's complement, as on the wire

const doubleSize = fixed64

// valueSize is the size of an AnyValue.
func valueSize(v attribute.Value) int {
	n := 0
	switch v.Type() {
	case attribute.BOOL:
		return kind
	case attribute.INT64:
		return intSize(v.AsInt64())
	case attribute.FLOAT64:
		return doubleSize
	case attribute.STRING:
		return field(len(v.AsString()))
	case attribute.BYTESLICE:
		return field(len(v.AsByteSlice()))
	case attribute.BOOLSLICE:
		n = len(v.AsBoolSlice()) * field(kind)
	case attribute.INT64SLICE:
		n = fieldsSize(v.AsInt64Slice(), intSize)
	case attribute.FLOAT64SLICE:
		n = len(v.AsFloat64Slice()) * field(doubleSize)
	case attribute.STRINGSLICE:
		n = fieldsSize(v.AsStringSlice(), func(s string) int { return field(len(s)) })
	case attribute.SLICE:
		n = fieldsSize(v.AsSlice(), valueSize)
	case attribute.MAP:
		n = attributesSize(v.AsMap())
	default:
		return 0
	}
	return field(n)
}

// fieldsSize is the size of a field for each element.
func fieldsSize[T any](list []T, size func(T) int) (n int) {
	for _, e := range list {
		n += field(size(e))
	}
	return n
}
