// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package receiver

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // senders use it
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/moonloop/moonloop/internal/testwire"
	"github.com/moonloop/moonloop/receiver/internal/metadatatest"
)

// wired sends bytes as they are.
type wired struct{ encoding.CodecV2 }

func (wired) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (wired) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}
func (wired) Name() string { return "proto" }

const (
	methodTraces = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
	methodLogs   = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
)

// TestAdmission: a request for which there is no room is refused, over each protocol, with the status that makes senders react correctly,
// and all room is released: at the end, a request that needs nearly all of it passes.
func TestAdmission(t *testing.T) {
	cfg := testConfig(t)
	cfg.Admission.RequestLimitMiB = 1
	tel := componenttest.NewTelemetry()
	t.Cleanup(func() { _ = tel.Shutdown(context.Background()) })
	entered, leave := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(leave) })
	traces, err := consumer.NewTraces(func(_ context.Context, td ptrace.Traces) error {
		if td.SpanCount() > 0 && td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Name() == "wait" {
			entered <- struct{}{}
			<-leave
		}
		return nil
	})
	require.NoError(t, err)
	start(t, NewFactory(), metadatatest.NewSettings(tel), cfg, traces, consumertest.NewNop())
	t.Cleanup(goOn) // before the receiver's shutdown, which waits for the request
	conn := dial(t, cfg)
	send := func(method string, body []byte, options ...grpc.CallOption) codes.Code {
		var reply []byte
		return status.Code(conn.Invoke(t.Context(), method, body, &reply, append(options, grpc.ForceCodecV2(wired{}))...))
	}
	const proto, json = "application/x-protobuf", "application/json"
	large := testwire.Within(bytes.Repeat([]byte{2<<3 | 2, 0}, 5000), 1, 2) // 10 kB, which decode to more than a MiB
	nearly := testwire.Within([]byte(strings.Repeat("x", 200<<10)), 1, 2, 2, 5)
	honest, err := ptraceotlp.NewExportRequestFromTraces(inference()).MarshalProto()
	require.NoError(t, err)
	logs, err := plogotlp.NewExportRequest().MarshalProto()
	require.NoError(t, err)

	require.Equal(t, codes.OK, send(methodTraces, honest))
	require.Equal(t, codes.OK, send(methodLogs, logs))
	deep := testwire.Within(testwire.Nested(10_000), 1, 2, 2, 9, 2)
	for range 20 {
		require.Equal(t, codes.ResourceExhausted, send(methodTraces, large))
		require.Equal(t, codes.ResourceExhausted, send(methodTraces, large, grpc.UseCompressor("gzip")))
		require.Equal(t, 413, post(t, cfg, "/v1/traces", proto, large))
		require.Equal(t, 413, post(t, cfg, "/v1/traces", json, []byte(`{"resourceSpans":[`+strings.Repeat("{},", 5000)+`{}]}`)))
		require.Equal(t, 413, post(t, cfg, "/v1/logs", json, bytes.Repeat([]byte(" "), 300<<10)))
		require.Equal(t, codes.InvalidArgument, send(methodTraces, deep))
		require.Equal(t, 400, post(t, cfg, "/v1/traces", proto, deep))
		require.Equal(t, codes.InvalidArgument, send(methodTraces, honest[:len(honest)-1]))
		require.Equal(t, 400, post(t, cfg, "/v1/traces", proto, honest[:len(honest)-1]))
		require.Equal(t, 400, post(t, cfg, "/v1/traces", json, []byte(`{"resourceSpans":[{`)))
		require.Equal(t, codes.InvalidArgument, send(methodTraces, testwire.Within([]byte{1 << 3, 1}, 1, 2, 2))) // well-formed, of a wrong type
		twice(t, conn, honest)
	}
	requireCounts(t, tel, "refused_requests", "too_large", 100, "too_deep", 40, "malformed", 80)

	var waiting sync.WaitGroup
	waiting.Go(func() {
		send(methodTraces, testwire.Within(append(testwire.Within([]byte("wait"), 5), testwire.Within(make([]byte, 400<<10), 3)...), 1, 2, 2))
	})
	<-entered
	require.Equal(t, codes.Unavailable, send(methodTraces, nearly))
	require.Equal(t, 503, post(t, cfg, "/v1/traces", proto, nearly))
	require.Equal(t, codes.OK, send(methodTraces, honest))
	goOn()
	waiting.Wait()
	// The room of a call is released a moment after its answer was sent.
	soon := func(free func() bool) { require.Eventually(t, free, time.Minute, time.Millisecond) }
	soon(func() bool { return send(methodTraces, nearly) == codes.OK })
	soon(func() bool { return post(t, cfg, "/v1/traces", proto, nearly) == 200 })
	soon(func() bool { return send(methodTraces, testwire.Within(make([]byte, 500<<10), 1, 2, 2, 5)) == codes.OK })
}

