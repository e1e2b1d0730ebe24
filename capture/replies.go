// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/moonloop/moonloop/blockhash"
)

// Which parts of a prompt were replies to earlier ones: where the text up to the end of one of the assistant's messages is that of
// an earlier prompt and the reply to it, which is proof and needs no session. The reply's tokens were counted when it was
// made, so that its end is an anchor, see borders.go; and an engine had it in its cache.

// turn is a reply that stands in a prompt.
type turn struct {
	mark   int   // the mark at which it ends, counted from 1
	of     int64 // number of the first prompt that it was the reply to
	at     int64 // tokens before it
	tokens int64 // its own
}

// anchor is that of a turn in a prompt whose marks are at these places.
func (t turn) anchor(places []int64) anchor {
	return newAnchor(placeOf(places, t.mark), t.end(), true)
}

// An item of the join is a value, which of the two it is, and then of a reply its arrival, the number of its prompt, the tokens of that
// and its own; of a message the number of its prompt and its mark.
const (
	joinReply   = 0
	joinMessage = 1
	joinKey     = markLength
)

// findTurns returns the replies in each prompt, by its number and mark, but for those that it shares with the prompt before in the
// order of marks; nothing where no reply is known.
func (c *compiler) findTurns() (*sorter, error) {
	found := newSorter(c.opt.TempDir, c.opt.Memory/8)
	if !c.replied {
		return found, nil
	}
	join := newSorter(c.opt.TempDir, c.opt.Memory/8)
	defer join.close()
	err := c.texts(func(t *text) error {
		add := func(value uint64, kind byte, arrival []byte, words ...int64) error {
			c.key = append(binary.BigEndian.AppendUint64(c.key[:0], value), kind)
			c.enc = append(c.enc[:0], arrival...)
			for _, w := range words {
				c.enc = binary.BigEndian.AppendUint64(c.enc, uint64(w)) //nolint:gosec // not negative
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
			if end.Role == blockhash.RoleAssistant {
				if err := add(end.Value, joinMessage, nil, t.number, int64(t.ends[i])); err != nil {
					return err
				}
			}
		}
		if t.Reply == (blockhash.End{}) || !t.counted || t.Prefix || t.OutputTokens.V < 1 {
			return nil
		}
		return add(t.Reply.Value, joinReply, t.order[:], t.number, t.InputTokens.V, t.OutputTokens.V)
	})
	if err != nil {
		found.close()
		return nil, err
	}
	// Of several prompts that are equal and had the same reply, the first one.
	var value, of []byte
	err = join.each(c.ctx, func(b []byte) error {
		if !bytes.Equal(value, b[:markLength]) {
			value, of = append(value[:0], b[:markLength]...), of[:0]
		}
		switch rest := b[joinKey+1:]; {
		case b[joinKey] == joinMessage && len(of) > 0:
			return found.add(rest, of)
		case b[joinKey] == joinReply && len(of) == 0:
			of = append(of, rest[arrivalLength:]...)
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
	path []turn // of the prompt at hand
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

// of gives a prompt its turns: those that it shares with the prompt before, and its own, which fit one behind the other into its tokens.
func (c *turnCursor) of(t *text) (err error) {
	n := len(c.path)
	for n > 0 && c.path[n-1].mark > t.shared {
		n--
	}
	c.path, t.known = c.path[:n], n
	for ; err == nil && len(c.item) > 0; c.item, err = c.next() {
		word := func(i int) int64 { return int64(binary.BigEndian.Uint64(c.item[8*i:])) } //nolint:gosec // as it was written
		if word(0) != t.number {
			break
		}
		end := int64(0) // tokens up to which the prompt is taken
		if n := len(c.path); n > 0 {
			end = c.path[n-1].end()
		}
		if r := (turn{mark: int(word(1)), of: word(2), at: word(3), tokens: word(4)}); r.at > end && r.end() < t.InputTokens.V {
			c.path = append(c.path, r)
		}
	}
	t.turns = c.path
	return err
}

// end returns the tokens of the prompt up to the end of the reply.
func (t turn) end() int64 { return t.at + t.tokens }
