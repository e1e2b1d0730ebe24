// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// talker is an engine that behaves like real ones: it has a chat template, a cache with small blocks that keeps replies except for their
// last token, token ids on request, and a way to count. A word is a token.
type talker struct {
	block   int                  // tokens in a block of its cache; 0: 16
	mute    bool                 // its metrics do not show the size of a block
	silent  bool                 // no /tokenize
	plain   bool                 // no token ids in replies
	context int                  // max_model_len
	models  string               // its reply about models; empty: one model with the context
	props   string               // its reply about properties; empty: it has none
	last    int                  // greatest token id; 0: any
	double  bool                 // a word of a chat is two tokens
	fail    func(row int64) bool // refuses a row
	shorten func(row int64) bool // the reply to a row lacks a token
	odd     func(row int64) bool // the text of the reply to a row has other tokens than its ids say
	hold    func(row int64)      // called before a reply

	mu      sync.Mutex
	cache   map[string]bool
	prompts map[int64][]string // by row
	bodies  map[int64]string
	replies map[int64][]string
	paths   map[string]int // requests by path
}

// start serves the engine, and returns its URL.
func (e *talker) start(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(e.reset())
	t.Cleanup(s.Close)
	return s.URL
}

// reset empties the engine's cache and its records.
func (e *talker) reset() *talker {
	e.cache, e.paths = make(map[string]bool), make(map[string]int)
	e.prompts, e.replies, e.bodies = make(map[int64][]string), make(map[int64][]string), make(map[int64]string)
	return e
}

func (e *talker) render(messages []any) (out []string) {
	out = []string{"<bos>"}
	for _, raw := range messages {
		m := raw.(map[string]any)
		out = append(out, "<"+m["role"].(string)+">", "<n>")
		words := strings.Fields(m["content"].(string))
		out = append(out, words...)
		if e.double {
			out = append(out, words...)
		}
		out = append(out, "<end>")
	}
	return append(out, "<assistant>", "<n>")
}

func (e *talker) tokens(body map[string]any) (out []string) {
	switch p := body["prompt"].(type) {
	case string:
		return append([]string{"<bos>"}, strings.Fields(p)...)
	case []any:
		for _, id := range p {
			out = append(out, strconv.Itoa(int(id.(float64))))
		}
		return out
	}
	if input, ok := body["input"].([]any); ok {
		return e.render(input)
	}
	return e.render(body["messages"].([]any))
}

func (e *talker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	var body map[string]any
	_ = json.Unmarshal(raw, &body)
	e.mu.Lock()
	e.paths[r.URL.Path]++
	e.mu.Unlock()
	switch {
	case r.URL.Path == "/v1/models" && e.models != "":
		_, _ = io.WriteString(w, e.models)
	case r.URL.Path == "/props" && e.props != "":
		_, _ = io.WriteString(w, e.props)
	case r.URL.Path == "/v1/models":
		fmt.Fprintf(w, `{"data":[{"id":"m","max_model_len":%d}]}`, e.context)
	case r.URL.Path == "/metrics" && e.block > 0 && !e.mute:
		fmt.Fprintf(w, "# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{cache_dtype=\"auto\",block_size=\"%d\",engine=\"0\"} 1.0\n", e.block)
	case r.URL.Path == "/tokenize" && !e.silent:
		var n int
		if messages, chat := body["messages"].([]any); chat {
			n = len(e.render(messages))
		} else {
			n = len(strings.Fields(body["prompt"].(string)))
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"count": n, "tokens": make([]int, n)})
	case r.URL.Path == "/v1/chat/completions" || r.URL.Path == "/v1/completions" || r.URL.Path == "/v1/responses":
		e.generate(w, r, raw, body)
	default:
		http.NotFound(w, r)
	}
}

