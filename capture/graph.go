// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

// This file finds which requests of a trace follow which: the graph of an agent, its tools and its helpers, from spans alone.
//
// Two requests, A and B, diverge at their nearest common ancestor: each is below a different child of the ancestor, or is that child. B
// follows A if A's child had ended, with everything below it, when B's child began. Children that overlap are branches that run side by
// side, even if a request of one happens to end before a request of the other begins. A row names only those predecessors that no other
// predecessor follows. A span link adds an edge, and so do the ids of tool calls: see toolcalls.go. Requests of one session in several
// traces are joined later: see across.go.

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// Graphs says which requests become part of a graph.
type Graphs string

// The choices. The zero Graphs is GraphsAgents.
const (
	GraphsAgents Graphs = "agents" // those below a span of an agent, a workflow or a tool, or named by a span link, and those that follow them
	GraphsAll    Graphs = "all"    // all of one trace, or of one session
	GraphsNever  Graphs = "never"
)

const (
	// maxFan is the maximum number of predecessors of a request: those that ended last.
	maxFan = 64
	// maxGone is the maximum number of remembered steps that did not become rows.
	maxGone = 1 << 20
	// maxWalked is the maximum number of steps that a search for a path visits, and of tools that are examined for one wait.
	maxWalked = 4096
	// maxWork is the maximum number of steps of all searches in one trace: about a hundred for each span of the largest trace, and about
	// a second in all.
	maxWork = 1 << 26
)

// grapher finds the graph of the current trace. Indices are those of tree.nodes; one after the last stands for a root above all roots.
type grapher struct {
	*tree
	kids     [][]int32
	lo, hi   []int64 // from the beginning of a node and everything below it to the end
	count    []int32 // requests at or below it that are rows
	first    [][]int32
	last     [][]int32
	steps    map[int32]*step
	tools    []int32 // by their end
	byChance bool    // no span shows that agents act here
	left     int64   // the rest of maxWork
}

type step struct {
	journal.Step
	before []int32
	above  int32    // where it and its predecessors diverge
	own    int32    // the child that it is below there
	waited bool     // another step follows it
	made   []uint64 // the tool calls that its reply made
	given  []uint64 // those whose results it received, in order
	open   []uint64 // those of given that no step in its trace made
	from   int64    // beginning and end of the span that sent it
	to     int64
}

// graph sets the steps of the trace's requests, by node.
func (t *tree) graph() map[int32]*step {
	if !t.c.graphs() || len(t.nodes) < 2 {
		return nil
	}
	isStep := func(n *node) bool {
		return n.kind == journal.KindInference && !n.below && !n.failed && !n.beside && n.run.IsZero() && !t.nodes[n.root].rows
	}
	count, session := 0, false
	for i := range t.nodes {
		if isStep(&t.nodes[i]) {
			count++
			session = session || t.nodes[i].session != 0
		}
	}
	if count < 2 && !session { // as in most traces
		return nil
	}
	g := &grapher{tree: t, steps: make(map[int32]*step, count), byChance: t.c.opt.Graphs == GraphsAgents, left: maxWork}
	for i := range t.nodes {
		if n := &t.nodes[i]; isStep(n) {
			sent := t.top(int32(i))
			g.steps[int32(i)] = &step{Step: journal.Step{ID: stepID(t.trace, n.span)}, above: -1, from: sent.start + sent.offset, to: sent.ended()}
		}
	}
	g.extend()
	if !g.edgesWithin() {
		for _, s := range g.steps {
			s.Step, s.waited = journal.Step{}, false
		}
	}
	g.turns()
	return g.steps
}

// graphs reports whether rows become part of graphs.
func (c *compiler) graphs() bool { return c.opt.Graphs != GraphsNever && c.opt.Format == FormatFull }

// edgesWithin finds the edges between the requests of the trace. It returns false if there may be none.
func (g *grapher) edgesWithin() bool {
	for _, i := range slices.Backward(g.order) {
		g.join(i)
	}
	g.join(int32(len(g.nodes))) //nolint:gosec // bounded by MaxTraceSpans
	var said toolCalls
	calls := g.calls(&said) // before links, which remove edges that these make redundant
	g.links()
	g.callEdges(calls, &said)
	if g.byChance && !said.any() {
		g.c.toolCalls.add(said)
		return false
	}
	g.finish()
	if g.left <= 0 {
		g.c.lost.add(lostGraph, 1)
		return false
	}
	g.c.toolCalls.add(said)
	return true
}

