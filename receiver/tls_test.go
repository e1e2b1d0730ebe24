// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package receiver

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/bearertokenauthextension"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configauth"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configtls"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/moonloop/moonloop/internal/testcert"
	componentmetadata "github.com/moonloop/moonloop/receiver/internal/metadata"
)

const token = "canary-7Gq0vJ2mWx9bTz4LpRfYc8"

// guarded is a host with the distribution's check of tokens.
type guarded struct {
	component.Host
	extensions map[component.ID]component.Component
}

// GetExtensions implements component.Host.
func (g guarded) GetExtensions() map[component.ID]component.Component { return g.extensions }

func newGuarded(t *testing.T) (guarded, component.ID) {
	t.Helper()
	factory := bearertokenauthextension.NewFactory()
	cfg := factory.CreateDefaultConfig().(*bearertokenauthextension.Config)
	cfg.BearerToken = token
	e, err := factory.Create(t.Context(), extensiontest.NewNopSettings(factory.Type()), cfg)
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context(), componenttest.NewNopHost()))
	t.Cleanup(func() { require.NoError(t, e.Shutdown(context.Background())) }) // the test's context is over
	id := component.NewID(factory.Type())
	return guarded{componenttest.NewNopHost(), map[component.ID]component.Component{id: e}}, id
}

// TestGuarded: with TLS, client certificates and tokens, only a sender that has all three is admitted, over each protocol and with each
// signal. Nothing of a refused request is in a pipeline or a log.
func TestGuarded(t *testing.T) {
	ours, other := testcert.New(t), testcert.New(t)
	host, bearer := newGuarded(t)
	cfg := testConfig(t)
	cert, key := testcert.Files(t, ours.Sign(t, "127.0.0.1", "localhost"))
	secure := configtls.ServerConfig{Config: configtls.Config{CertFile: cert, KeyFile: key}, ClientCAFile: ours.File(t)}
	auth := configauth.Config{AuthenticatorID: bearer}
	overGRPC, overHTTP := cfg.OTLP.Protocols.GRPC.Get(), &cfg.OTLP.Protocols.HTTP.Get().ServerConfig
	overGRPC.TLS, overHTTP.TLS = configoptional.Some(secure), configoptional.Some(secure)
	overGRPC.Auth, overHTTP.Auth = configoptional.Some(auth), configoptional.Some(confighttp.AuthConfig{Config: auth})

	core, seen := observer.New(zapcore.DebugLevel)
	tel := componenttest.NewTelemetry()
	set := metadataSettings(tel)
	set.Logger = zap.New(core)
	traces, logs := new(consumertest.TracesSink), new(consumertest.LogsSink)
	r, err := NewFactory().CreateTraces(t.Context(), set, cfg, traces)
	require.NoError(t, err)
	r.(*mooncakeReceiver).nextLogs = logs
	require.NoError(t, r.Start(t.Context(), host))
	t.Cleanup(func() { require.NoError(t, r.Shutdown(context.Background())) }) // the test's context is over

	spans, records := ptraceotlp.NewExportRequestFromTraces(inference()), plogotlp.NewExportRequestFromLogs(message())
	encodedSpans, err := spans.MarshalProto()
	require.NoError(t, err)
	encodedRecords, err := records.MarshalProto()
	require.NoError(t, err)
	send := map[string]func(t *testing.T, client *tls.Config, authorization string) []error{
		"gRPC": func(t *testing.T, client *tls.Config, authorization string) []error {
			t.Helper()
			conn, err := grpc.NewClient(overGRPC.NetAddr.Endpoint, grpc.WithTransportCredentials(credentials.NewTLS(client)))
			require.NoError(t, err)
			defer conn.Close()
			ctx := t.Context()
			if authorization != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "authorization", authorization)
			}
			_, err = ptraceotlp.NewGRPCClient(conn).Export(ctx, ptraceotlp.NewExportRequestFromTraces(inference()))
			_, also := plogotlp.NewGRPCClient(conn).Export(ctx, plogotlp.NewExportRequestFromLogs(message()))
			return []error{err, also}
		},
		"HTTP": func(t *testing.T, client *tls.Config, authorization string) []error {
			t.Helper()
			transport := &http.Transport{TLSClientConfig: client, DisableKeepAlives: true}
			defer transport.CloseIdleConnections()
			var errs []error
			for path, body := range map[string][]byte{"/v1/traces": encodedSpans, "/v1/logs": encodedRecords} {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+overHTTP.NetAddr.Endpoint+path, bytes.NewReader(body))
				require.NoError(t, err)
				request.Header.Set("Content-Type", "application/x-protobuf")
				if authorization != "" {
					request.Header.Set("Authorization", authorization)
				}
				reply, err := (&http.Client{Transport: transport}).Do(request)
				if err == nil {
					_ = reply.Body.Close()
					if reply.StatusCode != http.StatusOK {
						err = errorText(reply.Status)
					}
				}
				errs = append(errs, err)
			}
			return errs
		},
	}
	good := func() *tls.Config {
		return &tls.Config{RootCAs: ours.Pool(), Certificates: []tls.Certificate{ours.Sign(t)}}
	}
	for _, c := range []struct {
		name          string
		client        *tls.Config
		authorization string
		want          string // part of each error; empty = any
	}{
		{"no token", good(), "", "nauth"},
		{"wrong token", good(), "Bearer " + token + "x", "nauth"},
		{"another scheme", good(), "Basic " + token, "nauth"},
		{"no certificate", &tls.Config{RootCAs: ours.Pool()}, "Bearer " + token, ""},
		{"unknown certificate", &tls.Config{RootCAs: ours.Pool(), Certificates: []tls.Certificate{other.Sign(t)}}, "Bearer " + token, ""},
		{"expired certificate", &tls.Config{RootCAs: ours.Pool(), Certificates: []tls.Certificate{ours.SignExpired(t)}}, "Bearer " + token, ""},
		{"receiver with a certificate of an unknown authority", &tls.Config{RootCAs: other.Pool(), Certificates: []tls.Certificate{ours.Sign(t)}}, "Bearer " + token, "unknown authority"},
	} {
		for protocol, send := range send {
			for _, err := range send(t, c.client, c.authorization) {
				require.ErrorContains(t, err, c.want, "%s, %s", c.name, protocol)
				require.NotContains(t, err.Error(), token)
			}
		}
	}
	require.Zero(t, traces.SpanCount()+logs.LogRecordCount(), "a refused request was accepted")
	requireCounts(t, tel, "refused_requests", "unauthenticated", 3*2*2) // three without the token, over two protocols, of two signals
	for _, send := range send {
		for _, err := range send(t, good(), "Bearer "+token) {
			require.NoError(t, err)
		}
	}
	require.Equal(t, 2*(2+1), traces.SpanCount())
	require.Equal(t, 2*2, logs.LogRecordCount())
	for _, entry := range seen.All() {
		text := entry.Message
		for _, field := range entry.Context {
			text += " " + field.String
		}
		require.NotContains(t, text, token)
		require.NotContains(t, text, prompt)
	}
}

