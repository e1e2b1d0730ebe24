// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package receiver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/moonloop/moonloop/internal/testport"
	"github.com/moonloop/moonloop/receiver/annotate"
	"github.com/moonloop/moonloop/receiver/internal/metadata"
	"github.com/moonloop/moonloop/semconv"
)

// testConfig returns a configuration with both protocols, on unused addresses.
func testConfig(t testing.TB) *Config {
	t.Helper()
	cfg := createDefaultConfig().(*Config)
	cfg.OTLP.Protocols.GRPC.GetOrInsertDefault().NetAddr.Endpoint = testport.Address(t)
	cfg.OTLP.Protocols.HTTP.GetOrInsertDefault().ServerConfig.NetAddr.Endpoint = testport.Address(t)
	cfg.Annotation.HashKey = "a key for tests, of thirty-two bytes or more"
	return cfg
}

// start runs the receiver with the pipelines that are not nil.
func start(t testing.TB, factory receiver.Factory, set receiver.Settings, cfg *Config, traces consumer.Traces, logs consumer.Logs) {
	t.Helper()
	var running []component.Component
	if traces != nil {
		r, err := factory.CreateTraces(t.Context(), set, cfg, traces)
		require.NoError(t, err)
		running = append(running, r)
	}
	if logs != nil {
		r, err := factory.CreateLogs(t.Context(), set, cfg, logs)
		require.NoError(t, err)
		running = append(running, r)
	}
	for _, r := range running {
		require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
	}
	t.Cleanup(func() {
		for _, r := range running {
			require.NoError(t, r.Shutdown(context.Background())) // the test's context is over
		}
	})
}

