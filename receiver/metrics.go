// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package receiver

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/moonloop/moonloop/receiver/annotate"
)

// Attributes of the metrics, as metadata.yaml has them.
const (
	attributeDialect  = "dialect"
	attributeIdentity = "identity"
	attributeKey      = "key"
	attributeKind     = "kind"
	attributeReason   = "reason"
)

// identityAnnotated is the identity of spans that came with one.
const identityAnnotated = "annotated"

// Kinds of log records.
const (
	kindContent   = "content"
	kindRequest   = "request"
	kindAnnotated = "annotated"
	kindOther     = "other"
)

// record adds what one call counted to the metrics.
func (r *mooncakeReceiver) record(ctx context.Context, n annotate.Counts) {
	t := r.telemetry
	add(ctx, t.ReceiverMooncakeSpans, n.Spans)
	add(ctx, t.ReceiverMooncakeSessions, n.Sessions)
	add(ctx, t.ReceiverMooncakeWithoutTokens, n.WithoutTokens)
	add(ctx, t.ReceiverMooncakeCompletedUsage, n.Completed)
	add(ctx, t.ReceiverMooncakeTruncatedPrompts, n.Truncated)
	add(ctx, t.ReceiverMooncakeMetricPoints, n.Points)
	add(ctx, t.ReceiverMooncakeCarrierSpans, n.Carriers+n.RequestSpans)
	by(ctx, t.ReceiverMooncakeInferenceSpans, attributeIdentity, identityAnnotated, n.Annotated)
	by(ctx, t.ReceiverMooncakeLogRecords, attributeKind, kindContent, n.ContentLogs)
	by(ctx, t.ReceiverMooncakeLogRecords, attributeKind, kindRequest, n.RequestLogs)
	by(ctx, t.ReceiverMooncakeLogRecords, attributeKind, kindAnnotated, n.AnnotatedLogs)
	by(ctx, t.ReceiverMooncakeLogRecords, attributeKind, kindOther, otherLogs(n))
	for dialect, count := range n.Dialects {
		by(ctx, t.ReceiverMooncakeGenaiSpans, attributeDialect, string(dialect), count)
	}
	for identity, count := range n.Identities {
		by(ctx, t.ReceiverMooncakeInferenceSpans, attributeIdentity, identity, count)
	}
	for reason, count := range n.Dropped {
		by(ctx, t.ReceiverMooncakeDropped, attributeReason, string(reason), count)
	}
	for key, count := range n.Removed {
		by(ctx, t.ReceiverMooncakeRemovedValues, attributeKey, key, count)
	}
}

// otherLogs returns the number of log records that have nothing to do with requests.
func otherLogs(n annotate.Counts) int64 {
	return n.Logs - n.AnnotatedLogs - n.ContentLogs - n.RequestLogs
}

func add(ctx context.Context, counter metric.Int64Counter, n int64) {
	if n > 0 {
		counter.Add(ctx, n)
	}
}

func by(ctx context.Context, counter metric.Int64Counter, key, value string, n int64) {
	if n > 0 {
		counter.Add(ctx, n, metric.WithAttributeSet(attribute.NewSet(attribute.String(key, value))))
	}
}
