// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

// This file builds the prompts of rows that contain the replies of earlier rows: the replay's own conversation, in which each live reply
// replaces production's.

import (
	"fmt"
	"strconv"

	"github.com/moonloop/moonloop/mooncake"
)

// Reply is the content of a prompt for one element of the row's Replies. The zero Reply is the same number of invented words, or token ids.
type Reply struct {
	// Carried says that the live reply is inserted: Tokens in a prompt of token ids, else Text. It must have as many tokens as the row says.
	Carried bool
	Text    string
	Tokens  []uint32
	// Before is the earlier row, as far as it is known: its whole prompt precedes the reply.
	Before Tail
}

// Tail is the end of a row's prompt. A partial last block has an id that later rows do not have, so they need it to generate the same
// tokens. The zero Tail is unknown.
type Tail struct {
	Length int64  // the row's input length
	ID     uint64 // of its last block
	Fine   bool   // a fine block, whose ids are separate numbers
	Known  bool
}

// TailOf returns the end of a row's prompt; unknown if the row does not name all blocks of the prompt.
func TailOf(row *mooncake.Row, blockSize, fineBlockSize int) Tail {
	if !row.InputLength.Set || row.Kind() != mooncake.KindLength {
		return Tail{}
	}
	n := row.InputLength.V
	if last := len(row.HashRanges) - 1; fineBlockSize > 0 && last >= 0 {
		var count int64
		for _, r := range row.HashRanges {
			count += r.Count
		}
		r := row.HashRanges[last]
		return Tail{Length: n, ID: r.First + uint64(r.Count-1), Fine: true, Known: count == int64(mooncake.BlockCount(n, fineBlockSize))} //nolint:gosec // a count is above 0
	}
	if ids := row.Blocks(blockSize); len(ids) > 0 && len(ids) == mooncake.BlockCount(n, blockSize) {
		return Tail{Length: n, ID: ids[len(ids)-1], Known: true}
	}
	return Tail{}
}

// Live describes a replay's own replies for building a row.
type Live struct {
	// Replies has an entry for each of the row's Replies; nil if nothing is carried.
	Replies []Reply
	// Keep says that a later row needs the reply to this one. It is stored, with its token ids if prompts consist of them and the engine
	// can return them.
	Keep bool
}

// BuildLive builds a row as [Builder.Build] does without a history, for a replay that carries its live replies. If Live has Replies, and
// prompts are messages, each reply is a message of the assistant, and the parts before and after it are messages of the user, as the
// earlier rows sent them. The prompt has exactly the row's input length. If a message would have no room for a word in addition to the
// template's overhead, the prompt is one message of invented words, and flagged (Prompt.NoRoom).
//
// Rows with another kind of prompt, or whose extra replaces it, are built as by Build.
func (b *Builder) BuildLive(index int64, row *mooncake.Row, live Live) (Prompt, error) {
	if n := len(live.Replies); n > 0 && n != len(row.Replies) {
		return Prompt{}, fmt.Errorf("row %d: %w: %d replies are given for %d", index, ErrRow, n, len(row.Replies))
	}
	return b.build(index, row, nil, live)
}

// conversation makes the turns of a row with replies; nil if the row has no room for its messages.
func (b *Builder) conversation(index int64, row *mooncake.Row, replies []Reply, over Overhead, p *Prompt) []part {
	c := turns{b: b, blocks: b.blocks(index, row), chat: b.opt.Endpoint.OfMessages(), over: over}
	var carried, invented int64
	for i, r := range row.Replies {
		if r.At < c.end || r.Tokens < 1 || !c.extend(r.At, replies[i].Before) {
			return nil
		}
		if replies[i].Carried {
			c.carry(r, replies[i])
			carried += r.Tokens
		} else {
			c.invent(r)
			invented += r.Tokens
		}
		c.end = r.At + r.Tokens
	}
	if !c.extend(row.InputLength.V, Tail{}) {
		return nil
	}
	p.Carried, p.Invented, p.Added, p.Tokens = carried, invented, c.added, row.InputLength.V
	p.TailCut = b.tailCut(row, c.place)
	return c.parts
}