// dial returns a connection to the receiver's gRPC port.
func dial(t testing.TB, cfg *Config) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(cfg.OTLP.Protocols.GRPC.Get().NetAddr.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// post sends a body to the receiver's HTTP port.
func post(t testing.TB, cfg *Config, path, contentType string, body []byte) int {
	t.Helper()
	url := "http://" + cfg.OTLP.Protocols.HTTP.Get().ServerConfig.NetAddr.Endpoint + path
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", contentType)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	reply, err := client.Do(request)
	require.NoError(t, err)
	defer reply.Body.Close()
	_, _ = io.Copy(io.Discard, reply.Body)
	return reply.StatusCode
}

const prompt = "Hello there, how are you today? Please tell me all about it."

// inference returns two spans: one of a request with a prompt, and one of a replay's request, with ids that need unsigned integers.
func inference() ptrace.Traces {
	td := ptrace.NewTraces()
	list := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	span := list.AppendEmpty()
	span.SetName("chat llama")
	span.SetTraceID(pcommon.TraceID{1})
	span.SetSpanID(pcommon.SpanID{1})
	span.Attributes().PutStr("gen_ai.operation.name", "chat")
	span.Attributes().PutStr("gen_ai.request.model", "llama")
	span.Attributes().PutStr("gen_ai.input.messages", `[{"role":"user","parts":[{"type":"text","content":"`+prompt+`"}]}]`)
	span.Attributes().PutStr("session.id", "sess-A")
	replay := list.AppendEmpty()
	replay.SetName("chat llama")
	replay.SetTraceID(pcommon.TraceID{1})
	replay.SetSpanID(pcommon.SpanID{2})
	replay.Attributes().PutInt(semconv.Row, 0)
	replay.Attributes().PutStr(semconv.Identity, semconv.IdentityTrace)
	ids := replay.Attributes().PutEmptySlice(semconv.HashIDs)
	for _, id := range hashIDs {
		ids.AppendEmpty().SetInt(int64(id))
	}
	return td
}

// hashIDs are ids at the limits of 64 bits: OTLP has only signed integers.
var hashIDs = []uint64{0, 1, 1 << 63, 1<<64 - 1}

// message returns a log record with the message of a prompt, and one that is unrelated to models.
func message() plog.Logs {
	ld := plog.NewLogs()
	list := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords()
	log := list.AppendEmpty()
	log.SetEventName("gen_ai.user.message")
	log.SetTimestamp(1)
	log.SetTraceID(pcommon.TraceID{1})
	log.SetSpanID(pcommon.SpanID{1})
	log.Body().SetEmptyMap().PutStr("content", prompt)
	list.AppendEmpty().Body().SetStr("three apples sold")
	return ld
}

// sales returns metrics of an application, with a prompt on a data point and on its exemplar.
func sales() pmetric.Metrics {
	md := pmetric.NewMetrics()
	metric := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	metric.SetName("shop.sales")
	point := metric.SetEmptySum().DataPoints().AppendEmpty()
	point.SetIntValue(3)
	point.Attributes().PutStr("shop.cart", "apples")
	point.Attributes().PutStr("gen_ai.prompt", prompt)
	point.Exemplars().AppendEmpty().FilteredAttributes().PutStr("input.value", prompt)
	return md
}

// TestProtocols: all signals, both protocols and both encodings on one receiver, with the same result.
func TestProtocols(t *testing.T) {
	tracesProto, err := ptraceotlp.NewExportRequestFromTraces(inference()).MarshalProto()
	require.NoError(t, err)
	tracesJSON, err := ptraceotlp.NewExportRequestFromTraces(inference()).MarshalJSON()
	require.NoError(t, err)
	logsProto, err := plogotlp.NewExportRequestFromLogs(message()).MarshalProto()
	require.NoError(t, err)
	logsJSON, err := plogotlp.NewExportRequestFromLogs(message()).MarshalJSON()
	require.NoError(t, err)
	metricsProto, err := pmetricotlp.NewExportRequestFromMetrics(sales()).MarshalProto()
	require.NoError(t, err)
	metricsJSON, err := pmetricotlp.NewExportRequestFromMetrics(sales()).MarshalJSON()
	require.NoError(t, err)
	overGRPC := func(t *testing.T, cfg *Config, signal string) {
		t.Helper()
		var err error
		switch signal {
		case "traces":
			_, err = ptraceotlp.NewGRPCClient(dial(t, cfg)).Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(inference()))
		case "metrics":
			_, err = pmetricotlp.NewGRPCClient(dial(t, cfg)).Export(t.Context(), pmetricotlp.NewExportRequestFromMetrics(sales()))
		default:
			_, err = plogotlp.NewGRPCClient(dial(t, cfg)).Export(t.Context(), plogotlp.NewExportRequestFromLogs(message()))
		}
		require.NoError(t, err)
	}
	overHTTP := func(contentType string, bodies map[string][]byte) func(*testing.T, *Config, string) {
		return func(t *testing.T, cfg *Config, signal string) {
			t.Helper()
			require.Equal(t, http.StatusOK, post(t, cfg, "/v1/"+signal, contentType, bodies[signal]))
		}
	}
	for _, c := range []struct {
		name string
		send func(t *testing.T, cfg *Config, signal string)
	}{
		{"gRPC", overGRPC},
		{"HTTP, protobuf", overHTTP("application/x-protobuf", map[string][]byte{"traces": tracesProto, "logs": logsProto, "metrics": metricsProto})},
		{"HTTP, JSON", overHTTP("application/json", map[string][]byte{"traces": tracesJSON, "logs": logsJSON, "metrics": metricsJSON})},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := testConfig(t)
			traces, metrics, logs := new(consumertest.TracesSink), new(consumertest.MetricsSink), new(consumertest.LogsSink)
			factory := NewFactory()
			_, err := factory.CreateMetrics(t.Context(), receivertest.NewNopSettings(metadata.Type), cfg, metrics)
			require.NoError(t, err)
			start(t, factory, receivertest.NewNopSettings(metadata.Type), cfg, traces, logs)
			c.send(t, cfg, "traces")
			require.Len(t, traces.AllTraces(), 1)
			list := traces.AllTraces()[0].ResourceSpans().At(0).ScopeSpans().At(0).Spans()
			require.Equal(t, 2, list.Len())
			got := list.At(0).Attributes().AsRaw()
			require.Equal(t, semconv.IdentityText, got[semconv.Identity])
			require.NotContains(t, got, "gen_ai.input.messages")
			require.Len(t, got[semconv.Session], 16)
			ids, ok := list.At(1).Attributes().Get(semconv.HashIDs)
			require.True(t, ok)
			require.Equal(t, len(hashIDs), ids.Slice().Len())
			for i, want := range hashIDs {
				require.Equal(t, want, uint64(ids.Slice().At(i).Int()))
			}

			c.send(t, cfg, "logs")
			require.Len(t, traces.AllTraces(), 2)
			carrier := traces.AllTraces()[1].ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
			require.Equal(t, semconv.SpanContent, carrier.Name())
			cells, ok := carrier.Attributes().Get(semconv.Cells)
			require.True(t, ok)
			require.Equal(t, got[semconv.Cells], cells.AsRaw(), "a prompt in a log record has other cells than on its span")
			require.Equal(t, 2, logs.LogRecordCount())
			records := logs.AllLogs()[0].ResourceLogs().At(0).ScopeLogs().At(0).LogRecords()
			require.Equal(t, pcommon.ValueTypeEmpty, records.At(0).Body().Type())
			require.Equal(t, "three apples sold", records.At(1).Body().Str())

			c.send(t, cfg, "metrics")
			require.Equal(t, 1, metrics.DataPointCount())
			metric := metrics.AllMetrics()[0].ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0)
			require.Equal(t, "shop.sales", metric.Name())
			point := metric.Sum().DataPoints().At(0)
			require.Equal(t, int64(3), point.IntValue())
			require.Equal(t, map[string]any{"shop.cart": "apples"}, point.Attributes().AsRaw())
			require.Empty(t, point.Exemplars().At(0).FilteredAttributes().AsRaw())
		})
	}
}

