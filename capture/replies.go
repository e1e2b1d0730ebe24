// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// This file finds the parts of prompts that were replies to earlier prompts. If the text up to the end of one of the assistant's messages
// equals an earlier prompt followed by its reply, that is proof, and no session is needed. The reply's tokens were counted when it was
// generated, so its end is an anchor (see borders.go), and the engine had the reply in its cache.
//
// For some requests telemetry has the prompt but not the reply, for example if the log records of the two came in different batches. A
// message of the assistant directly after such a prompt counts as its reply if no other request had that prompt, if its length fits the
// counted tokens, and if the engine's count proves it: more tokens were cached than the text before the message explains.

// turn is a reply within a prompt.
type turn struct {
	mark   int   // the mark at its end, counted from 1
	of     int64 // number of the first prompt that it answered
	at     int64 // tokens before it
	tokens int64 // its own
	// unseen is true if telemetry does not have the reply's text: the engine's count must prove it.
	unseen bool
}

// proven reports whether telemetry has the reply's text, or else the engine had the reply in its cache: at least half of it, and at least a
// block.
func (t turn) proven(cached mooncake.Opt[int64]) bool {
	return !t.unseen || cached.V >= t.at+max(FineBlockSize, t.tokens/2)
}

// anchor returns the anchor at the end of a turn. offsets are those of the prompt's marks.
func (t turn) anchor(offsets []int64) anchor {
	return newAnchor(textUpTo(offsets, t.mark), t.end(), true)
}

// An item of the join begins with a value and its kind. For a reply, the following values are its arrival, the number of its prompt, the
// tokens of the prompt and of the reply, and whether it is unseen; for a message, the number of its prompt, its mark, its bytes, and the
// prompt's part. The value of an unseen reply is that of the end of its prompt, set apart by a mask. A message of the assistant is also
// listed under the value of the end before it, with the mask.
const (
	joinReply   = 0
	joinMessage = 1
	joinKey     = markLength
	unseenMask  = 0x756e7365656e2121
)

// The limits of bytes per token for a reply with unknown text: from some code or Chinese to long words of English.
const (
	leastBytesPerToken = 1.5
	mostBytesPerToken  = 16
)

// gatherTurns collects the replies to all prompts, and the assistant's messages in the prompts, except for those that a prompt shares with
// the previous one in the order of marks.
func (c *compiler) gatherTurns(join *sorter) error {
	return c.texts(func(t *text) error {
		add := func(value uint64, kind byte, arrival []byte, words ...int64) error {
			c.key = append(binary.BigEndian.AppendUint64(c.key[:0], value), kind)
			c.enc = append(c.enc[:0], arrival...)
			for _, w := range words {
				c.enc = binary.BigEndian.AppendUint64(c.enc, uint64(w)) //nolint:gosec // not negative
			}
			if kind == joinMessage {
				c.enc = append(c.enc, t.item[:partLength]...)
			}
			return join.add(c.key, c.enc)
		}
		if t.order == never {
			return nil
		}
		for i, end := range slices.Backward(t.Chain.Ends) {
			if t.ends[i] <= t.shared {
				break
			}
			if end.Role != blockhash.RoleAssistant {
				continue
			}
			begin := int64(0)
			if i > 0 {
				begin = t.Chain.Ends[i-1].Bytes
			}
			if err := add(t.value(t.ends[i]), joinMessage, nil, t.number, int64(t.ends[i]), end.Bytes-begin); err != nil {
				return err
			}
			if i > 0 && c.unseen {
				if err := add(t.value(t.ends[i-1])^unseenMask, joinMessage, nil, t.number, int64(t.ends[i]), end.Bytes-begin); err != nil {
					return err
				}
			}
		}
		switch {
		case !t.counted || t.Prefix || t.OutputTokens.V < 1:
			return nil
		case t.Reply != (blockhash.End{}):
			return add(t.Reply.Value, joinReply, t.order[:], t.number, t.InputTokens.V, t.OutputTokens.V, 0)
		case unseen(&t.Inference):
			return add(t.value(t.ends[len(t.ends)-1])^unseenMask, joinReply, t.order[:], t.number, t.InputTokens.V, t.OutputTokens.V, 1)
		}
		return nil
	})
}

// matchTurns finds the replies in each prompt. It adds them to the second sorter, sorted by the prompt's part and number, and by the mark at
// the reply's end.
func (c *compiler) matchTurns(join, found *sorter) error {
	// If several equal prompts had the same reply, use the first one. If the reply's text is unknown for several of them, use none.
	var value, of []byte
	several := false
	return join.each(c.ctx, func(b []byte) error {
		if !bytes.Equal(value, b[:markLength]) {
			value, of, several = append(value[:0], b[:markLength]...), of[:0], false
		}
		switch rest := b[joinKey+1:]; {
		case b[joinKey] == joinReply:
			if several = len(of) > 0; !several {
				of = append(of, rest[arrivalLength:]...)
			}
		case len(of) > 0:
			const word = 8
			unseen := of[len(of)-1] == 1
			length, tokens := binary.BigEndian.Uint64(rest[2*word:]), binary.BigEndian.Uint64(of[2*word:])
			if rate := float64(length) / float64(tokens); unseen && (several || rate < leastBytesPerToken || rate > mostBytesPerToken) {
				return nil
			}
			c.key = append(append(c.key[:0], rest[3*word:3*word+partLength]...), rest[:2*word]...)
			return found.add(c.key, of)
		}
		return nil
	})
}

// unseen reports whether telemetry has the whole prompt, and nothing of its reply.
func unseen(r *journal.Inference) bool {
	ends := r.Chain.Ends
	return r.Reply == (blockhash.End{}) && !r.Prefix && len(ends) > 0 && ends[len(ends)-1].Bytes == r.Chain.Bytes
}

// turnCursor reads the turns of each prompt, in the order of the prompts' numbers.
type turnCursor struct {
	ahead
	path []turn // of the current prompt
}

func newTurnCursor(turns *sorter) (*turnCursor, error) {
	next, err := turns.ahead()
	return &turnCursor{ahead: next}, err
}

// of sets the turns of a prompt: those that it shares with the previous prompt, and its own. A turn that does not fit into the prompt's
// tokens, after the turn before, is left out.
func (c *turnCursor) of(t *text) (err error) {
	n := len(c.path)
	for n > 0 && c.path[n-1].mark > t.shared {
		n--
	}
	c.path, t.known = c.path[:n], n
	for ; err == nil && len(c.item) > 0; err = c.advance() {
		number := func(i int) int64 { return int64(word(c.item[partLength:], i)) } //nolint:gosec // as it was written
		if number(0) != t.number {
			break
		}
		end := int64(0) // tokens of the prompt up to the end of the last turn
		if n := len(c.path); n > 0 {
			end = c.path[n-1].end()
		}
		r := turn{mark: int(number(1)), of: number(2), at: number(3), tokens: number(4), unseen: number(5) == 1}
		if r.at > end && r.end() < t.InputTokens.V && r.proven(t.CachedTokens) {
			c.path = append(c.path, r)
		}
	}
	t.turns = c.path
	return err
}

// end returns the number of tokens of the prompt up to the end of the reply.
func (t turn) end() int64 { return t.at + t.tokens }
