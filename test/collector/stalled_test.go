// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
)

// TestStalledBackend: a backend that accepts requests and never answers fills the queue before it. Senders do not notice, because each would
// send again, to everybody, and then drop what its own queue cannot hold.
func TestStalledBackend(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	overHTTP := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	t.Cleanup(overHTTP.Close)
	overGRPC := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { <-over; return nil }))
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = overGRPC.Serve(listener) }()
	t.Cleanup(overGRPC.Stop)
	t.Cleanup(func() { close(over) })
	for _, one := range []struct{ config, exporter, variable, address, more string }{
		{"otelcol-config.yaml", "otlp_grpc/jaeger", "JAEGER_ENDPOINT", listener.Addr().String(), ""},
		{"examples/capture/processor.yaml", "otlp_http/backend", "BACKEND", overHTTP.URL, ""},
		{"examples/capture/existing.yaml", "otlp_grpc/moonloop", "MOONLOOP_GATEWAY", listener.Addr().String(), "\nextensions: {health_check: }\nservice: {extensions: [health_check]}"},
	} {
		t.Run(filepath.Base(one.config), func(t *testing.T) {
			t.Parallel()
			otelcol := configure(t, t.TempDir(), settings{config: one.config, more: fmt.Sprintf(
				"exporters: {%s: {timeout: 1s, retry_on_failure: {enabled: false}, sending_queue: {sizer: requests, queue_size: 1, num_consumers: 1}}}%s", one.exporter, one.more)})
			otelcol.environment = append(otelcol.environment, one.variable+"="+one.address)
			p := otelcol.start(t)
			l, to := production(t, 1, 128), dial(t, otelcol.address)
			for n := range uint64(10) {
				if err := to.export(t.Context(), l.next(n+1, time.Now())); err != nil {
					t.Fatalf("request %d: %v", n+1, err)
				}
			}
			p.stop(t)
		})
	}
}