// TestPipelines: what happens to each signal, for any set of pipelines.
func TestPipelines(t *testing.T) {
	t.Run("traces only", func(t *testing.T) {
		cfg, sink := testConfig(t), new(consumertest.TracesSink)
		tel := componenttest.NewTelemetry()
		start(t, NewFactory(), metadataSettings(tel), cfg, sink, nil)
		_, err := plogotlp.NewGRPCClient(dial(t, cfg)).Export(t.Context(), plogotlp.NewExportRequestFromLogs(message()))
		require.NoError(t, err)
		require.Equal(t, 1, sink.SpanCount())
		requireDropped(t, tel, "log_other", 1)
		scored := plog.NewLogs() // about a request, but without a prompt or a reply
		scored.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty().SetEventName("gen_ai.evaluation.result")
		_, err = plogotlp.NewGRPCClient(dial(t, cfg)).Export(t.Context(), plogotlp.NewExportRequestFromLogs(scored))
		require.NoError(t, err)
		requireDropped(t, tel, "log_other", 2)
		requireCounts(t, tel, "log_records", "content", 1, "other", 2)
		_, err = pmetricotlp.NewGRPCClient(dial(t, cfg)).Export(t.Context(), pmetricotlp.NewExportRequestFromMetrics(sales()))
		require.Equal(t, codes.Unimplemented, status.Code(err), "metrics without a consumer are refused, not lost")
		require.Equal(t, http.StatusNotFound, post(t, cfg, "/v1/metrics", "application/json", []byte("{}")))
		requireCounts(t, tel, "refused_requests", "not_served", 2)
		require.Equal(t, http.StatusNotFound, post(t, cfg, "/", "application/x-protobuf", make([]byte, 10<<20)), "an address without a path")
		var reply []byte
		profiles := "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"
		err = dial(t, cfg).Invoke(t.Context(), profiles, make([]byte, 1<<20), &reply, grpc.ForceCodecV2(wired{}))
		require.Equal(t, codes.Unimplemented, status.Code(err))
		requireCounts(t, tel, "refused_requests", "not_served", 4)

		// These are not telemetry.
		err = dial(t, cfg).Invoke(t.Context(), "/grpc.health.v1.Health/Check", []byte{}, &reply, grpc.ForceCodecV2(wired{}))
		require.Equal(t, codes.Unimplemented, status.Code(err))
		require.Equal(t, http.StatusNotFound, post(t, cfg, "/login", "application/x-www-form-urlencoded", []byte("a=b")))
		requireCounts(t, tel, "refused_requests", "not_served", 4)
		require.NoError(t, tel.Shutdown(t.Context()))
	})
	t.Run("metrics only", func(t *testing.T) {
		cfg, sink := testConfig(t), new(consumertest.MetricsSink)
		tel := componenttest.NewTelemetry()
		r, err := NewFactory().CreateMetrics(t.Context(), metadataSettings(tel), cfg, sink)
		require.NoError(t, err)
		require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
		_, err = pmetricotlp.NewGRPCClient(dial(t, cfg)).Export(t.Context(), pmetricotlp.NewExportRequestFromMetrics(sales()))
		require.NoError(t, err)
		require.Equal(t, 1, sink.DataPointCount())
		requireCounts(t, tel, "metric_points", "", 1)
		_, err = plogotlp.NewGRPCClient(dial(t, cfg)).Export(t.Context(), plogotlp.NewExportRequestFromLogs(message()))
		require.Equal(t, codes.Unimplemented, status.Code(err), "log records without a consumer are refused, not lost")
		requireCounts(t, tel, "refused_requests", "not_served", 1)
		require.NoError(t, r.Shutdown(t.Context()))
		require.NoError(t, tel.Shutdown(t.Context()))
	})
	t.Run("logs only, with their text", func(t *testing.T) {
		cfg, sink := testConfig(t), new(consumertest.LogsSink)
		cfg.Annotation.Content = annotate.ContentKeep
		start(t, NewFactory(), receivertest.NewNopSettings(metadata.Type), cfg, nil, sink)
		_, err := plogotlp.NewGRPCClient(dial(t, cfg)).Export(t.Context(), plogotlp.NewExportRequestFromLogs(message()))
		require.NoError(t, err)
		require.Equal(t, message().ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Attributes().AsRaw(),
			sink.AllLogs()[0].ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Attributes().AsRaw(),
			"the next receiver is told that this one used a prompt, which it did not use")
	})
	t.Run("logs only", func(t *testing.T) {
		cfg, sink := testConfig(t), new(consumertest.LogsSink)
		tel := componenttest.NewTelemetry()
		set := metadataSettings(tel)
		core, seen := observer.New(zapcore.WarnLevel)
		set.Logger = zap.New(core)
		start(t, NewFactory(), set, cfg, nil, sink)
		require.Equal(t, 1, seen.FilterMessageSnippet("no pipeline of traces").Len())
		_, err := plogotlp.NewGRPCClient(dial(t, cfg)).Export(t.Context(), plogotlp.NewExportRequestFromLogs(message()))
		require.NoError(t, err)
		require.Equal(t, 2, sink.LogRecordCount())
		requireDropped(t, tel, "no_pipeline", 1)
		_, err = ptraceotlp.NewGRPCClient(dial(t, cfg)).Export(t.Context(), ptraceotlp.NewExportRequestFromTraces(inference()))
		require.Equal(t, codes.Unimplemented, status.Code(err), "spans without a consumer are refused, not lost")
		requireCounts(t, tel, "refused_requests", "not_served", 1)
		require.NoError(t, tel.Shutdown(t.Context()))
	})
}

