// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

// This file finds the rows that a row of a graph waits for. They are earlier in the file, so that no row can wait for itself, over
// whatever others, and none for a row that never comes.

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

// add remembers a row that has its place.
func (g *graphRows) add(e *entry) {
	if e.RequestID != "" {
		g.set(e.RequestID, graphRow{e.index, e.key, e.group()})
	}
}

// follow gives a row that waits for others the place of the latest of these: it is handed to the schedule with that one, which knows
// when they end. A row without a session is of the group of those that it waits for.
func (s *Stream) follow(e *entry) *mooncake.RowError {
	for _, id := range e.WaitFor {
		before, known := s.graphs.get(id)
		switch {
		case known && len(e.after) > 0 && before.key <= e.key:
		case known:
			e.key = before.key
		case s.opt.Strict:
			return &mooncake.RowError{
				Field: "wait_for", Rule: "names a request that is no earlier row's request_id",
				Advice: "put the row that is waited for before this one; rows cannot wait for each other",
			}
		default:
			s.count(func(c *Counts) { c.Unawaited++ })
			continue
		}
		if s.opt.Shards > 1 && len(e.after) > 0 && before.group != e.of { // which may be in two shards
			return &mooncake.RowError{
				Field: "wait_for", Rule: "names rows of two groups, which may be in two shards", Advice: "give the rows of a graph one session_id, or replay it in one shard",
			}
		}
		e.after, e.of = append(e.after, before.index), before.group
	}
	return nil
}

// group numbers what stays together: a graph, the turns of a session, else a row alone.
func (e *entry) group() uint64 {
	switch {
	case len(e.after) > 0:
		return e.of
	case e.SessionID != "":
		return xxhash.Sum64String(e.SessionID)
	case e.WaitFor != nil && !e.OTel.IsZero(): // all roots of a captured graph are of one trace
		return xxhash.Sum64(e.OTel.TraceID[:])
	}
	return uint64(e.index) //nolint:gosec // an index is never negative
}
