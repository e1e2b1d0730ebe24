// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"encoding/binary"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// An item of bySession has its part, the partition, the session, and turnActs or turnRequest.
const (
	sessionKey  = 4 + 8 // length of partition and session
	turnActs    = 0     // says that the turns of the session follow each other like an agent's; has no request
	turnRequest = 1     // a request, by its order; then whether its prompt is known, which does not matter to the order, and the record
	// turnKnown is the offset, after the part, of the byte that says whether the prompt is known. The record follows this byte.
	turnKnown = sessionKey + 1 + timesLength
)

// session is the current session.
type session struct {
	key     [sessionKey]byte
	met     bool // a request of the session was read
	content bool // the prompt of any of its requests is known
	acts    bool
	across  across
	turns   int64
	end     int64 // of the turn before, in ns
	ended   bool  // this end is known
	tokens  int64 // prompt and output of the turn before
	full    int64 // full blocks of its prompt
	sharing sharing
}

// layTurns processes the requests of each session in order. It computes the delay of each turn, and, for sessions without content, ids by
// structure.
func (c *compiler) layTurns() error {
	var s session
	var d journal.Decoder
	var scout scout
	defer scout.end()
	return c.bySession.each(c.ctx, func(item []byte) (err error) {
		b := item[partLength:]
		if !s.met && !s.acts || !bytes.Equal(b[:sessionKey], s.key[:]) {
			s = session{key: [sessionKey]byte(b[:sessionKey]), sharing: sharing{parts: s.sharing.parts[:0]}}
		}
		if b[sessionKey] == turnActs {
			s.acts = true
			return nil
		}
		if err := d.Decode(b[turnKnown+1:]); err != nil {
			return err
		}
		p := c.list[binary.BigEndian.Uint32(b)]
		r := &d.Inference
		if r.Session == 0 {
			return c.settle(p, r, mooncake.Opt[float64]{})
		}
		switch {
		case s.met:
		case b[turnKnown] == 1:
			s.content = true
		case c.prompted && !p.Replay:
			if s.content, err = scout.content(c.bySession, item[:partLength+sessionKey]); err != nil {
				return err
			}
		}
		s.met = true
		input, output := r.InputTokens, r.OutputTokens
		if !p.estimate(r) {
			p.lost.add(lostTokens, 1)
			c.drop(r)
			return nil
		}
		var delay mooncake.Opt[float64]
		if s.turns > 0 {
			p.multi = true
			if s.ended && r.Start >= s.end && (!p.Replay || !r.Timestamp.Set) {
				delay = mooncake.Some(float64(r.Start-s.end) / 1e6)
			}
		}
		if s.acts && !p.Replay {
			s.across.follow(r, &c.toolCalls)
		}
		r.Tools, r.Step.Turn = journal.ToolIDs{}, journal.Turn{}
		structural := !s.content && !p.Replay
		if structural {
			s.lay(r, int64(c.fine), c.structured)
			c.structured++
		}
		s.turns++
		s.end, s.ended = endOf(r), r.End > r.Start
		r.InputTokens, r.OutputTokens = input, output // without estimates, which are made again when the row is written
		if structural {
			return c.inOrder(p, r, delay, &s.sharing)
		}
		return c.settle(p, r, delay)
	})
}

// scout looks ahead in sessions that begin without content.
type scout struct {
	items *aside // nil before the first look
	item  []byte // nil after the last
}

// content reports whether the prompt of any request of a session is known. Sessions come in order.
func (s *scout) content(of *sorter, session []byte) (known bool, err error) {
	if s.items == nil {
		c, err := of.cursor()
		if err != nil {
			return false, err
		}
		s.items = readAside(c)
		if s.item, err = s.items.next(); err != nil {
			return false, err
		}
	}
	for s.item != nil && !known {
		if order := bytes.Compare(s.item[:len(session)], session); order > 0 {
			break
		} else if order == 0 {
			turn := s.item[partLength:]
			known = turn[sessionKey] == turnRequest && turn[turnKnown] == 1
		}
		if s.item, err = s.items.next(); err != nil {
			return false, err
		}
	}
	return known, nil
}

func (s *scout) end() {
	if s.items != nil {
		s.items.end()
	}
}

// lay computes what a turn shares with the turn before: what the server had cached, if it reported that, but not more than the turn before
// had, nor than this turn has. In the turn before, a partial last block has continued with the output, so it is not shared.
func (s *session) lay(r *journal.Inference, fine, number int64) {
	n := r.InputTokens.V
	shared := min(s.tokens, n)
	if r.CachedTokens.Set {
		shared = min(shared, max(r.CachedTokens.V, 0))
	}
	depth := min(shared/fine, s.full)
	before := s.sharing.parts
	s.sharing = sharing{kind: byStructure, number: number, parts: before[:0]}
	for _, p := range before {
		s.sharing.add(p.first, min(p.depth, depth))
	}
	s.sharing.add(number, int64(mooncake.BlockCount(n, int(fine))))
	s.full = n / fine
	s.tokens = n + r.OutputTokens.V
	r.Prompt = journal.Prompt{Identity: journal.Structure}
}