// works counts a step of a search, and reports whether another one is allowed.
func (g *grapher) works() bool {
	g.left--
	return g.left > 0
}

// stepID returns the id of a step. It is derived from its span, so that it does not depend on what else is compiled.
func stepID(trace [16]byte, span journal.SpanID) uint64 {
	var ids [24]byte
	copy(ids[copy(ids[:], trace[:]):], span[:])
	return max(xxhash.Sum64(ids[:]), 1)
}

// top returns the span that sent a request: the topmost one that contains nothing else.
func (t *tree) top(i int32) *node {
	for n := &t.nodes[i]; ; {
		if n.above < 0 || t.nodes[n.above].served > 1 {
			return n
		}
		n = &t.nodes[n.above]
	}
}

// extend finds, for each node, its children, the time that it covers, and its number of rows.
func (g *grapher) extend() {
	n := len(g.nodes)
	g.kids, g.lo, g.hi, g.count = make([][]int32, n+1), make([]int64, n+1), make([]int64, n+1), make([]int32, n+1)
	g.first, g.last = make([][]int32, n+1), make([][]int32, n+1)
	cover := func(i int32, lo, hi int64) {
		switch {
		case lo == 0:
		case g.lo[i] == 0:
			g.lo[i], g.hi[i] = lo, hi
		default:
			g.lo[i], g.hi[i] = min(g.lo[i], lo), max(g.hi[i], hi)
		}
	}
	for _, i := range slices.Backward(g.order) {
		n := &g.nodes[i]
		if n.kind == journal.KindContent {
			continue
		}
		up := n.up
		if up < 0 {
			up = int32(len(g.nodes)) //nolint:gosec // bounded by MaxTraceSpans
		}
		if n.start > 0 {
			cover(i, n.start+n.offset, n.end+n.offset)
		}
		if g.steps[i] != nil {
			g.count[i]++
			g.first[i], g.last[i] = []int32{i}, []int32{i}
		}
		cover(up, g.lo[i], g.hi[i])
		g.count[up] += g.count[i]
		if g.count[i] > 0 {
			g.kids[up] = append(g.kids[up], i)
			g.byChance = g.byChance && n.acts == journal.NoActor
		}
		if n.acts == journal.Tool && n.start > 0 {
			g.tools = append(g.tools, i)
		}
	}
	slices.SortFunc(g.tools, func(a, b int32) int { return cmp.Or(cmp.Compare(g.hi[a], g.hi[b]), cmp.Compare(a, b)) })
}

// begin returns the latest time at which a node may have begun: some producers truncate starts, but not ends, to a millisecond.
func (g *grapher) begin(i int32) int64 {
	return latestBegin(g.lo[i])
}

// latestBegin returns the latest time that a start may mean.
func latestBegin(start int64) int64 {
	const cut = 1e6
	if start%cut != 0 {
		return start
	}
	return start + cut - 1
}

// precedes reports whether all of a node had ended when another one began.
func (g *grapher) precedes(a, b int32) bool {
	return g.hi[a] <= g.begin(b) && g.lo[a] < g.lo[b]
}

