// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// reply is the part of a whole (not streamed) reply that these tests read.
type reply struct {
	PromptIDs []int `json:"prompt_token_ids"`
	Choices   []struct {
		Text, FinishReason string
		Message            struct{ Content string }
		PromptIDs          []int `json:"prompt_token_ids"`
		IDs                []int `json:"token_ids"`
	}
	Usage struct {
		Prompt  int `json:"prompt_tokens"`
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	Timings *struct {
		Cached int `json:"cache_n"`
	}
}

// whole sends a request, waits until the engine is done with it, and returns the reply.
func whole(t *testing.T, e *Engine, url string, body map[string]any) (r reply) {
	t.Helper()
	body["model"] = "m"
	content, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	answer, text := post(t, url, string(content))
	if err := json.Unmarshal([]byte(text), &r); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %v\n%s", answer.StatusCode, err, text)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := e.WaitIdle(ctx); err != nil {
		t.Fatal(err)
	}
	return r
}

// talk holds a conversation with messages of the given numbers of words, and replies of the given number of tokens. It returns the prompt
// and cached tokens of each turn.
func talk(t *testing.T, c Config, tokens int, words ...int) (prompt, cached []int) {
	t.Helper()
	e, url := serve(t, c)
	messages := []map[string]string{{"role": "system", "content": strings.TrimSpace(strings.Repeat(" be", 41))}}
	for turn, n := range words {
		messages = append(messages, map[string]string{"role": "user", "content": strings.TrimSpace(strings.Repeat(fmt.Sprint(" q", turn), n))})
		r := whole(t, e, url+"/v1/chat/completions", map[string]any{"messages": messages, "max_tokens": tokens})
		messages = append(messages, map[string]string{"role": "assistant", "content": r.Choices[0].Message.Content})
		prompt, cached = append(prompt, r.Usage.Prompt), append(cached, r.Usage.Details.Cached)
	}
	return prompt, cached
}

// A turn of a conversation hits what the previous turn left in the cache: its prompt, and its reply except for the last token, in whole
// blocks.
func TestRepliesAreCached(t *testing.T) {
	prompts := []int{41 + 5 + 100 + 5 + 5, 0, 0, 0}
	for i := 1; i < len(prompts); i++ {
		prompts[i] = prompts[i-1] - 5 + (5 + 301) + (5 + []int{100, 33, 1, 260}[i]) + 5
	}
	shared := func(block, replies int) (hits []int) {
		hits = []int{0}
		for i, n := range prompts[:3] {
			hits = append(hits, min(n+replies, prompts[i+1]-1)/block*block)
		}
		return hits
	}
	with := func(c Config, change func(*Config)) Config {
		change(&c)
		return c
	}
	for _, test := range []struct {
		name   string
		config Config
		want   []int
	}{
		{"vLLM", VLLM(), shared(16, 300)},
		{"vLLM without its replies", with(VLLM(), func(c *Config) { c.Cache.Replies = false }), shared(16, 0)},
		{"vLLM, blocks of 128", with(VLLM(), func(c *Config) { c.Cache.BlockSize = 128 }), shared(128, 300)},
		{"vLLM, blocks visible after the prefill", with(VLLM(), func(c *Config) { c.Cache.CommitAfterPrefill = true }), shared(16, 300)},
		{"vLLM, disabled", with(VLLM(), func(c *Config) { c.Cache.Disabled = true }), []int{0, 0, 0, 0}},
		// The cache has room for the first blocks of the last request only.
		{"vLLM, 8 blocks", with(VLLM(), func(c *Config) { c.Cache.Blocks = 8 }), []int{0, 128, 128, 128}},
		{"llama.cpp", LlamaCPP(), shared(1, 300)},
		{"llama.cpp without its replies", with(LlamaCPP(), func(c *Config) { c.Cache.Replies = false }), shared(1, 0)},
		// The turns share what comes before the last user message of the previous turn, because the system text was moved after it.
		{"a template that moves the system text", with(VLLM(), func(c *Config) {
			c.Template = &Template{PerMessage: 5, PerPrompt: 5, SystemLast: true}
		}), []int{0, 0, (1 + 105 + 306 + 4) / 16 * 16, (1 + 105 + 306 + 38 + 306 + 4) / 16 * 16}},
		{"the plain engine", Config{Cache: Cache{BlockSize: 16}}, shared(16, 0)},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, hits := talk(t, test.config, 301, 100, 33, 1, 260)
			want := slices.Clone(prompts)
			if test.config.Template != nil {
				for i := range want {
					want[i] -= 5
				}
			}
			if !slices.Equal(got, want) || !slices.Equal(hits, test.want) {
				t.Errorf("prompts of %v tokens, %v cached; want %v and %v", got, hits, want, test.want)
			}
		})
	}
}

