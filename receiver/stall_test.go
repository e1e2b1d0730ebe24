// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package receiver

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/moonloop/moonloop/internal/testwire"
	"github.com/moonloop/moonloop/receiver/internal/metadata"
	"github.com/moonloop/moonloop/receiver/internal/metadatatest"
)

// stallHTTP begins a request over HTTP, and stops in the middle of its body.
func stallHTTP(t *testing.T, cfg *Config, path, headers, begun string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", cfg.OTLP.Protocols.HTTP.Get().ServerConfig.NetAddr.Endpoint)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n%sContent-Length: 1000000\r\n\r\n%s", path, headers, begun)
	require.NoError(t, err)
	return conn
}

// stallMessage begins a call over gRPC, and stops in the middle of its message.
func stallMessage(t *testing.T, cfg *Config) (end func() string) {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	read, write := io.Pipe()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+cfg.OTLP.Protocols.GRPC.Get().NetAddr.Endpoint+methodTraces, read)
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/grpc")
	done := make(chan string)
	go func() {
		defer close(done)
		reply, err := transport.RoundTrip(request)
		if err != nil {
			done <- err.Error()
			return
		}
		_, _ = io.Copy(io.Discard, reply.Body)
		_ = reply.Body.Close()
		done <- reply.Header.Get("Grpc-Status") + reply.Trailer.Get("Grpc-Status")
	}()
	_, err = write.Write(append(binary.BigEndian.AppendUint32([]byte{0}, 1000), 1, 2, 3))
	require.NoError(t, err)
	return func() string { return <-done }
}

// stallEnd makes a call over gRPC whose message is complete, but does not end the stream.
func stallEnd(t *testing.T, conn *grpc.ClientConn, size int) grpc.ClientStream {
	t.Helper()
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, methodTraces, grpc.ForceCodecV2(wired{}))
	require.NoError(t, err)
	require.NoError(t, stream.SendMsg(testwire.Within(make([]byte, size), 1, 2, 2, 5)))
	return stream
}

// TestStalledUploads: senders that stop in the middle of a request block nobody, however many there are. The read timeout
// does not help here, because it is an hour.
func TestStalledUploads(t *testing.T) {
	const stalled = 300
	begin := func(t *testing.T) (*Config, *componenttest.Telemetry) {
		t.Helper()
		cfg := testConfig(t)
		cfg.Admission = AdmissionConfig{RequestLimitMiB: 2, ReadTimeout: time.Hour}
		tel := componenttest.NewTelemetry()
		t.Cleanup(func() { _ = tel.Shutdown(context.Background()) })
		start(t, NewFactory(), metadatatest.NewSettings(tel), cfg, consumertest.NewNop(), nil)
		return cfg, tel
	}
	// An honest request needs about three quarters of the memory.
	honest := testwire.Within(make([]byte, 350<<10), 1, 2, 2, 5)
	refusals := func(t *testing.T, tel *componenttest.Telemetry) map[string]int64 {
		t.Helper()
		got := map[string]int64{}
		m, err := tel.GetMetric("otelcol_receiver_mooncake_refused_requests")
		if err != nil {
			return got
		}
		for _, point := range m.Data.(metricdata.Sum[int64]).DataPoints {
			reason, _ := point.Attributes.Value("reason")
			got[reason.AsString()] = point.Value
		}
		return got
	}
	// noRoom checks that a stalled request found no room, or lost its room to another one: on a busy machine, they do not all arrive within
	// the second in which none counts as slow.
	noRoom := func(t *testing.T, tel *componenttest.Telemetry) func() bool {
		t.Helper()
		return func() bool { got := refusals(t, tel); return got["busy"]+got["slow"] > 0 }
	}
	t.Run("HTTP", func(t *testing.T) {
		cfg, tel := begin(t)
		for range stalled {
			stallHTTP(t, cfg, "/v1/traces", "", strings.Repeat(" ", 6000))
		}
		require.Eventually(t, noRoom(t, tel), time.Minute, time.Millisecond, "stalled requests do not take all the room")
		require.Eventually(t, func() bool {
			code := post(t, cfg, "/v1/traces", "application/x-protobuf", honest)
			assert.Contains(t, []int{200, 503}, code)
			return code == 200
		}, time.Minute, 10*time.Millisecond, "stalled requests keep the room")
		require.Eventually(t, func() bool { return refusals(t, tel)["slow"] > 0 }, time.Minute, 10*time.Millisecond)
	})
	t.Run("gRPC", func(t *testing.T) {
		cfg, tel := begin(t)
		conn := dial(t, cfg)
		for range stalled {
			stallEnd(t, conn, 6000)
		}
		other := dial(t, cfg)
		require.Eventually(t, noRoom(t, tel), time.Minute, time.Millisecond, "stalled requests do not take all the room")
		require.Eventually(t, func() bool {
			var reply []byte
			code := status.Code(other.Invoke(t.Context(), methodTraces, honest, &reply, grpc.ForceCodecV2(wired{})))
			assert.Contains(t, []codes.Code{codes.OK, codes.Unavailable}, code)
			return code == codes.OK
		}, time.Minute, 10*time.Millisecond, "stalled requests keep the room")
		require.Eventually(t, func() bool { return refusals(t, tel)["slow"] > 0 }, time.Minute, 10*time.Millisecond)
	})
}

