// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

func made(ids ...uint64) func(*journal.Inference) {
	return func(r *journal.Inference) { r.Tools.Made = append(r.Tools.Made, ids...) }
}

func given(ids ...uint64) func(*journal.Inference) {
	return func(r *journal.Inference) { r.Tools.Given = append(r.Tools.Given, ids...) }
}

// ran is the span of a tool that answers a call.
func ran(trace, span, parent uint64, from, to int64, id uint64) *journal.Link {
	l := acts(journal.Tool, trace, span, parent, from, to)
	l.Tools.Given = []uint64{id}
	return l
}

// TestToolCalls: which request follows which by the ids of tool calls, and how spans matter.
func TestToolCalls(t *testing.T) {
	type counts = map[string]any
	for _, c := range []struct {
		why     string
		records []journal.Record
		want    []string
		counts  counts
	}{
		{
			"without any parent, only ids make edges",
			[]journal.Record{
				asked(1, 1, 0, 0, 10, made(7, 8)), asked(1, 2, 0, 0, 15), asked(1, 3, 0, 30, 40, given(7, 8), made(9)), asked(1, 4, 0, 50, 60, given(9)), asked(1, 5, 0, 70, 80),
			},
			[]string{"1: ", "3: 1 tool_call; 20+0", "4: 3 tool_call; 10+0"},
			counts{"edges_added": 2.},
		},
		{
			"the time of a tool is that of the run which names the call",
			[]journal.Record{asked(1, 1, 0, 0, 10, made(7)), ran(1, 2, 0, 12, 25, 7), acts(journal.Tool, 1, 3, 0, 10, 30), asked(1, 4, 0, 30, 40, given(7))},
			[]string{"1: ", "4: 1 tool_call; 7+13"},
			counts{"edges_added": 1.},
		},
		{
			"the first request of a tool's run follows the call, and the one that gets its result follows that",
			[]journal.Record{
				asked(1, 1, 0, 0, 10, made(7)), ran(1, 2, 0, 12, 50, 7), asked(1, 3, 2, 15, 25), asked(1, 4, 2, 30, 45), asked(1, 5, 0, 55, 60, given(7)),
			},
			[]string{"1: ", "3: 1 tool_call; 2+3", "4: 3 parent; 5+0", "5: 1 tool_call; 7+38"},
			counts{"edges_added": 1., "edges_agreed": 1., "time_edges_replaced": 1.},
		},
		{
			"an edge that spans also show is one edge, with the stronger evidence",
			[]journal.Record{
				acts(journal.Agent, 1, 9, 0, 0, 100), asked(1, 1, 9, 0, 10, made(7)), acts(journal.Tool, 1, 2, 9, 12, 25), asked(1, 3, 9, 30, 40, given(7)),
			},
			[]string{"1: ", "3: 1 tool_call; 7+13"},
			counts{"edges_agreed": 1.},
		},
		{
			"an id adds no edge past the requests of a tool's run, which spans show",
			append(team()[:2:2], func() (all []journal.Record) {
				for _, r := range team()[2:] {
					if r, ok := r.(*journal.Inference); ok {
						switch r.Span.SpanID[7] {
						case 4:
							made(7)(r)
						case 6: // follows 4 through 5, the request of the tool's run
							given(7)(r)
						}
					}
					all = append(all, r)
				}
				return all
			}()...),
			teamEdges,
			counts{"edges_agreed": 1.},
		},
		{
			"ids add edges where spans overlap, and remove none that spans show",
			[]journal.Record{
				acts(journal.Agent, 1, 9, 0, 0, 200), acts(journal.NoActor, 1, 10, 9, 5, 100), acts(journal.NoActor, 1, 11, 9, 5, 100),
				asked(1, 1, 10, 10, 20, made(7)), asked(1, 2, 11, 15, 28), asked(1, 3, 11, 40, 50, given(7)),
			},
			[]string{"1: ", "2: ", "3: 1 tool_call, 2 parent; 12+0"},
			counts{"edges_added": 1.},
		},
		{
			"ids replace edges that only the order of times shows",
			[]journal.Record{
				asked(1, 1, 0, 0, 10, made(7)), asked(1, 2, 0, 11, 15), asked(1, 3, 0, 20, 30, given(7)), asked(1, 4, 0, 40, 50, follows(2)),
			},
			[]string{"1: ", "2: 1 time; 1+0", "3: 1 tool_call; 10+0", "4: 2 link, 3 time; 10+0"},
			counts{"edges_added": 1., "time_edges_replaced": 1.},
		},
		{
			"calls in another trace are different ones, whatever their ids",
			[]journal.Record{asked(1, 1, 0, 0, 10, made(7)), asked(1, 2, 0, 20, 30), asked(2, 3, 0, 20, 30, given(7)), asked(2, 4, 0, 40, 50)},
			[]string{},
			counts{"results_of_unknown_calls": 1.},
		},
		{
			"of several calls with the same id, the latest one before the request counts",
			[]journal.Record{
				asked(1, 1, 0, 0, 10, made(7)), asked(1, 2, 0, 20, 30, given(7), made(7)), asked(1, 3, 0, 40, 50, given(7), made(7)), asked(1, 4, 0, 45, 90, made(7)),
			},
			[]string{"1: ", "2: 1 tool_call; 10+0", "3: 2 tool_call; 10+0"},
			counts{"edges_added": 2., "results_of_reused_ids": 1.},
		},
		{
			"nothing follows itself, a request that has not ended, or a call that no request made",
			[]journal.Record{
				acts(journal.Agent, 1, 9, 0, 0, 100), asked(1, 1, 9, 0, 30, made(7)), asked(1, 2, 9, 20, 30, given(7)), asked(1, 3, 9, 40, 50, made(8), given(8)),
				asked(1, 4, 9, 60, 70, given(6)),
			},
			[]string{"1: ", "2: ", "3: 1 parent, 2 parent; 10+0", "4: 3 parent; 10+0"},
			counts{"results_too_early": 2., "results_of_unknown_calls": 1.},
		},
		{
			"a cycle of ids does not count",
			[]journal.Record{
				acts(journal.Agent, 1, 9, 0, 0, 100), asked(1, 1, 9, 0, 0, made(7), given(8)), asked(1, 2, 9, 0, 0, made(8), given(7)),
			},
			[]string{},
			counts{"results_too_early": 2.},
		},
		{
			"the row of an engine's span has the ids of its client, also those in the client's log records",
			[]journal.Record{
				asked(1, 1, 0, 0, 10), asked(1, 2, 1, 2, 8), &journal.Content{Span: ref(1, 90), Parent: sid(1), Tools: journal.ToolIDs{Made: []uint64{7}}},
				asked(1, 3, 0, 20, 30), asked(1, 4, 3, 22, 28), &journal.Content{Span: ref(1, 91), Parent: sid(3), Tools: journal.ToolIDs{Given: []uint64{7}}},
			},
			[]string{"2: ", "4: 2 tool_call; 10+0"},
			counts{"edges_added": 1.},
		},
		{
			"a gateway in a trace of its own stands for the client's request",
			[]journal.Record{
				asked(1, 1, 0, 0, 10, response("a"), made(7)), asked(1, 3, 0, 20, 30, response("b"), given(7)),
				asked(2, 5, 0, 2, 8, response("a")), asked(3, 6, 0, 22, 28, response("b")),
			},
			[]string{"5: ", "6: 5 tool_call; 10+0"},
			counts{"edges_added": 1.},
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			m, res := compileBytes(t, Options{}, journalOf(c.records...))
			if diff := cmp.Diff(c.want, edges(m.rows(t, production))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			got, _ := m.meta(t, production).Transformations[0].Parameters["graph_tool_calls"].(counts)
			if diff := cmp.Diff(c.counts, got); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
			for _, d := range res.Traces[0].Meta.Dropped {
				if d.What != "prompts" { // these records have none
					t.Errorf("%d %s dropped: %s", d.Count, d.What, d.Reason)
				}
			}
			// The same result for any order and any number of journals.
			rng := rand.New(rand.NewPCG(5, 6))
			rng.Shuffle(len(c.records), func(i, j int) { c.records[i], c.records[j] = c.records[j], c.records[i] })
			again, _ := compileBytes(t, Options{Memory: 1 << 12}, journalOf(c.records[1:]...), journalOf(c.records[:1]...))
			equal(t, "trace", string(m[production]), string(again[production]))
		})
	}
}

