// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

// This file finds the order of a session's requests if each turn has its own OTel trace, as in most applications. The requests of a session
// in one trace are called a turn here. The rules are:
//
//   - A turn B follows a turn A if all spans of A had ended when the first span of B began. So turns that overlap, like those of two
//     helpers, are branches. A turn follows only those of its predecessors that no other predecessor follows.
//   - The first requests of a turn wait for the last requests of the turns before: those for which no other request of their trace waits.
//     Only the session and the order of times show this.
//   - The id of a tool call shows more: a request whose prompt ends with the result of a call in another trace follows the request that
//     made the call. Of other traces, it then waits for no other request: if each request has its own trace, order alone may be chance.
//   - Sessions in which no agent acts keep to their delays, unless all graphs are wanted.

import (
	"cmp"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"
	lru "github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

const (
	// maxTurns is the maximum number of turns of a session that are remembered: those that ended last.
	maxTurns = 256
	// maxMade is the maximum number of ids of calls that are remembered of a session: the last ones.
	maxMade = 1 << 14
	// maxMakers is the maximum number of requests that are remembered for calls with one id: the last ones.
	maxMakers = 8
)

// turns sets the turns of the trace's requests that belong to a session.
func (g *grapher) turns() {
	type extent struct{ lo, hi int64 }
	whole := len(g.nodes)
	acts := !g.byChance
	sessions := map[journal.Session]*extent{}
	for i := range g.steps {
		sessions[g.nodes[i].session] = &extent{g.lo[whole], g.hi[whole]}
	}
	if len(sessions) > 1 { // each has only a part of the trace
		clear(sessions)
		for i := range g.nodes {
			n := &g.nodes[i]
			if n.start == 0 || n.kind == journal.KindContent {
				continue
			}
			begin, end := n.start+n.offset, n.ended()
			if e := sessions[n.session]; e != nil {
				e.lo, e.hi = min(e.lo, begin), max(e.hi, end)
			} else {
				sessions[n.session] = &extent{begin, end}
			}
		}
	}
	id := max(xxhash.Sum64(g.trace[:]), 1)
	for i, s := range g.steps {
		if session := g.nodes[i].session; session != 0 {
			e := sessions[session]
			s.Turn = journal.Turn{ID: id, Begin: e.lo, End: e.hi, From: s.from, To: s.to, Acts: acts, Waited: s.waited}
		}
	}
}

// endless returns the turn of a request whose trace is too large: it follows no other turn, and no other turn follows it.
func endless(r *journal.Inference) journal.Turn {
	return journal.Turn{ID: stepID(r.Span.TraceID, r.Span.SpanID), End: math.MaxInt64, From: r.Start, To: endOf(r)}
}

// chains reports whether a request shows that the turns of its session follow each other like an agent's.
func (c *compiler) chains(p *partition, r *journal.Inference) bool {
	if r.Session == 0 || p.Replay || !c.graphs() {
		return false
	}
	return c.opt.Graphs == GraphsAll || r.Step.ID != 0 || r.Step.Turn.Acts || len(r.Tools.Given) > 0
}

// across is the state of a session.
type across struct {
	turns []*sessionTurn
	made  *lru.LRU[uint64, []maker] // by the id of a call; nil before the first
}

// sessionTurn is a turn of a session.
type sessionTurn struct {
	id         uint64
	begin, end int64
	before     []ended // the requests for which its first requests wait, latest first
	last       []ended // its own requests for which no other one of it waits, latest first
	other      ended   // of its other requests, the one that ended last
}

// ended is a request that others may follow.
type ended struct {
	step uint64
	to   int64
	open bool // its end is unknown: to is its start
}

// maker is a request that made a call.
type maker struct {
	ended
	from int64
	turn *sessionTurn
}

// follow determines the requests in other traces for which the next request of a session waits. Requests must be passed in order of their
// starts.
func (a *across) follow(r *journal.Inference, said *toolCalls) {
	s, t := &r.Step, r.Step.Turn
	if s.ID == 0 {
		s.ID = stepID(r.Span.TraceID, r.Span.SpanID)
	}
	if t.ID == 0 { // it is the only request of its trace
		t = journal.Turn{ID: s.ID, Begin: r.Start, End: endOf(r), From: r.Start, To: endOf(r)}
	}
	turn, first := a.turn(&t), len(s.WaitFor) == 0
	var before []ended
	wait := func(e ended, evidence mooncake.Evidence) {
		before = append(before, e)
		s.WaitFor = append(s.WaitFor, journal.Edge{ID: e.step, Evidence: evidence})
	}
	calls := a.calls(r.Tools.Given, &t, said)
	replaced := int64(len(turn.before))
	for _, m := range calls {
		switch follows := slices.Contains(turn.before, m.ended); {
		case first && follows:
			said.agreed++
			replaced--
		case !first && m.turn.precedes(turn):
			said.agreed++ // in addition to the first requests of the turn
			continue
		default:
			said.added++
		}
		if len(s.WaitFor) < maxFan {
			wait(m.ended, mooncake.EvidenceToolCall)
		}
	}
	switch {
	case first && len(calls) > 0:
		said.replaced += replaced
	case first:
		for _, e := range turn.before {
			wait(e, mooncake.EvidenceSession)
		}
	}
	if len(before) > 0 {
		waitLonger(s, before, t.From, first)
	}
	a.remember(r, &t, turn)
}

// waitLonger computes how long a step that follows requests of other traces waits: from the latest end of these requests, or of those that it
// follows in its own trace, if there are any and their end is later. Tools with spans in other traces are unknown.
func waitLonger(s *journal.Step, before []ended, from int64, first bool) {
	last := before[0].to
	if !first {
		last = max(last, from-s.Delay-s.ToolWait)
	}
	for _, e := range before {
		last = max(last, e.to)
		s.Endless = s.Endless || e.open
	}
	wait := max(0, from-last)
	s.ToolWait = min(s.ToolWait, wait)
	s.Delay = wait - s.ToolWait
}

// turn returns the turn of a request. If the turn is new, it also finds what the turn follows.
func (a *across) turn(t *journal.Turn) *sessionTurn {
	for _, known := range slices.Backward(a.turns) {
		if known.id == t.ID {
			return known
		}
	}
	turn := &sessionTurn{id: t.ID, begin: t.Begin, end: t.End}
	var latest *sessionTurn
	for _, o := range a.turns {
		if o.precedes(turn) && (latest == nil || latest.begin < o.begin) {
			latest = o
		}
	}
	for _, o := range a.turns {
		if !o.precedes(turn) || o.precedes(latest) {
			continue
		}
		if turn.before = append(turn.before, o.last...); len(o.last) == 0 && o.other.step != 0 {
			turn.before = append(turn.before, o.other) // the requests that waited for it did not become rows
		}
	}
	turn.before = latestOf(turn.before)
	if a.turns = append(a.turns, turn); len(a.turns) > maxTurns {
		first := slices.MinFunc(a.turns, func(a, b *sessionTurn) int { return cmp.Compare(a.end, b.end) })
		a.turns = slices.DeleteFunc(a.turns, func(o *sessionTurn) bool { return o == first })
	}
	return turn
}

// precedes reports whether all of a turn had ended when another one began.
func (t *sessionTurn) precedes(o *sessionTurn) bool {
	return t.end <= latestBegin(o.begin) && t.begin < o.begin
}

// latestOf returns the requests that ended last, in order, at most the number for which one may wait.
func latestOf(all []ended) []ended {
	slices.SortFunc(all, func(a, b ended) int { return cmp.Or(cmp.Compare(b.to, a.to), cmp.Compare(a.step, b.step)) })
	return all[:min(len(all), maxFan)]
}

// calls returns the requests in other traces that made the calls whose results a request received.
func (a *across) calls(given []uint64, t *journal.Turn, said *toolCalls) (before []maker) {
	for _, id := range given {
		var all []maker
		if a.made != nil {
			all, _ = a.made.Get(id)
		}
		at, n := -1, 0
		for i, m := range all {
			if m.to <= latestBegin(t.From) && m.from < t.From {
				if n++; at < 0 || m.to > all[at].to {
					at = i
				}
			}
		}
		switch {
		case len(all) == 0:
			said.unknown++
			continue
		case n == 0:
			said.early++
			continue
		case n > 1:
			said.reused++
		}
		if !slices.Contains(before, all[at]) {
			before = append(before, all[at])
		}
	}
	slices.SortFunc(before, func(a, b maker) int { return cmp.Or(cmp.Compare(b.to, a.to), cmp.Compare(a.step, b.step)) })
	return before
}

// remember stores a request, so that others can follow it.
func (a *across) remember(r *journal.Inference, t *journal.Turn, turn *sessionTurn) {
	e := ended{r.Step.ID, t.To, t.To <= t.From}
	switch {
	case !t.Waited:
		turn.last = latestOf(append(turn.last, e))
	case turn.other.step == 0 || turn.other.to < e.to:
		turn.other = e
	}
	for _, id := range r.Tools.Made {
		if a.made == nil {
			a.made, _ = lru.NewLRU[uint64, []maker](maxMade, nil) // fails only for invalid sizes
		}
		all, _ := a.made.Get(id)
		a.made.Add(id, append(all[max(0, len(all)-maxMakers+1):], maker{e, t.From, turn}))
	}
}
