// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// provider returns a provider that sends the spans of a service, as the OpenTelemetry SDK does by default, but without its limit of 2,048
// waiting spans: a span lost in the sender would be blamed on the Collector.
func provider(t *testing.T, address, service string) *sdktrace.TracerProvider {
	t.Helper()
	exporter, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpoint(address), otlptracegrpc.WithInsecure())
	if err != nil {
		t.Fatal(err)
	}
	return sdktrace.NewTracerProvider(
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", service))),
		sdktrace.WithBatcher(exporter, sdktrace.WithMaxQueueSize(1<<20), sdktrace.WithBatchTimeout(time.Second)))
}

// sendEngineSpans follows the engine's record of requests, and sends for each request the span that a vLLM engine would send: below the
// span whose context came with the request, with the engine's own counts. The returned function waits for the end of the record, and
// returns the number of spans.
func sendEngineSpans(t *testing.T, address, record string) (finish func() int) {
	t.Helper()
	spans := provider(t, address, "engine")
	tracer := spans.Tracer("vllm.llm_engine")
	ended, result := make(chan struct{}), make(chan int, 1)
	go func() {
		sent := 0
		defer func() { result <- sent }()
		var file *os.File
		for file == nil {
			var err error
			if file, err = os.Open(record); err != nil {
				time.Sleep(10 * time.Millisecond)
			}
		}
		defer file.Close()
		lines := bufio.NewReader(file)
		var line strings.Builder
		for last := false; ; {
			part, err := lines.ReadString('\n')
			line.WriteString(part)
			if errors.Is(err, io.EOF) {
				if last {
					return
				}
				select {
				case <-ended:
					last = true // one more read of what came before the end
				case <-time.After(50 * time.Millisecond):
				}
				continue
			}
			var r engineRecord
			if err := json.Unmarshal([]byte(line.String()), &r); err != nil {
				t.Errorf("record of the engine: %v", err)
				return
			}
			line.Reset()
			parent, ok := remoteParent(r.Header["Traceparent"])
			if !ok || !parent.IsSampled() {
				continue // calibration, which is not sampled: vLLM, too, records nothing for such a request
			}
			_, span := tracer.Start(trace.ContextWithRemoteSpanContext(context.Background(), parent), "llm_request",
				trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(r.Time), trace.WithAttributes(
					attribute.Int64("gen_ai.usage.prompt_tokens", r.PromptTokens),
					attribute.Int64("gen_ai.usage.completion_tokens", r.OutputTokens),
					attribute.String("gen_ai.request.id", fmt.Sprintf("cmpl-engine-%d", sent)),
					attribute.Float64("gen_ai.latency.time_to_first_token", 0.005)))
			span.End(trace.WithTimestamp(r.Time.Add(5 * time.Millisecond)))
			sent++
		}
	}()
	return func() int {
		close(ended)
		sent := <-result
		if err := spans.Shutdown(context.Background()); err != nil {
			t.Errorf("send the engine's spans: %v", err)
		}
		return sent
	}
}

// remoteParent reads a traceparent header.
func remoteParent(header []string) (trace.SpanContext, bool) {
	id, ok := parentSpan(header)
	if !ok {
		return trace.SpanContext{}, false
	}
	var traceID trace.TraceID
	if _, err := hex.Decode(traceID[:], []byte(strings.Split(header[0], "-")[1])); err != nil {
		return trace.SpanContext{}, false
	}
	flags := trace.TraceFlags(0).WithSampled(strings.HasSuffix(header[0], "-01"))
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceID, SpanID: trace.SpanID(id), TraceFlags: flags, Remote: true}), true
}

// sendProduction acts as an application with instrumentation that sends its prompts: conversations, one request about every 50 ms. The returned
// function ends it, and returns the requests in the order of their starts.
func sendProduction(t *testing.T, address string) (finish func() []traceRow) {
	t.Helper()
	spans := provider(t, address, "shop")
	tracer := spans.Tracer("shop")
	ended, result := make(chan struct{}), make(chan []traceRow, 1)
	go func() {
		var sent []traceRow
		defer func() { result <- sent }()
		random := rand.New(rand.NewPCG(1, 2))
		type message struct {
			Role  string           `json:"role"`
			Parts []map[string]any `json:"parts"`
		}
		text := func(n int) string {
			words := make([]string, n)
			for i := range words {
				words[i] = fmt.Sprintf("w%x", random.IntN(1<<12))
			}
			return strings.Join(words, " ")
		}
		part := func(text string) []map[string]any { return []map[string]any{{"type": "text", "content": text}} }
		system := message{"system", part(text(600))}
		conversations := make([][]message, 5)
		for {
			select {
			case <-ended:
				return
			case <-time.After(50 * time.Millisecond):
			}
			i := random.IntN(len(conversations))
			if len(conversations[i]) == 0 || len(conversations[i]) > 12 {
				conversations[i] = []message{system}
			}
			conversations[i] = append(conversations[i], message{"user", part(text(10 + random.IntN(200)))})
			prompt, err := json.Marshal(conversations[i])
			if err != nil {
				t.Error(err)
				return
			}
			row := traceRow{InputLength: int64(len(prompt) / 4), OutputLength: int64(1 + random.IntN(300))}
			ctx, parent := tracer.Start(context.Background(), "POST /chat", trace.WithSpanKind(trace.SpanKindServer),
				trace.WithAttributes(attribute.String("session.id", fmt.Sprintf("s%d", i))))
			_, span := tracer.Start(ctx, "chat sim", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
				attribute.String("gen_ai.operation.name", "chat"), attribute.String("gen_ai.provider.name", "vllm"),
				attribute.String("gen_ai.request.model", "sim"), attribute.String("gen_ai.response.id", fmt.Sprintf("chatcmpl-%d", len(sent))),
				attribute.String("gen_ai.input.messages", string(prompt)),
				attribute.Int64("gen_ai.usage.input_tokens", row.InputLength), attribute.Int64("gen_ai.usage.output_tokens", row.OutputLength)))
			span.End()
			parent.End()
			sent = append(sent, row)
			conversations[i] = append(conversations[i], message{"assistant", part(text(int(row.OutputLength)))})
		}
	}()
	return func() []traceRow {
		close(ended)
		sent := <-result
		if err := spans.Shutdown(context.Background()); err != nil {
			t.Errorf("send the spans of production: %v", err)
		}
		return sent
	}
}
