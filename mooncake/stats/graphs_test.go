// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake"
)

// TestGraphs: two graphs, a row that waits for a missing one, and rows of no graph.
func TestGraphs(t *testing.T) {
	a := NewAnalyzer(AnalyzeOptions{})
	add := func(id string, tools float64, waitFor []string, evidence ...mooncake.Evidence) {
		r := &mooncake.Row{RequestID: id, WaitFor: waitFor, Evidence: evidence, InputLength: mooncake.Some[int64](5), OutputLength: mooncake.Some[int64](1)}
		if tools > 0 {
			r.ToolWait = mooncake.Some(tools)
		}
		a.Add(r, a.counted.Rows+1)
	}
	add("", 0, nil)
	if diff := cmp.Diff(GraphStats{}, a.Analysis().Graphs); diff != "" {
		t.Errorf("without a graph (-want +got):\n%s", diff)
	}
	const parent, call = mooncake.EvidenceParent, mooncake.EvidenceToolCall
	add("plan", 0, []string{})
	add("scout", 20, []string{"plan"}, parent)
	add("other", 0, []string{})
	add("miner", 350.5, []string{"plan"}, call)
	add("said", 0, []string{"other"})
	add("review", 0, []string{"scout", "miner"}, parent, parent)
	add("write", 0, []string{"review"}, parent)
	add("late", 0, []string{"cut off"}, call)
	want := GraphStats{
		Rows: 8, Graphs: 3, Roots: 3, Edges: 6, Longest: 4, Largest: 5, Evidence: map[string]int64{"parent": 4, "tool_call": 1, "unknown": 1}, Unknown: 1,
		Tools: 2, ToolWait: 370.5, Exact: true,
	}
	if diff := cmp.Diff(want, a.Analysis().Graphs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestGraphOfRowsWithoutWaitFor: a row without wait_for belongs to a graph if another row waits for it, as in a replay.
func TestGraphOfRowsWithoutWaitFor(t *testing.T) {
	g := newGraphs()
	for _, r := range []mooncake.Row{{RequestID: "a"}, {RequestID: "idle"}, {RequestID: "b", WaitFor: []string{"a"}}, {RequestID: "c", WaitFor: []string{"a", "b", "gone"}}} {
		g.add(&r)
	}
	want := GraphStats{Rows: 3, Graphs: 1, Roots: 1, Edges: 3, Longest: 3, Largest: 3, Evidence: map[string]int64{"unknown": 3}, Unknown: 1, Exact: true}
	if diff := cmp.Diff(want, g.stats()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLongGraph: a row of a very long chain takes no more time than a row of a short one, and rows above the bound are counted.
func TestLongGraph(t *testing.T) {
	g := newGraphs()
	for i := range maxGraphRows + 10 {
		g.add(&mooncake.Row{RequestID: fmt.Sprint(i), WaitFor: []string{fmt.Sprint(i - 1)}})
	}
	got := g.stats()
	want := GraphStats{
		Rows: maxGraphRows + 10, Graphs: 1, Roots: 10, Edges: maxGraphRows, Longest: maxGraphRows + 1, Largest: maxGraphRows, Evidence: map[string]int64{"unknown": maxGraphRows},
		Unknown: 10,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
