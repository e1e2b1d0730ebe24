// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package acceptance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// This file is an application in production, as a process that can be killed: the test starts its own binary again with appVariable set.
// It has conversations with an engine, at a rate that rises and falls within a minute, and writes spans of them with their texts, as
// instrumentation does.

const appVariable = "MOONLOOP_SHADOW_APP"

// shadowApp talks to the engine at an address until a signal comes. Its spans go to an OTLP receiver.
type shadowApp struct {
	url    string
	rate   float64 // requests per second, on average
	tracer trace.Tracer
	random *rand.Rand
	idle   []*conversation
	mu     sync.Mutex // of idle
}

type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

type conversation struct {
	id       string
	messages []chatMessage
}

// runShadowApp is the main function of that process. Its arguments are in one variable: URL OTLP RATE SEED.
func runShadowApp(arguments string) int {
	var url, otlp string
	var rate float64
	var seed uint64
	if _, err := fmt.Sscan(arguments, &url, &otlp, &rate, &seed); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exporter, err := otlptracegrpc.New(context.Background(), otlptracegrpc.WithEndpoint(otlp), otlptracegrpc.WithInsecure(),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: true, InitialInterval: 500 * time.Millisecond, MaxInterval: 2 * time.Second, MaxElapsedTime: 5 * time.Minute}))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	spans := sdktrace.NewTracerProvider(sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "shop"))),
		sdktrace.WithBatcher(exporter, sdktrace.WithMaxQueueSize(1<<16), sdktrace.WithBatchTimeout(appBatch), sdktrace.WithExportTimeout(5*time.Minute)))
	a := &shadowApp{url: url, rate: rate, tracer: spans.Tracer("shop"), random: rand.New(rand.NewPCG(seed, 16))}
	var talks sync.WaitGroup
	begun := time.Now()
	for n := 0; ; n++ {
		since := time.Since(begun).Seconds()
		now := a.rate * (1 + 0.7*math.Sin(2*math.Pi*since/60))
		select {
		case <-ctx.Done():
			talks.Wait()
			if err := spans.Shutdown(context.Background()); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			return 0
		case <-time.After(time.Duration(a.random.ExpFloat64() / now * float64(time.Second))):
		}
		c := a.pick(fmt.Sprintf("%d-%d", seed, n))
		reply := 5 + a.random.IntN(60)
		talks.Go(func() {
			if err := a.turn(c, reply); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		})
	}
}

// appBatch is how long spans wait in the application.
const appBatch = 500 * time.Millisecond

// pick continues a waiting conversation, or begins one.
func (a *shadowApp) pick(id string) *conversation {
	a.mu.Lock()
	defer a.mu.Unlock()
	var c *conversation
	if n := len(a.idle); n > 0 && a.random.IntN(4) > 0 {
		i := a.random.IntN(n)
		c, a.idle[i] = a.idle[i], a.idle[n-1]
		a.idle = a.idle[:n-1]
	} else {
		system := a.random.IntN(3)
		text := rand.New(rand.NewPCG(uint64(system), 5)) // the same for all conversations
		c = &conversation{id: id, messages: []chatMessage{{"system", words(text, 300+200*system)}}}
	}
	c.messages = append(c.messages, chatMessage{"user", words(a.random, 20+a.random.IntN(150))})
	return c
}

func words(random *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		fmt.Fprintf(&b, "w%x ", random.IntN(1<<16))
	}
	return strings.TrimSpace(b.String())
}

// turn requests a reply, streamed, and writes its span.
func (a *shadowApp) turn(c *conversation, reply int) error {
	ctx, span := a.tracer.Start(context.Background(), "chat sim", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("gen_ai.operation.name", "chat"), attribute.String("gen_ai.provider.name", "vllm"),
		attribute.String("gen_ai.request.model", "sim"), attribute.String("gen_ai.conversation.id", c.id),
		attribute.String("gen_ai.input.messages", partsOf(c.messages...))))
	defer span.End()
	text, err := a.ask(ctx, span, c, reply)
	if err != nil {
		span.SetStatus(codes.Error, "failed")
		span.SetAttributes(attribute.String("error.type", "other"))
		return err
	}
	c.messages = append(c.messages, chatMessage{"assistant", text})
	span.SetAttributes(attribute.String("gen_ai.output.messages", partsOf(c.messages[len(c.messages)-1])))
	if len(c.messages) < 16 {
		a.mu.Lock()
		a.idle = append(a.idle, c)
		a.mu.Unlock()
	}
	return nil
}

// partsOf writes messages in the form of the semantic conventions.
func partsOf(messages ...chatMessage) string {
	type part struct {
		Type    string `json:"type"`
		Content string `json:"content"`
	}
	type message struct {
		Role  string `json:"role"`
		Parts []part `json:"parts"`
	}
	all := make([]message, len(messages))
	for i, m := range messages {
		all[i] = message{m.Role, []part{{"text", m.Content}}}
	}
	b, _ := json.Marshal(all) // texts only
	return string(b)
}

func (a *shadowApp) ask(ctx context.Context, span trace.Span, c *conversation, reply int) (text string, err error) {
	body, err := json.Marshal(map[string]any{
		"model": "sim", "messages": c.messages, "stream": true, "stream_options": map[string]bool{"include_usage": true},
		"max_tokens": reply, "ignore_eos": true,
	})
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(request.Header))
	begun := time.Now()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		refusal, _ := io.ReadAll(io.LimitReader(response.Body, 500))
		return "", fmt.Errorf("%s: %s", response.Status, refusal)
	}
	var out strings.Builder
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var chunk struct {
			ID      string
			Choices []struct {
				Delta  struct{ Content string }
				Finish *string `json:"finish_reason"`
			}
			Usage *struct {
				Prompt     int64 `json:"prompt_tokens"`
				Completion int64 `json:"completion_tokens"`
				Details    struct {
					Cached int64 `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return "", err
		}
		for _, choice := range chunk.Choices {
			if choice.Delta.Content != "" && out.Len() == 0 {
				span.SetAttributes(attribute.Float64("gen_ai.response.time_to_first_chunk", time.Since(begun).Seconds()),
					attribute.String("gen_ai.response.id", chunk.ID))
			}
			out.WriteString(choice.Delta.Content)
			if choice.Finish != nil {
				span.SetAttributes(attribute.StringSlice("gen_ai.response.finish_reasons", []string{*choice.Finish}))
			}
		}
		if u := chunk.Usage; u != nil {
			span.SetAttributes(attribute.Int64("gen_ai.usage.input_tokens", u.Prompt), attribute.Int64("gen_ai.usage.output_tokens", u.Completion),
				attribute.Int64("gen_ai.usage.cache_read.input_tokens", u.Details.Cached))
		}
	}
	return out.String(), nil
}
