// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// exporterOTLP is the value of OTEL_TRACES_EXPORTER and OTEL_METRICS_EXPORTER that is built here, since it can take its endpoint
// from the configuration; every other value is for [Config.OtherSpanExporter] and [Config.OtherMetricReader].
const exporterOTLP = "otlp"

// newSpanExporter returns the exporter of the traces, nil when they are off.
func newSpanExporter(ctx context.Context, c *Config) (sdktrace.SpanExporter, error) {
	if c.SpanExporter != nil {
		return c.SpanExporter, nil
	}
	switch name := traces.exporter(c); name {
	case "":
		return nil, nil //nolint:nilnil // off is not an error
	case exporterOTLP:
	default:
		return other(ctx, traces, name, c.OtherSpanExporter)
	}
	client, err := newTraceClient(c)
	if err != nil {
		return nil, err
	}
	return otlptrace.New(ctx, client)
}

// other makes an exporter that is not built here.
func other[T any](ctx context.Context, s signal, name string, build func(context.Context) (T, error)) (e T, err error) {
	if build == nil {
		return e, fmt.Errorf("OTEL_%s_EXPORTER=%s: there are %s and none here", s, name, exporterOTLP)
	}
	if e, err = build(ctx); err != nil {
		return e, fmt.Errorf("OTEL_%s_EXPORTER=%s: %w", s, name, err)
	}
	return e, nil
}

// newTraceClient returns what carries spans by OTLP. It tries once: what is tried again is the queue's to decide, which has to
// know what a receiver may have twice.
func newTraceClient(c *Config) (otlptrace.Client, error) {
	protocol, err := traces.check(c)
	if err != nil {
		return nil, err
	}
	if protocol == ProtocolGRPC {
		opts := []otlptracegrpc.Option{otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{})}
		if c.Endpoint != "" {
			opts = append(opts, otlptracegrpc.WithEndpointURL(c.Endpoint))
		}
		return otlptracegrpc.NewClient(opts...), nil
	}
	opts := []otlptracehttp.Option{otlptracehttp.WithRetry(otlptracehttp.RetryConfig{})}
	if c.Endpoint != "" {
		opts = append(opts, otlptracehttp.WithEndpointURL(strings.TrimSuffix(c.Endpoint, "/")+traces.path()))
	}
	return otlptracehttp.NewClient(opts...), nil
}

// newMetricReader returns the reader of the metrics, nil when they are off. Exports by OTLP are counted.
func newMetricReader(ctx context.Context, c *Config, count *metricCount) (sdkmetric.Reader, error) {
	if c.MetricReader != nil {
		return c.MetricReader, nil
	}
	switch name := metrics.exporter(c); name {
	case "":
		return nil, nil //nolint:nilnil // off is not an error
	case exporterOTLP:
	default:
		return other(ctx, metrics, name, c.OtherMetricReader)
	}
	e, err := newMetricExporter(ctx, c, false)
	if err != nil {
		return nil, err
	}
	opts := []sdkmetric.PeriodicReaderOption{sdkmetric.WithInterval(c.MetricInterval)}
	if os.Getenv("OTEL_METRIC_EXPORT_TIMEOUT") == "" { // which the SDK reads itself
		opts = append(opts, sdkmetric.WithTimeout(c.ExportTimeout))
	}
	return sdkmetric.NewPeriodicReader(countedExporter{e, count}, opts...), nil
}

// newMetricExporter returns what carries metrics by OTLP: once, for a question, or with retries, since figures that add up may
// arrive twice.
func newMetricExporter(ctx context.Context, c *Config, once bool) (sdkmetric.Exporter, error) {
	protocol, err := metrics.check(c)
	if err != nil {
		return nil, err
	}
	if protocol == ProtocolGRPC {
		var opts []otlpmetricgrpc.Option
		if c.Endpoint != "" {
			opts = append(opts, otlpmetricgrpc.WithEndpointURL(c.Endpoint))
		}
		if once {
			opts = append(opts, otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig{}))
		}
		return otlpmetricgrpc.New(ctx, opts...)
	}
	var opts []otlpmetrichttp.Option
	if c.Endpoint != "" {
		opts = append(opts, otlpmetrichttp.WithEndpointURL(strings.TrimSuffix(c.Endpoint, "/")+metrics.path()))
	}
	if once {
		opts = append(opts, otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{}))
	}
	return otlpmetrichttp.New(ctx, opts...)
}

// check returns the transport of a signal's OTLP, or says what is wrong with what the environment says of it.
func (s signal) check(c *Config) (protocol string, err error) {
	protocol, err = s.protocol(c)
	if err == nil {
		err = s.checkEndpoint(c, protocol)
	}
	return protocol, errors.Join(err, s.checkSecrets())
}

// protocol returns the transport of a signal's OTLP.
func (s signal) protocol(c *Config) (string, error) {
	switch p := or(or(c.Protocol, s.env("PROTOCOL")), ProtocolHTTP); p {
	case ProtocolGRPC, ProtocolHTTP:
		return p, nil
	default:
		return "", fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL=%s: want %s or %s", p, ProtocolGRPC, ProtocolHTTP)
	}
}

// metricCount counts exports of metrics.
type metricCount struct {
	mu                sync.Mutex
	exports, failures int64
	firstError        string
}

func (m *metricCount) add(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.exports++
	m.fail(err)
}

// fail counts an error. The caller holds the lock.
func (m *metricCount) fail(err error) {
	if err == nil {
		return
	}
	m.failures++
	if m.firstError == "" {
		m.firstError = errorText(err)
	}
}

// countedExporter counts exports and keeps their errors to itself: the SDK would hand them to the global error handler,
// which belongs to the program and not to this package.
type countedExporter struct {
	sdkmetric.Exporter
	count *metricCount
}

func (e countedExporter) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	e.count.add(e.Exporter.Export(ctx, m))
	return nil
}
