// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	claude "github.com/anthropics/anthropic-sdk-go/option"

	"github.com/moonloop/moonloop/internal/simulator"
)

// anthropicClient returns Anthropic's official client, which we did not write.
func anthropicClient(url string, options ...claude.RequestOption) anthropic.Client {
	return anthropic.NewClient(append([]claude.RequestOption{
		claude.WithBaseURL(url), claude.WithAPIKey("test"), claude.WithMaxRetries(0), claude.WithoutEnvironmentDefaults(),
	}, options...)...)
}

func messageParams(text string, maxTokens int64) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: "m", MaxTokens: maxTokens, System: []anthropic.TextBlockParam{{Text: "be brief"}},
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(text))},
	}
}

// streamed lets the client assemble a stream, and returns the types of its events without repetitions. It ignores pings.
func streamed(t *testing.T, c anthropic.Client, params anthropic.MessageNewParams, options ...claude.RequestOption) (m anthropic.Message, kinds []string, err error) {
	t.Helper()
	stream := c.Messages.NewStreaming(t.Context(), params, options...)
	defer func() { _ = stream.Close() }()
	for stream.Next() {
		event := stream.Current()
		if err := m.Accumulate(event); err != nil {
			t.Fatal(err)
		}
		kind := event.Type
		if delta := event.Delta.Type; delta != "" {
			kind = delta
		}
		kinds = append(kinds, kind)
	}
	return m, slices.Compact(kinds), stream.Err()
}

// TestMessagesWithOfficialClient: replies, whole and streamed, are those that Anthropic's client reads.
func TestMessagesWithOfficialClient(t *testing.T) {
	e, url := serve(t, simulator.Config{Cache: simulator.Cache{BlockSize: 16}, APIKey: "test"})
	c := anthropicClient(url)
	params := messageParams(words(90), 7)
	whole, err := c.Messages.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	text := whole.Content[0].Text
	if n := len(strings.Fields(text)); n != 7 || whole.StopReason != anthropic.StopReasonMaxTokens || whole.Model != "m" || whole.Role != "assistant" {
		t.Errorf("%d words, %s", n, whole.RawJSON())
	}
	prompt := whole.Usage.InputTokens
	if u := whole.Usage; u.InputTokens < 93 || u.OutputTokens != 7 || u.CacheReadInputTokens != 0 {
		t.Errorf("usage %s", u.RawJSON())
	}
	m, kinds, err := streamed(t, c, params)
	want := []string{"message_start", "content_block_start", "text_delta", "content_block_stop", "message_delta", "message_stop"}
	if err != nil || !slices.Equal(kinds, want) || m.Content[0].Text != text || m.StopReason != anthropic.StopReasonMaxTokens || m.ID == "" {
		t.Errorf("%v, %v, %s", err, kinds, m.RawJSON())
	}
	// Cached tokens are counted separately.
	if u := m.Usage; u.InputTokens+u.CacheReadInputTokens != prompt || u.CacheReadInputTokens != prompt/16*16 || u.OutputTokens != 7 {
		t.Errorf("usage %+v of %d tokens", u, prompt)
	}
	if r := lastRecord(t, e); r.PromptTokens != int(prompt) || r.CachedTokens != int(prompt/16*16) || r.FinishReason != "length" || !r.Authorized || len(r.Request.Messages) != 2 {
		t.Errorf("%+v", r)
	}

	m, kinds, err = streamed(t, c, params, claude.WithHeader(simulator.HeaderFault, "reasoning"))
	thought := []string{"message_start", "content_block_start", "thinking_delta", "signature_delta", "content_block_stop", "content_block_start", "text_delta", "content_block_stop", "message_delta", "message_stop"}
	if err != nil || !slices.Equal(kinds, thought) || len(m.Content) != 2 || m.Content[0].Thinking+m.Content[1].Text != text {
		t.Errorf("%v, %v, %+v", err, kinds, m.Content)
	}

	params.Tools = []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{Name: "look", InputSchema: anthropic.ToolInputSchemaParam{Properties: map[string]any{"text": map[string]any{"type": "string"}}}}}}
	for _, stream := range []bool{false, true} {
		reply := new(anthropic.Message)
		if stream {
			*reply, kinds, err = streamed(t, c, params, claude.WithHeader(simulator.HeaderToolCalls, "1"))
			want[2] = "input_json_delta"
			if !slices.Equal(kinds, want) {
				t.Errorf("%v", kinds)
			}
		} else {
			reply, err = c.Messages.New(t.Context(), params, claude.WithHeader(simulator.HeaderToolCalls, "1"))
		}
		if err != nil {
			t.Fatal(err)
		}
		if reply.StopReason != anthropic.StopReasonToolUse || len(reply.Content) != 1 {
			t.Fatalf("stream %v: %s", stream, reply.RawJSON())
		}
		var input struct{ Text string }
		call := reply.Content[0]
		if err := json.Unmarshal(call.Input, &input); err != nil || len(strings.Fields(input.Text)) != 7 || call.Name != "look" || call.ID == "" {
			t.Errorf("stream %v: %v, %+v", stream, err, call)
		}
	}
}

// TestMessagesErrors: errors have the shape that the client knows.
func TestMessagesErrors(t *testing.T) {
	_, url := serve(t, simulator.Config{APIKey: "test", Models: []string{"m"}})
	c := anthropicClient(url)
	for _, test := range []struct {
		fault  string
		change func(*anthropic.MessageNewParams)
		key    string
		status int
		kind   string
	}{
		{fault: "overloaded", status: 529, kind: "overloaded_error"},
		{fault: "rate-limit", status: 429, kind: "rate_limit_error"},
		{fault: "server-error", status: 500, kind: "api_error"},
		{change: func(p *anthropic.MessageNewParams) { p.Model = "other" }, status: 404, kind: "not_found_error"},
		{change: func(p *anthropic.MessageNewParams) { p.Messages = nil }, status: 400, kind: "invalid_request_error"},
		{key: "wrong", status: 401, kind: "authentication_error"},
	} {
		params := messageParams("hello", 5)
		var options []claude.RequestOption
		if test.change != nil {
			test.change(&params)
		}
		if test.fault != "" {
			options = append(options, claude.WithHeader(simulator.HeaderFault, test.fault))
		}
		if test.key != "" {
			options = append(options, claude.WithAPIKey(test.key))
		}
		_, err := c.Messages.New(t.Context(), params, options...)
		failed, ok := errors.AsType[*anthropic.Error](err)
		if !ok || failed.StatusCode != test.status || string(failed.Type()) != test.kind {
			t.Errorf("%+v: %v", test, err)
		}
	}
	_, kinds, err := streamed(t, c, messageParams("hello", 20), claude.WithHeader(simulator.HeaderFault, "stream-error"))
	if err == nil || !strings.Contains(err.Error(), "api_error") || len(kinds) == 0 || kinds[0] != "message_start" {
		t.Errorf("%v, %v", err, kinds)
	}
}
