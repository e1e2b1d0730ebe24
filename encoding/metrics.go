// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package encoding

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/moonloop/moonloop/encoding/internal/metadata"
	"github.com/moonloop/moonloop/exporter/decode"
)

// metrics are the extension's own metrics. documentation.md lists them.
type metrics struct{ *metadata.TelemetryBuilder }

// Values of the attributes that distinguish the measurements of a metric.
const (
	directionWritten = "written"
	directionRead    = "read"

	reasonUnannotated = "unannotated"
	reasonNoTraceID   = "no_trace_id"
	reasonNoSpanID    = "no_span_id"
	reasonSampled     = "sampled"
	reasonUndecided   = "undecided"
)

var kinds = [...]string{"inference", "content", "link"}

func with(key, value string, more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append(more, attribute.String(key, value))...))
}

// begin creates the counters before the first event, because a rate would miss it, and an alert could not distinguish zero events from a
// Collector that does not count.
func (m metrics) begin(ctx context.Context) {
	for _, direction := range [...]string{directionWritten, directionRead} {
		m.ExtensionMooncakeEncodingMessages.Add(ctx, 0, with("direction", direction))
		m.ExtensionMooncakeEncodingSize.Add(ctx, 0, with("direction", direction))
		m.ExtensionMooncakeEncodingFailedMessages.Add(ctx, 0, with("direction", direction))
		for _, kind := range kinds {
			m.ExtensionMooncakeEncodingRecords.Add(ctx, 0, with("direction", direction, attribute.String("kind", kind)))
		}
	}
	for _, reason := range [...]string{reasonUnannotated, reasonNoTraceID, reasonNoSpanID, reasonSampled, reasonUndecided} {
		m.ExtensionMooncakeEncodingDroppedSpans.Add(ctx, 0, with("reason", reason))
	}
	m.ExtensionMooncakeEncodingInvalidValues.Add(ctx, 0)
}

// wrote counts a message that was made, and what was left out of it.
func (m metrics) wrote(c *decode.Counts, bytes int) {
	m.passed(c, bytes, directionWritten)
	ctx := context.Background() // an encoding does not get the caller's context
	out := c.SampledOut
	for reason, n := range map[string]int64{
		reasonUnannotated: c.Unannotated, reasonNoTraceID: c.NoTraceID, reasonNoSpanID: c.NoSpanID,
		reasonSampled: out.Inferences + out.Contents + out.Links, reasonUndecided: c.Undecided,
	} {
		if n > 0 {
			m.ExtensionMooncakeEncodingDroppedSpans.Add(ctx, n, with("reason", reason))
		}
	}
	for name, n := range c.Invalid {
		m.ExtensionMooncakeEncodingInvalidValues.Add(ctx, n, with("attribute", name))
	}
}

// passed counts a message that was written or read, and its records.
func (m metrics) passed(c *decode.Counts, bytes int, direction string) {
	ctx := context.Background()
	m.ExtensionMooncakeEncodingMessages.Add(ctx, 1, with("direction", direction))
	m.ExtensionMooncakeEncodingSize.Add(ctx, int64(bytes), with("direction", direction))
	for i, n := range [len(kinds)]int64{c.Inferences, c.Contents, c.Links} {
		if n > 0 {
			m.ExtensionMooncakeEncodingRecords.Add(ctx, n, with("direction", direction, attribute.String("kind", kinds[i])))
		}
	}
}

// failed counts a message that could not be written or read.
func (m metrics) failed(direction string) {
	m.ExtensionMooncakeEncodingFailedMessages.Add(context.Background(), 1, with("direction", direction))
}
