// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// exporterOTLP is the value of OTEL_TRACES_EXPORTER and OTEL_METRICS_EXPORTER for the OTLP exporter. That one is built here, because it
// can take its endpoint from the configuration. Every other value is for [Config.OtherSpanExporter] and [Config.OtherMetricReader].
const exporterOTLP = "otlp"

// exporterOf returns the exporter of a signal: the caller's own, that of OTLP, or another; nil if the signal is off.
func exporterOf[T any](ctx context.Context, s signal, c *Config, own T, otlp, other func(context.Context) (T, error)) (e T, err error) {
	name := s.exporter(c)
	switch {
	case any(own) != nil:
		return own, nil
	case name == "":
		return e, nil
	case name == exporterOTLP:
		return otlp(ctx)
	case other == nil:
		return e, fmt.Errorf("OTEL_%s_EXPORTER=%s: want %s or none here", s.name, name, exporterOTLP)
	}
	if e, err = other(ctx); err != nil {
		return e, fmt.Errorf("OTEL_%s_EXPORTER=%s: %w", s.name, name, err)
	}
	return e, nil
}

// newSpanExporter returns the exporter of the traces, nil if they are off.
func newSpanExporter(ctx context.Context, c *Config) (sdktrace.SpanExporter, error) {
	return exporterOf(ctx, traces, c, c.SpanExporter, func(ctx context.Context) (sdktrace.SpanExporter, error) {
		client, err := newTraceClient(c)
		if err != nil {
			return nil, err
		}
		return newEventsExporter(ctx, client)
	}, c.OtherSpanExporter)
}

// newMetricReader returns the reader of the metrics, nil if they are off. Exports by OTLP are counted; one that is under way when the reader is
// shut down goes on until over is closed.
func newMetricReader(ctx context.Context, c *Config, count *metricLoss, over <-chan struct{}) (sdkmetric.Reader, error) {
	return exporterOf(ctx, metrics, c, c.MetricReader, func(ctx context.Context) (sdkmetric.Reader, error) {
		e, err := newMetricExporter(ctx, c, false)
		if err != nil {
			return nil, err
		}
		opts := []sdkmetric.PeriodicReaderOption{sdkmetric.WithInterval(c.MetricInterval)}
		if os.Getenv("OTEL_METRIC_EXPORT_TIMEOUT") == "" { // which the SDK reads itself
			opts = append(opts, sdkmetric.WithTimeout(c.ExportTimeout))
		}
		return sdkmetric.NewPeriodicReader(countedExporter{e, count, over}, opts...), nil
	}, c.OtherMetricReader)
}

// newTraceClient returns the OTLP client for spans. It tries once: the queue decides what is sent again, because it must know what a
// receiver may have twice.
func newTraceClient(c *Config) (otlptrace.Client, error) {
	r, err := traces.receiver(c)
	if err != nil {
		return nil, err
	}
	if r.protocol == ProtocolGRPC {
		opts := append(at(c, "", otlptracegrpc.WithEndpointURL), otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{}))
		return otlptracegrpc.NewClient(opts...), nil
	}
	opts := append(at(c, traces.path(), otlptracehttp.WithEndpointURL), otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}))
	return otlptracehttp.NewClient(opts...), nil
}

// newMetricExporter returns the OTLP exporter for metrics: without retries for a check, else with them, because it does no harm if
// cumulative figures arrive twice.
func newMetricExporter(ctx context.Context, c *Config, once bool) (sdkmetric.Exporter, error) {
	r, err := metrics.receiver(c)
	if err != nil {
		return nil, err
	}
	// The exporters' default, except that a check does not retry.
	retry := otlpmetrichttp.RetryConfig{Enabled: !once, InitialInterval: 5 * time.Second, MaxInterval: 30 * time.Second, MaxElapsedTime: time.Minute}
	if r.protocol == ProtocolGRPC {
		opts := append(at(c, "", otlpmetricgrpc.WithEndpointURL), otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig(retry)))
		return otlpmetricgrpc.New(ctx, opts...)
	}
	return otlpmetrichttp.New(ctx, append(at(c, metrics.path(), otlpmetrichttp.WithEndpointURL), otlpmetrichttp.WithRetry(retry))...)
}

// at returns the option for an exporter's endpoint, if the configuration has one; else the exporter reads the environment.
func at[O any](c *Config, path string, option func(string) O) []O {
	if c.Endpoint == "" {
		return nil
	}
	return []O{option(strings.TrimSuffix(c.Endpoint, "/") + path)}
}

// metricLoss counts the exports of metrics.
type metricLoss struct {
	mu   sync.Mutex
	loss Loss
}

func (m *metricLoss) add(exports int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loss.MetricExports += exports
	if err != nil {
		m.loss.MetricFailures++
	}
	m.loss.note(err)
}

// countedExporter counts exports and does not return their errors: the SDK would pass them to the global error handler, which belongs to
// the program and not to this package.
type countedExporter struct {
	sdkmetric.Exporter
	count *metricLoss
	over  <-chan struct{}
}

// Export keeps the deadline of ctx, but not its cancellation: the SDK's Shutdown cancels an export that is under way, which would then count
// as failed although the receiver may have got all of it.
func (e countedExporter) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	limit, _ := ctx.Deadline() // the SDK always sets one
	whole, cancel := context.WithDeadline(context.WithoutCancel(ctx), limit)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		select {
		case <-e.over:
			cancel()
		case <-whole.Done():
		}
	})()
	e.count.add(1, e.Exporter.Export(whole, m))
	return nil
}
