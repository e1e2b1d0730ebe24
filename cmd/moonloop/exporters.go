// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// The exporters for OTEL_TRACES_EXPORTER and OTEL_METRICS_EXPORTER other than otlp and none. OpenTelemetry's autoexport has them, too, but
// also depends on those of logs, which no replay sends.

func otherSpanExporter(context.Context) (sdktrace.SpanExporter, error) {
	if os.Getenv("OTEL_TRACES_EXPORTER") != "console" {
		return nil, errors.New("there is no such exporter: want otlp, console or none")
	}
	return stdouttrace.New()
}

func otherMetricReader(ctx context.Context) (sdkmetric.Reader, error) {
	switch os.Getenv("OTEL_METRICS_EXPORTER") {
	case "console":
		console, err := stdoutmetric.New()
		return sdkmetric.NewPeriodicReader(console), err
	case "prometheus":
		return servePrometheus(ctx)
	}
	return nil, errors.New("there is no such exporter: want otlp, prometheus, console or none")
}

// scraped is a reader whose metrics a server provides.
type scraped struct {
	sdkmetric.Reader
	server *http.Server
}

// captureMetrics serves the metrics of a capture if OTEL_METRICS_EXPORTER is prometheus; else it returns nil. Other values may be meant for
// the application, whose variables a capture often shares: a capture that sent its metrics to OTEL_EXPORTER_OTLP_ENDPOINT would send them
// to itself.
func captureMetrics(ctx context.Context) (sdkmetric.Reader, error) {
	if os.Getenv("OTEL_METRICS_EXPORTER") != "prometheus" {
		return nil, nil //nolint:nilnil // nobody reads them
	}
	return servePrometheus(ctx)
}

// servePrometheus serves /metrics at the address of the standard variables, until the reader is shut down.
func servePrometheus(ctx context.Context) (sdkmetric.Reader, error) {
	registry := prometheus.NewRegistry()
	reader, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	if err != nil {
		return nil, err
	}
	address := net.JoinHostPort(cmp.Or(os.Getenv("OTEL_EXPORTER_PROMETHEUS_HOST"), "localhost"), cmp.Or(os.Getenv("OTEL_EXPORTER_PROMETHEUS_PORT"), "9464"))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("OTEL_EXPORTER_PROMETHEUS_HOST, _PORT: %w; name a free port", err), reader.Shutdown(ctx))
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry}))
	server := &http.Server{Handler: mux, ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	go server.Serve(listener) //nolint:errcheck // ends with Shutdown
	return scraped{reader, server}, nil
}

func (s scraped) Shutdown(ctx context.Context) error {
	return errors.Join(s.Reader.Shutdown(ctx), s.server.Shutdown(ctx))
}