// join makes edges between the children of a node, each from the last requests of one to the first ones of the next.
func (g *grapher) join(at int32) {
	kids := g.kids[at]
	if len(kids) == 0 {
		return
	}
	slices.SortFunc(kids, func(a, b int32) int { return cmp.Or(cmp.Compare(g.hi[a], g.hi[b]), cmp.Compare(a, b)) })
	latest := make([]int32, len(kids)) // for each child, the one of those up to it that began last
	for i, kid := range kids {
		if latest[i] = kid; i > 0 && g.lo[latest[i-1]] > g.lo[kid] {
			latest[i] = latest[i-1]
		}
	}
	followed, evidence := make(map[int32]bool, len(kids)), g.evidence(at)
	for _, kid := range kids {
		end := g.begin(kid)
		n, _ := slices.BinarySearchFunc(kids, end+1, func(k int32, end int64) int { return cmp.Compare(g.hi[k], end) })
		var before []int32
		mark := int32(-1)
		for i := n - 1; i >= 0 && len(before) < maxFan && g.works(); i-- {
			if !g.precedes(kids[i], kid) {
				continue
			}
			if mark < 0 {
				mark = latest[i]
				if !g.precedes(mark, kid) {
					mark = kids[i]
				}
			}
			if g.precedes(kids[i], mark) {
				break
			}
			followed[kids[i]] = true
			before = append(before, g.last[kids[i]]...)
		}
		if before == nil {
			few, many := g.first[at], g.first[kid]
			if len(few) > len(many) {
				few, many = many, few
			}
			g.first[at] = append(many, few...)
			continue
		}
		before = g.latestOf(before)
		for _, first := range g.first[kid] {
			s := g.steps[first]
			s.before, s.above, s.own = before, at, kid
			for _, b := range before {
				s.WaitFor = append(s.WaitFor, journal.Edge{ID: g.steps[b].ID, Evidence: evidence})
				g.steps[b].waited = true
			}
		}
	}
	for _, kid := range kids {
		if !followed[kid] {
			g.last[at] = append(g.last[at], g.last[kid]...)
		}
		g.first[kid], g.last[kid] = nil, g.last[kid][:min(len(g.last[kid]), maxFan)]
	}
	g.last[at] = g.latestOf(g.last[at])
}

// latestOf returns the requests that ended last, the latest first, at most maxFan.
func (g *grapher) latestOf(all []int32) []int32 {
	slices.SortFunc(all, func(a, b int32) int {
		return cmp.Or(cmp.Compare(g.steps[b].to, g.steps[a].to), cmp.Compare(a, b))
	})
	return slices.Clip(all[:min(len(all), maxFan)])
}

func (n *node) ended() int64 { return n.end + n.offset }

// evidence returns the evidence if requests diverge at a node.
func (g *grapher) evidence(at int32) mooncake.Evidence {
	for i := at; int(i) < len(g.nodes) && i >= 0 && g.works(); i = g.nodes[i].up {
		if g.nodes[i].acts != journal.NoActor {
			return mooncake.EvidenceParent
		}
	}
	return mooncake.EvidenceTime
}

// links adds the edges of span links.
func (g *grapher) links() {
	for i := range g.nodes {
		for _, span := range g.nodes[i].follows {
			to, ok := g.find(span)
			if b := int32(i); ok && g.precedes(int32(to), b) { //nolint:gosec // bounded by MaxTraceSpans
				g.byChance = false
				for _, first := range g.edges(b, func(s *step) bool { return len(s.before) == 0 || !g.within(s.before[0], b) }) {
					for _, last := range g.edges(int32(to), func(s *step) bool { return !s.waited || !g.followedWithin(s, int32(to)) }) { //nolint:gosec // likewise
						g.link(last, first, mooncake.EvidenceLink)
					}
				}
			}
		}
	}
}

// edges returns the requests at or below a node for which a condition holds.
func (g *grapher) edges(at int32, is func(*step) bool) (found []int32) {
	for _, i := range g.order {
		if len(found) == maxFan || !g.works() {
			break
		}
		if s := g.steps[i]; s != nil && g.within(i, at) && is(s) {
			found = append(found, i)
		}
	}
	return found
}

// within reports whether a node equals another one, or is below it.
func (g *grapher) within(i, at int32) bool {
	for ; i >= 0 && g.works(); i = g.nodes[i].up {
		if i == at {
			return true
		}
	}
	return false
}

// followedWithin reports whether a request below a node follows a step.
func (g *grapher) followedWithin(s *step, at int32) bool {
	for i, other := range g.steps {
		if g.works() && g.within(i, at) && slices.ContainsFunc(other.WaitFor, func(e journal.Edge) bool { return e.ID == s.ID }) {
			return true
		}
	}
	return false
}

