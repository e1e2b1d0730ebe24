// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"math"
	"testing"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// wire is an OTLP client that keeps the bytes that it would send.
type wire struct {
	t     testing.TB
	bytes []byte
}

func (*wire) Start(context.Context) error { return nil }
func (*wire) Stop(context.Context) error  { return nil }
func (w *wire) UploadTraces(_ context.Context, spans []*tracepb.ResourceSpans) (err error) {
	if w.bytes, err = proto.Marshal(&tracepb.TracesData{ResourceSpans: spans}); err != nil {
		w.t.Error(err)
	}
	return nil
}

// A receiver reads what the SDK's own exporter would have sent, to the last field and byte.
func TestEventsAreThoseOfTheSDK(t *testing.T) {
	cleanEnv(t)
	cfg, kept := target, &fakeExporter{}
	cfg.SpanExporter = kept
	p, _ := start(t, cfg)
	for _, chunks := range []int{0, 1, 2, 200} {
		r := served(chunks)
		if chunks > 1 { // extreme values
			r.Exchange.Tokens[0], r.Exchange.Tokens[1] = 0, math.MaxInt32
			r.Exchange.At[1] = r.Exchange.At[0] // coalesced
		}
		finish(p, nil, r)
		r.Exchange.Tokens = nil
		finish(p, nil, r)
	}
	p.eventLimit = 3
	finish(p, nil, served(5))
	shutdown(t, p)
	if len(kept.spans) == 0 {
		t.Fatal("no spans")
	}

	read := func(export func(otlptrace.Client) sdktrace.SpanExporter) (data *tracepb.TracesData, size int) {
		client := &wire{t: t}
		if err := export(client).ExportSpans(t.Context(), kept.spans); err != nil {
			t.Fatal(err)
		}
		data = new(tracepb.TracesData)
		if err := proto.Unmarshal(client.bytes, data); err != nil {
			t.Fatal(err)
		}
		return data, len(client.bytes)
	}
	want, wantSize := read(func(c otlptrace.Client) sdktrace.SpanExporter { return otlptrace.NewUnstarted(c) })
	got, gotSize := read(func(c otlptrace.Client) sdktrace.SpanExporter {
		e, err := newEventsExporter(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return e
	})
	if !proto.Equal(want, got) { // a comparison with a diff would take a minute under the race detector
		for i, s := range want.ResourceSpans[0].ScopeSpans[0].Spans {
			if is := got.ResourceSpans[0].ScopeSpans[0].Spans[i]; !proto.Equal(s, is) {
				t.Fatalf("span %d of %q:\n%.2000s\nthe SDK's:\n%.2000s", i, s.Name, is, s)
			}
		}
		t.Fatal("something other than a span differs")
	}
	if gotSize != wantSize {
		t.Errorf("%d bytes, the SDK's exporter writes %d", gotSize, wantSize)
	}
	events := 0
	for _, s := range got.ResourceSpans[0].ScopeSpans[0].Spans {
		events += len(s.Events)
	}
	if events != 2*203+3 {
		t.Errorf("%d events", events)
	}
}

// BenchmarkExportEvents is the export of a request with 343 tokens up to its bytes: by the SDK, and with token events as bytes.
func BenchmarkExportEvents(b *testing.B) {
	cfg, kept := target, &fakeExporter{}
	cfg.SpanExporter = kept
	p, clk := start(b, cfg)
	r := served(343)
	sp := p.StartRequest(nil, r.Row, r.Intended)
	spans := []sdktrace.ReadOnlySpan{newTokenSpan(sp.span.(sdktrace.ReadOnlySpan), clk, &r.Exchange, 343, 0)}
	own, err := newEventsExporter(b.Context(), &wire{t: b})
	if err != nil {
		b.Fatal(err)
	}
	for name, e := range map[string]sdktrace.SpanExporter{"SDK": otlptrace.NewUnstarted(&wire{t: b}), "bytes": own} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := e.ExportSpans(b.Context(), spans); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
