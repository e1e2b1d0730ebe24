// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package preflight

// This file asks the engine for the number of tokens of a text as part of a prompt: a live reply is carried only if its text has as many
// tokens as the row says.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/send"
)

// tokenizeLimit is the time limit of one question.
const tokenizeLimit = 20 * time.Second

var errNoCount = errors.New("the engine counts no tokens of a text")

// asking is a function that asks a model for the tokens of a text, and for their number.
type asking func(ctx context.Context, model, text string) (tokens []uint32, count int64, err error)

// tokenizer counts the tokens of a text with an engine's endpoint. Safe for concurrent use.
type tokenizer struct {
	ask   asking
	one   string   // a text of one token
	bases sync.Map // by model: the number of tokens around the text, an int64
}

// count returns the number of tokens of a text within a prompt, and the tokens of the prompt, which are those of the text if there are none
// around it.
func (t *tokenizer) count(ctx context.Context, model, text string) (int64, []uint32, error) {
	base, known := t.bases.Load(model)
	if !known { // each model has its own template
		_, n, err := t.ask(ctx, model, t.one)
		if err != nil || n < 1 {
			return 0, nil, cmp.Or(err, errNoCount)
		}
		base = n - 1
		t.bases.Store(model, base)
	}
	tokens, n, err := t.ask(ctx, model, text)
	return n - base.(int64), tokens, err
}

// findTokenizer looks for a way to count, with two texts whose tokens are known; nil if the engine has none. It first tries endpoints that
// let the template render the text as the assistant's message, then those for the text alone.
func (p *preflight) findTokenizer(ctx context.Context, model string) *tokenizer {
	ways := p.textWays()
	if p.opt.Endpoint.OfMessages() && p.Tokenizer == nil {
		ways = append([]asking{p.askMessages, p.askTemplate}, ways...)
	}
	const words = 16
	for _, ask := range ways {
		if !p.opt.Endpoint.OfMessages() && p.opt.Form != prompt.Tokens { // between words, as in a prompt that is one text
			alone := ask
			ask = func(ctx context.Context, model, text string) ([]uint32, int64, error) {
				return alone(ctx, model, p.opt.Words.Anchor()+text+p.opt.Words.Text(1))
			}
		}
		t := &tokenizer{ask: ask, one: p.opt.Words.Text(1)}
		if n, _, err := t.count(ctx, model, p.opt.Words.Text(words)); err == nil && n == words {
			return t
		}
	}
	return nil
}

// textWays returns the ways to ask for the tokens of a text that is the whole prompt.
func (p *preflight) textWays() []asking {
	if p.Tokenizer != nil {
		return []asking{p.askFile}
	}
	return []asking{p.askPrompt, p.askContent}
}

// askFile asks the model's own tokenizer.
func (p *preflight) askFile(_ context.Context, _, text string) ([]uint32, int64, error) {
	ids, err := p.Tokenizer.Encode(text)
	return ids, int64(len(ids)), err
}

// conversation returns the messages of a chat whose reply is the text.
func conversation(text string) []map[string]string {
	user := map[string]string{"role": "user", "content": anchors[0]}
	return []map[string]string{user, {"role": "assistant", "content": text}, user}
}

// askMessages uses vLLM's endpoint, with the chat template.
func (p *preflight) askMessages(ctx context.Context, model, text string) ([]uint32, int64, error) {
	return p.askTokens(ctx, map[string]any{"model": model, "messages": conversation(text)})
}

// askPrompt uses vLLM's endpoint, for a text that is the whole prompt.
func (p *preflight) askPrompt(ctx context.Context, model, text string) ([]uint32, int64, error) {
	return p.askTokens(ctx, map[string]any{"model": model, "prompt": text, "add_special_tokens": false})
}

// askTemplate uses llama.cpp's endpoint, with the chat template.
func (p *preflight) askTemplate(ctx context.Context, _, text string) ([]uint32, int64, error) {
	var rendered struct{ Prompt string }
	if err := p.post(ctx, "/apply-template", map[string]any{"messages": conversation(text)}, &rendered); err != nil {
		return nil, 0, err
	}
	return p.askTokens(ctx, map[string]any{"content": rendered.Prompt, "add_special": true, "parse_special": true})
}

// askContent uses llama.cpp's endpoint, for a text that is the whole prompt.
func (p *preflight) askContent(ctx context.Context, _, text string) ([]uint32, int64, error) {
	return p.askTokens(ctx, map[string]any{"content": text, "add_special": false})
}

// askDetokenize asks for the text of tokens; vLLM and llama.cpp have the same endpoint.
func (p *preflight) askDetokenize(ctx context.Context, model string, ids []uint32) (string, error) {
	var reply struct{ Prompt, Content string }
	err := p.post(ctx, "/detokenize", map[string]any{"model": model, "tokens": ids}, &reply)
	return reply.Prompt + reply.Content, err
}

func (p *preflight) askTokens(ctx context.Context, body map[string]any) ([]uint32, int64, error) {
	var reply struct {
		Count  *int64
		Tokens []uint32
	}
	if err := p.post(ctx, "/tokenize", body, &reply); err != nil {
		return nil, 0, err
	}
	if reply.Count != nil {
		return reply.Tokens, *reply.Count, nil
	}
	return reply.Tokens, int64(len(reply.Tokens)), nil
}

// post sends one question that is not part of the replay.
func (p *preflight) post(ctx context.Context, path string, body map[string]any, out any) error {
	ctx, cancel := context.WithTimeout(ctx, tokenizeLimit)
	defer cancel()
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("question to %s: %w", path, err)
	}
	return p.client.JSON(ctx, path, p.header(path, 0), send.Body{Size: int64(len(raw)), Open: func() io.Reader { return bytes.NewReader(raw) }}, out)
}
