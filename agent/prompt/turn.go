// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"bytes"
	"fmt"

	"github.com/moonloop/moonloop/mooncake"
)

// generated makes the user turn of a row that has lengths and block ids. images is the number of images that follow its text.
func (b *Builder) generated(index int64, row *mooncake.Row, images int, later bool, replies []Reply, p *Prompt) ([]part, error) {
	length := row.InputLength.V
	if length < 1 || length > MaxPromptTokens {
		return nil, fmt.Errorf("%w: input_length %d: want 1 to %d tokens", ErrRow, length, int64(MaxPromptTokens))
	}
	over := Overhead{b.opt.Overhead, b.opt.TurnOverhead}
	if b.opt.Measured != nil && !b.scheme.ids {
		measured, known := b.opt.Measured[b.Model(row)]
		if p.Assumed = !known; known {
			over = measured
		}
	}
	shown := images * b.opt.Images.Tokens
	over.Prompt += shown
	over.Turn += shown
	if len(replies) > 0 {
		if images == 0 { // a conversation has many messages, and the row does not say which one has the images
			if turns := b.conversation(index, row, replies, over, p); turns != nil {
				return turns, nil
			}
		}
		p.NoRoom = true
		for _, r := range row.Replies {
			p.Invented += r.Tokens
		}
	}
	overhead := int64(over.Prompt)
	switch {
	case later && b.opt.Endpoint.OfMessages():
		overhead = int64(over.Turn)
	case later: // the words follow the reply, in the same text
		overhead = 0
	}
	n := length - overhead
	if n < 1 {
		p.TooShort = true
		if b.opt.TooShort == Skip {
			p.Skip = true
			return nil, nil
		}
		n = 1
	}
	p.TailCut = b.tailCut(row, n)
	p.Added = n
	if !later {
		p.Tokens = n + overhead
	}
	return b.turn("user", !later || b.opt.Endpoint.OfMessages(), part{blocks: b.blocks(index, row), n: n}), nil
}

// blocks returns the blocks of a row: the fine ones if it has them.
func (b *Builder) blocks(index int64, row *mooncake.Row) *blocks {
	if b.opt.FineBlockSize > 0 && len(row.HashRanges) > 0 {
		return &blocks{ranges: row.HashRanges, row: index}
	}
	return &blocks{ids: row.Blocks(b.opt.BlockSize), row: index}
}

// tailCut reports whether the overhead has removed the row's whole last block, if n tokens are left of the row.
func (b *Builder) tailCut(row *mooncake.Row, n int64) bool {
	ids := row.Blocks(b.opt.BlockSize)
	return len(ids) > 0 && n <= int64(len(ids)-1)*int64(b.opt.BlockSize)
}

// turn returns generated tokens as a turn, after the anchor if they need one.
func (b *Builder) turn(role string, anchored bool, tokens part) []part {
	switch {
	case b.scheme.ids:
		return []part{tokens}
	case b.opt.Endpoint.OfMessages():
		return []part{{raw: []byte(`{"role":"` + role + `","content":"` + b.opt.Words.anchor)}, tokens, {raw: []byte(`"}`)}}
	case anchored:
		return []part{{raw: []byte(b.opt.Words.anchor)}, tokens}
	}
	return []part{tokens}
}

// TextTokens returns the number of tokens that a model counts for a prompt that is a text of n tokens; 0 if the template's part is not
// known. The measured overhead includes the anchor, which such a prompt does not have.
func (b *Builder) TextTokens(model string, n int64) int64 {
	over, known := b.opt.Measured[model]
	if !known {
		return 0
	}
	return n + int64(over.Prompt) - AnchorTokens
}

func (b *Builder) text(text string) []part {
	if b.opt.Endpoint.OfMessages() {
		raw := quote([]byte(`{"role":"user","content":`), text)
		return []part{{raw: append(raw, '}')}}
	}
	return []part{{raw: inner(nil, text)}}
}

// messages returns the messages of a row without the brackets of their array.
func (b *Builder) messages(row *mooncake.Row) ([]part, error) {
	if b.opt.Endpoint != Chat {
		return nil, fmt.Errorf("%w: messages go to the endpoints chat, responses and messages only", ErrRow)
	}
	raw := bytes.TrimSpace(row.Messages)
	if len(raw) < 2 || raw[0] != '[' || raw[len(raw)-1] != ']' || len(bytes.TrimSpace(raw[1:len(raw)-1])) == 0 {
		return nil, fmt.Errorf("%w: messages: want an array with at least one message", ErrRow)
	}
	return []part{{raw: raw[1 : len(raw)-1]}}, nil
}

// The text around the parts of a prompt.
var bracket, comma, unbracket, quotes, nothing = []byte(`[`), []byte(`,`), []byte(`]`), []byte(`"`), []byte(``)

// join appends the value of the prompt's member, made from a session's earlier turns and the new one.
func (b *Builder) join(out, before, turn []part) []part {
	first, between, last := bracket, comma, unbracket
	if !b.opt.Endpoint.OfMessages() && !b.scheme.ids {
		first, between, last = quotes, nothing, quotes
	}
	if b.scheme.ids && turn[0].raw != nil { // text_input together with rows of token ids
		first, last = quotes, quotes
	}
	out = append(out, part{raw: first})
	if len(before) > 0 {
		out = append(append(out, before...), part{raw: between})
	}
	out = append(out, turn...)
	return append(out, part{raw: last})
}