// errorText is the status of an unsuccessful reply.
type errorText string

func (e errorText) Error() string { return string(e) }

// TestBombs: a body that unpacks to a thousand times its size is refused at the limit, in each encoding, and not unpacked beyond it.
func TestBombs(t *testing.T) {
	const size = 256 << 20
	// Both formats are a sequence of compressed parts. Equal ones are compressed once, since the race detector makes compression slow.
	pack := func(t *testing.T, part *bytes.Buffer, w io.WriteCloser, err error) []byte {
		t.Helper()
		require.NoError(t, err)
		zeros := make([]byte, 1<<20)
		_, err = w.Write(zeros)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		return bytes.Repeat(part.Bytes(), size/len(zeros))
	}
	cfg, sink := testConfig(t), new(consumertest.TracesSink)
	cfg.OTLP.Protocols.HTTP.Get().ServerConfig.MaxRequestBodySize = 8 << 20
	start(t, NewFactory(), receivertest.NewNopSettings(componentmetadata.Type), cfg, sink, nil)
	var zipped, zstandard bytes.Buffer
	gz, err := gzip.NewWriterLevel(&zipped, gzip.BestSpeed)
	gzipBomb := pack(t, &zipped, gz, err)
	zs, err := zstd.NewWriter(&zstandard, zstd.WithEncoderLevel(zstd.SpeedFastest))
	zstdBomb := pack(t, &zstandard, zs, err)
	for encoding, bomb := range map[string][]byte{
		"gzip": gzipBomb, "zstd": zstdBomb, "snappy": {0x80, 0x80, 0x80, 0x80, 0x08, 0, 0}, // which claims 2 GiB
	} {
		want := http.StatusRequestEntityTooLarge
		if encoding == "snappy" {
			want = http.StatusBadRequest // it is damaged, too
		}
		for _, contentType := range []string{"application/x-protobuf", "application/json"} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+cfg.OTLP.Protocols.HTTP.Get().ServerConfig.NetAddr.Endpoint+"/v1/traces", bytes.NewReader(bomb))
			require.NoError(t, err)
			request.Header.Set("Content-Type", contentType)
			request.Header.Set("Content-Encoding", encoding)
			reply, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
			require.NoError(t, err)
			_ = reply.Body.Close()
			runtime.ReadMemStats(&after)
			require.Equal(t, want, reply.StatusCode, encoding)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(size/2), "%s: what was allocated for %d bytes", encoding, len(bomb))
		}
	}
	require.Zero(t, sink.SpanCount())
}

// TestHeaderLimits: headers above Go's limit of a megabyte are refused, and headers must be complete within ReadHeaderTimeout, by default a
// minute.
func TestHeaderLimits(t *testing.T) {
	cfg, sink := testConfig(t), new(consumertest.TracesSink)
	server := &cfg.OTLP.Protocols.HTTP.Get().ServerConfig
	require.Equal(t, time.Minute, server.ReadHeaderTimeout, "the default")
	server.ReadHeaderTimeout = 200 * time.Millisecond
	start(t, NewFactory(), receivertest.NewNopSettings(componentmetadata.Type), cfg, sink, nil)

	conn, err := net.Dial("tcp", server.NetAddr.Endpoint)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "POST /v1/traces HTTP/1.1\r\nHost: x\r\nX-Slow: ")
	require.NoError(t, err)
	_, err = io.ReadAll(conn) // returns when the server closes the connection
	require.NoError(t, err)

	long, err := net.Dial("tcp", server.NetAddr.Endpoint)
	require.NoError(t, err)
	defer long.Close()
	go func() {
		_, _ = io.WriteString(long, "POST /v1/traces HTTP/1.1\r\nHost: x\r\nX-Long: "+strings.Repeat("x", 2<<20)+"\r\n\r\n") // is cut off
	}()
	reply, _ := io.ReadAll(io.LimitReader(long, 32))
	require.Contains(t, string(reply), "431")
	require.Zero(t, sink.SpanCount())
}
