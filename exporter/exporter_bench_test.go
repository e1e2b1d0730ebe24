// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"path/filepath"
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/exporter/exportertest"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/moonloop/moonloop/capture/journal"
)

// BenchmarkPush writes batches of 600 spans from 4 concurrent senders for each CPU. A batch has 200 requests; each has a client's span, an
// engine's, and a page's, which is no inference span.
func BenchmarkPush(b *testing.B) {
	for name, fsync := range map[string]bool{"fsync": true, "no fsync": false} {
		b.Run(name, func(b *testing.B) {
			f := NewFactory()
			cfg := f.CreateDefaultConfig().(*Config)
			cfg.Directory, cfg.Fsync = filepath.Join(b.TempDir(), "journal"), fsync
			set := exportertest.NewNopSettings(f.Type())
			set.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())) // metrics are a part of the cost
			e, err := f.CreateTraces(b.Context(), set, cfg)
			if err != nil {
				b.Fatal(err)
			}
			if err := e.Start(b.Context(), componenttest.NewNopHost()); err != nil {
				b.Fatal(err)
			}
			td := production(200)
			td.MarkReadOnly()
			b.ReportAllocs()
			b.SetParallelism(4)
			var pushed atomic.Int64
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := e.ConsumeTraces(b.Context(), td); err != nil {
						b.Error(err)
						return
					}
					pushed.Add(int64(td.SpanCount()))
				}
			})
			b.StopTimer()
			b.ReportMetric(float64(pushed.Load())/b.Elapsed().Seconds(), "spans/s")
			if err := e.Shutdown(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkTraffic measures the part of BenchmarkPush that counts the inference spans of a batch for the metrics.
func BenchmarkTraffic(b *testing.B) {
	set := exportertest.NewNopSettings(NewFactory().Type())
	set.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	cfg := createDefaultConfig().(*Config)
	cfg.Directory = filepath.Join(b.TempDir(), "journal")
	e, err := newJournalExporter(cfg, set)
	if err != nil {
		b.Fatal(err)
	}
	var inferences []*journal.Inference
	if _, err := e.decoder.Traces(production(200), func(r journal.Record) error {
		if inference, ok := r.(*journal.Inference); ok {
			inferences = append(inferences, new(*inference))
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	var t tally
	b.ReportAllocs()
	for b.Loop() {
		t.reset()
		for _, r := range inferences {
			t.add(r, e.models)
		}
		e.count(b.Context(), &t)
	}
	b.ReportMetric(float64(len(inferences)), "inference-spans/op")
}
