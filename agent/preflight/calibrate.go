// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package preflight

// This file measures how many tokens each model's chat template adds to a prompt.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/mooncake"
)

// MaxMeasured is the maximum number of models whose templates are measured, with two or three requests each: those with the most rows.
const MaxMeasured = 16

// calibrate measures how many tokens the engine adds to the prompts of each model in the look-ahead, and uses the result. Models that
// appear later, that are not among those with the most rows, or that the engine does not know are assumed to be like the measured one with
// the most rows. If the usual words are not one token each, it finds others.
func (p *preflight) calibrate(ctx context.Context) error {
	models := p.models[:min(len(p.models), MaxMeasured)]
	err := p.measureAll(ctx, models)
	for _, way := range []string{ByTokenize, ByUsage} {
		if !errors.Is(err, prompt.ErrNotStable) {
			break
		}
		missing := p.findWords(ctx, way, models)
		switch {
		case missing == nil:
			err = p.measureAll(ctx, models)
		case ctx.Err() != nil:
			return missing
		case way == ByUsage:
			err = fmt.Errorf("%w; no other words can be used: %w", err, missing)
		}
	}
	if err == nil && p.opt.Words != prompt.CommonLexicon() {
		p.noteWords()
	}
	return err
}

// noteWords reports the words of prompts, if they are not the usual ones.
func (p *preflight) noteWords() {
	l, by, letters := p.opt.Words, "/"+ByTokenize, "letters"
	if p.found.Words.Found == ByUsage {
		by = "counts of prompts"
	}
	if l.Letters() == 1 {
		letters = "letter"
	}
	p.Note("words: the usual ones are not one token each on this engine; prompts are made of %d others of %d %s (found by its %s in %d requests)",
		l.Len(), l.Letters(), letters, by, p.found.Words.Requests)
}

// measureAll measures the templates of models, and uses the results.
func (p *preflight) measureAll(ctx context.Context, models []string) error {
	p.noTurns = nil
	measured := make(map[string]prompt.Overhead, len(models))
	var texts []string
	var unknown error
	for _, model := range models {
		over, err := p.measure(ctx, model)
		if failure(err).Status == http.StatusNotFound {
			unknown = errors.Join(unknown, err) // rows of other models can still be sent
			continue
		}
		if err != nil {
			return err
		}
		if len(measured) == 0 {
			p.opt.Overhead, p.opt.TurnOverhead = over.Prompt, over.Turn
		}
		measured[model] = over
		texts = append(texts, fmt.Sprintf("%.64q %d", model, over.Prompt))
	}
	switch {
	case len(measured) == 0:
		return unknown
	case unknown != nil:
		p.Warn("%v", unknown)
	}
	if len(models) > 1 {
		p.Note("tokens that the chat template of each model adds to a prompt: %s", strings.Join(texts, ", "))
	}
	p.opt.Measured = measured
	return p.build()
}

// measure determines with two requests (three if prompts have several turns) how many tokens the engine adds to a prompt of a model, and
// proves that a generated word is exactly one token. If turns are only needed for live replies, an engine that refuses them, or counts them
// wrongly, is no error here: settleReplies decides what follows.
func (p *preflight) measure(ctx context.Context, model string) (over prompt.Overhead, err error) {
	delta := p.Trace.Sessions == mooncake.SessionDelta
	turns := (delta || p.found.Carry) && p.opt.Endpoint.OfMessages()
	var counted []int64
	for i, req := range p.found.Builder.Calibration(model, turns) {
		n, err := p.countPrompt(ctx, model, "calibration "+model, int64(i), req)
		if err != nil {
			if i < 2 || delta || ctx.Err() != nil {
				return over, err
			}
			p.noTurns, turns = err, false
			break
		}
		counted = append(counted, n)
	}
	if over.Prompt, err = prompt.Solve(counted[0], counted[1]); err != nil {
		return over, fmt.Errorf("calibration: %w", err)
	}
	if turns {
		if over.Turn, err = prompt.SolveTurn(counted[0], counted[2]); err != nil {
			p.noTurns = fmt.Errorf("calibration: %w", err)
			if delta {
				return over, p.noTurns
			}
		}
	}
	return over, nil
}

// countPrompt requests one token of a reply, to learn the number of prompt tokens. The request's trace context depends on its subject
// (what) and its number (n).
func (p *preflight) countPrompt(ctx context.Context, model, what string, n int64, req send.Request) (int64, error) {
	var reply struct {
		ID    string
		Usage *struct {
			PromptTokens int64 `json:"prompt_tokens"`
			InputTokens  int64 `json:"input_tokens"` // of /v1/responses and /v1/messages, where it excludes cached tokens
			CacheRead    int64 `json:"cache_read_input_tokens"`
			CacheCreated int64 `json:"cache_creation_input_tokens"`
		}
		Details struct{ Prefill []struct{} } // of /generate: an element for each token of the prompt
	}
	_, stop := p.announce(fmt.Sprintf("the reply to a calibration request (model %.64q)", model), 2*p.bound(send.CallLimit))
	defer stop()
	began := p.clk.Now()
	err := p.client.JSON(ctx, req.Path, p.header(what, n), req.Body, &reply)
	p.asked(model, p.client.Hidden(reply.ID), began)
	if err != nil {
		return 0, p.calibrationError(ctx, req.Path, model, err)
	}
	if n := len(reply.Details.Prefill); n > 0 && p.opt.Endpoint == prompt.Generate {
		return int64(n), nil
	}
	if reply.Usage == nil {
		return 0, errors.New("calibration: the engine counts no tokens (no usage in its reply); state its template's overhead with --overhead, or send token ids: --endpoint=completions --prompt=tokens")
	}
	u := reply.Usage
	if p.opt.Endpoint == prompt.Messages {
		return u.InputTokens + u.CacheRead + u.CacheCreated, nil
	}
	return cmp.Or(u.PromptTokens, u.InputTokens), nil
}
