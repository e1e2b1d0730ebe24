// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// acts returns a span of an agent or a tool from one instant to another, in ms.
func acts(a journal.Actor, trace, span, parent uint64, from, to int64) *journal.Link {
	return &journal.Link{Span: ref(trace, span), Parent: sid(parent), Border: a != journal.NoActor, Acts: a, Start: at(from), End: at(to)}
}

// asked returns a request from one instant to another, in ms.
func asked(trace, span, parent uint64, from, to int64, change ...func(*journal.Inference)) *journal.Inference {
	return call(trace, span, parent, from, append(change, lasting(to-from))...)
}

func follows(spans ...uint64) func(*journal.Inference) {
	return func(r *journal.Inference) {
		for _, s := range spans {
			r.Follows = append(r.Follows, sid(s))
		}
	}
}

// edges gives for each row of a graph, by its span, what it waits for, how certain that is, and how long: delay + tool wait.
func edges(rows []*mooncake.Row) []string {
	spans := map[string]byte{}
	for _, r := range rows {
		spans[r.RequestID] = r.OTel.SpanID[7]
	}
	out := []string{}
	for _, r := range rows {
		if r.WaitFor == nil {
			continue
		}
		var all []string
		for i, id := range r.WaitFor {
			name := "?"
			if span, known := spans[id]; known {
				name = fmt.Sprint(span)
			}
			all = append(all, name+" "+r.Evidence[i].String())
		}
		slices.Sort(all)
		line := fmt.Sprintf("%d: %s", r.OTel.SpanID[7], strings.Join(all, ", "))
		switch {
		case len(all) == 0:
		case r.Delay.Set:
			line += fmt.Sprintf("; %g+%g", r.Delay.V, r.ToolWait.V)
		default:
			line += fmt.Sprintf("; unknown+%g", r.ToolWait.V)
		}
		out = append(out, line)
	}
	return out
}

// team returns the spans of five agents: a planner that asks two researchers at once, the second of which asks a checker, and then a writer.
func team() []journal.Record {
	return []journal.Record{
		acts(journal.Agent, 1, 100, 0, 0, 1000), // the workflow
		acts(journal.Agent, 1, 101, 100, 0, 700),
		asked(1, 1, 101, 10, 100), // plan
		// Two tools at once, each an agent. The first ends before the second's agent has begun, but they are still branches.
		acts(journal.Tool, 1, 110, 101, 110, 300),
		acts(journal.Agent, 1, 111, 110, 120, 290),
		asked(1, 2, 111, 130, 180),
		acts(journal.Tool, 1, 112, 111, 190, 230), // a search
		asked(1, 3, 111, 240, 280),
		acts(journal.Tool, 1, 120, 101, 110, 600),
		acts(journal.Agent, 1, 121, 120, 310, 590),
		asked(1, 4, 121, 320, 400),
		acts(journal.Tool, 1, 122, 121, 405, 500),
		acts(journal.Agent, 1, 123, 122, 410, 490),
		asked(1, 5, 123, 420, 480),
		asked(1, 6, 121, 510, 580),
		asked(1, 7, 101, 620, 690), // sums up
		acts(journal.Agent, 1, 130, 100, 710, 1000),
		asked(1, 8, 130, 720, 990), // writes
	}
}

var teamEdges = []string{
	"1: ", "2: 1 parent; 10+20", "3: 2 parent; 20+40", "4: 1 parent; 10+210", "5: 4 parent; 5+15", "6: 5 parent; 10+20",
	"7: 3 parent, 6 parent; 20+20", "8: 7 parent; 30+0",
}

