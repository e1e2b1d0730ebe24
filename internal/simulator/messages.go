// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

const pathMessages = "/v1/messages"

// messagesFormat writes replies in the shapes of Anthropic's Messages API. Shapes that exist only for OpenAI's events do not change them.
type messagesFormat struct{ *format }

// event appends an event, whose data contains its type, too.
func (f messagesFormat) event(b []byte, kind, rest string) []byte {
	return fmt.Appendf(b, "event: %s\ndata: {\"type\":%q%s}\n\n", kind, kind, rest)
}

// begin returns the members of a message up to its content.
func (f messagesFormat) begin() []byte {
	b := fmt.Appendf(nil, `"id":"msg_%s","role":"assistant","model":`, f.id())
	return appendQuoted(b, f.request.facts.Model)
}

// id returns what is different in each reply.
func (f messagesFormat) id() string { return strings.TrimPrefix(f.callID, "call_") }

// counts returns usage. Cached tokens are counted separately from the other tokens of the prompt.
func (f messagesFormat) counts(completed int) string {
	return fmt.Sprintf(`"usage":{"input_tokens":%d,"cache_creation_input_tokens":0,"cache_read_input_tokens":%d,"output_tokens":%d}`,
		max(0, f.promptTokens-f.cachedTokens), f.cachedTokens, completed)
}

// role appends what opens a reply. It comes with the first token, because it reports the cached tokens.
func (f messagesFormat) role(b []byte) []byte {
	f.begun = true
	b = f.event(b, "message_start", `,"message":{"type":"message",`+string(f.begin())+`,"content":[],"stop_reason":null,"stop_sequence":null,`+f.counts(1)+"}")
	block := `{"type":"text","text":""}`
	switch {
	case f.plan.tool != "":
		block = f.toolUse(`{}`)
	case f.thinks():
		block = `{"type":"thinking","thinking":"","signature":""}`
	}
	b = f.event(b, "content_block_start", `,"index":0,"content_block":`+block)
	return f.event(b, "ping", "")
}

// thinks reports whether the first half of the tokens is reasoning.
func (f messagesFormat) thinks() bool {
	return f.shape.reasoning != "" && f.plan.tool == "" && f.plan.tokens > 1
}

func (f messagesFormat) toolUse(input string) string {
	name, _ := json.Marshal(f.plan.tool) // a text always marshals
	return fmt.Sprintf(`{"type":"tool_use","id":"toolu_%s","name":%s,"input":%s}`, f.id(), name, input)
}

// call appends nothing: the block that opens a reply names the tool.
func (f messagesFormat) call(b []byte) []byte { return b }

func (f messagesFormat) tokens(b []byte, from, to int) []byte {
	half := 0
	if f.thinks() {
		half = f.plan.tokens / 2
	}
	if from < half && to > half {
		return f.tokens(f.tokens(b, from, half), half, to)
	}
	index, kind, member := "0", "text_delta", "text"
	switch {
	case f.plan.tool != "":
		kind, member = "input_json_delta", "partial_json"
	case from < half:
		kind, member = "thinking_delta", "thinking"
	case half > 0:
		index = "1"
		if from == half {
			b = f.event(b, "content_block_delta", `,"index":0,"delta":{"type":"signature_delta","signature":"c2ltdWxhdGVk"}`)
			b = f.event(b, "content_block_stop", `,"index":0`)
			b = f.event(b, "content_block_start", `,"index":1,"content_block":{"type":"text","text":""}`)
		}
	}
	var words []byte
	for i := from; i < to; i++ {
		words = f.plan.appendToken(words, i)
	}
	return f.event(b, "content_block_delta", `,"index":`+index+`,"delta":{"type":"`+kind+`","`+member+`":"`+string(words)+`"}`)
}

// reasons has the names of finish reasons in the Messages API.
var reasons = map[string]string{finishLength: "max_tokens", finishStop: "end_turn", finishToolCalls: "tool_use"}

func (f messagesFormat) stopReason() string {
	if reason, known := reasons[f.plan.finish]; known {
		return reason
	}
	return f.plan.finish
}

func (f messagesFormat) finish(b []byte) []byte {
	index := 0
	if f.thinks() {
		index = 1
	}
	b = f.event(b, "content_block_stop", `,"index":`+strconv.Itoa(index))
	b = f.event(b, "message_delta", fmt.Sprintf(`,"delta":{"stop_reason":%q,"stop_sequence":null},"usage":{"output_tokens":%d}`, f.stopReason(), f.plan.tokens))
	return f.event(b, "message_stop", "")
}

func (f messagesFormat) failure(b []byte, e *apiError) []byte {
	return append(append(append(b, "event: error\ndata: "...), e.ofMessages()...), "\n\n"...)
}

func (f messagesFormat) done(b []byte) []byte { return b }

func (f messagesFormat) whole() []byte {
	words := func(from, to int) (b []byte) {
		for i := from; i < to; i++ {
			b = f.plan.appendToken(b, i)
		}
		return b
	}
	var content string
	switch n := f.plan.tokens; {
	case f.plan.tool != "":
		var input string
		_ = json.Unmarshal([]byte(`"`+string(words(0, n))+`"`), &input) // we wrote it
		content = f.toolUse(input)
	case f.thinks():
		content = fmt.Sprintf(`{"type":"thinking","thinking":"%s","signature":"c2ltdWxhdGVk"},{"type":"text","text":"%s"}`, words(0, n/2), words(n/2, n))
	default:
		content = fmt.Sprintf(`{"type":"text","text":"%s"}`, words(0, n))
	}
	return fmt.Appendf(nil, `{"type":"message",%s,"content":[%s],"stop_reason":%q,"stop_sequence":null,%s}`, f.begin(), content, f.stopReason(), f.counts(f.plan.tokens))
}

// kinds are the types of errors, by status.
var kinds = map[int]string{
	http.StatusBadRequest: "invalid_request_error", http.StatusUnauthorized: "authentication_error", http.StatusForbidden: "permission_error",
	http.StatusNotFound: "not_found_error", http.StatusRequestEntityTooLarge: "request_too_large", http.StatusTooManyRequests: "rate_limit_error",
	http.StatusServiceUnavailable: "overloaded_error", statusOverloaded: "overloaded_error",
}

// statusOverloaded is Anthropic's status when it is overloaded.
const statusOverloaded = 529

// ofMessages returns the error in the shape of the Messages API.
func (e *apiError) ofMessages() []byte {
	kind, known := kinds[e.status]
	if !known {
		kind = "api_error"
		if e.status/100 == 4 {
			kind = "invalid_request_error"
		}
	}
	type inner struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	}
	b, _ := json.Marshal(struct { // texts always marshal
		Type  string `json:"type"`
		Error inner  `json:"error"`
	}{"error", inner{kind, e.message}})
	return b
}

// inMessages returns the refusal in the shape of the Messages API, unless it has one of its own.
func (e *apiError) inMessages() *apiError {
	if e.media != "" {
		return e
	}
	other := *e
	other.media, other.raw = mediaJSON, string(e.ofMessages())
	return &other
}