// link adds an edge, or more reliable evidence to an existing one, and removes edges that it makes redundant.
func (g *grapher) link(from, to int32, evidence mooncake.Evidence) {
	s, p := g.steps[to], g.steps[from]
	if i := slices.Index(s.before, from); i >= 0 {
		s.WaitFor[i].Evidence = max(s.WaitFor[i].Evidence, evidence)
		return
	}
	if len(s.WaitFor) >= maxFan {
		return
	}
	s.before = append(slices.Clone(s.before), from)
	s.WaitFor = append(s.WaitFor, journal.Edge{ID: p.ID, Evidence: evidence})
	if s.above < 0 && evidence == mooncake.EvidenceLink {
		s.above, s.own = int32(len(g.nodes)), to //nolint:gosec // bounded by MaxTraceSpans
	}
	p.waited = true
	for i, before := range slices.Backward(s.before) {
		others := slices.Delete(slices.Clone(s.before), i, i+1)
		if g.reaches(others, before) {
			s.before, s.WaitFor = others, slices.Delete(s.WaitFor, i, i+1)
		}
	}
}

// reaches reports whether one of these requests follows another one, directly or indirectly.
func (g *grapher) reaches(from []int32, to int32) bool {
	queue, seen := slices.Clone(from), map[int32]bool{}
	for len(queue) > 0 && len(seen) < maxWalked {
		at := queue[0]
		queue = queue[1:]
		for _, before := range g.steps[at].before {
			if before == to {
				return true
			}
			if !g.works() {
				return false
			}
			if !seen[before] && g.steps[before].to > g.steps[to].from {
				seen[before] = true
				queue = append(queue, before)
			}
		}
	}
	return false
}

// finish computes how long each step waits, and removes the ids of unconnected steps.
func (g *grapher) finish() {
	for _, s := range g.steps {
		s.waited = false
	}
	for _, s := range g.steps {
		for _, b := range s.before {
			g.steps[b].waited = true
		}
	}
	for _, s := range g.steps {
		if g.left <= 0 {
			return
		}
		if len(s.WaitFor) == 0 {
			if !s.waited {
				s.ID = 0
			}
			continue
		}
		from := int64(0)
		for _, b := range s.before {
			from = max(from, g.steps[b].to)
			s.Endless = s.Endless || g.steps[b].to <= g.steps[b].from
		}
		wait := max(0, s.from-from)
		s.ToolWait = min(wait, g.toolTime(s, from, from+wait))
		s.Delay = wait - s.ToolWait
	}
}

