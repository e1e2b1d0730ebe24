// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"testing"
)

// TestErrorsWithoutAWord: an error that says nothing is a failure, in each form of API, streamed and whole, whatever else the event has; and in a
// call that prepares a run. What is no error is none.
func TestErrorsWithoutAWord(t *testing.T) {
	const (
		begin = `{"type":"message_start","message":{"id":"m1","model":"m","usage":{"input_tokens":9}}}`
		delta = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"A"}}`
		end   = `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}`
		token = `{"index":1,"token":{"id":5,"text":"a","special":false},"generated_text":null,"details":null}`
		last  = `{"index":2,"token":{"id":2,"text":"","special":true},"generated_text":"a","details":null}`
	)
	whole := func(body string) string { return answer("200 OK", mediaJSON, body) }
	with := func(event, member string) string { return `{` + member + `,` + event[1:] }
	for _, test := range []struct {
		name   string
		api    API
		reply  func(member string) string
		stream bool
	}{
		{"an event", OpenAI, func(m string) string { return sse(chunkA, finish, "{"+m+"}", usage, done) }, true},
		{"an event with a choice", OpenAI, func(m string) string { return sse(chunkA, with(finish, m), usage, done) }, true},
		{"a whole reply", OpenAI, func(m string) string {
			return whole(with(`{"choices":[{"index":0,"text":"A","finish_reason":"stop"}]}`, m))
		}, false},
		{"an event of the Messages API", Messages, func(m string) string { return sse(begin, delta, end, with(`{"type":"ping"}`, m)) }, true},
		{"the end of a message", Messages, func(m string) string { return sse(begin, delta, with(end, m)) }, true},
		{"an event of TGI's API", Generate, func(m string) string { return sse(with(token, m), last) }, true},
		{"a whole reply of TGI's API", Generate, func(m string) string { return whole(with(`{"generated_text":"a"}`, m)) }, false},
		{"embeddings", Embeddings, func(m string) string { return whole(with(`{"data":[{"embedding":[1]}]}`, m)) }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			for member, class := range map[string]Class{
				`"error":{}`: ClassStreamError, `"error": { }`: ClassStreamError, `"error":[]`: ClassStreamError, `"error":{"message":""}`: ClassStreamError, `"error":true`: ClassStreamError,
				`"error":null`: "", `"error":""`: "", `"error":false`: "", `"x":{}`: "",
			} {
				req := post(`{}`)
				req.API, req.Stream = test.api, test.stream
				x := once(t, req, Config{}, test.reply(member), true)
				if got := look(x).Class; got != class {
					t.Errorf("%s: %q, want %q (%v)", member, got, class, x.Err)
				}
				if x.Err != nil && x.Err.Message == "" {
					t.Errorf("%s: the failure has no message", member)
				}
			}
		})
	}
	var out json.RawMessage
	if err := preparing(t, whole(`{"error":{}}`), &out); err == nil {
		t.Errorf("a call that prepares a run accepts an error as its reply: %s", out)
	}
	if err := preparing(t, whole(`{"error":null}`), &out); err != nil {
		t.Error(err)
	}
}

// preparing makes a call to a server that answers with these bytes.
func preparing(t *testing.T, reply string, out any) error {
	t.Helper()
	url := serve(t, func(c net.Conn) {
		requests(c, func(*http.Request, string) bool {
			_, err := io.WriteString(c, reply)
			return err == nil
		})
	})
	return client(t, Config{URL: url}).JSON(t.Context(), "/v1/completions", nil, post("{}").Body, out)
}
