// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

// This file asks the engine how many tokens a text is as part of a prompt: a live reply is carried only where it is as many as
// the row says.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/send"
)

// tokenizeLimit bounds one question.
const tokenizeLimit = 20 * time.Second

// asking is a way to ask a model for the tokens of a text, and for their number.
type asking func(ctx context.Context, model, text string) (tokens []uint32, count int64, err error)

// tokenizer is an engine's way to count the tokens of a text.
type tokenizer struct {
	ask asking
	one string // a text of one token

	mu    sync.Mutex
	bases map[string]int64 // by model: the tokens that stand around the text
}

// count returns the tokens of a text where it stands, and which they are where nothing stands around it.
func (t *tokenizer) count(ctx context.Context, model, text string) (int64, []uint32, error) {
	base, err := t.base(ctx, model)
	if err != nil {
		return 0, nil, err
	}
	tokens, n, err := t.ask(ctx, model, text)
	return n - base, tokens, err
}

// base returns the tokens that stand around a text on a model, which has a template of its own.
func (t *tokenizer) base(ctx context.Context, model string) (int64, error) {
	t.mu.Lock()
	base, known := t.bases[model]
	t.mu.Unlock()
	if known {
		return base, nil
	}
	_, n, err := t.ask(ctx, model, t.one)
	if err != nil || n < 1 {
		return 0, cmp.Or(err, errNoCount)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bases[model] = n - 1
	return n - 1, nil
}

var errNoCount = errors.New("the engine counts no tokens of a text")

// findTokenizer looks for a way to count, by two texts of which the tokens are known; nil where the engine has none. First come
// those that have the template render the text as the assistant's message, then those that take the text alone.
func (r *run) findTokenizer(ctx context.Context, model string) *tokenizer {
	ways := []asking{r.askText, r.askContentText}
	if r.opt.Endpoint == prompt.Chat {
		ways = append([]asking{r.askMessages, r.askTemplate}, ways...)
	}
	const words = 16
	one, many := r.opt.Words.Text(1), r.opt.Words.Text(words)
	for _, ask := range ways {
		t := &tokenizer{ask: ask, one: one, bases: make(map[string]int64)}
		if _, err := t.base(ctx, model); err != nil {
			continue
		}
		if n, _, err := t.count(ctx, model, many); err == nil && n == words {
			return t
		}
	}
	return nil
}

// message is one of a chat.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// around returns a conversation in which the text is the reply.
func around(text string) []message {
	return []message{{"user", anchors[0]}, {"assistant", text}, {"user", anchors[0]}}
}

// within returns a text between words, as it stands in a prompt that is one text.
func (r *run) within(text string) string {
	if r.opt.Form == prompt.Tokens || r.opt.Endpoint == prompt.Chat {
		return text
	}
	return r.opt.Words.Anchor() + text + r.opt.Words.Text(1)
}

// askMessages is vLLM's way, with the chat template.
func (r *run) askMessages(ctx context.Context, model, text string) ([]uint32, int64, error) {
	return r.askTokens(ctx, map[string]any{"model": model, "messages": around(text)})
}

// askText is vLLM's way.
func (r *run) askText(ctx context.Context, model, text string) ([]uint32, int64, error) {
	return r.askPrompt(ctx, model, r.within(text))
}

// askPrompt is vLLM's way, for a text that is the whole of a prompt.
func (r *run) askPrompt(ctx context.Context, model, text string) ([]uint32, int64, error) {
	return r.askTokens(ctx, map[string]any{"model": model, "prompt": text, "add_special_tokens": false})
}

// askTemplate is llama.cpp's way, with the chat template.
func (r *run) askTemplate(ctx context.Context, _, text string) ([]uint32, int64, error) {
	var rendered struct {
		Prompt string `json:"prompt"`
	}
	if err := r.post(ctx, "/apply-template", map[string]any{"messages": around(text)}, &rendered); err != nil {
		return nil, 0, err
	}
	return r.askTokens(ctx, map[string]any{"content": rendered.Prompt, "add_special": true, "parse_special": true})
}

// askContentText is llama.cpp's way.
func (r *run) askContentText(ctx context.Context, model, text string) ([]uint32, int64, error) {
	return r.askContent(ctx, model, r.within(text))
}

// askContent is llama.cpp's way, for a text that is the whole of a prompt.
func (r *run) askContent(ctx context.Context, _, text string) ([]uint32, int64, error) {
	return r.askTokens(ctx, map[string]any{"content": text, "add_special": false})
}

// askDetokenize asks for the text of tokens, in the way of both.
func (r *run) askDetokenize(ctx context.Context, model string, ids []uint32) (string, error) {
	var reply struct {
		Prompt  string `json:"prompt"`
		Content string `json:"content"`
	}
	err := r.post(ctx, "/detokenize", map[string]any{"model": model, "tokens": ids}, &reply)
	return reply.Prompt + reply.Content, err
}

func (r *run) askTokens(ctx context.Context, body map[string]any) ([]uint32, int64, error) {
	var reply struct {
		Count  *int64   `json:"count"`
		Tokens []uint32 `json:"tokens"`
	}
	if err := r.post(ctx, "/tokenize", body, &reply); err != nil {
		return nil, 0, err
	}
	count := int64(len(reply.Tokens))
	if reply.Count != nil {
		count = *reply.Count
	}
	return reply.Tokens, count, nil
}

// post sends one question that is no part of the replay.
func (r *run) post(ctx context.Context, path string, body map[string]any, out any) error {
	ctx, cancel := context.WithTimeout(ctx, tokenizeLimit)
	defer cancel()
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("question to %s: %w", path, err)
	}
	header := http.Header{"Traceparent": {unrecorded(r.cfg.RunID+" "+path, 0)}}
	return r.client.JSON(ctx, path, header, send.Body{Size: int64(len(raw)), Open: func() io.Reader { return bytes.NewReader(raw) }}, out)
}