// toolTime returns how long, between two times, any of the tools ran for which a step may have waited.
func (g *grapher) toolTime(s *step, from, to int64) (sum int64) {
	n, _ := slices.BinarySearchFunc(g.tools, from+1, func(k int32, at int64) int { return cmp.Compare(g.hi[k], at) })
	var times [][2]int64
	for _, tool := range g.tools[n:min(len(g.tools), n+maxWalked)] {
		if g.lo[tool] < to && (g.answers(tool, s) || g.concerns(tool, s)) {
			times = append(times, [2]int64{max(from, g.lo[tool]), min(to, g.hi[tool])})
		}
	}
	slices.SortFunc(times, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	for _, span := range times {
		if span[1] > from {
			sum += span[1] - max(from, span[0])
			from = span[1]
		}
	}
	return sum
}

// concerns reports whether a tool belongs to the child of a step, or to an earlier one.
func (g *grapher) concerns(tool int32, s *step) bool {
	if s.above < 0 { // spans do not show what it follows
		return false
	}
	virtual := int32(len(g.nodes)) //nolint:gosec // bounded by MaxTraceSpans
	for i := tool; i >= 0 && g.works(); i = g.nodes[i].up {
		up := g.nodes[i].up
		if up == s.above || up < 0 && s.above == virtual {
			return i == s.own || g.precedes(i, s.own)
		}
	}
	return false
}

// gone is a step that did not become a row. Steps that followed it follow its predecessors instead, or the row that replaces it.
type gone struct {
	journal.Step
	Took     int64 // ns; added to the delay of a step that followed only this one
	Replaced bool  // by a row of the same request, which is its only predecessor
}

// drop records the step of a request that did not become a row.
func (c *compiler) drop(r *journal.Inference) {
	if r.Step.ID != 0 && len(c.gone) < maxGone {
		c.gone[r.Step.ID] = gone{Step: r.Step, Took: endOf(r) - r.Start}
	}
}

// stands records that a request replaces another one's step.
func (c *compiler) stands(r *journal.Inference, step journal.Step) {
	if step.ID != 0 && step.ID != r.Step.ID && len(c.gone) < maxGone {
		edge := journal.Edge{ID: r.Step.ID, Evidence: mooncake.EvidenceLink}
		c.gone[step.ID] = gone{Step: journal.Step{ID: step.ID, WaitFor: []journal.Edge{edge}}, Replaced: true}
	}
}

// settleStep replaces those predecessors of a step that are not rows by their own predecessors.
func (c *compiler) settleStep(s journal.Step) journal.Step {
	var kept []journal.Edge
	seen := map[uint64]bool{}
	queue := slices.Clone(s.WaitFor)
	for len(queue) > 0 {
		e := queue[0]
		queue = queue[1:]
		if seen[e.ID] || len(seen) >= maxWalked {
			continue
		}
		seen[e.ID] = true
		g, lost := c.gone[e.ID]
		if !lost {
			kept = append(kept, e)
			continue
		}
		for _, before := range g.WaitFor {
			before.Evidence = min(before.Evidence, e.Evidence)
			queue = append(queue, before)
		}
		if len(s.WaitFor) == 1 { // it was the only predecessor
			s.Delay, s.ToolWait = s.Delay+g.Took+g.Delay, s.ToolWait+g.ToolWait
			s.Endless = g.Endless || g.Replaced && s.Endless // else the time is known, even if that predecessor has no end
		}
	}
	s.WaitFor = kept[:min(len(kept), mooncake.MaxWaitFor)]
	return s
}

// step sets a row's position in a graph.
func (w *writing) step(row *mooncake.Row, s journal.Step) {
	if s.ID == 0 {
		return
	}
	s = w.c.settleStep(s)
	row.RequestID, row.WaitFor = stepName(s.ID), []string{}
	for _, e := range s.WaitFor {
		row.WaitFor = append(row.WaitFor, stepName(e.ID))
		row.Evidence = append(row.Evidence, e.Evidence)
		w.edge(e.Evidence)
	}
	if len(s.WaitFor) == 0 {
		return
	}
	if !s.Endless {
		row.Delay = mooncake.Some(float64(s.Delay) / 1e6)
	}
	if s.ToolWait > 0 {
		row.ToolWait = mooncake.Some(float64(s.ToolWait) / 1e6)
	}
}

// edge counts an edge by its evidence.
func (w *writing) edge(e mooncake.Evidence) {
	name := cmp.Or(e.String(), "unknown")
	if w.edges == nil {
		w.edges = map[string]any{}
	}
	n, _ := w.edges[name].(int64)
	w.edges[name] = n + 1
}

// waits sets the position of a replay's row in its graph to that in the replayed trace. The row's request id may have been different there;
// here it is the row's index. A row that was not served no longer counts as a predecessor.
func (w *writing) waits(row *mooncake.Row, r *journal.Inference) {
	if !r.Waits.InGraph {
		return
	}
	row.RequestID, row.WaitFor = strconv.FormatInt(r.Row.V, 10), []string{}
	row.Delay, row.ToolWait = r.Waits.Delay, r.Waits.ToolWait
	for _, e := range r.Waits.For {
		if _, ok := w.replayed.find(e.Row, w.rows); !ok {
			w.part.lost.add(lostEdge, 1)
			continue
		}
		row.WaitFor, row.Evidence = append(row.WaitFor, strconv.FormatInt(e.Row, 10)), append(row.Evidence, e.Evidence)
		w.edge(e.Evidence)
	}
	if slices.Contains(row.Evidence, 0) {
		row.Evidence = nil // one for each, or none
	}
}

// stepName returns the request id of a step.
func stepName(id uint64) string {
	return hex.EncodeToString(binary.BigEndian.AppendUint64(nil, id))
}