// twice sends two requests in one call, although the protocol allows only one.
func twice(t *testing.T, conn *grpc.ClientConn, body []byte) {
	t.Helper()
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, methodTraces, grpc.ForceCodecV2(wired{}))
	require.NoError(t, err)
	_ = stream.SendMsg(body)
	_ = stream.SendMsg(body)
	_ = stream.CloseSend()
	var reply []byte
	require.Error(t, stream.RecvMsg(&reply))
}

// TestRefusals: whatever the server does not accept is counted, also if the gate does not see all of it. An error of a later component is no
// refusal.
func TestRefusals(t *testing.T) {
	cfg := testConfig(t)
	cfg.OTLP.Protocols.GRPC.Get().MaxRecvMsgSizeMiB = 1
	cfg.OTLP.Protocols.HTTP.Get().ServerConfig.MaxRequestBodySize = 1 << 20
	tel := componenttest.NewTelemetry()
	t.Cleanup(func() { _ = tel.Shutdown(context.Background()) })
	failing := consumertest.NewErr(status.Error(codes.InvalidArgument, "later"))
	start(t, NewFactory(), metadatatest.NewSettings(tel), cfg, failing, consumertest.NewNop())
	const proto, json = "application/x-protobuf", "application/json"
	conn := dial(t, cfg)
	send := func(body []byte, options ...grpc.CallOption) codes.Code {
		var reply []byte
		return status.Code(conn.Invoke(t.Context(), methodTraces, body, &reply, append(options, grpc.ForceCodecV2(wired{}))...))
	}
	spans := ptraceotlp.NewExportRequestFromTraces(inference())
	honest, err := spans.MarshalProto()
	require.NoError(t, err)
	text, err := spans.MarshalJSON()
	require.NoError(t, err)
	require.Equal(t, codes.InvalidArgument, send(honest))
	require.Equal(t, 400, post(t, cfg, "/v1/traces", proto, honest))
	require.Equal(t, 400, post(t, cfg, "/v1/traces", json, append(bytes.Clone(text), " \r\n"...)))
	requireCounts(t, tel, "refused_requests")

	long := testwire.Within(make([]byte, 2<<20), 1, 2, 2, 5)
	require.Equal(t, codes.ResourceExhausted, send(long))
	require.Equal(t, codes.ResourceExhausted, send(long, grpc.UseCompressor("gzip")))
	require.Equal(t, 413, post(t, cfg, "/v1/traces", proto, long))
	require.Equal(t, 413, post(t, cfg, "/v1/traces", json, bytes.Repeat([]byte(" "), 2<<20)))
	require.Eventually(t, func() bool { return counts(tel, "refused_requests")["too_large"] == 4 }, time.Minute, time.Millisecond) // a call is counted after its answer

	for i, body := range []string{
		string(text) + "\n" + string(text), // a file of the Collector, with a request a line
		string(text) + "x",
		"\xef\xbb\xbf" + string(text),
		"{\"resourceSpans\":[{\xff\xfe}]}",
		"{\"resourceSpans\":[{\"é\xc3",
		"[" + string(text) + "]",
		`{"resourceSpans": "ééééééééééééééééééééééééé"}`, // the decoder's error is cut within a character
		"",
	} {
		require.Contains(t, []int{400, 500}, post(t, cfg, "/v1/traces", json, []byte(body)), body)
		requireCounts(t, tel, "refused_requests", "too_large", 4, "malformed", i+1)
	}
}