// TestReadTimeout: a whole request must arrive within a time limit, or its sender is told to retry, and disconnected.
func TestReadTimeout(t *testing.T) {
	cfg := testConfig(t)
	cfg.Admission.ReadTimeout = 300 * time.Millisecond
	tel := componenttest.NewTelemetry()
	t.Cleanup(func() { _ = tel.Shutdown(context.Background()) })
	start(t, NewFactory(), metadatatest.NewSettings(tel), cfg, consumertest.NewNop(), nil)

	first := stallMessage(t, cfg)
	second := stallEnd(t, dial(t, cfg), 10)
	var held []net.Conn
	for _, c := range []struct{ path, headers, begun string }{
		{"/v1/traces", "", `{"resourceSpans":`},
		{"/v1/logs", "Content-Encoding: gzip\r\n", string(gzipped(t, "{"))},
		{"/v1/logs", "Content-Encoding: gzip\r\n", "\x1f"}, // decompression waits before there is a body
		{"/elsewhere", "", ""},
	} {
		held = append(held, stallHTTP(t, cfg, c.path, c.headers, c.begun))
	}
	for n, conn := range held {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		said, err := io.ReadAll(conn)
		require.NoError(t, err, "connection %d is still open", n)
		if n < 2 {
			require.Contains(t, string(said), "503 Service Unavailable")
			require.Contains(t, string(said), "Retry-After: 1")
			require.Contains(t, string(said), "did not come in time")
		}
	}
	require.Equal(t, "4", first(), "DeadlineExceeded")
	var reply []byte
	require.Equal(t, codes.DeadlineExceeded, status.Code(second.RecvMsg(&reply)))
	require.Eventually(t, func() bool {
		return counts(tel, "refused_requests")["slow"] == 5
	}, time.Minute, 10*time.Millisecond)
	requireCounts(t, tel, "refused_requests", "slow", 5, "not_served", 1) // the path of the last one is not one of OTLP's
}

// TestReadTimeoutEndsWithTheBody: a sender that waits for the journal is not disconnected because of the deadline for the body.
func TestReadTimeoutEndsWithTheBody(t *testing.T) {
	cfg := testConfig(t)
	cfg.Admission.ReadTimeout = time.Second // long for a sender that sends at once, on a busy machine
	slow, err := consumer.NewTraces(func(ctx context.Context, _ ptrace.Traces) error {
		time.Sleep(cfg.Admission.ReadTimeout + 100*time.Millisecond)
		return ctx.Err()
	})
	require.NoError(t, err)
	start(t, NewFactory(), receivertest.NewNopSettings(metadata.Type), cfg, slow, nil)
	honest, err := ptraceotlp.NewExportRequestFromTraces(inference()).MarshalProto()
	require.NoError(t, err)
	require.Equal(t, 200, post(t, cfg, "/v1/traces", "application/x-protobuf", honest))
	var reply []byte
	require.NoError(t, dial(t, cfg).Invoke(t.Context(), methodTraces, honest, &reply, grpc.ForceCodecV2(wired{})))
}

// TestShutdownWhileStalled: a receiver that stops does not wait for senders that do not send.
func TestShutdownWhileStalled(t *testing.T) {
	cfg := testConfig(t)
	cfg.Admission.ReadTimeout = time.Hour
	r, err := NewFactory().CreateTraces(t.Context(), receivertest.NewNopSettings(metadata.Type), cfg, consumertest.NewNop())
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context(), componenttest.NewNopHost()))
	conn := stallHTTP(t, cfg, "/v1/traces", "Expect: 100-continue\r\n", "")
	reading := make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n")) // otherwise the server may not have read the headers when it stops
	_, err = io.ReadFull(conn, reading)
	require.NoError(t, err)
	end := stallMessage(t, cfg)
	stallEnd(t, dial(t, cfg), 10)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, r.Shutdown(ctx))
	_ = end()
	said, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Contains(t, string(said), "503")
}

