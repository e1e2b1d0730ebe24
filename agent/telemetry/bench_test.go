// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// discard accepts spans and ignores them.
type discard struct{}

func (discard) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (discard) Shutdown(context.Context) error                             { return nil }

// Recording the gap of a chunk allocates nothing: a long reply costs as many allocations as a short one.
func TestChunksAllocateNothing(t *testing.T) {
	cleanEnv(t)
	cfg := target
	cfg.MetricReader, cfg.SpanExporter, cfg.TokenEvents = sdkmetric.NewManualReader(), discard{}, EventsNone
	p, _ := start(t, cfg)
	allocs := func(chunks int) float64 {
		r := served(chunks)
		return testing.AllocsPerRun(20, func() { finish(p, nil, r) })
	}
	allocs(2) // series and attribute sets are made
	if few, many := allocs(2), allocs(2002); many-few > 5 {
		t.Errorf("2,000 more chunks cost %v more allocations", many-few)
	}
}

func BenchmarkStartRequest(b *testing.B) {
	cfg := target
	cfg.SpanExporter = discard{}
	p, _ := start(b, cfg)
	r := served(0)
	b.ReportAllocs()
	for b.Loop() {
		p.StartRequest(nil, r.Row, r.Intended)
	}
}

func BenchmarkTraceparent(b *testing.B) {
	cfg := target
	cfg.SpanExporter = discard{}
	p, _ := start(b, cfg)
	sp := p.StartRequest(nil, nil, 0)
	b.ReportAllocs()
	for b.Loop() {
		sp.Traceparent()
	}
}

// BenchmarkFinish is the cost of a request with 343 tokens, the mean of the public conversation trace, without the export.
func BenchmarkFinish(b *testing.B) {
	for _, mode := range []Mode{EventsAll, EventsArray, EventsFirst, EventsNone} {
		for name, metrics := range map[string]bool{"": false, "+metrics": true} {
			b.Run(string(mode)+name, func(b *testing.B) {
				cfg := target
				cfg.SpanExporter, cfg.TokenEvents, cfg.QueueBytes = discard{}, mode, 1<<30
				if metrics {
					cfg.MetricReader = sdkmetric.NewManualReader()
				}
				p, _ := start(b, cfg)
				r := served(343)
				b.ReportAllocs()
				for b.Loop() {
					finish(p, nil, r)
				}
			})
		}
	}
}

// BenchmarkEvents is the additional cost of the export: making the events of 343 tokens.
func BenchmarkEvents(b *testing.B) {
	r := served(343)
	cfg, e := target, &fakeExporter{}
	cfg.SpanExporter = e
	p, clk := start(b, cfg)
	sp := p.StartRequest(nil, r.Row, r.Intended)
	s := newTokenSpan(sp.span.(sdktrace.ReadOnlySpan), clk, &r.Exchange, 343, 0)
	b.ReportAllocs()
	for b.Loop() {
		s.Events()
	}
}
