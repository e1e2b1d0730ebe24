// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/semconv"
)

// Finish completes and ends a request's span from its record, with its phases and token events, and records its metrics. It takes tens of
// microseconds and must be called after the stream has ended, not while it is read. The record may be reused afterwards.
func (p *Pipeline) Finish(sp Span, r *measure.Record) {
	if p == nil {
		return
	}
	ctx := context.Background()
	if sp.span != nil {
		ctx = trace.ContextWithSpan(ctx, sp.span) // for exemplars
		p.finishSpan(ctx, sp, r)
	}
	if p.instruments != nil {
		p.instruments.record(ctx, r)
	}
}

// finishSpan queues the spans of a request: its session's root, if that was not queued before, its own span, and its phases. Parents are queued
// first, so that no span remains without its parent if the process ends.
func (p *Pipeline) finishSpan(ctx context.Context, sp Span, r *measure.Record) {
	span := sp.span
	parts, end := phases(r)
	p.endSession(sp.session, end)
	if !span.SpanContext().IsSampled() {
		p.stop(nil, span, end)
		return
	}
	if r.Model != "" && r.Model != p.cfg.Model { // the span was named when the row's model was not known
		span.SetName(p.cfg.Operation + " " + r.Model)
	}
	a := p.requestAttributes(r)
	events, dropped := p.events(&a, r)
	span.SetAttributes(a...)
	if r.Outcome == measure.Failed || r.Outcome == measure.Cancelled {
		span.SetStatus(codes.Error, r.Message)
	}
	all := p.stop(make([]sdktrace.ReadOnlySpan, 0, 1+len(parts)), span, end)
	if events > 0 || dropped > 0 {
		all[0] = newTokenSpan(all[0], p.clk, &r.Exchange, events, dropped)
	}
	for _, part := range parts {
		all = p.stop(all, p.start(ctx, part.name, part.from), part.to)
	}
	p.queue.add(all...)
}

// events returns how many chunks become span events and how many are cut off by a limit. It cuts the last ones; the SDK would drop the
// first. It also adds the attributes that replace events.
func (p *Pipeline) events(a *attributes, r *measure.Record) (kept, dropped int) {
	x := &r.Exchange
	n := len(x.At)
	if !r.Sent || x.Whole || n == 0 {
		return 0, 0
	}
	switch p.cfg.TokenEvents {
	case EventsNone:
		return 0, 0
	case EventsArray:
		a.add(attribute.Int64Slice(semconv.TokenGaps, gaps(r.Intended, x.At)))
		if countsKnown(x) {
			a.add(attribute.Int64Slice(semconv.TokenCounts, counts(x.Tokens)))
		}
		return 0, 0
	case EventsFirst:
		n = 1
	default:
	}
	kept = n
	if limit := p.eventLimit; limit >= 0 && n > limit {
		kept, dropped = limit, n-limit
		p.eventsDropped.Add(int64(dropped))
		a.add(attribute.Int(semconv.TokenDropped, dropped))
	}
	return kept, dropped
}

var _ sdktrace.ReadOnlySpan = (*tokenSpan)(nil)