// The order of requests for which the hits of llama-server were recorded: each letter is a block of 512 token ids.
func TestSlots(t *testing.T) {
	letters := func(s string) []uint64 {
		c := newChain(1, Tokenizer{})
		for _, l := range s {
			for i := range 512 {
				c.add(uint64(l)<<10 + uint64(i))
			}
		}
		return c.blocks
	}
	real := []int{0, 3, 2, 2, 0, 2, 3, 2, 0}
	for _, test := range []struct {
		name         string
		slots, saved int // saved in blocks of 512
		want         []int
	}{
		{"four slots", 4, 0, real},
		{"one slot that saves what it loses", 1, 100, real},
		{"one slot that saves nothing", 1, 0, []int{0, 3, 2, 2, 0, 0, 3, 2, 0}}, // FG overwrites ABCD
		{"one slot with too little room to save", 1, 3, []int{0, 3, 2, 2, 0, 0, 3, 2, 0}},
	} {
		c := newSlotCache(test.slots, 512*test.saved)
		var got []int
		for _, s := range []string{"ABC", "ABCD", "ABE", "ABCD", "FG", "ABE", "ABEX", "ABC", "BC"} {
			n, hit := c.acquire(letters(s))
			c.release(n, letters(s))
			got = append(got, hit/512)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v blocks hit, want %v", test.name, got, test.want)
		}
	}

	// A slot in use serves no other request.
	c := newSlotCache(2, 0)
	n, _ := c.acquire(letters("ABC"))
	if m, hit := c.acquire(letters("ABCD")); m == n || hit != 0 {
		t.Errorf("slot %d with %d tokens next to slot %d", m, hit, n)
	}
	c.release(n, letters("ABCE"))
	if m, hit := c.acquire(letters("ABCE")); m != n || hit != 4*512 {
		t.Errorf("slot %d with %d tokens, want slot %d with what was left there", m, hit, n)
	}
	c.reset()
	if resident, evicted := c.counts(); resident != 0 || evicted != 0 {
		t.Errorf("%d tokens resident, %d lost after a reset", resident, evicted)
	}
}

// TestShortWords: if words of four letters are several tokens, prompts count them so, and a word of a reply stays one token.
func TestShortWords(t *testing.T) {
	for bytes := 1; bytes <= 5; bytes++ {
		config := VLLM()
		config.Tokenizer.WordBytes = bytes
		e, url := serve(t, config)
		reply := whole(t, e, url+"/v1/completions", map[string]any{"prompt": "go four word text", "max_tokens": 40, "return_token_ids": true})
		if want := (2+bytes-1)/bytes + 3*((4+bytes-1)/bytes); len(reply.Choices[0].PromptIDs) != want {
			t.Errorf("%d bytes: %d tokens of the prompt, want %d", bytes, len(reply.Choices[0].PromptIDs), want)
		}
		var tokenized struct{ Tokens []int }
		_, body := post(t, url+"/tokenize", `{"model":"m","prompt":"`+reply.Choices[0].Text+`"}`)
		if err := json.Unmarshal([]byte(body), &tokenized); err != nil || len(tokenized.Tokens) != 40 || !slices.Equal(tokenized.Tokens, reply.Choices[0].IDs) {
			t.Errorf("%d bytes: the reply's text is %v, its ids are %v (%v)", bytes, tokenized.Tokens, reply.Choices[0].IDs, err)
		}
	}
}

