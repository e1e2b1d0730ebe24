// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

// This file finds edges by the ids of tool calls: a request that received the result of a call follows the request whose reply made the
// call. So does the first request of a tool's run whose span names the call. Spans may show something else; the rules are:
//
//   - An id counts within its OTel trace and its session only: some engines count them from 0 in each conversation. Of several requests
//     that made a call of one id, the one that ended last before the request began counts; those in the same trace come first: see
//     across.go.
//   - A request does not follow one that had not ended when it began: such an id is no evidence.
//   - An edge that spans also show, directly or through other requests, is one edge, with the stronger evidence of the two.
//   - An edge that only ids show is added. No edge that spans of agents or links show is removed for it.
//   - An edge that only time shows is removed from a request about which ids are evidence. In a trace in which no span acts for an
//     agent, only the edges that ids show are left.

import (
	"cmp"
	"slices"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

const (
	// idsEach × MaxTraceSpans is the maximum number of ids of tool calls in a trace.
	idsEach = 4
	// maxGiven is the maximum number of results of one step: those in its spans and its log records, and those of the tools in which it
	// runs.
	maxGiven = 4 * journal.MaxToolIDs
)

// takeTools stores the ids of a span, unless its trace has too many.
func (t *tree) takeTools(n *node, ids *journal.ToolIDs) {
	more := len(ids.Made) + len(ids.Given)
	if t.ids += more; t.ids > idsEach*t.c.opt.MaxTraceSpans {
		t.ids -= more
		t.c.lost.add(lostTools, int64(more))
		return
	}
	n.tools = *ids
}

// toolCalls counts what ids showed.
type toolCalls struct {
	agreed   int64 // edges that spans or their times also show
	added    int64 // edges that only ids show
	replaced int64 // edges of time that were removed
	early    int64 // results of calls whose request had not ended
	unknown  int64 // results of calls that no request of the trace made
	reused   int64 // results of calls whose id several requests used
}

func (c *toolCalls) any() bool { return c.agreed+c.added > 0 }

func (c *toolCalls) add(o toolCalls) {
	c.agreed, c.added, c.replaced = c.agreed+o.agreed, c.added+o.added, c.replaced+o.replaced
	c.early, c.unknown, c.reused = c.early+o.early, c.unknown+o.unknown, c.reused+o.reused
}

// parameters returns these counts for the sidecar; nil if all are 0.
func (c *toolCalls) parameters() (all map[string]any) {
	for name, n := range map[string]int64{
		"edges_agreed": c.agreed, "edges_added": c.added, "time_edges_replaced": c.replaced, "results_too_early": c.early,
		"results_of_unknown_calls": c.unknown, "results_of_reused_ids": c.reused,
	} {
		if n > 0 {
			if all == nil {
				all = map[string]any{}
			}
			all[name] = n
		}
	}
	return all
}

// answered is a step with the steps that made the calls whose results it received.
type answered struct {
	step   int32
	makers []int32 // in the order of their ends
}

// calls finds who made the calls whose results steps received, and removes those edges for which time is the only evidence.
func (g *grapher) calls(said *toolCalls) (all []answered) {
	makers := g.gatherTools()
	for i, s := range g.steps {
		if len(s.given) > 0 {
			all = append(all, answered{step: i})
		}
	}
	slices.SortFunc(all, func(a, b answered) int {
		return cmp.Or(cmp.Compare(g.steps[a.step].from, g.steps[b.step].from), cmp.Compare(a.step, b.step))
	})
	called := false
	for i := range all {
		all[i].makers = g.makersOf(makers, all[i].step, said)
		called = called || all[i].makers != nil
	}
	switch {
	case called && g.byChance && !g.linked():
		g.withoutChance()
	case called:
		for _, c := range all {
			if c.makers != nil {
				said.replaced += g.withoutTime(g.steps[c.step], c.makers)
			}
		}
	}
	return all
}

// linked reports whether there are span links.
func (g *grapher) linked() bool {
	return slices.ContainsFunc(g.nodes, func(n node) bool { return len(n.follows) > 0 })
}

// withoutChance removes all edges for which time is the only evidence.
func (g *grapher) withoutChance() {
	for _, s := range g.steps {
		g.withoutTime(s, nil)
	}
}

// callEdges adds the edges that ids show.
func (g *grapher) callEdges(all []answered, said *toolCalls) {
	for _, c := range all {
		g.called(c.step, c.makers, said)
	}
	if g.byChance && said.any() {
		g.withoutChance()
	}
}

// gatherTools collects the ids of each step from its spans. It returns, for each id, the steps that made a call with it, in the order of
// their ends.
func (g *grapher) gatherTools() map[uint64][]int32 {
	if g.ids == 0 {
		return nil
	}
	runs := false
	for i := range g.nodes {
		n := &g.nodes[i]
		runs = runs || n.acts == journal.Tool && len(n.tools.Given) > 0
		if n.kind == journal.KindContent && n.above >= 0 {
			ids := &g.nodes[n.above].tools
			ids.Made, ids.Given = append(ids.Made, n.tools.Made...), append(ids.Given, n.tools.Given...)
		}
	}
	makers := map[uint64][]int32{}
	for i := range g.nodes {
		s, at := g.steps[int32(i)], int32(i)
		if s == nil {
			continue
		}
		for g.works() { // the spans that top visits
			n := &g.nodes[at]
			s.made, s.given = append(s.made, n.tools.Made...), append(s.given, n.tools.Given...)
			if at = n.above; at < 0 || g.nodes[at].served > 1 {
				break
			}
		}
		for at := g.nodes[i].up; runs && at >= 0 && len(s.given) < maxGiven && g.works(); at = g.nodes[at].up {
			if n := &g.nodes[at]; n.acts == journal.Tool && len(n.tools.Given) > 0 && g.isFirst(s, at) {
				s.given = append(s.given, n.tools.Given[0])
			}
		}
		slices.Sort(s.made)
		slices.Sort(s.given)
		s.made, s.given = slices.Compact(s.made), slices.Compact(s.given)
		s.given = s.given[:min(len(s.given), maxGiven)]
		for _, id := range s.made {
			makers[id] = append(makers[id], int32(i))
		}
	}
	for _, list := range makers {
		slices.SortFunc(list, func(a, b int32) int { return cmp.Or(cmp.Compare(g.steps[a].to, g.steps[b].to), cmp.Compare(a, b)) })
	}
	return makers
}

// isFirst reports whether a step follows no step below a node.
func (g *grapher) isFirst(s *step, at int32) bool {
	return !slices.ContainsFunc(s.before, func(b int32) bool { return g.within(b, at) })
}

// makersOf returns the steps that made the calls whose results a step received.
func (g *grapher) makersOf(makers map[uint64][]int32, i int32, said *toolCalls) (before []int32) {
	s := g.steps[i]
	for _, id := range s.given {
		list := makers[id]
		n, _ := slices.BinarySearchFunc(list, latestBegin(s.from)+1, func(k int32, at int64) int { return cmp.Compare(g.steps[k].to, at) })
		for n > 0 && g.steps[list[n-1]].from >= s.from && g.works() {
			n--
		}
		switch {
		case len(list) == 0:
			if s.open = append(s.open, id); g.nodes[i].session == 0 {
				said.unknown++ // else a request of another trace may have made it
			}
			continue
		case n == 0:
			said.early++
			continue
		case n > 1:
			said.reused++
		}
		if maker := list[n-1]; !slices.Contains(before, maker) {
			before = append(before, maker)
		}
	}
	slices.SortFunc(before, func(a, b int32) int { return cmp.Or(cmp.Compare(g.steps[a].to, g.steps[b].to), cmp.Compare(a, b)) })
	return before
}

// called makes a step follow those that made the calls whose results it received, latest first.
func (g *grapher) called(i int32, makers []int32, said *toolCalls) {
	s := g.steps[i]
	if virtual := int32(len(g.nodes)); s.above == virtual && !slices.ContainsFunc(s.WaitFor, beyondTime) { //nolint:gosec // bounded by MaxTraceSpans
		s.above = -1 // only time shows where it diverges from the others
	}
	for _, maker := range slices.Backward(makers) {
		direct := slices.Contains(s.before, maker)
		if !direct && g.reaches(s.before, maker) {
			said.agreed++
			continue
		}
		if g.link(maker, i, mooncake.EvidenceToolCall); direct {
			said.agreed++
		} else if slices.Contains(s.before, maker) {
			said.added++
		}
	}
}

// beyondTime reports whether an edge has more evidence than time.
func beyondTime(e journal.Edge) bool { return e.Evidence > mooncake.EvidenceTime }

// withoutTime removes the edges of a step for which time is the only evidence, except those to the given steps, and returns their number.
func (g *grapher) withoutTime(s *step, but []int32) (n int64) {
	var before []int32
	var edges []journal.Edge
	for i, b := range s.before {
		if beyondTime(s.WaitFor[i]) || slices.Contains(but, b) {
			before, edges = append(before, b), append(edges, s.WaitFor[i])
		} else {
			n++
		}
	}
	s.before, s.WaitFor = before, edges
	return n
}

// answers reports whether a tool's run answers a call whose result a step received.
func (g *grapher) answers(tool int32, s *step) bool {
	ids := g.nodes[tool].tools.Given
	if len(ids) == 0 || !g.works() {
		return false
	}
	_, ok := slices.BinarySearch(s.given, ids[0])
	return ok
}
