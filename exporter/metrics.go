// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/exporter/decode"
	"github.com/moonloop/moonloop/exporter/internal/metadata"
	"github.com/moonloop/moonloop/exporter/segment"
)

// metrics are the exporter's own metrics. documentation.md lists them.
type metrics struct{ *metadata.TelemetryBuilder }

// The attributes of the measurements.
var (
	kindInference, kindUnannotated  = with("kind", "inference"), with("kind", "unannotated")
	kindContent, kindLink           = with("kind", "content"), with("kind", "link")
	reasonNoTraceID, reasonNoSpanID = with("reason", "no_trace_id"), with("reason", "no_span_id")
	kindUndecided                   = with("kind", "undecided")
	resultOK, resultFailed          = with("result", "ok"), with("result", "failed")
	none                            = metric.WithAttributeSet(*attribute.EmptySet())
)

func with(key, value string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String(key, value)))
}

// watch observes an exporter's files on disk, and how long ago it had a request. Counters of several exporters add up; these values have
// the exporter's name as an attribute.
func (m metrics) watch(name string, j *segment.Journal, age func() time.Duration) error {
	of := func(more ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(append(more, attribute.String("exporter", name))...))
	}
	exporter, open, pending, closed := of(), of(attribute.String("state", "open")), of(attribute.String("state", "pending")), of(attribute.String("state", "closed"))
	return errors.Join(
		m.RegisterExporterMooncakeOpenSegmentCallback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(j.Size(), exporter)
			return nil
		}),
		m.RegisterExporterMooncakeJournalSizeCallback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(j.Usage().Bytes, exporter)
			return nil
		}),
		m.RegisterExporterMooncakeSegmentsCallback(func(_ context.Context, o metric.Int64Observer) error {
			u := j.Usage()
			o.Observe(1, open)
			o.Observe(u.Pending, pending)
			o.Observe(u.Closed-u.Pending, closed)
			return nil
		}),
		m.RegisterExporterMooncakeDiskFreeCallback(func(_ context.Context, o metric.Int64Observer) error {
			if free, ok := j.Free(); ok {
				o.Observe(free, exporter)
			}
			return nil
		}),
		m.RegisterExporterMooncakeLastRequestAgeCallback(func(_ context.Context, o metric.Float64Observer) error {
			o.Observe(age().Seconds(), exporter)
			return nil
		}),
	)
}

// begin creates counters with known attributes before the first event, because a rate would miss it, and an alert could not distinguish
// zero events from a Collector that does not count.
func (m metrics) begin() {
	ctx := context.Background()
	for counter, all := range map[metric.Int64Counter][]metric.AddOption{
		m.ExporterMooncakeRecords:              {kindInference, kindUnannotated, kindContent, kindLink},
		m.ExporterMooncakeDroppedSpans:         {reasonNoTraceID, reasonNoSpanID},
		m.ExporterMooncakeCompilations:         {resultOK, resultFailed},
		m.ExporterMooncakeCuts:                 {resultOK, resultFailed},
		m.ExporterMooncakeRemovedSegments:      {resultOK, resultFailed},
		m.ExporterMooncakeSampledOut:           {kindInference, kindContent, kindLink, kindUndecided},
		m.ExporterMooncakeWritten:              {none},
		m.ExporterMooncakeLost:                 {none},
		m.ExporterMooncakeOversizeSegments:     {none},
		m.ExporterMooncakeUnreadableQueueItems: {none},
	} {
		for _, with := range all {
			counter.Add(ctx, 0, with)
		}
	}
	m.ExporterMooncakeFailedWrites.Add(ctx, 0, with("fault", otherFault))
	for _, f := range knownFaults {
		m.ExporterMooncakeFailedWrites.Add(ctx, 0, with("fault", f.name))
	}
	for traffic, identities := range identitiesOfRows {
		for _, identity := range identities {
			m.ExporterMooncakeRows.Add(ctx, 0, rowsOf(identity, trafficNames[traffic]))
		}
	}
	for _, reason := range capture.LeftOutReasons() {
		m.ExporterMooncakeLeftOutRequests.Add(ctx, 0, leftOutFor(reason))
	}
}

// pushed counts the records of a batch that is in the journal, once.
func (m metrics) pushed(ctx context.Context, c decode.Counts, bytes int64) {
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
	add(m.ExporterMooncakeSampledOut, c.SampledOut.Inferences, kindInference)
	add(m.ExporterMooncakeSampledOut, c.SampledOut.Contents, kindContent)
	add(m.ExporterMooncakeSampledOut, c.SampledOut.Links, kindLink)
	add(m.ExporterMooncakeSampledOut, c.Undecided, kindUndecided)
	for name, n := range c.Invalid {
		add(m.ExporterMooncakeInvalidAttributes, n, with("attribute", name))
	}
	add(m.ExporterMooncakeWritten, bytes)
}

// resultOf returns the attribute for a result.
func resultOf(err error) metric.MeasurementOption {
	if err != nil {
		return resultFailed
	}
	return resultOK
}
