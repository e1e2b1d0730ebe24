// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"encoding/binary"

	"github.com/moonloop/moonloop/blockhash"
)

// Which parts of a prompt were replies to earlier ones: where the text up to the end of one of the assistant's messages is that of
// an earlier prompt and the reply to it, which is proof and needs no session. The reply's tokens were counted when it was
// made, so that its end is an anchor, see borders.go; and an engine had it in its cache.

// turn is a reply that stands in a prompt.
type turn struct {
	mark   int   // the mark at which it ends, counted from 1
	of     int64 // number of the prompt that it was the reply to
	at     int64 // tokens before it
	tokens int64 // its own
}

// anchor is that of a turn in a prompt whose marks are at these places.
func (t turn) anchor(places []int64) anchor {
	return newAnchor(placeOf(places, t.mark), t.at+t.tokens, true)
}

// An item of the join is a value, an arrival, which of the two it is, and then of a reply the number of its prompt, the tokens of that and its
// own; of a message the number of its prompt and its mark.
const (
	joinReply   = 0
	joinMessage = 1
	joinKey     = markLength + arrivalLength
)

// findTurns returns the replies in each prompt, by its number and mark; nothing where no reply is known.
func (c *compiler) findTurns() (*sorter, error) {
	found := newSorter(c.opt.TempDir, c.opt.Memory/8)
	if !c.replied {
		return found, nil
	}
	join := newSorter(c.opt.TempDir, c.opt.Memory/8)
	defer join.close()
	err := c.texts(func(t *text) error {
		add := func(value uint64, kind byte, words ...int64) error {
			c.key = binary.BigEndian.AppendUint64(c.key[:0], value)
			c.key = append(append(c.key, t.order[:]...), kind)
			c.enc = c.enc[:0]
			for _, w := range words {
				c.enc = binary.BigEndian.AppendUint64(c.enc, uint64(w)) //nolint:gosec // not negative
			}
			return join.add(c.key, c.enc)
		}
		if t.order == never {
			return nil
		}
		for i, end := range t.Chain.Ends {
			if end.Role == blockhash.RoleAssistant {
				if err := add(end.Value, joinMessage, t.number, int64(t.ends[i])); err != nil {
					return err
				}
			}
		}
		if t.Reply == (blockhash.End{}) || !t.counted || t.Prefix || t.OutputTokens.V < 1 {
			return nil
		}
		return add(t.Reply.Value, joinReply, t.number, t.InputTokens.V, t.OutputTokens.V)
	})
	if err != nil {
		found.close()
		return nil, err
	}
	// Of several prompts that are equal and had the same reply, the last one before.
	var value, of []byte
	err = join.each(c.ctx, func(b []byte) error {
		if !bytes.Equal(value, b[:markLength]) {
			value, of = append(value[:0], b[:markLength]...), of[:0]
		}
		if rest := b[joinKey+1:]; b[joinKey] == joinReply {
			of = append(of[:0], rest...)
		} else if len(of) > 0 {
			return found.add(rest, of)
		}
		return nil
	})
	if err != nil {
		found.close()
		return nil, err
	}
	return found, nil
}

// turnCursor gives prompts their turns, in the order of their numbers.
type turnCursor struct {
	*cursor
	item []byte
}

func newTurnCursor(turns *sorter) (*turnCursor, error) {
	next, err := turns.cursor()
	if err != nil {
		return nil, err
	}
	t := &turnCursor{cursor: next}
	t.item, err = next.next()
	return t, err
}

// of gives a prompt its turns: those that fit one behind the other into its tokens.
func (c *turnCursor) of(t *text) (err error) {
	end := int64(0) // tokens up to which the prompt is taken
	for ; err == nil && len(c.item) > 0; c.item, err = c.next() {
		word := func(i int) int64 { return int64(binary.BigEndian.Uint64(c.item[8*i:])) } //nolint:gosec // as it was written
		if word(0) != t.number {
			return nil
		}
		r := turn{mark: int(word(1)), of: word(2), at: word(3), tokens: word(4)}
		if r.at > end && r.at+r.tokens < t.InputTokens.V {
			t.turns, end = append(t.turns, r), r.at+r.tokens
		}
	}
	return err
}
