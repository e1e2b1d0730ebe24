// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/moonloop/moonloop/exporter/decode"
	"github.com/moonloop/moonloop/exporter/internal/metadata"
)

// metrics are what the exporter tells of itself. documentation.md lists them.
type metrics struct {
	b *metadata.TelemetryBuilder

	inference, unannotated, content, link metric.MeasurementOption
	noTraceID, noSpanID                   metric.MeasurementOption
	ok, failed                            metric.MeasurementOption
	tooOften, tooMany                     metric.MeasurementOption
}

func newMetrics(set component.TelemetrySettings) (*metrics, error) {
	b, err := metadata.NewTelemetryBuilder(set)
	if err != nil {
		return nil, err
	}
	with := func(key, value string) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(attribute.String(key, value)))
	}
	return &metrics{
		b:         b,
		inference: with("kind", "inference"), unannotated: with("kind", "unannotated"), content: with("kind", "content"), link: with("kind", "link"),
		noTraceID: with("reason", "no_trace_id"), noSpanID: with("reason", "no_span_id"),
		ok: with("result", "ok"), failed: with("result", "failed"),
		tooOften: with("limit", "carried_too_often"), tooMany: with("limit", "too_many"),
	}, nil
}

// watch shows the size of the open segment.
func (m *metrics) watch(size func() int64) error {
	return m.b.RegisterExporterMooncakeOpenSegmentCallback(func(_ context.Context, o metric.Int64Observer) error {
		o.Observe(size())
		return nil
	})
}

func (m *metrics) shutdown() { m.b.Shutdown() }

// pushed counts the records of a batch that is in the journal, once.
func (m *metrics) pushed(ctx context.Context, c decode.Counts, bytes int) {
	add := func(counter metric.Int64Counter, n int64, with ...metric.AddOption) {
		if n > 0 {
			counter.Add(ctx, n, with...)
		}
	}
	add(m.b.ExporterMooncakeRecords, c.Inferences, m.inference)
	add(m.b.ExporterMooncakeRecords, c.Unannotated, m.unannotated)
	add(m.b.ExporterMooncakeRecords, c.Contents, m.content)
	add(m.b.ExporterMooncakeRecords, c.Links, m.link)
	add(m.b.ExporterMooncakeDroppedSpans, c.NoTraceID, m.noTraceID)
	add(m.b.ExporterMooncakeDroppedSpans, c.NoSpanID, m.noSpanID)
	for name, n := range c.Invalid {
		add(m.b.ExporterMooncakeInvalidAttributes, n, metric.WithAttributes(attribute.String("attribute", name)))
	}
	add(m.b.ExporterMooncakeWritten, int64(bytes))
}

// failedWrite counts an attempt to write a batch that failed.
func (m *metrics) failedWrite(ctx context.Context, why fault) {
	m.b.ExporterMooncakeFailedWrites.Add(ctx, 1, metric.WithAttributes(attribute.String("fault", string(why))))
}

// result returns the attribute for how something ended.
func (m *metrics) result(err error) metric.MeasurementOption {
	if err != nil {
		return m.failed
	}
	return m.ok
}
