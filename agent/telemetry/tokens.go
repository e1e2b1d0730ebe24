// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/semconv"
)

// tokenSpan is an ended span together with the arrivals of its chunks, which become span events when it is exported. Until
// then a chunk takes 8 or 12 bytes; as an event it takes about 260, in the SDK's own queue about 600.
type tokenSpan struct {
	sdktrace.ReadOnlySpan
	clk     clock.Clock
	at      []int64 // ns on the run's clock
	tokens  []int32 // nil, or one number for each element of at
	dropped int     // further chunks, which a limit cut off
}

// newTokenSpan copies the first n arrivals of an exchange, because its arrays are reused.
func newTokenSpan(s sdktrace.ReadOnlySpan, clk clock.Clock, x *send.Exchange, n, dropped int) *tokenSpan {
	t := &tokenSpan{ReadOnlySpan: s, clk: clk, at: append([]int64(nil), x.At[:n]...), dropped: dropped}
	if countsKnown(x) {
		t.tokens = append([]int32(nil), x.Tokens[:n]...)
	}
	return t
}

// countsKnown reports whether the server sent the number of tokens of each chunk.
func countsKnown(x *send.Exchange) bool { return len(x.Tokens) > 0 && len(x.Tokens) == len(x.At) }

// Events returns the span's token events. They are created on each call.
func (t *tokenSpan) Events() []sdktrace.Event {
	events := make([]sdktrace.Event, len(t.at))
	attrs := make([]attribute.KeyValue, 0, 3*len(t.at)) // one array for all events
	for i, at := range t.at {
		first := len(attrs)
		attrs = append(attrs, attribute.Int(semconv.TokenIndex, i))
		if t.tokens != nil {
			attrs = append(attrs, attribute.Int(semconv.TokenCount, int(t.tokens[i])))
		}
		if i > 0 {
			attrs = append(attrs, attribute.Float64(semconv.TokenGap, time.Duration(at-t.at[i-1]).Seconds()))
		}
		events[i] = sdktrace.Event{
			Name: semconv.EventToken, Time: t.clk.Wall(time.Duration(at)), Attributes: attrs[first:len(attrs):len(attrs)],
		}
	}
	return events
}

// DroppedEvents returns the number of token events that a limit cut off.
func (t *tokenSpan) DroppedEvents() int { return t.dropped }

// eventsSize is the encoded size of Events.
func (t *tokenSpan) eventsSize() int {
	n := 0
	for i := range t.at {
		n += field(t.eventSize(i))
	}
	return n
}

// eventSize is the encoded size of one of Events.
func (t *tokenSpan) eventSize(i int) int {
	n := fixed64 + field(len(semconv.EventToken)) + keyValueSize(len(semconv.TokenIndex), intSize(int64(i)))
	if t.tokens != nil {
		n += keyValueSize(len(semconv.TokenCount), intSize(int64(t.tokens[i])))
	}
	if i > 0 {
		n += keyValueSize(len(semconv.TokenGap), doubleSize)
	}
	return n
}

// gaps returns the value of semconv.TokenGaps: the time from the span's start to the first chunk, then between chunks.
func gaps(start time.Duration, at []int64) []int64 {
	out := make([]int64, len(at))
	before := int64(start)
	for i, t := range at {
		out[i], before = t-before, t
	}
	return out
}

func counts(tokens []int32) []int64 {
	out := make([]int64, len(tokens))
	for i, n := range tokens {
		out[i] = int64(n)
	}
	return out
}
