// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/plogtest"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/pdatatest/ptracetest"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/confignet"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/processortest"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/moonloop/moonloop/internal/testproducers"
	"github.com/moonloop/moonloop/processor/internal/metadata"
	"github.com/moonloop/moonloop/processor/internal/metadatatest"
	"github.com/moonloop/moonloop/receiver"
	"github.com/moonloop/moonloop/receiver/annotate"
	"github.com/moonloop/moonloop/semconv"
)

// testKey is a hash key for tests.
const testKey = "a key for tests, of thirty-two bytes or more"

func testConfig() *Config {
	cfg := createDefaultConfig().(*Config)
	cfg.Annotation.HashKey = testKey
	return cfg
}

func nopSettings() processor.Settings { return processortest.NewNopSettings(metadata.Type) }

// run starts a component, and stops it when the test ends.
func run(t *testing.T, c component.Component) {
	t.Helper()
	require.NoError(t, c.Start(t.Context(), componenttest.NewNopHost()))
	t.Cleanup(func() { require.NoError(t, c.Shutdown(context.Background())) }) // the test's context is over
}

// newTraces starts a processor of spans.
func newTraces(t *testing.T, set processor.Settings, cfg *Config, next *consumertest.TracesSink) processor.Traces {
	t.Helper()
	p, err := NewFactory().CreateTraces(t.Context(), set, cfg, next)
	require.NoError(t, err)
	run(t, p)
	return p
}

// newLogs starts a processor of log records.
func newLogs(t *testing.T, set processor.Settings, cfg *Config, next *consumertest.LogsSink) processor.Logs {
	t.Helper()
	p, err := NewFactory().CreateLogs(t.Context(), set, cfg, next)
	require.NoError(t, err)
	run(t, p)
	return p
}

// message returns two log records: a message of a prompt, and one that is unrelated to models.
func message() plog.Logs {
	ld := plog.NewLogs()
	list := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords()
	log := list.AppendEmpty()
	log.SetEventName("gen_ai.user.message")
	log.SetTraceID([16]byte{1})
	log.SetSpanID([8]byte{2})
	log.Body().SetEmptyMap().PutStr("content", "Hello there, how are you today?")
	list.AppendEmpty().Body().SetStr("the shop is open")
	return ld
}

// TestSameAsReceiver: the processor changes spans in the same way as the receiver, for every producer.
func TestSameAsReceiver(t *testing.T) {
	rf := receiver.NewFactory()
	rc := rf.CreateDefaultConfig().(*receiver.Config)
	rc.Annotation.HashKey = testKey
	listener := rc.OTLP.Protocols.GRPC.GetOrInsertDefault()
	listener.NetAddr = confignet.AddrConfig{Endpoint: filepath.Join(t.TempDir(), "otlp.sock"), Transport: confignet.TransportTypeUnix}
	received := new(consumertest.TracesSink)
	r, err := rf.CreateTraces(t.Context(), receivertest.NewNopSettings(rf.Type()), rc, received)
	require.NoError(t, err)
	run(t, r)
	conn, err := grpc.NewClient("unix:"+listener.NetAddr.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })

	processed := new(consumertest.TracesSink)
	p := newTraces(t, nopSettings(), testConfig(), processed)
	annotated := 0
	for _, producer := range testproducers.All() {
		for line := range bytes.Lines(producer.Traces) {
			td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(line)
			require.NoError(t, err)
			received.Reset()
			processed.Reset()
			_, err = ptraceotlp.NewGRPCClient(conn).Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(td))
			require.NoError(t, err)
			require.NoError(t, p.ConsumeTraces(t.Context(), td))
			require.Len(t, received.AllTraces(), 1)
			require.Len(t, processed.AllTraces(), 1)
			require.NoError(t, ptracetest.CompareTraces(received.AllTraces()[0], processed.AllTraces()[0]), producer.Name)
			for _, span := range processed.AllTraces()[0].ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
				if _, ok := span.Attributes().Get(semconv.Identity); ok {
					annotated++
				}
			}
		}
	}
	require.Greater(t, annotated, 40)
}

