// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import "github.com/moonloop/moonloop/mooncake"

// structureBlock is the default size of blocks whose ids are derived from the tokens that turns share.
const structureBlock = 64

// structure makes ids for formats without ids: a turn begins with the ids of the turn before, as far as the two share tokens, in whole
// blocks. Sessions share nothing with each other. The zero structure is ready to use.
type structure struct {
	turns map[string]run // the full blocks of each session's last turn
	lost  int64          // turns that were not stored, because there were too many sessions
}

// run is a list of ids, as ranges of consecutive ones.
type run []mooncake.HashRange

// ids returns the numbers of a prompt's blocks; the first ones are those of the session's turn before.
func (s *structure) ids(c *chain, q *request, size int) []uint64 {
	tokens := q.row.InputLength.V
	out := make([]uint64, 0, mooncake.BlockCount(tokens, size))
	shared := min(q.shares.V, tokens) / int64(size)
	for _, r := range s.turns[q.row.SessionID] {
		for i := range min(r.Count, max(0, shared-int64(len(out)))) {
			out = append(out, r.First+uint64(i))
		}
	}
	out = append(out, c.fresh(cap(out)-len(out))...)
	if q.row.SessionID != "" {
		s.remember(q.row.SessionID, out[:tokens/int64(size)])
	}
	return out
}

// remember stores the last turn of a session.
func (s *structure) remember(session string, ids []uint64) {
	if s.turns == nil {
		s.turns = map[string]run{}
	}
	if _, known := s.turns[session]; !known && len(s.turns) >= maxChats {
		s.lost++
		return
	}
	last := s.turns[session][:0]
	for _, id := range ids {
		if n := len(last); n > 0 && last[n-1].First+uint64(last[n-1].Count) == id { //nolint:gosec // above 0
			last[n-1].Count++
			continue
		}
		last = append(last, mooncake.HashRange{First: id, Count: 1})
	}
	s.turns[session] = last
}
