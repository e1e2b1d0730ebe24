// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"io"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/internal/simulator"
)

// TestMessagesReplies: what the client reads from replies of the Messages API, whole and streamed, and from its errors.
func TestMessagesReplies(t *testing.T) {
	_, url := rehearse(t, simulator.Config{Cache: simulator.Cache{BlockSize: 4}})
	body := func(stream, tools string) Body {
		text := `{"model":"m","max_tokens":6,"stream":` + stream + tools + `,"messages":[{"role":"user","content":"a b c d e f g h"}]}`
		return Body{Size: int64(len(text)), Open: func() io.Reader { return strings.NewReader(text) }}
	}
	const tools = `,"tools":[{"name":"f","input_schema":{"type":"object"}}]`
	c, err := New(Config{URL: url}, clock.New())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, test := range []struct {
		name, stream, fault, tools string
		class                      Class
		code                       string
		chunks                     int
		finish                     string
		words                      int // of the reply
		calls                      bool
	}{
		{name: "stream", stream: "true", chunks: 6, finish: "max_tokens", words: 6},
		{name: "whole", stream: "false", chunks: 1, finish: "max_tokens", words: 6},
		{name: "thought", stream: "true", fault: "reasoning", chunks: 6, finish: "max_tokens", words: 3},
		{name: "whole thought", stream: "false", fault: "reasoning", chunks: 1, finish: "max_tokens", words: 3},
		{name: "call", stream: "true", tools: tools, chunks: 7, finish: "tool_use", calls: true}, // its name is a chunk, too
		{name: "whole call", stream: "false", tools: tools, chunks: 1, finish: "tool_use", calls: true},
		{name: "error event", stream: "true", fault: "stream-error", class: ClassStreamError, code: "api_error", chunks: 3},
		{name: "silence", stream: "true", fault: "silent-end", class: ClassIncomplete, chunks: 3},
		{name: "overloaded", stream: "true", fault: "overloaded", class: ClassHTTP, code: "overloaded_error"},
		{name: "rate limit", stream: "true", fault: "rate-limit", class: ClassRateLimited, code: "rate_limit_error"},
		{name: "bad JSON", stream: "false", fault: "malformed-json", class: ClassProtocol},
		{name: "error as success", stream: "false", fault: "error-ok", class: ClassStreamError, code: "server_error"},
	} {
		t.Run(test.name, func(t *testing.T) {
			header := []Field{{simulator.HeaderToolCalls, "1"}}
			if test.fault != "" {
				header = append(header, Field{simulator.HeaderFault, test.fault})
			}
			var x Exchange
			c.Do(t.Context(), &Request{Path: "/v1/messages", API: Messages, Stream: test.stream == "true", Body: body(test.stream, test.tools), Header: header, KeepReply: true}, &x)
			got := look(&x)
			if got.Class != test.class || got.Code != test.code || got.Chunks != test.chunks || got.Finish != test.finish {
				t.Errorf("%+v, %v", got, x.Err)
			}
			if n := len(strings.Fields(x.Reply)); test.class == "" && n != test.words {
				t.Errorf("%d words: %q", n, x.Reply)
			}
			if test.calls != strings.Contains(string(x.ToolCalls), `"name":"f","arguments":"{\"text\":\"`) {
				t.Errorf("calls %s", x.ToolCalls)
			}
			if test.class == "" && (x.Usage.Prompt < 8 || x.Usage.Completion != 6 || x.Usage.Cached%4 != 0 || x.ResponseID == "" || x.Model != "m") {
				t.Errorf("%+v", x.Usage)
			}
		})
	}
}

// TestMessagesUsage: a prompt's tokens are the sum of those that were cached, those written to the cache, and the others. A count that is
// absent stays as it was.
func TestMessagesUsage(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	var u messageUsage
	if u.counts() != NoUsage {
		t.Errorf("%+v", u.counts())
	}
	u.update(&messageUsage{Input: n(3), Read: n(20), Created: n(100)})
	u.update(&messageUsage{Output: n(7), Input: n(-1)})
	u.update(nil)
	if got := u.counts(); got != (Usage{Prompt: 123, Completion: 7, Cached: 20, Reasoning: Unknown}) {
		t.Errorf("%+v", got)
	}
	// vLLM 0.32 begins a stream with the whole prompt, and reports at its end how much of it was cached.
	u = messageUsage{}
	u.update(&messageUsage{Input: n(131)})
	u.update(&messageUsage{Input: n(3), Output: n(4), Created: n(0), Read: n(128)})
	if got := u.counts(); got != (Usage{Prompt: 131, Completion: 4, Cached: 128, Reasoning: Unknown}) {
		t.Errorf("%+v", got)
	}
}
