// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component/componenttest" //nolint:depguard // an independent receiver to test against
	"go.opentelemetry.io/collector/receiver/otlpreceiver"   //nolint:depguard // an independent receiver to test against
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/internal/testcert"
)

// answering starts a server that answers every request with a status, and returns its URL.
func answering(t *testing.T, status int) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(status)
		fmt.Fprint(w, "canary of the receiver's page")
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestCheck: what keeps telemetry from arriving is reported at the start, with place, reason and remedy, for each signal, but once if the
// reason is the same. A working receiver has received no telemetry afterwards.
func TestCheck(t *testing.T) {
	col := startCollector(t)
	ours := testcert.New(t)
	cert, key := testcert.Files(t, ours.Sign(t, "127.0.0.1"))
	secure := startCollectorWith(t, componenttest.NewNopHost(), func(cfg *otlpreceiver.Config) { withTLS(cfg, cert, key, "") })
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	https := func(base string) string { return strings.Replace(base, "http://", "https://", 1) }
	const both = "spans and metrics do not arrive at "
	closed := "http://" + freeAddr(t)
	for _, c := range []struct {
		name string
		env  []string
		cfg  Config
		want []string // of each warning: its parts, with " … " between
	}{
		{name: "off"},
		{name: "disabled", env: []string{"OTEL_SDK_DISABLED=true"}, cfg: Config{Endpoint: closed}},
		{name: "exporters of the caller", env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + closed}, cfg: Config{SpanExporter: &fakeExporter{}, MetricReader: sdkmetric.NewManualReader()}},
		{name: "no OTLP", env: []string{"OTEL_TRACES_EXPORTER=console", "OTEL_METRICS_EXPORTER=console"}},
		{name: "all is well, HTTP", cfg: Config{Endpoint: col.http}},
		{name: "all is well, gRPC", cfg: Config{Endpoint: col.grpc, Protocol: ProtocolGRPC}},
		{name: "all is well, TLS", env: []string{"OTEL_EXPORTER_OTLP_CERTIFICATE=" + ours.File(t)}, cfg: Config{Endpoint: https(secure.http)}},
		{
			name: "nobody listens, HTTP", env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + closed},
			want: []string{both + closed + " (OTEL_EXPORTER_OTLP_ENDPOINT): nobody listens there … start the receiver"},
		},
		{name: "nobody listens, gRPC", cfg: Config{Endpoint: closed, Protocol: ProtocolGRPC}, want: []string{both + closed + ": nobody listens there"}},
		{
			name: "nobody listens, one signal", env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + col.http, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=" + closed + "/m"},
			want: []string{"metrics do not arrive at " + closed + "/m (OTEL_EXPORTER_OTLP_METRICS_ENDPOINT): nobody"},
		},
		{name: "no such host, HTTP", cfg: Config{Endpoint: "http://receiver.invalid:4318"}, want: []string{both + "http://receiver.invalid:4318: no such host; is the name right?"}},
		{name: "no such host, gRPC", cfg: Config{Endpoint: "http://receiver.invalid:4317", Protocol: ProtocolGRPC}, want: []string{both + "http://receiver.invalid:4317: no such host"}},
		{name: "HTTP to the port of gRPC", cfg: Config{Endpoint: col.grpc}, want: []string{"gRPC was sent HTTP; give --otlp-protocol=grpc … 4318"}},
		{name: "gRPC to the port of HTTP", cfg: Config{Endpoint: col.http, Protocol: ProtocolGRPC}, want: []string{"HTTP was sent gRPC; give --otlp-protocol=http/protobuf … 4317"}},
		{name: "gRPC to a web server", cfg: Config{Endpoint: answering(t, 200), Protocol: ProtocolGRPC}, want: []string{"HTTP was sent gRPC"}},
		{name: "wrong path", cfg: Config{Endpoint: col.http + "/otlp"}, want: []string{both + col.http + ": nothing at this path accepts them … base URL"}},
		{
			name: "a whole URL instead of a base", cfg: Config{Endpoint: col.http + "/v1/traces"},
			want: []string{"nothing at this path accepts them … base URL, to which /v1/traces is added"},
		},
		{name: "https to a receiver without TLS", cfg: Config{Endpoint: https(col.http)}, want: []string{both + https(col.http) + ": http: server gave HTTP response to HTTPS client (does the endpoint begin with http://?)"}},
		{name: "http to a receiver with TLS", cfg: Config{Endpoint: strings.Replace(secure.http, "https:", "http:", 1)}, want: []string{"https://?"}},
		{name: "gRPC without TLS to a receiver with TLS", cfg: Config{Endpoint: secure.grpc, Protocol: ProtocolGRPC}, want: []string{"https://?"}},
		{name: "unknown authority", cfg: Config{Endpoint: https(secure.http)}, want: []string{"OTEL_EXPORTER_OTLP_CERTIFICATE"}},
		{name: "unknown authority, gRPC", cfg: Config{Endpoint: https(secure.grpc), Protocol: ProtocolGRPC}, want: []string{"OTEL_EXPORTER_OTLP_CERTIFICATE"}},
		{name: "401", cfg: Config{Endpoint: answering(t, 401)}, want: []string{"401 Unauthorized … authorization=Bearer%20TOKEN"}},
		{name: "403", cfg: Config{Endpoint: answering(t, 403)}, want: []string{"refuses access … OTEL_EXPORTER_OTLP_HEADERS"}},
		{name: "415", cfg: Config{Endpoint: answering(t, 415)}, want: []string{"415 … is it an OTLP receiver"}},
		{name: "400", cfg: Config{Endpoint: answering(t, 400)}, want: []string{": HTTP 400 Bad Request"}},
		{name: "503", cfg: Config{Endpoint: answering(t, 503)}, want: []string{"overloaded"}},
		{name: "silence", cfg: Config{Endpoint: "http://" + silent.Addr().String()}, want: []string{"no answer within 100ms; can it be reached"}},
		{name: "credentials in the URL are not shown", cfg: Config{Endpoint: "http://user:" + token + "@" + strings.TrimPrefix(closed, "http://")}, want: []string{both + closed + ": nobody"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cleanEnv(t, c.env...)
			within := time.Minute // a busy machine needs its time if somebody answers
			if c.name == "silence" {
				within = 100 * ms
			}
			got, err := check(t.Context(), c.cfg, within)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(c.want) {
				t.Fatalf("%d warnings %q, want %d", len(got), got, len(c.want))
			}
			for i, want := range c.want {
				rest := got[i]
				for part := range strings.SplitSeq(want, " … ") {
					_, after, found := strings.Cut(rest, part)
					if !found {
						t.Errorf("%q\nwant %q", got[i], want)
					}
					rest = after
				}
				if strings.Contains(got[i], token) || !strings.HasPrefix(got[i], "telemetry: ") {
					t.Errorf("%q", got[i])
				}
			}
		})
	}
	if n := col.traces.SpanCount() + col.metrics.DataPointCount(); n > 0 {
		t.Errorf("%d spans and data points arrived, although only questions were asked", n)
	}
}

