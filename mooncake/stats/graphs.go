// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

// This file measures graphs: rows that wait for other rows, such as those of agents.

import (
	"hash/maphash"

	"github.com/moonloop/moonloop/mooncake"
)

// GraphStats describes the rows that have wait_for, and the rows that they wait for. It is zero if no row has wait_for.
type GraphStats struct {
	Rows int64 `json:"rows"`
	// Graphs is the number of groups of rows that wait for each other, directly or indirectly.
	Graphs  int64 `json:"graphs"`
	Roots   int64 `json:"roots"` // rows that wait for no other row
	Edges   int64 `json:"edges"`
	Longest int64 `json:"longest_chain"` // number of rows in the longest chain of waits
	Largest int64 `json:"largest_graph"` // rows
	// Evidence counts edges by how they were found: link, tool_call, parent, session, time, or unknown if the trace does not have it.
	Evidence map[string]int64 `json:"edges_by_evidence,omitempty"`
	// Unknown counts names in wait_for that no earlier row has. No row waits for them, and they are not edges.
	Unknown int64 `json:"unknown_names"`
	// Tools is the number of rows that waited for tools, and ToolWait their total time of waiting, in ms.
	Tools    int64   `json:"rows_after_tools"`
	ToolWait float64 `json:"tool_wait_ms"`
	// Exact is false if there are more rows than are remembered. Graphs, Longest and Largest then cover the remembered rows, and names of
	// the other rows are unknown.
	Exact bool `json:"exact"`
}

// maxGraphRows is the maximum number of rows of graphs that are remembered: about 64 MiB, and as many other rows with a request_id.
const maxGraphRows = 1 << 20

// graphs measures graphs. A group of rows is a tree, in which each row points to another one of its group, and the top row to itself.
type graphs struct {
	GraphStats
	seed  maphash.Seed
	rows  map[uint64]int32    // by hash of the request id
	alone map[uint64]struct{} // rows without wait_for, by the same, for which no row waits yet
	above []int32
	size  []int32 // number of rows in the group below a top row
	depth []int32 // number of rows in the longest chain that ends here
}

func newGraphs() graphs {
	return graphs{GraphStats: GraphStats{Exact: true}, seed: maphash.MakeSeed(), rows: map[uint64]int32{}, alone: map[uint64]struct{}{}}
}

// add measures the next row.
func (g *graphs) add(row *mooncake.Row) {
	if row.WaitFor == nil {
		if g.Exact = g.Exact && len(g.alone) < maxGraphRows; g.Exact && row.RequestID != "" {
			g.alone[maphash.String(g.seed, row.RequestID)] = struct{}{}
		}
		return
	}
	g.Rows++
	if row.ToolWait.V > 0 {
		g.Tools++
		g.ToolWait += row.ToolWait.V
	}
	self, kept := g.keep()
	depth, waits := int32(1), false
	for i, id := range row.WaitFor {
		before, known := g.find(maphash.String(g.seed, id))
		if !known {
			g.Unknown++
			continue
		}
		waits = true
		g.edge(row, i)
		depth = max(depth, g.depth[before]+1)
		if kept {
			g.join(self, before)
		}
	}
	if !waits {
		g.Roots++
	}
	g.Longest = max(g.Longest, int64(depth))
	if kept {
		g.depth[self] = depth
		g.Largest = max(g.Largest, int64(g.size[g.top(self)]))
		if row.RequestID != "" {
			g.rows[maphash.String(g.seed, row.RequestID)] = self
		}
	}
}

// keep remembers another row, in a group of its own, if there is room.
func (g *graphs) keep() (row int32, kept bool) {
	row = int32(len(g.above)) //nolint:gosec // bounded by maxGraphRows
	if kept = row < maxGraphRows; kept {
		g.above, g.size, g.depth = append(g.above, row), append(g.size, 1), append(g.depth, 1)
	}
	g.Exact = g.Exact && kept
	return row, kept
}

// find returns the row with a request id, by its hash. A row without wait_for belongs to a graph from when another row waits for it.
func (g *graphs) find(id uint64) (row int32, known bool) {
	if row, known = g.rows[id]; known {
		return row, true
	}
	if _, known = g.alone[id]; !known {
		return 0, false
	}
	delete(g.alone, id)
	g.Rows++
	g.Roots++
	if row, known = g.keep(); known {
		g.rows[id] = row
	}
	return row, known
}

// edge counts the edge to a row's predecessor.
func (g *graphs) edge(row *mooncake.Row, i int) {
	name := "unknown"
	if i < len(row.Evidence) {
		name = row.Evidence[i].String()
	}
	if g.Edges++; g.Evidence == nil {
		g.Evidence = map[string]int64{}
	}
	g.Evidence[name]++
}

// join merges the groups of two rows.
func (g *graphs) join(a, b int32) {
	a, b = g.top(a), g.top(b)
	if a == b {
		return
	}
	if g.size[a] < g.size[b] {
		a, b = b, a
	}
	g.above[b] = a
	g.size[a] += g.size[b]
}

// top returns the top row of a group, and shortens the path to it.
func (g *graphs) top(i int32) int32 {
	for g.above[i] != i {
		g.above[i] = g.above[g.above[i]]
		i = g.above[i]
	}
	return i
}

// stats returns the figures of the rows so far.
func (g *graphs) stats() GraphStats {
	if g.Rows == 0 {
		return GraphStats{}
	}
	s := g.GraphStats
	for i, above := range g.above {
		if int(above) == i {
			s.Graphs++
		}
	}
	return s
}