// The ids that the engine gives for a text mean that text, in prompt and reply, streamed or whole.
func TestTokenIDs(t *testing.T) {
	e, url := serve(t, VLLM())
	text := "some unquestionably long words, and short ones"
	var tokenized struct {
		Count  int   `json:"count"`
		Max    int   `json:"max_model_len"`
		Tokens []int `json:"tokens"`
	}
	_, body := post(t, url+"/tokenize", `{"model":"m","prompt":"`+text+`"}`)
	if err := json.Unmarshal([]byte(body), &tokenized); err != nil || tokenized.Count != len(tokenized.Tokens) || tokenized.Count != 7+2 || tokenized.Max <= 0 {
		t.Fatalf("%v\n%s", err, body) // "unquestionably" is three tokens
	}
	first := whole(t, e, url+"/v1/completions", map[string]any{"prompt": text, "max_tokens": 40, "return_token_ids": true})
	choice := first.Choices[0]
	if !slices.Equal(choice.PromptIDs, tokenized.Tokens) || len(choice.IDs) != 40 {
		t.Errorf("prompt %v and %d ids of the reply, want %v and 40", choice.PromptIDs, len(choice.IDs), tokenized.Tokens)
	}
	_, body = post(t, url+"/tokenize", `{"model":"m","prompt":"`+choice.Text+`"}`)
	if err := json.Unmarshal([]byte(body), &tokenized); err != nil || !slices.Equal(tokenized.Tokens, choice.IDs) {
		t.Errorf("the reply's text is %v, its ids are %v (%v)", tokenized.Tokens, choice.IDs, err)
	}
	ids := append(append(slices.Clone(choice.PromptIDs), choice.IDs...), 5, 6, 7)
	if second := whole(t, e, url+"/v1/completions", map[string]any{"prompt": ids, "max_tokens": 1}); second.Usage.Details.Cached != 48 {
		t.Errorf("%d of the 49 tokens of prompt and reply, given as ids, were cached; want 48: the last is in no full block", second.Usage.Details.Cached)
	}

	messages := []any{map[string]string{"role": "user", "content": text}}
	whole := whole(t, e, url+"/v1/chat/completions", map[string]any{"messages": messages, "max_tokens": 5, "return_token_ids": true})
	_, body = post(t, url+"/tokenize", `{"model":"m","messages":[{"role":"user","content":"`+text+`"}]}`)
	if err := json.Unmarshal([]byte(body), &tokenized); err != nil || !slices.Equal(tokenized.Tokens, whole.PromptIDs) || len(whole.Choices[0].IDs) != 5 {
		t.Errorf("chat: %v, want %v (%v)", whole.PromptIDs, tokenized.Tokens, err)
	}
	for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
		_, body = post(t, url+path, `{"model":"m","prompt":"`+text+`","messages":[{"role":"user","content":"`+text+`"}],"max_tokens":5,"stream":true,"return_token_ids":true}`)
		if n := strings.Count(body, `"prompt_token_ids":[`); n != 1 {
			t.Errorf("%s: the stream says the prompt's ids %d times", path, n)
		}
		var ids []string
		for _, m := range regexp.MustCompile(`"token_ids":\[(\d+)\]`).FindAllStringSubmatch(body, -1) {
			ids = append(ids, m[1])
		}
		if len(ids) != 5 {
			t.Errorf("%s: ids %v in\n%s", path, ids, body)
		}
	}
	if _, body := post(t, url+"/v1/completions", `{"model":"m","prompt":"a","max_tokens":1}`); strings.Contains(body, "token_ids") {
		t.Errorf("ids that nobody asked for: %s", body)
	}

	// An id outside the vocabulary is found when the reply has begun.
	for _, test := range []struct {
		stream bool
		status int
		want   string
	}{
		{false, http.StatusBadRequest, `{"error":{"message":"token 1 of the prompt is out of vocabulary: `},
		{true, http.StatusOK, `data: {"error":{"message":"token 1 of the prompt is out of vocabulary: `},
	} {
		answer, body := post(t, url+"/v1/completions", fmt.Sprintf(`{"model":"m","prompt":[131071,131072],"max_tokens":1,"stream":%v}`, test.stream))
		if answer.StatusCode != test.status || !strings.HasPrefix(body, test.want) || test.stream != strings.HasSuffix(body, "\n\ndata: [DONE]\n\n") {
			t.Errorf("stream %v: status %d\n%s", test.stream, answer.StatusCode, body)
		}
		if r := lastRecord(t, e); r.Outcome != Rejected || r.Status != test.status {
			t.Errorf("stream %v: recorded as %s with status %d", test.stream, r.Outcome, r.Status)
		}
	}
}

