// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/moonloop/moonloop/exporter/decode"
	"github.com/moonloop/moonloop/exporter/internal/metadata"
)

// metrics are what the exporter tells of itself. documentation.md lists them.
type metrics struct{ *metadata.TelemetryBuilder }

// The attributes of the measurements.
var (
	kindInference, kindUnannotated  = with("kind", "inference"), with("kind", "unannotated")
	kindContent, kindLink           = with("kind", "content"), with("kind", "link")
	reasonNoTraceID, reasonNoSpanID = with("reason", "no_trace_id"), with("reason", "no_span_id")
	resultOK, resultFailed          = with("result", "ok"), with("result", "failed")
)

func with(key, value string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String(key, value)))
}

// watch shows the size of the open segment.
func (m metrics) watch(size func() int64) error {
	return m.RegisterExporterMooncakeOpenSegmentCallback(func(_ context.Context, o metric.Int64Observer) error {
		o.Observe(size())
		return nil
	})
}

// pushed counts the records of a batch that is in the journal, once.
func (m metrics) pushed(ctx context.Context, c decode.Counts, bytes int) {
	add := func(counter metric.Int64Counter, n int64, with ...metric.AddOption) {
		if n > 0 {
			counter.Add(ctx, n, with...)
		}
	}
	add(m.ExporterMooncakeRecords, c.Inferences, kindInference)
	add(m.ExporterMooncakeRecords, c.Unannotated, kindUnannotated)
	add(m.ExporterMooncakeRecords, c.Contents, kindContent)
	add(m.ExporterMooncakeRecords, c.Links, kindLink)
	add(m.ExporterMooncakeDroppedSpans, c.NoTraceID, reasonNoTraceID)
	add(m.ExporterMooncakeDroppedSpans, c.NoSpanID, reasonNoSpanID)
	for name, n := range c.Invalid {
		add(m.ExporterMooncakeInvalidAttributes, n, with("attribute", name))
	}
	add(m.ExporterMooncakeWritten, int64(bytes))
}

// resultOf returns the attribute for how something ended.
func resultOf(err error) metric.MeasurementOption {
	if err != nil {
		return resultFailed
	}
	return resultOK
}
