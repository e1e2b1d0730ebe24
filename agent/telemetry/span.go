// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"cmp"
	"context"
	"encoding/hex"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// Span is the span of one request. The zero Span records nothing.
type Span struct {
	span    trace.Span
	session *Session // nil without one
}

var clientKind = trace.WithSpanKind(trace.SpanKindClient)

// StartRequest starts the span of a row at its scheduled time: in the session's trace, or in its own trace. It is cheap: everything that is
// not needed for sending is done in Finish, to which every Span must be passed.
func (p *Pipeline) StartRequest(s *Session, row *mooncake.Row, intended time.Duration) Span {
	if p == nil || p.tracer == nil {
		return Span{}
	}
	ctx := context.Background()
	if s != nil {
		ctx = trace.ContextWithSpan(ctx, s.span)
	}
	opts := []trace.SpanStartOption{clientKind}
	if row != nil && !row.OTel.IsZero() {
		origin := trace.SpanContextConfig{TraceID: row.OTel.TraceID, SpanID: row.OTel.SpanID, Remote: true}
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: trace.NewSpanContext(origin)}))
	}
	return Span{p.start(ctx, p.name, intended, opts...), s}
}

// start starts a span and counts it.
func (p *Pipeline) start(ctx context.Context, name string, at time.Duration, opts ...trace.SpanStartOption) trace.Span {
	_, span := p.tracer.Start(ctx, name, append(opts, trace.WithTimestamp(p.clk.Wall(at)))...)
	if span.SpanContext().IsSampled() {
		p.started.Add(1)
	} else {
		p.sampledOut.Add(1)
	}
	return span
}

// stop ends a span, and appends it to the given spans unless the sampler dropped it.
func (p *Pipeline) stop(others []sdktrace.ReadOnlySpan, span trace.Span, at time.Duration) []sdktrace.ReadOnlySpan {
	span.End(trace.WithTimestamp(p.clk.Wall(at)))
	ended, ok := span.(sdktrace.ReadOnlySpan)
	if !ok || !span.SpanContext().IsSampled() {
		return others
	}
	p.attributesDropped.Add(int64(ended.DroppedAttributes()))
	return append(others, ended)
}

// Traceparent returns the span's context as the value of the W3C traceparent header, "" for the zero Span.
func (s Span) Traceparent() string {
	if s.span == nil {
		return ""
	}
	sc := s.span.SpanContext()
	id, parent := sc.TraceID(), sc.SpanID()
	out := append(make([]byte, 0, 55), "00-"...)
	out = append(hex.AppendEncode(out, id[:]), '-')
	out = append(hex.AppendEncode(out, parent[:]), '-')
	return string(hex.AppendEncode(out, []byte{byte(sc.TraceFlags())}))
}

// Ref returns the span's ids in binary, zero for the zero Span.
func (s Span) Ref() mooncake.SpanRef {
	if s.span == nil {
		return mooncake.SpanRef{}
	}
	sc := s.span.SpanContext()
	return mooncake.SpanRef{TraceID: sc.TraceID(), SpanID: sc.SpanID()}
}

// maxResponseID is the maximum length of a response id that is recorded, in bytes; the longest known ones have about 60.
const maxResponseID = 256

// Apart is a request that does not belong to a row of the trace, such as a calibration request or a warm-up.
type Apart struct {
	Name     string // of its span
	Model    string
	Response string        // the response's id
	From, To time.Duration // on the run's clock
}

// Apart records the span of a request that does not belong to a row, if the answer had an id. Such a request is sent with a trace context
// that says "not sampled". If a gateway does not forward that context, the engine behind the gateway writes a span that looks like
// production's. A capture recognises that span by the id of the response. A nil Pipeline does nothing.
func (p *Pipeline) Apart(a Apart) {
	if p == nil || p.tracer == nil || a.Response == "" || len(a.Response) > maxResponseID {
		return
	}
	span := p.start(context.Background(), a.Name, a.From, clientKind)
	span.SetAttributes(p.base...)
	span.SetAttributes(attribute.String(semconv.GenAIRequestModel, cmp.Or(a.Model, p.cfg.Model)), attribute.String(semconv.GenAIResponseID, a.Response))
	p.queue.add(p.stop(nil, span, a.To)...)
}
