// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package receiver

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/moonloop/moonloop/receiver/internal/admission"
	"github.com/moonloop/moonloop/semconv"
)

func requireDropped(t *testing.T, tel *componenttest.Telemetry, reason string, n int) {
	t.Helper()
	requireCounts(t, tel, "dropped", reason, n)
}

// counts returns the values of a counter, by the value of its only attribute, "" if it has none. Values of 0 are left out.
func counts(tel *componenttest.Telemetry, name string) map[string]int {
	all := map[string]int{}
	m, err := tel.GetMetric("otelcol_receiver_mooncake_" + name)
	if err != nil {
		return all
	}
	for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
		value := ""
		for _, kv := range p.Attributes.ToSlice() {
			value = kv.Value.AsString()
		}
		all[value] = int(p.Value)
	}
	for value, n := range all {
		if n == 0 {
			delete(all, value)
		}
	}
	return all
}

// requireCounts requires that a counter has exactly the given pairs of an attribute's value and a number.
func requireCounts(t *testing.T, tel *componenttest.Telemetry, name string, pairs ...any) {
	t.Helper()
	want := map[string]int{}
	for i := 0; i < len(pairs); i += 2 {
		want[pairs[i].(string)] = pairs[i+1].(int)
	}
	require.Equal(t, want, counts(tel, name), name)
}

// TestMetrics: each action of the receiver is in a metric.
func TestMetrics(t *testing.T) {
	tel := componenttest.NewTelemetry()
	cfg := testConfig(t)
	start(t, NewFactory(), metadataSettings(tel), cfg, new(consumertest.TracesSink), nil)
	conn := dial(t, cfg)
	_, err := ptraceotlp.NewGRPCClient(conn).Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(inference()))
	require.NoError(t, err)
	_, err = plogotlp.NewGRPCClient(conn).Export(t.Context(), plogotlp.NewExportRequestFromLogs(message()))
	require.NoError(t, err)

	// A log record that another receiver has read is counted as annotated.
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

	requireCounts(t, tel, "completed_usage", "", 1)
	requireCounts(t, tel, "spans", "", 4)
	requireCounts(t, tel, "genai_spans", "unknown", 2)
	requireCounts(t, tel, "inference_spans", "text", 3, "annotated", 2)
	requireCounts(t, tel, "sessions", "", 2)
	requireCounts(t, tel, "without_tokens", "", 2)
	requireCounts(t, tel, "carrier_spans", "", 1)
	requireCounts(t, tel, "log_records", "content", 1, "annotated", 1, "other", 2)
	requireCounts(t, tel, "removed_values", "gen_ai.input.messages", 2, "(body)", 2)
	requireDropped(t, tel, "log_other", 2)
	require.NoError(t, tel.Shutdown(t.Context()))
}

// TestMetricsFromTheStart: every counter whose attributes are known exists before the first span, at 0, and documentation.md has their values.
func TestMetricsFromTheStart(t *testing.T) {
	documented, err := os.ReadFile("documentation.md")
	require.NoError(t, err)
	tel := componenttest.NewTelemetry()
	start(t, NewFactory(), metadataSettings(tel), testConfig(t), new(consumertest.TracesSink), nil)
	for name, series := range map[string]int{
		"spans": 1, "sessions": 1, "without_tokens": 1, "completed_usage": 1, "truncated_prompts": 1, "metric_points": 1, "carrier_spans": 1,
		"inference_spans": 5, "log_records": 4, "dropped": 14, "refused_requests": len(admission.Reasons),
	} {
		m, err := tel.GetMetric("otelcol_receiver_mooncake_" + name)
		require.NoError(t, err)
		require.Len(t, m.Data.(metricdata.Sum[int64]).DataPoints, series, name)
		require.Empty(t, counts(tel, name), name)
		for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
			for _, kv := range p.Attributes.ToSlice() {
				require.Contains(t, string(documented), "``"+kv.Value.AsString()+"``", "%s by %s", name, kv.Key)
			}
		}
	}
	require.NoError(t, tel.Shutdown(t.Context()))
}
