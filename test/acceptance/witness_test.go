// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/moonloop/moonloop/internal/testport"
)

// witness is a stock Collector that writes the spans it gets into a file.
type witness struct {
	*process
	address, spans string
}

// witnessConfig uses the Collector's defaults, the 4 MiB of a gRPC message included, and adds no queue or batch: what was acknowledged is
// in the file.
const witnessConfig = `receivers:
  otlp:
    protocols:
      grpc:
        endpoint: %s
exporters:
  file:
    path: %s
service:
  telemetry:
    metrics:
      level: none
  pipelines:
    traces:
      receivers: [otlp]
      exporters: [file]
`

// startWitness starts the Collector and waits until it accepts connections.
func startWitness(t *testing.T, dir string) *witness {
	t.Helper()
	w := &witness{address: testport.Address(t), spans: filepath.Join(dir, "spans.jsonl")}
	config := filepath.Join(dir, "collector.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, witnessConfig, w.address, w.spans), 0o644); err != nil {
		t.Fatal(err)
	}
	w.process = start(t, dir, "collector", nil, setting(t, "MOONLOOP_COLLECTOR"), "--config", config)
	w.awaitConnections(t, w.address)
	return w
}

// awaitConnections waits until a Collector accepts connections.
func (p *process) awaitConnections(t *testing.T, address string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		connection, err := net.Dial("tcp", address)
		if err == nil {
			_ = connection.Close()
			return
		}
		select {
		case <-p.done:
			t.Fatalf("the Collector ended with status %d\n%s", p.code, p.tail())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("the Collector takes no connections: %v\n%s", err, p.tail())
		}
	}
}

// tracesTo returns the variables that make a program send its spans to a Collector, and nothing else.
func tracesTo(address string) []string {
	return []string{
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://" + address, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
		"OTEL_TRACES_EXPORTER=otlp", "OTEL_METRICS_EXPORTER=none", "OTEL_LOGS_EXPORTER=none",
	}
}

// read stops the Collector, which flushes its file, and reads what it wrote. The file, a gigabyte after a whole replay, is kept only if
// the test fails.
func (w *witness) read(t *testing.T) *spanFile {
	t.Helper()
	w.stop(t)
	input, err := os.Open(w.spans)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		if !t.Failed() {
			_ = os.Remove(w.spans)
		}
	})
	file, err := readSpanFile(input)
	if err != nil {
		t.Fatalf("%s: %v", w.spans, err)
	}
	return file
}

// TestAcceptanceWitness shows that the witness itself loses nothing: spans from the OpenTelemetry SDK, with more events than its default
// limit allows, all arrive.
func TestAcceptanceWitness(t *testing.T) {
	w := startWitness(t, artefacts(t))
	exporter, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpoint(w.address), otlptracegrpc.WithInsecure())
	if err != nil {
		t.Fatal(err)
	}
	limits := sdktrace.NewSpanLimits()
	limits.EventCountLimit = -1
	provider := sdktrace.NewTracerProvider(sdktrace.WithRawSpanLimits(limits),
		sdktrace.WithBatcher(exporter, sdktrace.WithMaxQueueSize(1000), sdktrace.WithMaxExportBatchSize(50)))
	const spans, events = 200, 300
	for range spans {
		_, span := provider.Tracer("witness").Start(t.Context(), "request", trace.WithNewRoot())
		for range events {
			span.AddEvent(tokenEvent)
		}
		span.End()
	}
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	file := w.read(t)
	equal(t, "spans", file.spans, spans)
	equal(t, "token events", file.tokenEvents, spans*events)
	equal(t, "copies", file.copies, 0)
}
