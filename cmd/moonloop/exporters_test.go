// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// TestPrometheus: metrics can be scraped at the address that the standard variables name, until the reader is shut down.
func TestPrometheus(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(free.Addr().String())
	t.Setenv("OTEL_METRICS_EXPORTER", "prometheus")
	t.Setenv("OTEL_EXPORTER_PROMETHEUS_HOST", host)
	t.Setenv("OTEL_EXPORTER_PROMETHEUS_PORT", port)
	if _, err := otherMetricReader(t.Context()); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("a port that is taken: %v", err)
	}
	_ = free.Close()
	reader, err := otherMetricReader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	counter, err := provider.Meter("test").Int64Counter("lines")
	if err != nil {
		t.Fatal(err)
	}
	counter.Add(t.Context(), 3)
	reply, err := http.Get("http://" + net.JoinHostPort(host, port) + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(reply.Body)
	_ = reply.Body.Close()
	if err != nil || !strings.Contains(string(text), "lines_total{") || !strings.Contains(string(text), "} 3\n") {
		t.Errorf("scraped: %v\n%s", err, text)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if again, err := net.Listen("tcp", net.JoinHostPort(host, port)); err != nil {
		t.Errorf("the port is not free after the end: %v", err)
	} else {
		_ = again.Close()
	}
}

// TestOtherExporters: console works for both signals, and an unknown name is an error that lists the names that exist.
func TestOtherExporters(t *testing.T) {
	t.Setenv("OTEL_TRACES_EXPORTER", "console")
	t.Setenv("OTEL_METRICS_EXPORTER", "console")
	if e, err := otherSpanExporter(t.Context()); err != nil || e == nil {
		t.Errorf("traces to the console: %v", err)
	}
	if r, err := otherMetricReader(t.Context()); err != nil || r.Shutdown(t.Context()) != nil {
		t.Errorf("metrics to the console: %v", err)
	}
	t.Setenv("OTEL_TRACES_EXPORTER", "zipkin")
	t.Setenv("OTEL_METRICS_EXPORTER", "statsd")
	if _, err := otherSpanExporter(t.Context()); err == nil || !strings.Contains(err.Error(), "want otlp, console or none") {
		t.Errorf("traces to zipkin: %v", err)
	}
	if _, err := otherMetricReader(t.Context()); err == nil || !strings.Contains(err.Error(), "want otlp, prometheus, console or none") {
		t.Errorf("metrics to statsd: %v", err)
	}
}
