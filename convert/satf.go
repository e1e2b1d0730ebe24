// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

var satf = spec{
	Format: "satf", about: "SATF 2.0 of Dynamo: sessions of requests and tool calls",
	fields: []string{"format_version", "block_size_tokens", "sessions"}, blocks: true, models: true,
	decode: func(d *decoder, r *record) {
		r.expect("format", "satf")
		r.expect("format_version", "2.0.0")
		r.expect("time_base", "us")
		block := d.blockSize(r, 0, "block_size_tokens")
		r.objects(func(s *record) { satfSession(d, s, block) }, "sessions")
	},
}

// satfNode is a request, a tool call or its result.
type satfNode struct {
	start, duration int64 // ns; the start is a minimum until the ends of all predecessors are known
	before          int   // number of predecessors whose end is unknown
	after           []satfEdge
	request         *request // nil for tools
	from            []*satfNode
}

type satfEdge struct {
	to    *satfNode
	delay int64 // ns
}

// satfSession computes the arrival of each request of a session: the time at which its predecessors have ended and the delays of its edges
// have passed.
func satfSession(d *decoder, s *record, block int) {
	session := s.name("session_id")
	nodes, order := map[string]*satfNode{}, []*satfNode{}
	s.objects(func(n *record) {
		node := &satfNode{start: n.span(time.Microsecond, "min_start_delay_us").V, duration: n.span(time.Microsecond, "duration_us").V}
		if n.name("kind") == "llm_infer" {
			p := n.object("payload")
			row := &mooncake.Row{SessionID: session, InputLength: p.counted("input_tokens_total"), OutputLength: p.count("output_tokens"), HashIDs: p.ids("kv_block_ids")}
			row.Model = p.object("request_parameters").name("model")
			row.Observed.Duration = n.millis(time.Microsecond, "duration_us")
			row.Observed.TTFT = n.object("performance_metrics").millis(time.Microsecond, "time_to_first_token_us")
			row.RequestID, row.WaitFor = session+"/"+n.name("id"), []string{}
			node.request = &request{row: row, block: block}
		}
		nodes[n.name("id")] = node
		order = append(order, node)
	}, "nodes")
	s.objects(func(e *record) {
		from, to := nodes[e.name("from")], nodes[e.name("to")]
		if from == nil || to == nil {
			e.fail("from", "", "an edge is not between two nodes of the session", "")
			return
		}
		from.after = append(from.after, satfEdge{to, e.span(time.Microsecond, "delay_after_predecessor_us").V})
		to.before++
		to.from = append(to.from, from)
	}, "edges")
	var ready []*satfNode
	for _, n := range order {
		if n.before == 0 {
			ready = append(ready, n)
		}
	}
	steps := 0
	for done := range order {
		if done == len(ready) {
			s.fail("edges", "", "the nodes of a session wait for each other", "remove the edge that closes the cycle")
			return
		}
		n := ready[done]
		for _, e := range n.after {
			e.to.start = max(e.to.start, n.start+n.duration+e.delay)
			if e.to.before--; e.to.before == 0 {
				ready = append(ready, e.to)
			}
		}
		if n.request != nil {
			n.request.at = n.start
			if !n.follow(&steps) {
				s.fail("edges", "", fmt.Sprintf("from each request to those before it, the edges of a session have more than %d steps", maxSATFSteps), "divide the session, or leave out edges that other edges imply")
				return
			}
			d.add(n.request)
		}
	}
}

// maxSATFSteps bounds the edges that are followed for the requests of a session. Many requests after one tool with many requests before it
// would need a time, and lists of a length, that grow with the square of the session.
const maxSATFSteps = 1 << 22

// follow makes a request wait for the requests before it, those before its tools included. It counts the edges that it follows, and returns
// false if there are too many.
func (n *satfNode) follow(steps *int) bool {
	row, last := n.request.row, int64(0)
	seen, queue := map[*satfNode]bool{}, slices.Clone(n.from)
	var tools []*satfNode
	for len(queue) > 0 {
		if *steps++; *steps > maxSATFSteps {
			return false
		}
		before := queue[0]
		queue = queue[1:]
		switch {
		case seen[before]:
		case before.request == nil:
			tools = append(tools, before)
			queue = append(queue, before.from...)
		default:
			row.WaitFor = append(row.WaitFor, before.request.row.RequestID)
			last = max(last, before.start+before.duration)
		}
		seen[before] = true
	}
	if len(row.WaitFor) == 0 {
		return true
	}
	wait, ran := max(0, n.start-last), int64(0)
	slices.SortFunc(tools, func(a, b *satfNode) int { return cmp.Compare(a.start, b.start) })
	for at, i := last, 0; i < len(tools); i++ {
		if end := tools[i].start + tools[i].duration; end > at {
			ran += end - max(at, tools[i].start)
			at = end
		}
	}
	ran = min(ran, wait)
	row.Delay = mooncake.Some(milliseconds(wait - ran))
	if ran > 0 {
		row.ToolWait = mooncake.Some(milliseconds(ran))
	}
	return true
}