// turns builds a conversation. The overhead is removed from the end of each message. So the position of a word in the row is that of its
// blocks, whatever follows: an earlier row, which ends with the message, sent the same words.
type turns struct {
	b      *Builder
	blocks *blocks
	chat   bool
	over   Overhead

	parts []part
	end   int64 // tokens of the row so far
	place int64 // of the next word, among those that the blocks generate
	added int64
}

// extend adds the row's words from its end so far to another position (to). The earlier row that ended there is before, if it is known.
func (c *turns) extend(to int64, before Tail) (room bool) {
	first := len(c.parts) == 0
	n := to - c.end
	switch {
	case first:
		n -= int64(c.over.Prompt)
	case c.chat:
		n -= int64(c.over.Turn)
	}
	if n < 0 || n == 0 && (first || c.chat) {
		return false
	}
	if c.chat {
		c.place = c.end // else the words continue, and the overhead precedes them all
	}
	if n == 0 {
		return true
	}
	words := c.words(c.place, c.place+n, to, before)
	c.added += n
	c.place += n
	switch {
	case c.chat:
		c.message("user", c.b.opt.Words.anchor, words)
	case first && !c.b.scheme.ids:
		c.parts = append(append(c.parts, part{raw: []byte(c.b.opt.Words.anchor)}), words...)
	default:
		c.join(words)
	}
	return true
}

// words returns the row's words from one position to another. If the earlier row that ended at token end is known, its last block has the
// earlier row's words.
func (c *turns) words(from, to, end int64, before Tail) []part {
	whole := part{blocks: c.blocks, from: from, n: to - from}
	if !before.Known || before.Length != end || before.Fine != (c.blocks.ranges != nil) {
		return []part{whole}
	}
	size, last := int64(c.b.scheme.block), &blocks{row: c.blocks.row, ids: []uint64{before.ID}}
	if before.Fine {
		size, last.ids, last.ranges = int64(c.b.scheme.fine), nil, []mooncake.HashRange{{First: before.ID, Count: 1}}
	}
	last.first = (end - 1) / size
	at := min(max(from, last.first*size), to)
	rest := part{blocks: last, from: at, n: to - at}
	whole.n = at - from
	switch {
	case rest.n == 0:
		return []part{whole}
	case whole.n == 0:
		return []part{rest}
	case c.b.scheme.ids:
		return []part{whole, {raw: []byte(",")}, rest}
	}
	return []part{whole, rest}
}

// carry adds a live reply.
func (c *turns) carry(r mooncake.Reply, live Reply) {
	switch {
	case c.b.scheme.ids:
		raw := make([]byte, 0, tokenBytes*len(live.Tokens))
		for i, id := range live.Tokens {
			if i > 0 {
				raw = append(raw, ',')
			}
			raw = strconv.AppendUint(raw, uint64(id), 10)
		}
		c.join([]part{{raw: raw}})
	case c.chat:
		c.parts = append(c.parts, part{raw: c.b.opt.Endpoint.assistant(live.Text, nil)})
	default:
		c.join([]part{{raw: inner(nil, live.Text)}})
	}
	c.place += r.Tokens
}

// invent adds words instead of a reply.
func (c *turns) invent(r mooncake.Reply) {
	if c.chat {
		c.added += r.Tokens
		c.message("assistant", c.b.opt.Words.anchor, []part{{blocks: c.blocks, from: r.At, n: r.Tokens - 1}})
		return
	}
	c.join([]part{{blocks: c.blocks, from: c.place, n: r.Tokens}})
	c.added += r.Tokens
	c.place += r.Tokens
}

// message adds a message, after a comma if there is one before it.
func (c *turns) message(role, begin string, words []part) {
	head := `{"role":"` + role + `","content":"` + begin
	if len(c.parts) > 0 {
		head = "," + head
	}
	c.parts = append(append(append(c.parts, part{raw: []byte(head)}), words...), part{raw: []byte(`"}`)})
}

// join adds to a prompt that is one text, or one list of token ids.
func (c *turns) join(more []part) {
	if c.b.scheme.ids && len(c.parts) > 0 {
		c.parts = append(c.parts, part{raw: []byte(",")})
	}
	c.parts = append(c.parts, more...)
}