// TestWarnings: a configuration that works but is probably not intended is in the log.
func TestWarnings(t *testing.T) {
	cfg := testConfig(t)
	cfg.Annotation.HashKey, cfg.Annotation.Content = "", "keep"
	core, seen := observer.New(zapcore.WarnLevel)
	set := receivertest.NewNopSettings(metadata.Type)
	set.Logger = zap.New(core)
	start(t, NewFactory(), set, cfg, consumertest.NewNop(), consumertest.NewNop())
	require.Equal(t, 1, seen.FilterMessageSnippet("hash_key is empty").Len())
	require.Equal(t, 1, seen.FilterMessageSnippet("content is keep").Len())
	require.Equal(t, 2, seen.Len())
}

// TestErrors: of several errors, the sender sees the one that asks most of it.
func TestErrors(t *testing.T) {
	again, never := errors.New("try again"), consumererror.NewPermanent(errors.New("never"))
	for _, c := range []struct {
		traces, logs error
		want         codes.Code
	}{
		{nil, nil, codes.OK},
		{again, nil, codes.Unavailable},
		{nil, again, codes.Unavailable},
		{never, nil, codes.Internal},
		{never, again, codes.Unavailable},
		{again, never, codes.Unavailable},
		{never, never, codes.Internal},
	} {
		t.Run(fmt.Sprint(c.traces, c.logs), func(t *testing.T) {
			cfg := testConfig(t)
			start(t, NewFactory(), receivertest.NewNopSettings(metadata.Type), cfg, consumertest.NewErr(c.traces), consumertest.NewErr(c.logs))
			_, err := plogotlp.NewGRPCClient(dial(t, cfg)).Export(t.Context(), plogotlp.NewExportRequestFromLogs(message()))
			require.Equal(t, c.want, status.Code(err))
		})
	}
}

// TestPortInUse: an address in use is an error of Start, and nothing keeps running.
func TestPortInUse(t *testing.T) {
	cfg := testConfig(t)
	start(t, NewFactory(), receivertest.NewNopSettings(metadata.Type), cfg, consumertest.NewNop(), nil)
	second := *cfg
	r, err := NewFactory().CreateTraces(t.Context(), receivertest.NewNopSettings(metadata.Type), &second, consumertest.NewNop())
	require.NoError(t, err)
	require.Error(t, r.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, r.Shutdown(t.Context()))
}

func metadataSettings(tel *componenttest.Telemetry) receiver.Settings {
	set := receivertest.NewNopSettings(metadata.Type)
	set.TelemetrySettings = tel.NewTelemetrySettings()
	return set
}
