// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

// This file finds the rows that a row of a graph waits for. They must be earlier in the file. So no row can wait for itself, even
// indirectly, or for a row that never comes.

import (
	"github.com/cespare/xxhash/v2"

	"github.com/moonloop/moonloop/mooncake"
)

// graphRows remembers the rows of graphs by request id.
type graphRows struct{ recent[string, graphRow] }

// graphRow is a row that others may wait for.
type graphRow struct {
	index int64
	key   float64
	group uint64
}

// add remembers a row whose position in the schedule is known.
func (g *graphRows) add(e *entry) {
	if e.RequestID != "" {
		g.set(e.RequestID, graphRow{e.index, e.key, e.group()})
	}
}

// follow gives a row that waits for others the position of the latest of them. The row goes to the schedule together with the latest one;
// the schedule knows when the rows end. A row without a session belongs to the group of the rows that it waits for.
func (s *Stream) follow(e *entry) *mooncake.RowError {
	for _, id := range e.WaitFor {
		before, known := s.graphs.get(id)
		switch {
		case known && len(e.after) > 0 && before.key <= e.key:
		case known:
			e.key = before.key
		case s.opt.Strict:
			return &mooncake.RowError{
				Field: "wait_for", Rule: "names a request that is not the request_id of an earlier row",
				Advice: "put the row that is waited for before this one; rows cannot wait for each other",
			}
		default:
			s.count(func(c *Counts) { c.Unawaited++ })
			continue
		}
		if s.opt.Shards > 1 && len(e.after) > 0 && before.group != e.of { // the two groups may be in two shards
			return &mooncake.RowError{
				Field: "wait_for", Rule: "names rows of two groups, which may be in two shards", Advice: "give the rows of a graph one session_id, or replay it in one shard",
			}
		}
		e.after, e.of = append(e.after, before.index), before.group
	}
	return nil
}

// group returns a number for the rows that stay in one shard: those of a graph, the turns of a session, or a single row.
func (e *entry) group() uint64 {
	switch {
	case len(e.after) > 0:
		return e.of
	case e.SessionID != "":
		return xxhash.Sum64String(e.SessionID)
	case e.WaitFor != nil && !e.OTel.IsZero(): // all roots of a captured graph belong to one OTel trace
		return xxhash.Sum64(e.OTel.TraceID[:])
	}
	return uint64(e.index) //nolint:gosec // an index is never negative
}
