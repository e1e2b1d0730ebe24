// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/semconv"
)

// Conversation is one user's visit to the demonstration's application.
type Conversation struct {
	ID     string
	Start  time.Duration // after the start of the application
	System string
	Turns  []Turn
}

// Turn is a question of a conversation, and the length of its reply.
type Turn struct {
	Think    time.Duration // between the previous reply and the question
	Question string
	Reply    int // tokens
}

// The approximate times that the simulated engine needs for a turn. Plan uses them to keep the visits within their duration.
const (
	prefillTime = 80 * time.Millisecond
	tokenTime   = 10 * time.Millisecond
)

// Plan plans visits that fit approximately into a duration: they begin as a Poisson process, and share two system prompts. The
// same duration and seed give the same visits.
func Plan(duration time.Duration, seed uint64) []Conversation {
	p := NewProse(seed)
	systems := []string{p.System(1300), p.System(1300), p.System(900)} // the first is twice as frequent
	systems[1] = systems[0]
	const perSecond = 2
	var plan []Conversation
	for at := 0.0; ; at += p.ExpFloat64() / perSecond {
		start := time.Duration(at * float64(time.Second))
		if start >= duration*4/5 && len(plan) > 0 {
			return plan
		}
		c := Conversation{ID: fmt.Sprintf("visit-%d-%03d", seed, len(plan)), Start: start, System: systems[p.IntN(len(systems))]}
		now := start
		for range 2 + p.IntN(4) {
			t := Turn{Reply: 20 + p.IntN(60), Question: p.Question(p.Words(500, 0.8))}
			if len(c.Turns) > 0 {
				t.Think = 300*time.Millisecond + time.Duration(p.ExpFloat64()*float64(700*time.Millisecond))
			}
			now += t.Think + prefillTime + time.Duration(t.Reply)*tokenTime
			if len(c.Turns) > 0 && now > duration {
				break
			}
			c.Turns = append(c.Turns, t)
		}
		plan = append(plan, c)
	}
}

// Words draws a log-normal number of words, 2,000 at most.
func (p Prose) Words(median, sigma float64) int {
	return int(min(2000, median*math.Exp(sigma*p.NormFloat64())))
}

// Application is an application in front of an engine: it has conversations, requests streamed replies, and writes spans that follow the
// GenAI conventions and contain the text of the messages.
type Application struct {
	Engine string // base URL
	Tracer trace.Tracer

	mu   sync.Mutex
	sent Sent
}

// Sent describes what an application sent.
type Sent struct {
	Requests, Failed     int64
	PromptTokens, Cached int64    // as the engine counted
	Texts                []string // every text that was in a prompt or a reply
	Err                  error    // the first
}

// Run holds the conversations of a plan, each at its own time, until all have ended or ctx ends.
func (a *Application) Run(ctx context.Context, plan []Conversation) Sent {
	begin := time.Now()
	var visits sync.WaitGroup
	for _, c := range plan {
		visits.Go(func() {
			if clock.Pause(ctx, time.Until(begin.Add(c.Start))) {
				a.visit(ctx, c)
			}
		})
	}
	visits.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sent
}

type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// visit holds one conversation. Every turn is a request to the application, and an OTel trace of its own. The application's span names the
// session; the span of the model call is its child.
func (a *Application) visit(ctx context.Context, c Conversation) {
	history := []chatMessage{{"system", c.System}}
	for _, t := range c.Turns {
		if !clock.Pause(ctx, t.Think) {
			return
		}
		history = append(history, chatMessage{"user", t.Question})
		turning, span := a.Tracer.Start(ctx, "POST /assistant", trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(attribute.String(semconv.GenAIConversationID, c.ID), attribute.String(semconv.HTTPRoute, "/assistant")))
		reply, err := a.chat(turning, history, t.Reply)
		if err != nil {
			span.SetStatus(codes.Error, "")
		}
		span.End()
		a.account(history, reply, err)
		if err != nil {
			return
		}
		history = append(history, chatMessage{"assistant", reply.text})
	}
}

func (a *Application) account(history []chatMessage, reply chatReply, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent.Requests++
	if err != nil {
		a.sent.Failed++
		a.sent.Err = cmp.Or(a.sent.Err, err)
	}
	a.sent.PromptTokens += reply.Usage.PromptTokens
	a.sent.Cached += reply.Usage.Details.Cached
	if len(history) == 2 { // the first turn: all others share its system prompt
		a.sent.Texts = append(a.sent.Texts, history[0].Content)
	}
	a.sent.Texts = append(a.sent.Texts, history[len(history)-1].Content, reply.text)
}

