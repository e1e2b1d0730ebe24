// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/collector/processor/processortest"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/connector"
	"github.com/moonloop/moonloop/exporter"
	"github.com/moonloop/moonloop/processor"
)

// BenchmarkCacheConnector takes the same spans through the capture path, from encoded OTLP through the processor to the exporter's
// journal, with and without the connector beside the exporter, in turns, and tells the processor time of each. There is no network and no fsync, so that the path is as
// cheap as it can be, and every prompt is new, so that the connector has as much to remember as it can. It is measured when the
// sample is full, as it is after the first minutes of traffic worth sizing a cache for.
func BenchmarkCacheConnector(b *testing.B) {
	for _, size := range []int{2 << 10, 8 << 10, 48 << 10} {
		b.Run(fmt.Sprintf("prompts of %d kB", size>>10), func(b *testing.B) {
			const requests = 50
			l := production(b, requests, size)
			paths := []consumer.Traces{capturePath(b, false), capturePath(b, true)}
			var took [2]time.Duration
			n := uint64(0)
			batch := func() {
				body := l.next(n*requests, time.Now())
				n++
				for k := range paths {
					at := (k + int(n)) % len(paths) // none is always the one that finds the caches warm
					began := selfCPU(b)             // processor time: others use the machine, too
					request := ptraceotlp.NewExportRequest()
					if err := request.UnmarshalProto(body); err != nil {
						b.Fatal(err)
					}
					if err := paths[at].ConsumeTraces(b.Context(), request.Traces()); err != nil {
						b.Fatal(err)
					}
					took[at] += selfCPU(b) - began
				}
			}
			c := connector.NewFactory().CreateDefaultConfig().(*connector.Config)
			full := 2 * uint64(float64(c.MaxBlocks)/c.SamplingRatio) / uint64(requests*size/blockhash.CellSize)
			for n < full {
				batch()
			}
			took = [2]time.Duration{}
			for b.Loop() {
				batch()
			}
			spans := float64((n - full) * requests)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(took[0].Nanoseconds())/spans, "CPU-ns/span-without")
			b.ReportMetric(float64(took[1].Nanoseconds())/spans, "CPU-ns/span-with")
			b.ReportMetric(100*(took[1].Seconds()/took[0].Seconds()-1), "%-more-CPU")
		})
	}
}

// capturePath returns the way of spans through the processor to the exporter, and to the connector, too.
func capturePath(b *testing.B, potential bool) consumer.Traces {
	b.Helper()
	start := func(c component.Component, err error) {
		if err == nil {
			err = c.Start(b.Context(), componenttest.NewNopHost())
		}
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := c.Shutdown(context.Background()); err != nil {
				b.Error(err)
			}
		})
	}
	ef := exporter.NewFactory()
	ec := ef.CreateDefaultConfig().(*exporter.Config)
	ec.Directory, ec.Fsync = filepath.Join(b.TempDir(), "journal"), false
	e, err := ef.CreateTraces(b.Context(), exportertest.NewNopSettings(ef.Type()), ec)
	start(e, err)
	next := consumer.Traces(e)
	if potential {
		cf := connector.NewFactory()
		c, err := cf.CreateTracesToMetrics(b.Context(), connectortest.NewNopSettings(cf.Type()), cf.CreateDefaultConfig(), new(consumertest.MetricsSink))
		start(c, err)
		both, err := consumer.NewTraces(func(ctx context.Context, td ptrace.Traces) error {
			return errors.Join(e.ConsumeTraces(ctx, td), c.ConsumeTraces(ctx, td))
		})
		if err != nil {
			b.Fatal(err)
		}
		next = both
	}
	pf := processor.NewFactory()
	pc := pf.CreateDefaultConfig().(*processor.Config)
	pc.Annotation.HashKey = "5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed"
	p, err := pf.CreateTraces(b.Context(), processortest.NewNopSettings(pf.Type()), pc, next)
	start(p, err)
	return p
}
