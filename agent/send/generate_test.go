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

// TestGenerateReplies: what the client reads from replies of the simulator in TGI's form, streamed and whole, and from its errors.
func TestGenerateReplies(t *testing.T) {
	_, url := rehearse(t, simulator.Config{})
	c, err := New(Config{URL: url}, clock.New())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, test := range []struct {
		name, path, fault string
		class             Class
		code              string
		chunks            int
		finish            string
	}{
		{name: "stream", path: "/generate_stream", chunks: 6, finish: "length"},
		{name: "whole", path: "/generate", chunks: 1, finish: "length"},
		{name: "error event", path: "/generate_stream", fault: "stream-error", class: ClassStreamError, code: "generation", chunks: 3},
		{name: "silence", path: "/generate_stream", fault: "silent-end", class: ClassIncomplete, chunks: 3},
		{name: "rate limit", path: "/generate_stream", fault: "rate-limit", class: ClassRateLimited, code: "overloaded"},
		{name: "bad JSON", path: "/generate", fault: "malformed-json", class: ClassProtocol},
	} {
		t.Run(test.name, func(t *testing.T) {
			const text = `{"inputs":"a b c d e f g h","parameters":{"max_new_tokens":6,"details":true}}`
			var header []Field
			if test.fault != "" {
				header = []Field{{simulator.HeaderFault, test.fault}}
			}
			var x Exchange
			c.Do(t.Context(), &Request{
				Path: test.path, API: Generate, Stream: test.path == "/generate_stream", Header: header, KeepReply: true,
				Body: Body{Size: int64(len(text)), Open: func() io.Reader { return strings.NewReader(text) }},
			}, &x)
			got := look(&x)
			if got.Class != test.class || got.Code != test.code || got.Chunks != test.chunks || got.Finish != test.finish {
				t.Errorf("%+v, %v", got, x.Err)
			}
			if test.class == "" && (x.Usage != Usage{Prompt: 8, Completion: 6, Cached: Unknown, Reasoning: Unknown} || len(strings.Fields(x.Reply)) != 6) {
				t.Errorf("%+v, %q", x.Usage, x.Reply)
			}
		})
	}
}

// tgi is a stream of unchanged events.
func tgi(events ...string) string { return raw(strings.Join(events, "\n\n") + "\n\n") }

// TestGenerateQuirks: replies as TGI writes them, and replies that it must not write.
func TestGenerateQuirks(t *testing.T) {
	const token = `data:{"index":1,"token":{"id":5,"text":"a","logprob":-1.5,"special":false},"generated_text":null,"details":null}`
	end := func(details string) string {
		return `data:{"index":3,"token":{"id":2,"text":"</s>","logprob":-0.1,"special":true},"generated_text":"a b","details":` + details + `}`
	}
	const details = `{"finish_reason":"eos_token","generated_tokens":3,"seed":null,"input_length":12}`
	for _, test := range []struct {
		name   string
		reply  string
		chunks int
		finish string
		class  Class
		code   string
		text   string
		usage  Usage
	}{
		{
			"data without a space, the end token is not text", tgi(token, strings.Replace(token, `"a"`, `" b"`, 1), end(details)),
			2, "eos_token", "", "", "a b",
			Usage{12, 3, Unknown, Unknown},
		},
		{"keep-alives before and between", tgi(":", token, ":", end(details)), 1, "eos_token", "", "", "a", Usage{12, 3, Unknown, Unknown}},
		{"no details", tgi(token, end("null")), 1, unstated, "", "", "a", NoUsage},
		{"no input_length, as in older versions", tgi(token, end(`{"finish_reason":"length","generated_tokens":2,"seed":7}`)), 1, "length", "", "", "a", Usage{Unknown, 2, Unknown, Unknown}},
		{"invalid counts", tgi(token, end(`{"finish_reason":"length","generated_tokens":-2,"input_length":99999999999}`)), 1, "length", "", "", "a", NoUsage},
		{"a token without text", tgi(strings.Replace(token, `"a"`, `""`, 1), token, end(details)), 1, "eos_token", "", "", "a", Usage{12, 3, Unknown, Unknown}},
		{"an error", tgi(token, `data:{"error":"CUDA out of memory","error_type":"generation"}`), 1, "", ClassStreamError, "generation", "a", NoUsage},
		{"an error event", tgi("event:error\n" + `data:{"error":"Incomplete","error_type":"incomplete_generation"}`), 0, "", ClassStreamError, "incomplete_generation", "", NoUsage},
		{"no end", tgi(token), 1, "", ClassIncomplete, "", "a", NoUsage},
		{"OpenAI's chunks", tgi(`data: {"id":"x","choices":[{"index":0,"delta":{"content":"a"}}]}`), 0, "", ClassProtocol, "", "", NoUsage},
		{"not an object", tgi(`data:7`), 0, "", ClassProtocol, "", "", NoUsage},
		{"a prompt that is too long", answer("422 Unprocessable Entity", mediaJSON, `{"error":"Input validation error: `+"`inputs`"+` must have less than 4096 tokens","error_type":"validation"}`), 0, "", ClassHTTP, "validation", "", NoUsage},
	} {
		t.Run(test.name, func(t *testing.T) {
			req := post(`{"inputs":"x"}`)
			req.API = Generate
			x := once(t, req, Config{}, test.reply, true)
			got := look(x)
			if got.Class != test.class || got.Code != test.code || got.Chunks != test.chunks || got.Finish != test.finish || x.Reply != test.text || x.Usage != test.usage {
				t.Errorf("%+v, %q, %+v, %v", got, x.Reply, x.Usage, x.Err)
			}
		})
	}
	for body, usage := range map[string]Usage{
		`[{"generated_text":"a b","details":{"finish_reason":"length","generated_tokens":2}}]`: {7, 2, Unknown, Unknown},
		`{"generated_text":"a b"}`: {7, Unknown, Unknown, Unknown},
	} {
		req := post(`{"inputs":"x"}`)
		req.API, req.Stream = Generate, false
		x := once(t, req, Config{}, strings.Replace(answer("200 OK", mediaJSON, body), "\r\n", "\r\nx-prompt-tokens: 7\r\n", 1), true)
		if x.Err != nil || x.Usage != usage || x.Reply != "a b" || !x.Whole {
			t.Errorf("%s: %+v, %q, %v", body, x.Usage, x.Reply, x.Err)
		}
	}
}
