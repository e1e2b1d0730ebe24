// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/capture/journal"
)

// turnAt returns an agent's turn in a trace of its own: one request, from and to these times in ms, within the agent's span.
func turnAt(trace, span uint64, s journal.Session, from, to int64, change ...func(*journal.Inference)) []journal.Record {
	agent := acts(journal.Agent, trace, 100+span, 0, from-5, to+5)
	agent.Session = s
	return []journal.Record{agent, asked(trace, span, 100+span, from, to, change...)}
}

func together(parts ...[]journal.Record) (all []journal.Record) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// TestAcrossTraces: which request follows which in a session whose turns have OTel traces of their own.
func TestAcrossTraces(t *testing.T) {
	type counts = map[string]any
	const s, other = journal.Session(5), journal.Session(6)
	in, alone := inSession(s), func(trace, span uint64, from, to int64, change ...func(*journal.Inference)) []journal.Record {
		return []journal.Record{asked(trace, span, 0, from, to, append(change, inSession(s))...)}
	}
	within := func(root journal.Record, records ...journal.Record) []journal.Record { return append(records, root) }
	for _, c := range []struct {
		why     string
		opt     Options
		records []journal.Record
		want    []string
		counts  counts
	}{
		{
			"turns of an agent, one after the other",
			Options{},
			together(turnAt(1, 1, s, 10, 100), turnAt(2, 2, s, 300, 400), turnAt(3, 3, s, 450, 500)),
			[]string{"1: ", "2: 1 session; 200+0", "3: 2 session; 50+0"},
			nil,
		},
		{
			"after a turn whose reply has no end, the delay is unknown",
			Options{},
			together(turnAt(1, 1, s, 10, 10), turnAt(2, 2, s, 300, 400), turnAt(3, 3, s, 450, 500)),
			[]string{"1: ", "2: 1 session; unknown+0", "3: 2 session; 50+0"},
			nil,
		},
		{
			"turns follow those of their own session only; turns of no session follow none",
			Options{},
			together(turnAt(1, 1, s, 10, 100), turnAt(2, 2, other, 300, 400), turnAt(3, 3, 0, 450, 500), turnAt(4, 4, other, 600, 700)),
			[]string{"1: ", "2: ", "4: 2 session; 200+0"},
			nil,
		},
		{
			"the first requests of a turn follow the last ones of the turn before, and the rest their own trace",
			Options{},
			[]journal.Record{
				acts(journal.Agent, 1, 100, 0, 0, 100), asked(1, 1, 100, 5, 10, in), asked(1, 2, 100, 20, 60, in), asked(1, 3, 100, 20, 90, in),
				acts(journal.Agent, 2, 101, 0, 200, 300), asked(2, 4, 101, 205, 220, in), asked(2, 5, 101, 205, 240, in), acts(journal.Tool, 2, 102, 101, 245, 255), asked(2, 6, 101, 260, 290, in),
			},
			[]string{"1: ", "2: 1 parent; 10+0", "3: 1 parent; 10+0", "4: 2 session, 3 session; 115+0", "5: 2 session, 3 session; 115+0", "6: 4 parent, 5 parent; 10+10"},
			nil,
		},
		{
			"turns that overlap are branches, and what comes after them follows both",
			Options{},
			together(turnAt(1, 1, s, 10, 100), turnAt(2, 2, s, 120, 200), turnAt(3, 3, s, 150, 300), turnAt(4, 4, s, 400, 500)),
			[]string{"1: ", "2: 1 session; 20+0", "3: 1 session; 50+0", "4: 2 session, 3 session; 100+0"},
			nil,
		},
		{
			"turns overlap while the agent is at work, though its request has ended",
			Options{},
			[]journal.Record{
				acts(journal.Agent, 1, 100, 0, 0, 400), asked(1, 1, 100, 10, 20, in), acts(journal.Agent, 2, 101, 0, 200, 300), asked(2, 2, 101, 210, 290, in),
			},
			[]string{"1: ", "2: "},
			nil,
		},
		{
			"a turn without an agent still belongs to the conversation",
			Options{},
			together(alone(1, 1, 10, 100), turnAt(2, 2, s, 300, 400), within(link(3, 9, 0, 0), asked(3, 3, 9, 450, 500, in))),
			[]string{"1: ", "2: 1 session; 200+0", "3: 2 session; 50+0"},
			nil,
		},
		{
			"where no agent acts, sessions keep to their delays",
			Options{},
			together(alone(1, 1, 10, 100), alone(2, 2, 300, 400)),
			[]string{},
			nil,
		},
		{
			"where no agent acts, sessions form graphs if all graphs are wanted",
			Options{Graphs: GraphsAll},
			together(alone(1, 1, 10, 100), alone(2, 2, 300, 400)),
			[]string{"1: ", "2: 1 session; 200+0"},
			nil,
		},
		{"turns of an agent form no graph if none is wanted", Options{Graphs: GraphsNever}, together(turnAt(1, 1, s, 10, 100), turnAt(2, 2, s, 300, 400, given(7))), []string{}, nil},
		{
			"ids of calls connect traces, and take precedence over the order of times",
			Options{},
			together(alone(1, 1, 0, 10, made(7, 8)), alone(2, 2, 12, 15), alone(3, 3, 30, 40, given(7, 8), made(9)), alone(4, 4, 60, 70, given(9))),
			[]string{"1: ", "2: 1 session; 2+0", "3: 1 tool_call; 20+0", "4: 3 tool_call; 20+0"},
			counts{"edges_agreed": 1., "edges_added": 1., "time_edges_replaced": 1.},
		},
		{
			"helpers in traces of their own are branches; a request with the results of both joins them",
			Options{},
			together(alone(1, 1, 0, 10, made(7, 8)), alone(2, 2, 20, 90, given(7), made(9)), alone(3, 3, 30, 60, given(8), made(10)), alone(4, 4, 100, 110, given(9, 10))),
			[]string{"1: ", "2: 1 tool_call; 10+0", "3: 1 tool_call; 20+0", "4: 2 tool_call, 3 tool_call; 10+0"},
			counts{"edges_agreed": 4.},
		},
		{
			"sessions are separate, whatever the ids, and nothing follows a request that has not ended",
			Options{},
			together(alone(1, 1, 0, 10, made(7)), []journal.Record{asked(2, 2, 0, 20, 30, inSession(other), given(7)), asked(3, 3, 0, 20, 30, given(7))}, alone(4, 4, 5, 15, given(7))),
			[]string{"1: ", "4: ", "2: "},
			counts{"results_of_unknown_calls": 1., "results_too_early": 1.},
		},
		{
			"of several calls with the same id, the latest one before the request counts",
			Options{},
			together(alone(1, 1, 0, 10, made(7)), alone(2, 2, 20, 30, given(7), made(7)), alone(3, 3, 40, 50, given(7))),
			[]string{"1: ", "2: 1 tool_call; 10+0", "3: 2 tool_call; 10+0"},
			counts{"edges_agreed": 2., "results_of_reused_ids": 1.},
		},
		{
			"a later request of a turn follows a call in an overlapping turn directly, one in an earlier turn through its own turn's first requests",
			Options{},
			[]journal.Record{
				acts(journal.Agent, 1, 100, 0, 0, 100), asked(1, 1, 100, 5, 50, in, made(7, 8)), asked(1, 2, 100, 60, 90, in),
				acts(journal.Agent, 2, 101, 0, 40, 100), asked(2, 3, 101, 45, 50, in), asked(2, 4, 101, 70, 80, in, given(8)),
				acts(journal.Agent, 3, 102, 0, 200, 300), asked(3, 5, 102, 205, 210, in), asked(3, 6, 102, 230, 240, in, given(7)),
			},
			[]string{
				"1: ", "3: ", "2: 1 parent; 10+0", "4: 1 tool_call, 3 parent; 20+0", "5: 2 session, 4 session; 115+0", "6: 5 parent; 20+0",
			},
			counts{"edges_added": 1., "edges_agreed": 1.},
		},
		{
			"requests that are not rows are passed over",
			Options{},
			[]journal.Record{
				acts(journal.Agent, 1, 100, 0, 0, 100), asked(1, 1, 100, 5, 10, in), asked(1, 2, 100, 20, 90, in, noTokens),
				acts(journal.Agent, 2, 101, 0, 200, 300), asked(2, 3, 101, 205, 220, in),
			},
			[]string{"1: ", "3: 1 session; 195+0"},
			nil,
		},
		{
			"each session has only its own part of a trace with two sessions",
			Options{},
			[]journal.Record{
				acts(journal.NoActor, 1, 99, 0, 0, 500), acts(journal.Agent, 1, 100, 99, 0, 100), asked(1, 1, 100, 5, 90, in),
				acts(journal.Agent, 1, 101, 99, 0, 400), asked(1, 2, 101, 10, 390, inSession(other)),
				acts(journal.Agent, 2, 102, 0, 200, 300), asked(2, 3, 102, 205, 220, in), acts(journal.Agent, 3, 103, 0, 450, 480), asked(3, 4, 103, 455, 470, inSession(other)),
			},
			[]string{"1: ", "2: ", "3: 1 session; 115+0", "4: 2 session; 65+0"},
			nil,
		},
		{
			"a trace that is too large follows no other, and no other follows it",
			Options{MaxTraceSpans: 2},
			together([]journal.Record{
				acts(journal.Agent, 1, 100, 0, 0, 100), asked(1, 1, 100, 5, 10, in), asked(1, 2, 100, 20, 90, in),
			}, turnAt(2, 3, s, 200, 300), turnAt(3, 4, s, 400, 500)),
			[]string{"1: ", "2: ", "3: ", "4: 3 session; 100+0"},
			nil,
		},
		{
			"a gateway in a trace of its own stands for the client's request",
			Options{},
			together(turnAt(1, 1, s, 10, 100, response("a")), []journal.Record{asked(7, 3, 0, 20, 90, response("a"))}, turnAt(2, 2, s, 300, 400, response("b")),
				[]journal.Record{asked(8, 4, 0, 310, 390, response("b"))}),
			[]string{"3: ", "4: 3 session; 200+0"},
			nil,
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			m, res := compileBytes(t, c.opt, journalOf(c.records...))
			if diff := cmp.Diff(c.want, edges(m.rows(t, production))); diff != "" {
				t.Errorf("(-want +got):\n%s\n%v", diff, res.Dropped)
			}
			got, _ := m.meta(t, production).Transformations[0].Parameters["graph_tool_calls"].(map[string]any)
			if diff := cmp.Diff(c.counts, got); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAcrossTracesIsPure: neither the order of records nor the memory limit changes the result, and rows follow only rows before them.
func TestAcrossTracesIsPure(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var records []journal.Record
	for i := range uint64(600) {
		from := rng.Int64N(60_000)
		records = append(records, turnAt(1+i, 1+i%200, journal.Session(1+i%3), from, from+10+rng.Int64N(500), made(rng.Uint64N(900)), given(rng.Uint64N(900)))...)
	}
	want, _ := compileBytes(t, Options{}, journalOf(records...))
	seen := map[string]bool{}
	for _, r := range want.rows(t, production) {
		seen[r.RequestID] = true
		for _, id := range r.WaitFor {
			if !seen[id] || len(r.WaitFor) > maxFan {
				t.Fatalf("a row waits for %s, which is not a row before it, or for too many", id)
			}
		}
	}
	for range 5 {
		rng.Shuffle(len(records), func(i, j int) { records[i], records[j] = records[j], records[i] })
		at := rng.IntN(len(records))
		got, _ := compileBytes(t, Options{Memory: 1 << 12}, journalOf(records[at:]...), journalOf(records[:at]...))
		equal(t, "trace", string(want[production]), string(got[production]))
	}
}

// TestManyTurns: in a session of thousands of turns, a turn waits for the turn before it, or for at most maxFan concurrent ones.
func TestManyTurns(t *testing.T) {
	otherInput(t)
	const n = 5000
	for name, step := range map[string]int64{"side by side": 0, "one after the other": 30} {
		var records []journal.Record
		for i := range uint64(n) {
			from := 10 + step*int64(i)
			records = append(records, turnAt(1+i, 1+i%200, 5, from, from+10, made(i))...)
		}
		m, _ := compileBytes(t, Options{}, journalOf(append(records, turnAt(n+1, 201, 5, n*40, n*40+10)...)...))
		rows := m.rows(t, production)
		waits := map[int]int{}
		for _, r := range rows {
			waits[len(r.WaitFor)]++
		}
		want := map[int]int{0: n, maxFan: 1}
		if step > 0 {
			want = map[int]int{0: 1, 1: n}
		}
		if diff := cmp.Diff(want, waits); diff != "" {
			t.Errorf("%s: number of rows by how many others they wait for (-want +got):\n%s", name, diff)
		}
	}
}