// TestCheckErrors: an endpoint that is not a URL is an error, because the exporters would send to localhost instead. It is reported once.
func TestCheckErrors(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want string
	}{
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=127.0.0.1:4318"}, "OTEL_EXPORTER_OTLP_ENDPOINT: not a URL; want http://host:port or https://host:port"},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=localhost:4317", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, `OTEL_EXPORTER_OTLP_ENDPOINT "localhost:4317": want http://host:port or https://host:port`},
		{[]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://"}, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT "http:": want`},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=ftp://u:" + token + "@h/x?key=" + token}, `"ftp://h/x": want`},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=u:" + token + "@h:4318"}, "OTEL_EXPORTER_OTLP_ENDPOINT: not a URL; want"},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=h:4318/?key=" + token}, "OTEL_EXPORTER_OTLP_ENDPOINT: not a URL; want"},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://h", "OTEL_EXPORTER_OTLP_PROTOCOL=udp"}, "udp: want grpc or http/protobuf"},
	} {
		t.Run(c.want, func(t *testing.T) {
			cleanEnv(t, c.env...)
			warnings, err := Check(t.Context(), Config{})
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), token) || warnings != nil {
				t.Errorf("%v, %q, want %q", err, warnings, c.want)
			}
			if p, err := Start(t.Context(), Config{}, clock.New()); err == nil || !strings.Contains(err.Error(), c.want) || p != nil {
				t.Errorf("start: %v, want %q", err, c.want)
			}
		})
	}
	cleanEnv(t, "OTEL_TRACES_EXPORTER=none", "OTEL_METRICS_EXPORTER=none", "OTEL_EXPORTER_OTLP_ENDPOINT=nonsense:")
	if warnings, err := Check(t.Context(), Config{}); warnings != nil || err != nil {
		t.Errorf("nothing is exported, and yet %q, %v", warnings, err)
	}
}