// refuses answers a prompt with an id that the vocabulary lacks, as vLLM does. It reports whether it has answered.
func (e *talker) refuses(w http.ResponseWriter, body map[string]any) bool {
	ids, _ := body["prompt"].([]any)
	for _, id := range ids {
		if e.last > 0 && id.(float64) > float64(e.last) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"error":{"message":"Token id %v is out of vocabulary","type":"BadRequestError","code":400}}`, id)
			return true
		}
	}
	return false
}

func (e *talker) generate(w http.ResponseWriter, r *http.Request, raw []byte, body map[string]any) {
	row := int64(-1)
	if _, index, found := strings.Cut(r.Header.Get("X-Request-Id"), "run-"); found {
		row, _ = strconv.ParseInt(index, 10, 64)
	}
	is := func(f func(int64) bool) bool { return row >= 0 && f != nil && f(row) }
	if e.refuses(w, body) {
		return
	}
	if is(e.fail) {
		http.Error(w, `{"error":{"message":"no"}}`, http.StatusInternalServerError)
		return
	}
	tokens := e.tokens(body)
	asked, _ := body["max_tokens"].(float64)
	if n, ok := body["max_completion_tokens"].(float64); ok {
		asked = n
	}
	if n, ok := body["max_output_tokens"].(float64); ok {
		asked = n
	}
	n := int(asked)
	if is(e.shorten) {
		n--
	}
	_, ofIDs := body["prompt"].([]any)
	var ids []int
	var reply []string
	var text strings.Builder
	for i := range n {
		ids = append(ids, 20000+int(row)*500+i)
		word := fmt.Sprintf("r%d.%d", row, i)
		fmt.Fprintf(&text, " %s", word)
		if ofIDs {
			word = strconv.Itoa(ids[i])
		}
		reply = append(reply, word)
	}
	said := text.String()
	if is(e.odd) {
		said += " more"
	}
	cached := e.keep(row, tokens, reply, raw)
	if row >= 0 && e.hold != nil {
		e.hold(row)
	}
	if r.URL.Path == "/v1/responses" {
		respond(w, body["stream"] == true, said, len(tokens), n, cached)
		return
	}
	choice := map[string]any{"index": 0, "finish_reason": "length", "text": said}
	if r.URL.Path == "/v1/chat/completions" {
		said := map[string]any{"role": "assistant", "content": said}
		choice = map[string]any{"index": 0, "finish_reason": "length", "delta": said, "message": said}
	}
	if body["return_token_ids"] == true && !e.plain {
		choice["token_ids"], choice["prompt_token_ids"] = ids, []int{1, 2, 3}
	}
	usage := map[string]any{"prompt_tokens": len(tokens), "completion_tokens": n, "prompt_tokens_details": map[string]any{"cached_tokens": cached}}
	if body["stream"] != true {
		delete(choice, "delta")
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{choice}, "usage": usage})
		return
	}
	delete(choice, "message")
	w.Header().Set("Content-Type", "text/event-stream")
	for _, event := range []any{map[string]any{"choices": []any{choice}}, map[string]any{"choices": []any{}, "usage": usage}} {
		b, _ := json.Marshal(event)
		fmt.Fprintf(w, "data: %s\n\n", b)
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// respond answers as the Responses API does: by typed events without [DONE], or whole.
func respond(w http.ResponseWriter, stream bool, said string, prompt, reply, cached int) {
	whole := map[string]any{
		"id": "resp_1", "object": "response", "model": "m", "status": "incomplete", "incomplete_details": map[string]any{"reason": "max_output_tokens"}, "error": nil,
		"output": []any{
			map[string]any{"type": "reasoning", "content": []any{map[string]any{"type": "reasoning_text", "text": "thought"}}},
			map[string]any{"type": "message", "role": "assistant", "content": []any{map[string]any{"type": "output_text", "text": said}}},
		},
		"usage": map[string]any{
			"input_tokens": prompt, "output_tokens": reply, "input_tokens_details": map[string]any{"cached_tokens": cached},
		},
	}
	if !stream {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(whole)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, event := range []map[string]any{
		{"type": "response.created", "response": map[string]any{"id": "resp_1", "status": "in_progress", "usage": nil}},
		{"type": "response.output_item.added", "item": map[string]any{"type": "message", "content": []any{}}},
		{"type": "response.output_text.delta", "delta": said},
		{"type": "response.output_text.done", "text": said},
		{"type": "response.incomplete", "response": whole},
	} {
		b, _ := json.Marshal(event)
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event["type"], b)
	}
}

// keep returns how much of a prompt is cached, and adds the prompt and its reply, except for the reply's last token, which the engine
// never processed.
func (e *talker) keep(row int64, prompt, reply []string, body []byte) (cached int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	block := e.block
	if block == 0 {
		block = 16
	}
	for cached+block <= len(prompt)-1 && e.cache[strings.Join(prompt[:cached+block], " ")] {
		cached += block
	}
	if row < 0 {
		return cached
	}
	all := append(slices.Clone(prompt), reply...)
	for end := block; end < len(all); end += block {
		e.cache[strings.Join(all[:end], " ")] = true
	}
	e.prompts[row], e.replies[row], e.bodies[row] = prompt, reply, string(body)
	return cached
}