// TestContentType: a sender of something other than OTLP is told what is accepted.
func TestContentType(t *testing.T) {
	cfg := testConfig(t)
	tel := componenttest.NewTelemetry()
	t.Cleanup(func() { _ = tel.Shutdown(context.Background()) })
	start(t, NewFactory(), metadatatest.NewSettings(tel), cfg, consumertest.NewNop(), nil)
	for _, sent := range []string{"text/plain", "application/protobuf", "", "a b"} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", cfg.OTLP.Protocols.HTTP.Get().ServerConfig.NetAddr.Endpoint)
		require.NoError(t, err)
		_, err = fmt.Fprintf(conn, "POST /v1/traces HTTP/1.1\r\nHost: test\r\nContent-Type: %s\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello", sent)
		require.NoError(t, err)
		reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		said, err := io.ReadAll(reply.Body)
		require.NoError(t, err)
		require.NoError(t, reply.Body.Close())
		require.NoError(t, conn.Close())
		require.Equal(t, http.StatusUnsupportedMediaType, reply.StatusCode, "%q: %s", sent, said)
		require.Contains(t, string(said), "application/json, application/x-protobuf", sent)
	}
	requireCounts(t, tel, "refused_requests", "media_type", 4)
}

// TestContentEncoding: a request that the server cannot decompress is refused before it reaches the gate, and counted, once.
func TestContentEncoding(t *testing.T) {
	cfg := testConfig(t)
	tel := componenttest.NewTelemetry()
	t.Cleanup(func() { _ = tel.Shutdown(context.Background()) })
	sink := new(consumertest.TracesSink)
	start(t, NewFactory(), metadatatest.NewSettings(tel), cfg, sink, nil)
	body, err := ptraceotlp.NewExportRequestFromTraces(inference()).MarshalJSON()
	require.NoError(t, err)
	whole := gzipped(t, string(body))
	for i, c := range []struct {
		encoding string
		body     []byte
		status   int
		refused  []any
	}{
		{"gzip", whole, 400, []any{"malformed", 1}}, // its end is missing
		{"br", body, 400, []any{"malformed", 1, "encoding", 1}},
		{"gzip", body, 400, []any{"malformed", 1, "encoding", 2}},
		{"gzip, gzip", whole, 400, []any{"malformed", 1, "encoding", 3}},
		{"", body, 200, []any{"malformed", 1, "encoding", 3}},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+cfg.OTLP.Protocols.HTTP.Get().ServerConfig.NetAddr.Endpoint+"/v1/traces", bytes.NewReader(c.body))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		if c.encoding != "" {
			request.Header.Set("Content-Encoding", c.encoding)
		}
		reply, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, reply.Body.Close())
		require.Equal(t, c.status, reply.StatusCode, "request %d", i)
		want := map[string]int{}
		for i := 0; i < len(c.refused); i += 2 {
			want[c.refused[i].(string)] = c.refused[i+1].(int)
		}
		require.Eventually(t, func() bool { return maps.Equal(want, counts(tel, "refused_requests")) }, time.Minute, time.Millisecond, "request %d", i) // counted after its answer
	}

	// A client of gRPC would refuse a compression that is unknown here.
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+cfg.OTLP.Protocols.GRPC.Get().NetAddr.Endpoint+methodTraces, bytes.NewReader([]byte{1, 0, 0, 0, 1, 0}))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("Grpc-Encoding", "br")
	reply, err := transport.RoundTrip(request)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, reply.Body)
	require.NoError(t, err)
	require.NoError(t, reply.Body.Close())
	require.Equal(t, "12", reply.Header.Get("Grpc-Status")+reply.Trailer.Get("Grpc-Status"), "Unimplemented")
	require.Eventually(t, func() bool { return counts(tel, "refused_requests")["encoding"] == 4 }, time.Minute, time.Millisecond)
	require.Equal(t, inference().SpanCount(), sink.SpanCount())
}

func gzipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, z.Flush())
	return b.Bytes()
}
