// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package receiver

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/moonloop/moonloop/receiver/internal/metadatatest"
	"github.com/moonloop/moonloop/semconv"
)

func requireDropped(t *testing.T, tel *componenttest.Telemetry, reason string, n int64) {
	t.Helper()
	metadatatest.AssertEqualReceiverMooncakeDropped(t, tel, points("reason", reason, n), ignore...)
}

var ignore = []metricdatatest.Option{metricdatatest.IgnoreTimestamp(), metricdatatest.IgnoreExemplars()}

// points returns data points, of pairs of an attribute's value and a number.
func points(key string, pairs ...any) (all []metricdata.DataPoint[int64]) {
	for i := 0; i < len(pairs); i += 2 {
		point := metricdata.DataPoint[int64]{}
		switch n := pairs[i+1].(type) {
		case int64:
			point.Value = n
		case int:
			point.Value = int64(n)
		}
		if key != "" {
			point.Attributes = attribute.NewSet(attribute.String(key, pairs[i].(string)))
		}
		all = append(all, point)
	}
	return all
}

// TestMetrics: each thing that the receiver does is in a metric.
func TestMetrics(t *testing.T) {
	tel := componenttest.NewTelemetry()
	cfg := testConfig(t)
	start(t, NewFactory(), metadataSettings(tel), cfg, new(consumertest.TracesSink), nil)
	conn := dial(t, cfg)
	_, err := ptraceotlp.NewGRPCClient(conn).Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(inference()))
	require.NoError(t, err)
	_, err = plogotlp.NewGRPCClient(conn).Export(t.Context(), plogotlp.NewExportRequestFromLogs(message()))
	require.NoError(t, err)

	// What one receiver has read, the next one counts as such.
	read := message()
	read.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Attributes().PutStr(semconv.Identity, semconv.IdentityText)
	_, err = plogotlp.NewGRPCClient(conn).Export(t.Context(), plogotlp.NewExportRequestFromLogs(read))
	require.NoError(t, err)
	exclusive := inference()
	span := exclusive.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
	span.Attributes().PutInt("gen_ai.usage.input_tokens", 10)
	span.Attributes().PutInt("gen_ai.usage.cache_read.input_tokens", 20)
	_, err = ptraceotlp.NewGRPCClient(conn).Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(exclusive))
	require.NoError(t, err)

	metadatatest.AssertEqualReceiverMooncakeCompletedUsage(t, tel, points("", "", 1), ignore...)
	metadatatest.AssertEqualReceiverMooncakeSpans(t, tel, points("", "", 4), ignore...)
	metadatatest.AssertEqualReceiverMooncakeGenaiSpans(t, tel, points("dialect", "unknown", 2), ignore...)
	metadatatest.AssertEqualReceiverMooncakeInferenceSpans(t, tel, points("identity", "text", 3, "annotated", 2), ignore...)
	metadatatest.AssertEqualReceiverMooncakeSessions(t, tel, points("", "", 2), ignore...)
	metadatatest.AssertEqualReceiverMooncakeWithoutTokens(t, tel, points("", "", 2), ignore...)
	metadatatest.AssertEqualReceiverMooncakeCarrierSpans(t, tel, points("", "", 1), ignore...)
	metadatatest.AssertEqualReceiverMooncakeLogRecords(t, tel, points("kind", "content", 1, "annotated", 1, "other", 2), ignore...)
	metadatatest.AssertEqualReceiverMooncakeRemovedValues(t, tel, points("key", "gen_ai.input.messages", 2, "(body)", 2), ignore...)
	requireDropped(t, tel, "log_other", 2)
	require.NoError(t, tel.Shutdown(t.Context()))
}