// llama.cpp closes the connection after a stream, and states its context as meta.n_ctx.
func TestLikeConnections(t *testing.T) {
	for _, test := range []struct {
		like   Like
		model  string
		closes bool
	}{
		{LikePlain, `"owned_by":"moonloop","max_model_len":999}`, false},
		{LikeVLLM, `"owned_by":"moonloop","max_model_len":999}`, false},
		{LikeLlamaCPP, `"owned_by":"llamacpp","meta":{"n_ctx":999}}`, true},
	} {
		_, url := serve(t, Config{Like: test.like, MaxModelLen: 999})
		if models := fetch(t, url+"/v1/models"); !strings.Contains(models, test.model) {
			t.Errorf("like %d: no %s in %s", test.like, test.model, models)
		}
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		answers := bufio.NewReader(conn)
		ask := func(stream bool) {
			body := fmt.Sprintf(`{"model":"m","prompt":"a b","max_tokens":3,"stream":%t}`, stream)
			if _, err := fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
				t.Fatal(err)
			}
			answer, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.Copy(io.Discard, answer.Body)
			if err = errors.Join(err, answer.Body.Close()); err != nil || answer.Close || answer.StatusCode != http.StatusOK {
				t.Errorf("like %d: status %d, announces the end: %t, %v", test.like, answer.StatusCode, answer.Close, err)
			}
		}
		ask(false)
		ask(true)
		if test.closes {
			if _, err := answers.ReadByte(); !errors.Is(err, io.EOF) {
				t.Errorf("like %d: after a stream: %v", test.like, err)
			}
		} else {
			ask(false)
		}
		_ = conn.Close()
	}
}

// What a client asks an engine for, to learn how the engine caches.
func TestLikeMetrics(t *testing.T) {
	for _, test := range []struct {
		config Config
		want   []string
	}{
		{VLLM(), []string{
			`(?m)^vllm:cache_config_info\{block_size="16",enable_prefix_caching="True",engine="0",num_gpu_blocks="0"\} 1$`,
			`(?m)^vllm:prefix_cache_queries_total\{engine="0",model_name="simulated"\} 80$`,
			`(?m)^vllm:prefix_cache_hits_total\{engine="0",model_name="simulated"\} 32$`,
		}},
		{LlamaCPP(), []string{`(?m)^llamacpp:prompt_tokens_total 41$`, `(?m)^llamacpp:prompt_tokens_cached_total 39$`, `(?m)^llamacpp:requests_processing 0$`}},
		{Config{}, []string{`(?m)^moonloop_simulator_prompt_tokens_total 80$`}},
	} {
		e, url := serve(t, test.config)
		var r reply
		for range 2 {
			r = whole(t, e, url+"/v1/completions", map[string]any{"prompt": words(39), "max_tokens": 3})
		}
		if (r.Timings != nil) != (test.config.Like == LikeLlamaCPP) || r.Timings != nil && r.Timings.Cached != r.Usage.Details.Cached {
			t.Errorf("timings %+v, usage %+v", r.Timings, r.Usage)
		}
		page := fetch(t, url+"/metrics")
		for _, want := range test.want {
			if !regexp.MustCompile(want).MatchString(page) {
				t.Errorf("no %s in\n%s", want, page)
			}
		}
		reset, _ := post(t, url+"/reset_prefix_cache", "")
		if is := reset.StatusCode == http.StatusOK; is != (test.config.Like == LikeVLLM) {
			t.Errorf("reset: status %d", reset.StatusCode)
		} else if is {
			if r := whole(t, e, url+"/v1/completions", map[string]any{"prompt": words(39), "max_tokens": 3}); r.Usage.Details.Cached != 0 {
				t.Errorf("%d cached tokens in an empty cache", r.Usage.Details.Cached)
			}
		}
		tokenize, body := post(t, url+"/tokenize", `{"prompt":"a b","content":"a b"}`)
		if is := tokenize.StatusCode == http.StatusOK; is != (test.config.Like != LikePlain) || is && !strings.Contains(body, `"tokens":[`) {
			t.Errorf("tokenize: status %d, %s", tokenize.StatusCode, body)
		}
	}
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}
