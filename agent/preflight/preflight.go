// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package preflight asks the engine, before anything is timed, what a replay must know of it: whether it is ready, which models
// it serves, what each model's chat template adds to a prompt, which words or token ids are one token each, how large the blocks
// of its cache are, and whether it can count the tokens of a text.
//
// What cannot be replayed is found here: a row that is bound to fail should not be found out after an hour. Every question is
// bounded in time, says what it waits for, and carries a trace context that nobody records.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/moonloop/moonloop/agent/carry"
	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/dataset"
	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// Config is what the questions depend on.
type Config struct {
	URL string // of the engine
	Key bool   // the engine is sent an API key
	// WaitReady is how long an engine is waited for that is not ready; 0 = one look decides. TotalTimeout bounds a question
	// where it is shorter than the question's own bound; 0 = it does not.
	WaitReady, TotalTimeout time.Duration

	// Prompt is how rows become requests, as far as that is known without the engine. Where its Overhead is given, nothing is
	// calibrated.
	Prompt prompt.Options
	// OneModel is the model that every row goes to, whatever it names; empty = each row's own.
	OneModel string
	// CacheBlock is the number of tokens in a block of the engine's prefix cache; 0 = as its metrics say.
	CacheBlock int
	// Replies says that rows may need the live replies of others, Carry whether these are wanted.
	Replies bool
	Carry   carry.Mode

	// Dataset is the text that prompts are made of; nil = words alone.
	Dataset *dataset.Corpus
	// Tokenizer is the model's own; nil = the engine is asked for the tokens of a text.
	Tokenizer Tokenizer

	Trace load.Info
	// Generated says that there may be prompts to be made; those that the trace has need no calibration.
	Generated bool
	// Ahead calls yield for the rows of the look-ahead, with their lines.
	Ahead func(yield func(line int64, row *mooncake.Row) bool)

	// Traceparent makes the trace context of a question, by what it asks and a number. Warn and Note tell the user; Note is called
	// on any goroutine.
	Traceparent func(what string, n int64) string
	Warn, Note  func(format string, args ...any)
}

// Tokenizer tells the tokens of a text as part of a prompt.
type Tokenizer interface {
	Encode(text string) ([]uint32, error)
}

// Findings are what the engine's answers came to.
type Findings struct {
	Builder *prompt.Builder // makes requests as this engine needs them
	Model   string          // of every row, or of the most rows of the look-ahead
	Words   report.Words    // how the words of prompts were found; zero where there were none to find
	// Dataset says what prompts are made of, where there is a dataset.
	Dataset *report.Dataset
	// CacheBlock is the number of tokens in a block of the engine's prefix cache; 0 = unknown.
	CacheBlock int
	// Carry says that live replies are to be carried. Check counts the tokens of one; nil = the engine cannot.
	Carry bool
	Check func(ctx context.Context, model, text string) (count int64, tokens []uint32, err error)
	// Asked are the requests that the engine was asked something by.
	Asked []telemetry.Apart
}

// Run asks the engine. The error says why it cannot be replayed against, and what to do.
func Run(ctx context.Context, cfg Config, client *send.Client, clk clock.Clock) (Findings, error) {
	p := &preflight{Config: cfg, client: client, clk: clk, opt: cfg.Prompt, contexts: make(map[string]int64)}
	p.found.CacheBlock = cfg.CacheBlock
	err := p.ask(ctx)
	return p.found, err
}

// preflight is one run of questions.
type preflight struct {
	Config
	client *send.Client
	clk    clock.Clock

	found    Findings
	opt      prompt.Options   // the builder's
	models   []string         // that rows ask for: those with the most rows of the look-ahead first, at least one
	contexts map[string]int64 // tokens that the engine's models can hold, as far as it says
	noTurns  error            // why the cost of a turn could not be measured
}

func (p *preflight) ask(ctx context.Context) (err error) {
	if p.opt.Endpoint == prompt.Embeddings && p.Trace.Sessions == mooncake.SessionDelta {
		return errors.New("embeddings: the rows of a session are new turns, which follow the replies before them, and an embedding is no reply; --session-mode full sends each row as a prompt of its own")
	}
	if p.opt.DefaultModel, err = p.chooseModel(ctx); err != nil {
		return err
	}
	if err = p.build(); err != nil {
		return err
	}
	p.countModels()
	p.found.Carry = p.mayCarry()
	switch {
	case !p.Generated:
		p.found.Words.Found = Unchecked
	case p.opt.Form == prompt.Tokens:
		err = p.checkVocabulary(ctx)
	case p.Prompt.Overhead > 0:
		p.found.Words.Found = Unchecked
	default:
		p.found.Words.Found = Usual
		err = p.calibrate(ctx)
	}
	if err != nil {
		return err
	}
	if p.Dataset != nil {
		if err := p.useDataset(ctx); err != nil {
			return err
		}
	}
	p.tooLong()
	if p.found.CacheBlock == 0 {
		p.found.CacheBlock = p.askBlockSize(ctx)
	}
	if p.found.Carry {
		return p.settleReplies(ctx)
	}
	return nil
}

// build makes the builder anew from its options.
func (p *preflight) build() (err error) {
	if p.found.Builder, err = prompt.NewBuilder(p.opt); err == nil {
		p.opt = p.found.Builder.Options()
	}
	return err
}

// engine is the engine's name in messages.
func (p *preflight) engine() string { return mooncake.PublicName(p.URL) }

// header returns the header of a question.
func (p *preflight) header(what string, n int64) http.Header {
	return http.Header{"Traceparent": {p.Traceparent(what, n)}}
}

// asked notes a request that the engine was asked something by, for its span.
func (p *preflight) asked(model, response string, began time.Duration) {
	p.found.Asked = append(p.found.Asked, telemetry.Apart{Name: semconv.SpanMeasure, Model: model, Response: response, From: began, To: p.clk.Now()})
}

// mayCarry reports whether live replies may be carried, before the engine is asked how.
func (p *preflight) mayCarry() bool {
	switch {
	case !p.Replies || p.Carry == carry.Never || p.opt.Endpoint == prompt.Embeddings:
		return false
	case p.opt.Endpoint.OfMessages() && p.opt.Form != prompt.Tokens && p.Prompt.Overhead > 0:
		p.Note("replies: --overhead leaves the calibration out that tells what a turn costs, so no live reply is carried")
		return false
	}
	return true
}

// settleReplies finds out how live replies can be checked.
func (p *preflight) settleReplies(ctx context.Context) error {
	if p.noTurns != nil {
		if p.Carry == carry.Always {
			return fmt.Errorf("--carry-replies=always: %w", p.noTurns)
		}
		p.Warn("no live reply is carried into a later prompt: %v", p.noTurns)
		p.found.Carry = false
		return nil
	}
	t := p.findTokenizer(ctx, p.found.Model)
	if t != nil {
		p.found.Check = t.count
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case t != nil || p.opt.Form != prompt.Words:
		p.Note("replies: live replies are carried into later prompts")
	case p.Carry == carry.Always:
		p.Note("replies: live replies are carried into later prompts, unchecked (the engine has no /tokenize)")
	default:
		p.Warn("the engine does not say how many tokens a text has (/tokenize), so no live reply is carried into a later prompt; --carry-replies=always carries them unchecked")
	}
	return nil
}
