// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/observe"
)

// Telemetry is on only if it is configured, each signal by itself.
func TestOnOff(t *testing.T) {
	for _, c := range []struct {
		env             []string
		cfg             Config
		traces, metrics bool
	}{
		{},
		{env: []string{"OTEL_SERVICE_NAME=x"}}, // a name asks for nothing
		{env: []string{"OTEL_TRACES_EXPORTER=otlp"}, traces: true},
		{env: []string{"OTEL_METRICS_EXPORTER=otlp"}, metrics: true},
		{env: []string{"OTEL_TRACES_EXPORTER=console"}, traces: true},
		{env: []string{"OTEL_METRICS_EXPORTER=console"}, metrics: true},
		{env: []string{"OTEL_TRACES_EXPORTER=none"}},
		{env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"}, traces: true, metrics: true},
		{env: []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:1/v1/traces"}, traces: true},
		{env: []string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://127.0.0.1:1/v1/metrics"}, metrics: true},
		{env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_METRICS_EXPORTER=none"}, traces: true},
		{env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_SDK_DISABLED=true"}},
		{env: []string{"OTEL_SDK_DISABLED=TRUE"}, cfg: Config{Force: true, Endpoint: "http://127.0.0.1:1", SpanExporter: &fakeExporter{}}},
		{env: []string{"OTEL_SDK_DISABLED=false"}},
		{cfg: Config{Force: true}, traces: true, metrics: true},
		{cfg: Config{Force: true}, env: []string{"OTEL_TRACES_EXPORTER=none"}, metrics: true},
		{cfg: Config{Endpoint: "http://127.0.0.1:1"}, traces: true, metrics: true},
		{cfg: Config{Endpoint: "http://127.0.0.1:1"}, env: []string{"OTEL_METRICS_EXPORTER=none"}, traces: true},
		{cfg: Config{SpanExporter: &fakeExporter{}}, traces: true},
		{cfg: Config{MetricReader: sdkmetric.NewManualReader()}, metrics: true},
	} {
		name := strings.Join(c.env, " ")
		if c.cfg.Force {
			name += " force"
		}
		if c.cfg.Endpoint != "" {
			name += " endpoint"
		}
		t.Run(name, func(t *testing.T) {
			cleanEnv(t, c.env...)
			withAutoexport(&c.cfg)
			p, err := Start(t.Context(), c.cfg, clock.New())
			if err != nil {
				t.Fatal(err)
			}
			if p == nil {
				if c.traces || c.metrics {
					t.Fatal("telemetry is off")
				}
				return
			}
			if (p.queue != nil) != c.traces || (p.provider != nil) != c.metrics {
				t.Errorf("traces %t, metrics %t; want %t, %t", p.queue != nil, p.provider != nil, c.traces, c.metrics)
			}
			soon, cancel := context.WithTimeout(t.Context(), 100*ms) // nobody listens
			defer cancel()
			if _, err := p.Shutdown(soon); err != nil {
				t.Error(err)
			}
			if _, err := p.Shutdown(soon); err != nil {
				t.Errorf("a second shutdown: %v", err)
			}
		})
	}
}

// withAutoexport makes the exporters that are not built here, as the command does.
func withAutoexport(c *Config) {
	c.OtherSpanExporter = func(ctx context.Context) (sdktrace.SpanExporter, error) { return autoexport.NewSpanExporter(ctx) }
	c.OtherMetricReader = func(ctx context.Context) (sdkmetric.Reader, error) { return autoexport.NewMetricReader(ctx) }
}

// TestOtherExporters: an exporter of another name is an error, unless the configuration has a function that makes it.
func TestOtherExporters(t *testing.T) {
	for _, name := range []string{"OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER"} {
		cleanEnv(t, name+"=console")
		if _, err := Start(t.Context(), Config{}, clock.New()); err == nil || !strings.Contains(err.Error(), name+"=console: want otlp or none here") {
			t.Error(err)
		}
	}
}

func TestStartErrors(t *testing.T) {
	for _, c := range []struct {
		env  string
		cfg  Config
		want string
	}{
		{env: "OTEL_TRACES_EXPORTER=zipkin", want: "OTEL_TRACES_EXPORTER=zipkin"},
		{env: "OTEL_METRICS_EXPORTER=statsd", want: "OTEL_METRICS_EXPORTER=statsd"},
		{env: "OTEL_EXPORTER_OTLP_PROTOCOL=http/json", cfg: Config{Force: true}, want: "http/json: want grpc or http/protobuf"},
		{env: "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=udp", cfg: Config{Force: true}, want: "udp"},
		{cfg: Config{TokenEvents: "some"}, want: `token events "some": want all, array, first or none`},
		{cfg: Config{Protocol: "tcp"}, want: `OTLP protocol "tcp"`},
		{cfg: Config{Endpoint: "localhost:4317"}, want: "want http://host:port"},
		{cfg: Config{Endpoint: "ftp://u:secret@h"}, want: "want http://host:port"},
		{cfg: Config{Endpoint: "http://u:secret@h:%"}, want: "not a URL"},
		{cfg: Config{QueueBytes: -1}, want: "queue bytes"},
		{cfg: Config{Linger: -1}, want: "linger"},
	} {
		t.Run(c.want, func(t *testing.T) {
			cleanEnv(t, c.env)
			withAutoexport(&c.cfg)
			p, err := Start(t.Context(), c.cfg, clock.New())
			if err == nil || !strings.Contains(err.Error(), c.want) || p != nil {
				t.Fatalf("error %v, want one with %q", err, c.want)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error contains a secret: %v", err)
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	cleanEnv(
		t, "OTEL_SERVICE_NAME=mine", "OTEL_RESOURCE_ATTRIBUTES=team=a,mooncake.run.id=stolen", "OTEL_BSP_SCHEDULE_DELAY=250",
		"OTEL_BSP_EXPORT_TIMEOUT=1500", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=7", "OTEL_METRIC_EXPORT_INTERVAL=2000",
	)
	cfg, e := target, &fakeExporter{}
	cfg.SpanExporter = e
	p, _ := start(t, cfg)
	finish(p, nil, served(1))
	shutdown(t, p)
	got := attributeMap(e.spans[0].Resource().Attributes())
	for key, want := range map[string]any{"service.name": "mine", "team": "a", "mooncake.run.id": "run-1"} {
		if got[key] != want {
			t.Errorf("%s = %v, want %v", key, got[key], want)
		}
	}
	c := Config{}.withDefaults()
	if c.Linger != 250*ms || c.ExportTimeout != 1500*ms || c.BatchSpans != 7 || c.MetricInterval != 2*time.Second {
		t.Errorf("%v %v %d %v", c.Linger, c.ExportTimeout, c.BatchSpans, c.MetricInterval)
	}
	if c = (Config{Linger: time.Minute, BatchSpans: 3}).withDefaults(); c.Linger != time.Minute || c.BatchSpans != 3 {
		t.Errorf("the environment wins over the configuration: %v %d", c.Linger, c.BatchSpans)
	}
}

// A malformed OTEL_RESOURCE_ATTRIBUTES costs the attributes, not the run, and is reported.
func TestBrokenResource(t *testing.T) {
	cleanEnv(t, "OTEL_RESOURCE_ATTRIBUTES=no value")
	cfg, e := target, &fakeExporter{}
	cfg.SpanExporter = e
	p, _ := start(t, cfg)
	finish(p, nil, served(1))
	loss := shutdown(t, p)
	if loss.FirstError == "" || attributeMap(e.spans[0].Resource().Attributes())["mooncake.run.id"] != "run-1" {
		t.Errorf("%+v", loss)
	}
}

// Telemetry that is off costs nothing: no allocation, and no check by the caller.
func TestOffIsFree(t *testing.T) {
	var p *Pipeline
	r := served(100)
	allocs := testing.AllocsPerRun(100, func() {
		s := p.StartSession(Opening{ID: "s"})
		sp := p.StartRequest(s, r.Row, r.Intended)
		p.InFlight(1)
		if sp.Traceparent() != "" || !sp.Ref().IsZero() {
			t.Error("a span without telemetry has ids")
		}
		p.Finish(sp, r)
		p.InFlight(-1)
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
	p.Observe(func() observe.Machine { return observe.Machine{} })
	if loss, err := p.Shutdown(t.Context()); err != nil || !loss.Complete() {
		t.Errorf("%+v, %v", loss, err)
	}
}
