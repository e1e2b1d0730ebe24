// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

// This file reads the dataset and the tokenizer, and counts the tokens of rows that are text.

import (
	"context"

	"github.com/moonloop/moonloop/agent/dataset"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/preflight"
	"github.com/moonloop/moonloop/agent/tokenizer"
	"github.com/moonloop/moonloop/mooncake"
)

// texts are the dataset and the tokenizer of a run; nil if there is none.
type texts struct {
	corpus    *dataset.Corpus
	tokenizer *tokenizer.Tokenizer
}

func readTexts(ctx context.Context, cfg Prompt) (t texts, err error) {
	if cfg.Tokenizer != "" {
		if t.tokenizer, err = tokenizer.Load(ctx, cfg.Tokenizer); err != nil {
			return t, err
		}
	}
	if cfg.Dataset != "" {
		t.corpus, err = dataset.Read(ctx, cfg.Dataset)
	}
	return t, err
}

// counter returns the tokenizer as an interface.
func (t texts) counter() preflight.Tokenizer {
	if t.tokenizer == nil {
		return nil // a nil interface, not an interface with a nil pointer
	}
	return t.tokenizer
}

// count computes how many tokens the prompt of a row that is text should have had. It runs after the reply, because a long text takes a
// while.
func (t texts) count(p plan, rec *measure.Record) {
	if len(rec.Row.Images) > 0 || p.requests.Options().Images.Each > 0 { // the tokens of other parts are unknown
		return
	}
	if t.tokenizer == nil || rec.Outcome != measure.Served || rec.Row.Kind() != mooncake.KindText || rec.PromptTokens > 0 || p.delta && rec.Row.SessionID != "" {
		return
	}
	if n, err := t.tokenizer.Count(rec.Row.TextInput.V); err == nil {
		rec.PromptTokens = p.requests.TextTokens(rec.Model, int64(n))
	}
}