// chatReply is a streamed reply: its last chunk, and the whole text.
type chatReply struct {
	ID, Model string
	Choices   []struct {
		Delta  struct{ Content string }
		Finish string `json:"finish_reason"`
	}
	Usage struct {
		PromptTokens     int64 `json:"prompt_tokens"`
		CompletionTokens int64 `json:"completion_tokens"`
		Details          struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}

	finish, text string
	first        time.Duration // from the request to the first token
}

// chat sends a request to the engine, and writes its span.
func (a *Application) chat(ctx context.Context, history []chatMessage, tokens int) (chatReply, error) {
	ctx, span := a.Tracer.Start(ctx, semconv.OperationChat+" "+model, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String(semconv.GenAIOperationName, semconv.OperationChat),
		attribute.String(semconv.GenAIProviderName, "openai"),
		attribute.String(semconv.GenAIRequestModel, model),
		attribute.Bool(semconv.GenAIRequestStream, true),
		attribute.Int(semconv.GenAIRequestMaxTokens, tokens),
		attribute.String(semconv.GenAIInputMessages, conventional(history...)),
	))
	defer span.End()
	reply, err := a.stream(ctx, history, tokens)
	if err != nil {
		span.SetStatus(codes.Error, "")
		span.SetAttributes(attribute.String(semconv.ErrorType, "_OTHER"))
		return reply, err
	}
	span.SetAttributes(
		attribute.String(semconv.GenAIResponseID, reply.ID),
		attribute.String(semconv.GenAIResponseModel, reply.Model),
		attribute.StringSlice(semconv.GenAIResponseFinishReasons, []string{reply.finish}),
		attribute.Float64(semconv.GenAIResponseTimeToFirstChunk, reply.first.Seconds()),
		attribute.Int64(semconv.GenAIUsageInputTokens, reply.Usage.PromptTokens),
		attribute.Int64(semconv.GenAIUsageOutputTokens, reply.Usage.CompletionTokens),
		attribute.Int64(semconv.GenAIUsageCacheReadTokens, reply.Usage.Details.Cached),
		attribute.String(semconv.GenAIOutputMessages, conventional(chatMessage{"assistant", reply.text})),
	)
	return reply, nil
}

// conventional writes messages in the JSON of the GenAI conventions.
func conventional(messages ...chatMessage) string {
	out := make([]any, len(messages))
	for i, m := range messages {
		out[i] = map[string]any{"role": m.Role, "parts": []map[string]string{{"type": "text", "content": m.Content}}}
	}
	b, _ := json.Marshal(out) //nolint:errchkjson // strings can always be marshalled
	return string(b)
}

// stream sends a chat and reads the streamed reply.
func (a *Application) stream(ctx context.Context, history []chatMessage, tokens int) (reply chatReply, err error) {
	body, err := json.Marshal(map[string]any{
		"model": model, "messages": history, "max_completion_tokens": tokens,
		"stream": true, "stream_options": map[string]bool{"include_usage": true},
	})
	if err != nil {
		return reply, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.Engine+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return reply, err
	}
	request.Header.Set("Content-Type", "application/json")
	begin := time.Now()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return reply, err
	}
	defer response.Body.Close() //nolint:errcheck // read to its end, or given up
	if response.StatusCode != http.StatusOK {
		return reply, fmt.Errorf("the engine answered %s", response.Status)
	}
	var text strings.Builder
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		data, found := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if !found || bytes.Equal(data, []byte("[DONE]")) {
			continue
		}
		reply.Choices = nil
		if err := json.Unmarshal(data, &reply); err != nil {
			return reply, fmt.Errorf("a chunk of the reply: %w", err)
		}
		for _, choice := range reply.Choices {
			if reply.first == 0 && choice.Delta.Content != "" {
				reply.first = time.Since(begin)
			}
			text.WriteString(choice.Delta.Content)
			reply.finish = max(reply.finish, choice.Finish)
		}
	}
	if err := lines.Err(); err != nil {
		return reply, fmt.Errorf("the stream broke: %w", err)
	}
	if reply.finish == "" {
		return reply, errors.New("the stream ended without a finish reason")
	}
	reply.text = text.String()
	return reply, nil
}

// Turns returns the number of turns in a plan.
func Turns(plan []Conversation) (n int) {
	for _, c := range plan {
		n += len(c.Turns)
	}
	return n
}
