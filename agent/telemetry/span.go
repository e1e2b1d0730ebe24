// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"encoding/hex"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// Session is the trace of one session. A nil Session is none.
//
// A span leaves the process when it ends, and a trace without its root has no name in any backend. So the root does not wait
// for the session's last turn, which the trace does not name anyway: it ends with the first request that does, and goes out
// before that. The turns that follow are its children all the same, and outlast it.
type Session struct {
	span  trace.Span
	start time.Duration
	once  sync.Once
}

// StartSession starts the root span of a session's trace at an instant of the run's clock. key is the session's name in the
// trace. The first of its requests to come to Finish ends it.
func (p *Pipeline) StartSession(key string, at time.Duration) *Session {
	if p == nil || p.tracer == nil {
		return nil
	}
	span := p.start(context.Background(), semconv.SpanSession, at)
	span.SetAttributes(attribute.String(semconv.Session, key))
	return &Session{span: span, start: at}
}

// endSession ends a session's root with its first request, not before its start, as that of a session whose first turn was
// skipped. When it returns, the root is queued: whoever comes second waits for whoever comes first.
func (p *Pipeline) endSession(s *Session, at time.Duration) {
	if s == nil {
		return
	}
	s.once.Do(func() {
		if root := p.stop(s.span, max(at, s.start)); root != nil {
			p.queue.add(root)
		}
	})
}

// Span is the span of one request. The zero Span is none.
type Span struct {
	span    trace.Span
	session *Session // nil without one
}

var clientKind = trace.WithSpanKind(trace.SpanKindClient)

// StartRequest starts the span of a row at its intended instant: in the session's trace, or as a trace of its own. It is
// cheap: everything that is not needed for sending waits for Finish, which every Span must come to.
func (p *Pipeline) StartRequest(s *Session, row *mooncake.Row, _ int64, intended time.Duration) Span {
	if p == nil || p.tracer == nil {
		return Span{}
	}
	ctx := context.Background()
	if s != nil {
		ctx = trace.ContextWithSpan(ctx, s.span)
	}
	if row == nil || row.OTel.IsZero() {
		return Span{p.start(ctx, p.name, intended, clientKind), s}
	}
	origin := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: row.OTel.TraceID, SpanID: row.OTel.SpanID, Remote: true,
	})
	return Span{p.start(ctx, p.name, intended, clientKind, trace.WithLinks(trace.Link{SpanContext: origin})), s}
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

// stop ends a span and returns it, or nil when the sampler dropped it.
func (p *Pipeline) stop(span trace.Span, at time.Duration) sdktrace.ReadOnlySpan {
	span.End(trace.WithTimestamp(p.clk.Wall(at)))
	ended, ok := span.(sdktrace.ReadOnlySpan)
	if !ok || !span.SpanContext().IsSampled() {
		return nil
	}
	p.attributesDropped.Add(int64(ended.DroppedAttributes()))
	return ended
}

// Traceparent returns the span's context as the value of the W3C traceparent header, "" for the zero Span.
func (s Span) Traceparent() string {
	if s.span == nil {
		return ""
	}
	sc := s.span.SpanContext()
	id, parent := sc.TraceID(), sc.SpanID()
	var b [55]byte
	out := append(b[:0], "00-"...)
	out = hex.AppendEncode(out, id[:])
	out = append(out, '-')
	out = hex.AppendEncode(out, parent[:])
	out = append(out, '-')
	out = hex.AppendEncode(out, []byte{byte(sc.TraceFlags())})
	return string(out)
}

// Ref returns the span's ids in binary, zero for the zero Span.
func (s Span) Ref() mooncake.SpanRef {
	if s.span == nil {
		return mooncake.SpanRef{}
	}
	sc := s.span.SpanContext()
	return mooncake.SpanRef{TraceID: sc.TraceID(), SpanID: sc.SpanID()}
}