// TestGraph: which request of a trace waits for which.
func TestGraph(t *testing.T) {
	for _, c := range []struct {
		why     string
		opt     Options
		records []journal.Record
		want    []string
	}{
		{"agents, side by side and one after the other, with tools", Options{}, team(), teamEdges},
		{"no graphs if they are not wanted", Options{Graphs: GraphsNever}, team(), []string{}},
		{"no graphs in plain rows", Options{Format: FormatMooncake}, team(), []string{}},
		{
			"requests of an application without agents form no graph",
			Options{},
			[]journal.Record{acts(journal.NoActor, 1, 9, 0, 0, 100), asked(1, 1, 9, 0, 10), asked(1, 2, 9, 20, 30)},
			[]string{},
		},
		{
			"requests of an application without agents form a graph if all graphs are wanted",
			Options{Graphs: GraphsAll},
			[]journal.Record{acts(journal.NoActor, 1, 9, 0, 0, 100), asked(1, 1, 9, 0, 10), asked(1, 2, 9, 20, 30)},
			[]string{"1: ", "2: 1 time; 10+0"},
		},
		{
			"requests of an application without agents form a graph if a link leads to one of them",
			Options{},
			[]journal.Record{asked(1, 1, 9, 0, 10), asked(1, 2, 9, 0, 15), asked(1, 3, 9, 20, 30, follows(1))},
			[]string{"1: ", "2: ", "3: 1 link, 2 time; 5+0"},
		},
		{
			"a link joins requests below overlapping spans, and makes the edge to an earlier request redundant",
			Options{},
			[]journal.Record{
				acts(journal.Agent, 1, 9, 0, 0, 200), acts(journal.NoActor, 1, 10, 9, 5, 100), acts(journal.NoActor, 1, 11, 9, 5, 100),
				asked(1, 1, 9, 0, 4), asked(1, 2, 10, 10, 20), asked(1, 3, 11, 30, 40, follows(2)),
			},
			[]string{"1: ", "2: 1 parent; 6+0", "3: 2 link; 10+0"},
		},
		{
			"a single request of an agent waits for no other",
			Options{},
			[]journal.Record{acts(journal.Agent, 1, 9, 0, 0, 100), asked(1, 1, 9, 0, 10), asked(2, 1, 9, 20, 30)},
			[]string{},
		},
		{
			"starts that are cut to a millisecond follow ends that are not",
			Options{},
			[]journal.Record{acts(journal.Agent, 1, 9, 0, 0, 100), asked(1, 1, 9, 0, 10, func(r *journal.Inference) { r.End += 700_000 }), asked(1, 2, 9, 10, 30)},
			[]string{"1: ", "2: 1 parent; 0+0"},
		},
		{
			"the engine's span below a gateway's below the client's is one request, which waits as the client did",
			Options{},
			[]journal.Record{
				acts(journal.Agent, 1, 9, 0, 0, 100), asked(1, 1, 9, 0, 10), asked(1, 2, 1, 2, 8), asked(1, 3, 9, 20, 30), asked(1, 4, 3, 22, 28),
			},
			[]string{"2: ", "4: 2 parent; 10+0"},
		},
		{
			"a request that is not a row is passed over, and its duration is part of the delay",
			Options{},
			[]journal.Record{acts(journal.Agent, 1, 9, 0, 0, 100), asked(1, 1, 9, 0, 10), asked(1, 2, 9, 20, 30, noTokens), asked(1, 3, 9, 35, 40)},
			[]string{"1: ", "3: 1 parent; 25+0"},
		},
		{
			"the duration of a failed attempt is part of the delay",
			Options{},
			[]journal.Record{acts(journal.Agent, 1, 9, 0, 0, 100), asked(1, 1, 9, 0, 10), asked(1, 2, 9, 20, 30, failed), asked(1, 3, 9, 35, 40)},
			[]string{"1: ", "3: 1 parent; 25+0"},
		},
		{
			"after a reply whose end is unknown, the delay is unknown; a tool's time is not",
			Options{},
			[]journal.Record{
				acts(journal.Agent, 1, 9, 0, 0, 100), asked(1, 1, 9, 0, 0), acts(journal.Tool, 1, 8, 9, 12, 18), asked(1, 2, 9, 20, 30), asked(1, 3, 9, 35, 40),
			},
			[]string{"1: ", "2: 1 parent; unknown+6", "3: 2 parent; 5+0"},
		},
		{
			"of two replies before, the end of one is unknown",
			Options{},
			[]journal.Record{acts(journal.Agent, 1, 9, 0, 0, 100), asked(1, 1, 9, 0, 10), asked(1, 2, 9, 5, 5), asked(1, 3, 9, 20, 30)},
			[]string{"1: ", "2: ", "3: 1 parent, 2 parent; unknown+0"},
		},
		{
			"a request without an end that is not a row is passed over: the time since the end before it is known",
			Options{},
			[]journal.Record{acts(journal.Agent, 1, 9, 0, 0, 100), asked(1, 1, 9, 0, 10), asked(1, 2, 9, 20, 20, noTokens), asked(1, 3, 9, 35, 40)},
			[]string{"1: ", "3: 1 parent; 25+0"},
		},
		{
			"a request that is passed over followed one without an end",
			Options{},
			[]journal.Record{acts(journal.Agent, 1, 9, 0, 0, 100), asked(1, 1, 9, 0, 0), asked(1, 2, 9, 20, 30, noTokens), asked(1, 3, 9, 35, 40)},
			[]string{"1: ", "3: 1 parent; unknown+0"},
		},
		{
			"a gateway in a trace of its own stands for a client whose end is unknown",
			Options{},
			[]journal.Record{
				acts(journal.Agent, 1, 9, 0, 0, 100), asked(1, 1, 9, 0, 0, response("a"), producerOf(1)), asked(1, 3, 9, 20, 30, response("b"), producerOf(1)),
				asked(2, 5, 0, 0, 8, response("a"), producerOf(2)), asked(3, 6, 0, 22, 28, response("b"), producerOf(2)),
			},
			[]string{"5: ", "6: 5 parent; unknown+0"},
		},
		{
			"a gateway in a trace of its own stands for the client's request",
			Options{},
			[]journal.Record{
				acts(journal.Agent, 1, 9, 0, 0, 100), asked(1, 1, 9, 0, 10, response("a")), asked(1, 3, 9, 20, 30, response("b")),
				asked(2, 5, 0, 2, 8, response("a")), asked(3, 6, 0, 22, 28, response("b")),
			},
			[]string{"5: ", "6: 5 parent; 10+0"},
		},
		{
			"in a journal from before spans had times, the times of their requests decide",
			Options{},
			[]journal.Record{tool(1, 9, 8), acts(journal.Agent, 1, 8, 0, 0, 0), asked(1, 1, 9, 0, 10), asked(1, 2, 8, 20, 30)},
			[]string{"1: ", "2: 1 parent; 10+0"},
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			m, _ := compileBytes(t, c.opt, journalOf(c.records...))
			if diff := cmp.Diff(c.want, edges(m.rows(t, production))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// predecessorsFirst returns the rows of a trace. Each must be after those that it waits for.
func predecessorsFirst(t *testing.T, m memory) []*mooncake.Row {
	t.Helper()
	rows, seen := m.rows(t, production), map[string]bool{}
	for _, r := range rows {
		for _, id := range r.WaitFor {
			if !seen[id] {
				t.Fatalf("row %s waits for a later one, %s", r.RequestID, id)
			}
		}
		seen[r.RequestID] = true
	}
	return rows
}

// TestGraphIsPure: neither the order of records nor that of journals changes the result, in which each row is after those that it waits for.
// The sidecar counts the edges.
func TestGraphIsPure(t *testing.T) {
	records := team()
	want, _ := compileBytes(t, Options{}, journalOf(records...))
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		rng.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
		at := rng.IntN(len(records))
		got, _ := compileBytes(t, Options{Memory: 1 << 12}, journalOf(records[at:]...), journalOf(records[:at]...))
		equal(t, "trace", string(want[production]), string(got[production]))
	}
	if edges, _ := want.meta(t, production).Transformations[0].Parameters["graph_edges"].(map[string]any); fmt.Sprint(edges) != "map[parent:8]" {
		t.Errorf("the sidecar counts %v", edges)
	}
	predecessorsFirst(t, want)
}

// TestWideGraph: of a thousand branches, a row waits for at most maxFan, and each row is before those that wait for it.
func TestWideGraph(t *testing.T) {
	records := []journal.Record{acts(journal.Agent, 1, 9999, 0, 0, 100_000), asked(1, 9000, 9999, 0, 10)}
	for i := range uint64(1000) {
		records = append(records, asked(1, 1+i, 9999, 20, 100+int64(i)))
	}
	for i := range uint64(1000) {
		records = append(records, asked(1, 2000+i, 9999, 2000, 3000))
	}
	m, _ := compileBytes(t, Options{}, journalOf(records...))
	for _, r := range predecessorsFirst(t, m) {
		if len(r.WaitFor) > maxFan {
			t.Fatalf("a row waits for %d others", len(r.WaitFor))
		}
	}
}

// TestHostileGraph: a trace that is designed to make the search for its graph slow may lose the graph, which is
// counted, but no row.
func TestHostileGraph(t *testing.T) {
	otherInput(t)
	const n = 2000
	var deep, linked, called []journal.Record
	ids := make([]uint64, journal.MaxToolIDs)
	for i := range ids {
		ids[i] = uint64(i)
	}
	all := make([]journal.SpanID, 0, journal.MaxFollows)
	for i := range uint64(n) {
		deep = append(deep, acts(journal.Tool, 1, n+1+i, n+i, 0, 100), asked(1, 1+i, n+1+i, int64(i), int64(n+i)))
		if i < journal.MaxFollows {
			all = append(all, sid(1+i))
		}
		linked = append(linked, asked(1, 1+i, 9_999_999, int64(3*i), int64(3*i+2), func(r *journal.Inference) { r.Follows = all }))
		called = append(called, asked(1, 1+i, n+1+i, int64(3*i), int64(3*i+2), made(ids...), given(ids...)), ran(1, n+1+i, (n+i)*min(i%20, 1), 0, 7000, i%7))
	}
	for name, c := range map[string]struct {
		records        []journal.Record
		cycles, graphs int64
	}{
		"deep":   {deep, n + 1, 0}, // the first tool runs below the last request
		"linked": {linked, 0, 1},
		"called": {called, 0, 0},
	} {
		m, res := compileBytes(t, Options{}, journalOf(c.records...))
		equal(t, name+": parents in a cycle", c.cycles, dropped(res.Dropped, lostCycle))
		equal(t, name+": graphs lost", c.graphs, dropped(res.Dropped, lostGraph))
		if rows := m.rows(t, production); len(rows) != n {
			t.Errorf("%s: %d rows, want %d; %v", name, len(rows), n, res.Dropped)
		}
		for _, r := range m.rows(t, production) {
			if len(r.WaitFor) > maxFan {
				t.Fatalf("%s: a row waits for %d others", name, len(r.WaitFor))
			}
		}
	}
}