// TestManyToolIDs: a trace with more ids than are kept loses the others, which are counted, and nothing else.
func TestManyToolIDs(t *testing.T) {
	var records []journal.Record
	const n = 20
	for i := range uint64(n) {
		var ids []uint64
		for id := range uint64(journal.MaxToolIDs) {
			ids = append(ids, id)
		}
		records = append(records, asked(1, 1+i, 0, int64(10*i), int64(10*i+5), made(ids...)))
	}
	m, res := compileBytes(t, Options{MaxTraceSpans: n}, journalOf(records...))
	if rows := m.rows(t, production); len(rows) != n {
		t.Errorf("%d rows, want %d", len(rows), n)
	}
	want := []mooncake.Dropped{{What: "tool call ids", Reason: "of a trace with too many", Count: (n - 1) * journal.MaxToolIDs}}
	got := slices.DeleteFunc(res.Traces[0].Meta.Dropped, func(d mooncake.Dropped) bool { return d.What == "prompts" })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// waited describes what a row of a replay waited for.
func waited(r *journal.Inference, delay, tool mooncake.Opt[float64], rows ...journal.RowEdge) *journal.Inference {
	r.Waits = journal.Waits{InGraph: true, For: rows, Delay: delay, ToolWait: tool}
	return r
}

// TestReplayedGraph: a replay's trace has the graph of the trace that was replayed, except for missing rows.
func TestReplayedGraph(t *testing.T) {
	row := func(i int64) *journal.Inference { return replayed(t, "r", i, 1, uint64(i)+1, 0, uint64(i)) }
	edge := func(row int64, e mooncake.Evidence) journal.RowEdge { return journal.RowEdge{Row: row, Evidence: e} }
	lost := row(3)
	lost.Failed = true
	var none mooncake.Opt[float64]
	m, res := compileBytes(t, Options{}, journalOf(
		row(0), waited(row(1), none, none), waited(row(2), mooncake.Some(7.5), none, edge(1, mooncake.EvidenceToolCall)), waited(lost, none, none, edge(1, mooncake.EvidenceTime)),
		waited(row(5), mooncake.Some(1.), mooncake.Some(2.), edge(1, mooncake.EvidenceParent), edge(2, mooncake.EvidenceLink), edge(3, mooncake.EvidenceLink), edge(5, mooncake.EvidenceLink), edge(8, mooncake.EvidenceLink)),
		waited(row(6), none, none, edge(2, 0)),
	))
	const run = "run r"
	type graph struct {
		ID           string
		WaitFor      []string
		Evidence     []mooncake.Evidence
		Delay, Tools mooncake.Opt[float64]
	}
	var got []graph
	for _, r := range m.rows(t, run) {
		got = append(got, graph{r.RequestID, r.WaitFor, r.Evidence, r.Delay, r.ToolWait})
	}
	want := []graph{
		{},
		{ID: "1", WaitFor: []string{}},
		{"2", []string{"1"}, []mooncake.Evidence{mooncake.EvidenceToolCall}, mooncake.Some(7.5), none},
		{"5", []string{"1", "2"}, []mooncake.Evidence{mooncake.EvidenceParent, mooncake.EvidenceLink}, mooncake.Some(1.), mooncake.Some(2.)},
		{"6", []string{"2"}, nil, none, none},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	meta := m.meta(t, run)
	if diff := cmp.Diff(map[string]any{"tool_call": 1., "parent": 1., "link": 1., "unknown": 1.}, meta.Transformations[0].Parameters["graph_edges"]); diff != "" {
		t.Errorf("graph_edges (-want +got):\n%s", diff)
	}
	lostEdges := int64(0)
	for _, d := range meta.Dropped {
		if d.What == "edges" {
			lostEdges += d.Count
		}
	}
	if lostEdges != 3 {
		t.Errorf("%d edges lost: %v", lostEdges, res.Traces)
	}
}