// TestNothingLeaks applies the common leak test to the processor.
func TestNothingLeaks(t *testing.T) {
	folder := filepath.Join("..", "..", "shared", "data", "producers")
	if _, err := os.Stat(folder); err != nil {
		t.Skipf("captured telemetry is not here, so nothing of it is searched for: %v", err)
	}
	testproducers.CheckNothingLeaks(t, folder, func(t *testing.T) testproducers.Path {
		t.Helper()
		spans, records := new(consumertest.TracesSink), new(consumertest.LogsSink)
		traces, logs := newTraces(t, nopSettings(), testConfig(), spans), newLogs(t, nopSettings(), testConfig(), records)
		return testproducers.Path{
			Traces: func(td ptrace.Traces) {
				require.NoError(t, traces.ConsumeTraces(t.Context(), td))
				require.Equal(t, td, spans.AllTraces()[len(spans.AllTraces())-1]) // in place
			},
			Logs: func(ld plog.Logs) ptrace.Traces {
				require.NoError(t, logs.ConsumeLogs(t.Context(), ld))
				require.Equal(t, ld, records.AllLogs()[len(records.AllLogs())-1])
				return ptrace.NewTraces()
			},
		}
	})
}

// TestNothingLeaksOfMadeProducers searches the output for a prompt of generated telemetry, which needs no files outside of the repository.
func TestNothingLeaksOfMadeProducers(t *testing.T) {
	const prompt = "lonely boat" // a part of the prompt of one of the requests
	for _, producer := range testproducers.All() {
		spans, records := new(consumertest.TracesSink), new(consumertest.LogsSink)
		traces, logs := newTraces(t, nopSettings(), testConfig(), spans), newLogs(t, nopSettings(), testConfig(), records)
		for line := range bytes.Lines(producer.Traces) {
			td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(line)
			require.NoError(t, err)
			require.NoError(t, traces.ConsumeTraces(t.Context(), td))
			for _, text := range testproducers.TraceBytes(t, td) {
				require.NotContains(t, text, prompt, producer.Name)
			}
		}
		for line := range bytes.Lines(producer.Logs) {
			ld, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs(line)
			require.NoError(t, err)
			require.NoError(t, logs.ConsumeLogs(t.Context(), ld))
			for _, text := range testproducers.LogBytes(t, ld) {
				require.NotContains(t, text, prompt, producer.Name)
			}
		}
		if producer.Want.Text > 0 {
			require.Contains(t, string(producer.Traces)+string(producer.Logs), prompt, "this test would see no leak")
		}
	}
}

// TestLogs: records are cleaned, and their prompts are counted as lost, because no span can be made of them.
func TestLogs(t *testing.T) {
	tel := componenttest.NewTelemetry()
	t.Cleanup(func() { require.NoError(t, tel.Shutdown(context.Background())) })
	sink := new(consumertest.LogsSink)
	p := newLogs(t, metadatatest.NewSettings(tel), testConfig(), sink)
	require.True(t, p.Capabilities().MutatesData)
	require.NoError(t, p.ConsumeLogs(t.Context(), message()))
	records := sink.AllLogs()[0].ResourceLogs().At(0).ScopeLogs().At(0).LogRecords()
	require.Equal(t, "", records.At(0).Body().AsString())
	require.Equal(t, "the shop is open", records.At(1).Body().AsString())
	identity, ok := records.At(0).Attributes().Get(semconv.Identity)
	require.True(t, ok, "the next receiver would read it again")
	require.Equal(t, semconv.IdentityText, identity.Str())
	require.Equal(t, map[string]int64{string(annotate.ReasonNoPipeline): 1}, counts(t, tel, "dropped", 14))
	metadatatest.AssertEqualProcessorMooncakeRemovedValues(t, tel, point("key", "(body)", 1), ignore...)
}

var ignore = []metricdatatest.Option{metricdatatest.IgnoreTimestamp(), metricdatatest.IgnoreExemplars()}

// point returns the data points expected of a metric that has only one.
func point(key, value string, n int64) []metricdata.DataPoint[int64] {
	return []metricdata.DataPoint[int64]{{Attributes: attribute.NewSet(attribute.String(key, value)), Value: n}}
}

