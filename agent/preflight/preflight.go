// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package preflight asks the engine, before anything is timed, what a replay must know about it: whether it is ready, which models it
// serves, what each model's chat template adds to a prompt, which words or token ids are one token each, how large the blocks of its cache
// are, and whether it can count the tokens of a text.
//
// It finds what cannot be replayed, so that a row that is bound to fail is not discovered after an hour. Every question has a time limit,
// reports what it waits for, and carries a trace context that is not recorded.
package preflight

import (
	"context"
	"errors"
	"fmt"
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

// Config is the configuration of the questions.
type Config struct {
	URL string // of the engine
	Key bool   // an API key is sent to the engine
	// WaitReady is how long to wait for an engine that is not ready; 0 = check once. TotalTimeout limits a question if it is shorter than
	// the question's own limit; 0 = no limit.
	WaitReady, TotalTimeout time.Duration

	// Prompt says how rows become requests, as far as it is known without the engine. If its Overhead is given, nothing is calibrated. Unlike
	// the builder's, that is the template's alone, without the anchor.
	Prompt prompt.Options
	// OneModel is the model for every row; empty = each row's own.
	OneModel string
	// CacheBlock is the number of tokens in a block of the engine's prefix cache; 0 = from its metrics.
	CacheBlock int
	// Replies says that rows may need the live replies of others; Carry says whether these are inserted.
	Replies bool
	Carry   carry.Mode

	// Dataset is the text from which prompts are made; nil = only words.
	Dataset *dataset.Corpus
	// Tokenizer is the model's own tokenizer; nil = ask the engine for the tokens of a text.
	Tokenizer Tokenizer

	Trace load.Info
	// Generated says that some prompts may have to be generated. Prompts in the trace need no calibration.
	Generated bool
	// Ahead calls yield for the rows of the look-ahead, with their lines.
	Ahead func(yield func(line int64, row *mooncake.Row) bool)

	// Traceparent returns the trace context of a question, given its subject and a number. Warn and Note inform the user; Note may be
	// called on any goroutine.
	Traceparent func(what string, n int64) string
	Warn, Note  func(format string, args ...any)
}

// Tokenizer counts the tokens of a text as part of a prompt.
type Tokenizer interface {
	Encode(text string) ([]uint32, error)
}

// Findings are the conclusions from the engine's answers.
type Findings struct {
	Builder *prompt.Builder // makes requests for this engine
	Model   string          // of every row, or the most frequent one in the look-ahead
	Words   report.Words    // how the words of prompts were found; zero if none were needed
	// Dataset describes the dataset, if there is one.
	Dataset *report.Dataset
	// CacheBlock is the number of tokens in a block of the engine's prefix cache; 0 = unknown.
	CacheBlock int
	// Carry says that live replies are carried. Check counts the tokens of a reply; nil = the engine cannot.
	Carry bool
	Check func(ctx context.Context, model, text string) (count int64, tokens []uint32, err error)
	// Asked lists the requests that put questions to the engine.
	Asked []telemetry.Apart
}

// Run asks the engine. The error says why it cannot be used for a replay, and gives advice.
func Run(ctx context.Context, cfg Config, client *send.Client, clk clock.Clock) (Findings, error) {
	p := &preflight{Config: cfg, client: client, clk: clk, opt: cfg.Prompt, contexts: make(map[string]int64)}
	p.found.CacheBlock = cfg.CacheBlock
	if p.opt.Overhead > 0 && p.opt.Form != prompt.Tokens { // token ids have no anchor
		p.opt.Overhead += prompt.AnchorTokens
	}
	err := p.ask(ctx)
	return p.found, err
}

// preflight is the state of one Run.
type preflight struct {
	Config
	client *send.Client
	clk    clock.Clock

	found    Findings
	opt      prompt.Options   // the builder's
	models   []string         // models that rows request: those with the most rows of the look-ahead first, at least one
	contexts map[string]int64 // maximum tokens of the engine's models, as far as it states them
	noTurns  error            // why the overhead of a turn could not be measured
}

func (p *preflight) ask(ctx context.Context) (err error) {
	if p.opt.Endpoint == prompt.Embeddings && p.Trace.Sessions == mooncake.SessionDelta {
		return errors.New("embeddings: the rows of a session are new turns, which follow the replies before them, and an embedding is not a reply; --session-mode full sends each row as a prompt of its own")
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
		if n := p.Prompt.Overhead; n > 0 {
			p.Warn("--overhead %d: each prompt has that many tokens fewer than its row, although engines add no chat template to token ids; leave the flag out, unless this engine adds tokens of its own", n)
		}
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

// build makes the builder again from its options.
func (p *preflight) build() (err error) {
	if p.found.Builder, err = prompt.NewBuilder(p.opt); err == nil {
		p.opt = p.found.Builder.Options()
	}
	return err
}

// engine returns the engine's name in messages.
func (p *preflight) engine() string { return mooncake.PublicName(p.URL) }

// header returns the header of a question.
func (p *preflight) header(what string, n int64) []send.Field {
	return []send.Field{{Name: "Traceparent", Value: p.Traceparent(what, n)}}
}

// asked records a question to the engine, for its span.
func (p *preflight) asked(model, response string, began time.Duration) {
	p.found.Asked = append(p.found.Asked, telemetry.Apart{Name: semconv.SpanMeasure, Model: model, Response: response, From: began, To: p.clk.Now()})
}

// mayCarry reports whether live replies may be carried, before the engine is asked how.
func (p *preflight) mayCarry() bool {
	switch {
	case !p.Replies || p.Carry == carry.Never || p.opt.Endpoint == prompt.Embeddings:
		return false
	case p.opt.Endpoint.OfMessages() && p.opt.Form != prompt.Tokens && p.Prompt.Overhead > 0:
		p.Note("replies: --overhead skips the calibration that measures how many tokens a turn adds, so no live reply is carried")
		return false
	}
	return true
}

// settleReplies determines how live replies can be checked.
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
