// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

// This file settles whether the replay's own replies stand in later prompts, and brings them there.

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/moonloop/moonloop/agent/carry"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/mooncake"
)

// chooseReplies gives the carrying up where there is nothing to carry, or where that is not wanted.
func (r *run) chooseReplies() {
	info := r.stream.Info()
	some := r.carry.Needed() || !info.Whole && r.cfg.Trace.FineBlockSize > 0 // a trace as fine as that comes from a capture
	switch {
	case !some, r.cfg.Prompt.Carry == carry.Never:
		r.dropReplies()
	case r.opt.Endpoint == prompt.Chat && r.opt.Form != prompt.Tokens && r.cfg.Prompt.Overhead > 0:
		r.note("replies: --overhead leaves the calibration out that tells what a turn costs, so no live reply is carried")
		r.dropReplies()
	}
}

// dropReplies has every row built as if it had no replies.
func (r *run) dropReplies() {
	r.carry.Close()
	r.carry = nil
}

// settleReplies finds out how live replies can be checked.
func (r *run) settleReplies(ctx context.Context) error {
	if r.carry == nil {
		return nil
	}
	if r.noTurns != nil {
		if r.cfg.Prompt.Carry == carry.Always {
			return fmt.Errorf("--carry-replies=always: %w", r.noTurns)
		}
		r.warn("no live reply is carried into a later prompt: %v", r.noTurns)
		r.dropReplies()
		return nil
	}
	tok := r.findTokenizer(ctx, r.mainModel())
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case tok == nil && r.opt.Form == prompt.Words && cmp.Or(r.cfg.Prompt.Carry, carry.Auto) == carry.Auto:
		r.warn("the engine does not say how many tokens a text has (/tokenize), so no live reply is carried into a later prompt; --carry-replies=always carries them unchecked")
	case tok == nil && r.opt.Form == prompt.Words:
		r.note("replies: live replies are carried into later prompts, unchecked (the engine has no /tokenize)")
	default:
		r.note("replies: live replies are carried into later prompts")
	}
	r.carry.Set(func(o *carry.Options) {
		o.BlockSize, o.FineBlockSize = r.cfg.Trace.BlockSize, r.cfg.Trace.FineBlockSize
		o.TokenIDs = r.opt.Form == prompt.Tokens
		o.Whole = r.stream.Info().Whole
		if tok != nil {
			o.Check = tok.count
		}
	})
	return nil
}

// buildRow makes a row's request, with the live replies that its prompt has, and reports whether its own reply is to be kept.
func (r *run) buildRow(rec *measure.Record, history *prompt.History) (p prompt.Prompt, keep bool, err error) {
	row := rec.Row
	switch {
	case rec.Index < 0 || history != nil: // a warm-up, or a session that carries its replies by itself
		p, err = r.builder.Build(rec.Index, row, history)
		return p, false, err
	case r.carry == nil:
		p, err = r.builder.Build(rec.Index, row, nil)
		if len(row.Replies) > 0 && row.Kind() == mooncake.KindLength {
			rec.Replies = slices.Repeat([]string{carry.Off}, len(row.Replies))
			for _, reply := range row.Replies {
				rec.Invented += reply.Tokens
			}
		}
		return p, false, err
	}
	live := prompt.Live{Keep: r.carry.Begin(rec.Index, row)}
	if row.Kind() == mooncake.KindLength {
		live.Replies, rec.Replies = r.carry.Take(rec.Index, row)
	}
	p, err = r.builder.BuildLive(rec.Index, row, live)
	switch {
	case p.NoRoom:
		rec.Replies = slices.Repeat([]string{carry.NoRoom}, len(row.Replies))
	case p.Carried+p.Invented == 0: // an extra replaced the prompt, or there is no request
		rec.Replies = nil
	}
	rec.Carried, rec.Invented = p.Carried, p.Invented
	return p, live.Keep, err
}

// keepReply keeps what came of a row for the rows that need its reply.
func (r *run) keepReply(rec *measure.Record) {
	x := &rec.Exchange
	r.carry.End(rec.Index, carry.Ended{
		Served: rec.Sent && rec.Outcome == measure.Served,
		Model:  rec.Model, Text: x.Reply, Tokens: x.ReplyTokens, Count: x.Usage.Completion,
	})
}