// counts returns the values of a counter, by the value of its only attribute. It omits values of 0, but checks how many series there are, and that
// documentation.md has the attribute's values.
func counts(t *testing.T, tel *componenttest.Telemetry, name string, series int) map[string]int64 {
	t.Helper()
	m, err := tel.GetMetric("otelcol_processor_mooncake_" + name)
	require.NoError(t, err)
	points := m.Data.(metricdata.Sum[int64]).DataPoints
	require.Len(t, points, series)
	documented, err := os.ReadFile("documentation.md")
	require.NoError(t, err)
	all := map[string]int64{}
	for _, p := range points {
		for _, kv := range p.Attributes.ToSlice() {
			require.Contains(t, string(documented), "``"+kv.Value.AsString()+"``", "%s by %s", name, kv.Key)
		}
		if p.Value != 0 {
			all[p.Attributes.ToSlice()[0].Value.AsString()] = p.Value
		}
	}
	return all
}

// TestMetrics: metrics report what the processor does to spans.
func TestMetrics(t *testing.T) {
	tel := componenttest.NewTelemetry()
	t.Cleanup(func() { require.NoError(t, tel.Shutdown(context.Background())) })
	p := newTraces(t, metadatatest.NewSettings(tel), testConfig(), new(consumertest.TracesSink))
	require.True(t, p.Capabilities().MutatesData)
	td := ptrace.NewTraces()
	span := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	span.Attributes().PutStr("gen_ai.operation.name", "chat")
	span.Attributes().PutStr("gen_ai.provider.name", "openai")
	span.Attributes().PutStr("gen_ai.conversation.id", "c")
	span.Attributes().PutStr("gen_ai.input.messages", `[{"role":"user","parts":[{"type":"text","content":"Hello"}]}]`)
	require.NoError(t, p.ConsumeTraces(t.Context(), td))
	one := []metricdata.DataPoint[int64]{{Value: 1}}
	metadatatest.AssertEqualProcessorMooncakeSpans(t, tel, one, ignore...)
	metadatatest.AssertEqualProcessorMooncakeSessions(t, tel, one, ignore...)
	metadatatest.AssertEqualProcessorMooncakeWithoutTokens(t, tel, one, ignore...)
	metadatatest.AssertEqualProcessorMooncakeGenaiSpans(t, tel, point("dialect", "otel", 1), ignore...)
	require.Equal(t, map[string]int64{"text": 1}, counts(t, tel, "inference_spans", 5))
	require.Empty(t, counts(t, tel, "dropped", 14))
	require.Empty(t, counts(t, tel, "truncated_prompts", 1))
	require.Empty(t, counts(t, tel, "completed_usage", 1))
	metadatatest.AssertEqualProcessorMooncakeRemovedValues(t, tel, point("key", "gen_ai.input.messages", 1), ignore...)
}

// TestKeep: text stays if the configuration says so, with a warning, and is still hashed.
func TestKeep(t *testing.T) {
	core, logged := observer.New(zapcore.WarnLevel)
	set := nopSettings()
	set.Logger = zap.New(core)
	cfg := createDefaultConfig().(*Config) // without a key
	cfg.Annotation.Content = annotate.ContentKeep
	spans, records := new(consumertest.TracesSink), new(consumertest.LogsSink)
	traces, logs := newTraces(t, set, cfg, spans), newLogs(t, nopSettings(), cfg, records)
	require.Equal(t, 1, logged.FilterMessageSnippet("content is keep").Len())
	require.Equal(t, 1, logged.FilterMessageSnippet("hash_key is empty").Len())

	td := ptrace.NewTraces()
	span := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	span.Attributes().PutStr("gen_ai.operation.name", "chat")
	span.Attributes().PutStr("gen_ai.input.messages", `[{"role":"user","content":"Hello"}]`)
	require.NoError(t, traces.ConsumeTraces(t.Context(), td))
	_, kept := span.Attributes().Get("gen_ai.input.messages")
	_, hashed := span.Attributes().Get(semconv.Cells)
	require.True(t, kept && hashed)

	ld := message()
	require.NoError(t, logs.ConsumeLogs(t.Context(), ld))
	require.NoError(t, plogtest.CompareLogs(message(), ld))
}

// TestNextError: the error of the next component is returned, so that the sender retries.
func TestNextError(t *testing.T) {
	failed := context.DeadlineExceeded
	p, err := NewFactory().CreateTraces(t.Context(), nopSettings(), testConfig(), consumertest.NewErr(failed))
	require.NoError(t, err)
	run(t, p)
	td := ptrace.NewTraces()
	td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	require.ErrorIs(t, p.ConsumeTraces(t.Context(), td), failed)
}
