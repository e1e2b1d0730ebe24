// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"bytes"
	stdcmp "cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/internal/testport"
	"github.com/moonloop/moonloop/mooncake"
)

// agentsOf names the agents of agents/app.py by what is unique to each: the number of tokens of their replies.
var agentsOf = map[int64]string{
	40: "planner", 30: "scout 1", 25: "scout 2", 60: "miner 1", 20: "checker", 15: "miner 2", 10: "critic", 35: "reviewer", 80: "writer",
}

// agentsWait says which agent waits for which in each of its runs, according to its source.
var agentsWait = map[string][]string{
	"planner": nil, "scout 1": {"planner"}, "miner 1": {"planner"}, "critic": {"planner"}, "scout 2": {"scout 1"}, "checker": {"miner 1"},
	"miner 2": {"checker"}, "reviewer": {"critic", "miner 2", "scout 2"}, "writer": {"reviewer"},
}

// agentsTools are the tools that run before a request, in ms.
var agentsTools = map[string]float64{"scout 2": 350, "checker": 150}

// agentsCalled says which agent gets the result of a tool that another agent's reply called: without parents, nothing else is known of a
// run.
var agentsCalled = map[string][]string{"scout 1": nil, "scout 2": {"scout 1"}, "miner 1": nil, "miner 2": {"miner 1"}}

// sighting is a request as the simulator recorded it, by its own clock.
type sighting struct {
	Path    string              `json:"path"`
	Header  map[string][]string `json:"header"`
	Request struct {
		MaxTokens int64 `json:"max_tokens"`
	} `json:"request"`
	Received int64 `json:"received_ns"`
	Ended    int64 `json:"ended_ns"`
}

func sightings(t *testing.T, name string) (all []sighting) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		var r sighting
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(r.Path, "/completions") {
			all = append(all, r)
		}
	}
	return all
}

// makespan returns the time from the first arrival to the last end.
func makespan(all []sighting) time.Duration {
	first, last := int64(math.MaxInt64), int64(0)
	for _, r := range all {
		first, last = min(first, r.Received), max(last, r.Ended)
	}
	return time.Duration(last - first)
}

// agentRuns is the trace of captured runs of agents/app.py.
type agentRuns struct {
	rows  []*mooncake.Row
	waits map[int][]int  // by row, what it waits for
	graph map[string]int // "agent [agents that it waits for]", and how often
	sure  map[string]int // edges, by their evidence
}

// readAgents reads a trace of such runs.
func readAgents(t *testing.T, trace string) agentRuns {
	t.Helper()
	b, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	runs := agentRuns{waits: map[int][]int{}, graph: map[string]int{}, sure: map[string]int{}}
	ids := map[string]int{}
	for line := range bytes.Lines(b) {
		r, err := mooncake.ParseRow(line)
		if err != nil {
			t.Fatal(err)
		}
		i := len(runs.rows)
		runs.rows = append(runs.rows, r)
		if r.WaitFor == nil {
			continue // of no graph, like the request before all runs
		}
		ids[r.RequestID] = i
		var names []string
		for n, id := range r.WaitFor {
			at, known := ids[id]
			if !known || runs.rows[at].OTel.TraceID != r.OTel.TraceID {
				t.Fatalf("row %d waits for %s, which is not a row of its run", i, id)
			}
			runs.waits[i] = append(runs.waits[i], at)
			runs.sure[r.Evidence[n].String()]++
			names = append(names, agentsOf[runs.rows[at].OutputLength.V])
		}
		slices.Sort(names)
		runs.graph[fmt.Sprint(agentsOf[r.OutputLength.V], names)]++
	}
	return runs
}

// graphOf returns the expected waits of this many runs in the form of agentRuns.
func graphOf(waits map[string][]string, runs int) map[string]int {
	graph := map[string]int{}
	for who, names := range waits {
		graph[fmt.Sprint(who, names)] = runs
	}
	return graph
}

// TestAcceptanceAgents captures runs of a team of agents, from the spans that OpenInference makes of LangGraph, and replays them. The
// graph must be that of the program. By the simulator's own clock, no request of the replay may arrive before all requests that it follows
// have ended, and each run must take as long as in production. From the same spans without parents and links, the ids of tool calls must
// give the edges that such ids can show.
func TestAcceptanceAgents(t *testing.T) {
	home, moonloop, dir := setting(t, "MOONLOOP_AGENTS"), setting(t, "MOONLOOP_BIN"), artefacts(t)
	const runs = 3
	simulate := func(name string) (url, record string) {
		record = filepath.Join(dir, name, "engine.jsonl")
		mkdir(t, filepath.Join(dir, name))
		return startSimulator(t, filepath.Join(dir, name), "--prefill", "200ms", "--decode", "20ms", "--record", record), record
	}
	capture := func(name string) (p *process, otlp, trace string) {
		otlp, trace = "127.0.0.1:"+testport.Port(t), filepath.Join(dir, name+".jsonl")
		p = start(t, dir, "capture "+name, []string{"MOONLOOP_HASH_KEY=" + strings.Repeat("a5", 32)}, moonloop, "capture", "--out", trace,
			"--json", "--progress", "none", "--http", otlp, "--grpc", "127.0.0.1:"+testport.Port(t))
		p.find(t, regexp.MustCompile(`(listening for OTLP over HTTP)`))
		return p, "http://" + otlp, trace
	}
	whole, to, trace := capture("production")
	orphans, alone, orphansTrace := capture("orphans")
	url, seen := simulate("production")
	app := start(t, dir, "app", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + to, "ORPHANS=" + alone}, filepath.Join(home, "bin", "python"),
		filepath.Join("agents", "app.py"), url, strconv.Itoa(runs))
	if code := app.wait(t, 2*time.Minute); code != 0 {
		t.Fatalf("the application ended with status %d: see %s", code, app.err)
	}
	whole.stop(t)
	orphans.stop(t)

	// The graph is that of the program.
	captured := readAgents(t, trace)
	if diff := cmp.Diff(graphOf(agentsWait, runs), captured.graph); diff != "" {
		t.Fatalf("who waits for whom (-want +got):\n%s", diff)
	}
	for i, r := range captured.rows {
		who := agentsOf[r.OutputLength.V]
		if tool := r.ToolWait.V; tool < agentsTools[who] || tool > agentsTools[who]+250 {
			t.Errorf("row %d, %s, waited %g ms for tools, which took %g", i, who, tool, agentsTools[who])
		}
	}
	// Spans and ids both show one of the edges, that from the scout's call to its result. The miner's edge passes through the checker.
	if diff := cmp.Diff(map[string]int{"parent": 9 * runs, "tool_call": runs}, captured.sure); diff != "" {
		t.Errorf("what edges were taken from (-want +got):\n%s", diff)
	}
	called := readAgents(t, orphansTrace)
	if diff := cmp.Diff(graphOf(agentsCalled, runs), called.graph); diff != "" {
		t.Errorf("who waits for whom by the ids of calls (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"tool_call": 2 * runs}, called.sure); diff != "" {
		t.Errorf("what edges without parents were taken from (-want +got):\n%s", diff)
	}
	rows, waits := captured.rows, captured.waits

	// The replay keeps to the graph.
	url, again := simulate("replay")
	replay := start(t, dir, "replay", nil, moonloop, "replay", trace, "--url", url, "--model", "simulated", "--out", filepath.Join(dir, "run"),
		"--progress", "none", "--run-id", "agents")
	if code := replay.wait(t, 2*time.Minute); code != 0 {
		t.Fatalf("replay ended with status %d: see %s", code, replay.err)
	}
	production := sightings(t, seen)[1:] // without the request before all runs
	byRow := map[int]sighting{}
	for _, r := range sightings(t, again) {
		if id := r.Header["X-Request-Id"]; len(id) == 1 {
			if row, err := strconv.Atoi(strings.TrimPrefix(id[0], "agents-")); err == nil {
				byRow[row] = r
			}
		}
	}
	var replayed []sighting
	for i := range rows {
		r, ok := byRow[i]
		if !ok {
			t.Fatalf("row %d did not reach the engine", i)
		}
		if rows[i].WaitFor != nil {
			replayed = append(replayed, r)
		}
		for _, before := range waits[i] {
			if ended := byRow[before].Ended; r.Received < ended {
				t.Errorf("row %d arrived %v before row %d, which it follows, had ended", i, time.Duration(ended-r.Received), before)
			}
		}
	}
	// The application's own work within its spans of requests, before they were sent and after the reply had arrived, is in no wait of a
	// row: the spans do not separate it from the engine's time. On a quiet machine it is a few ms of each request. With it, the replay
	// must agree closely; without it, within the documented tolerance.
	for run := range runs {
		was, is := runOf(production, run), runOf(replayed, run)
		own := captured.own(t, was, run)
		all, again := makespan(was).Seconds(), makespan(is).Seconds()
		t.Logf("run %d: production took %v, the replay %v: %+.2f %%; the application's own time in its spans was %v: %+.2f %% with it",
			run+1, makespan(was), makespan(is), 100*(again/all-1), own, 100*((again+own.Seconds())/all-1))
		if off := (again+own.Seconds())/all - 1; math.Abs(off) > 0.01 {
			t.Errorf("run %d: the replay, with the application's own time added, differs from production by %+.2f %%", run+1, 100*off)
		}
		if off := again/all - 1; math.Abs(off) > 0.02 {
			t.Errorf("run %d: the replay's duration differs from production's by %+.2f %%; the application's own time in its spans is %.2f %% of it: if that is the difference, the machine was not quiet",
				run+1, 100*off, 100*own.Seconds()/all)
		}
	}
}

// own returns how long an application worked within its spans of a run's requests, on the longest path of its graph: by the engine's
// clock, the time between a request and the one that it waited for longest, minus the row's part of that time. Runs are counted from 0.
func (runs agentRuns) own(t *testing.T, seen []sighting, run int) (sum time.Duration) {
	t.Helper()
	at := map[string]sighting{}
	for _, r := range seen {
		at[agentsOf[r.Request.MaxTokens]] = r
	}
	waits := map[string]float64{} // ms
	var traces [][16]byte         // in the order in which runs began
	for _, r := range runs.rows {
		if r.WaitFor == nil {
			continue
		}
		if !slices.Contains(traces, r.OTel.TraceID) {
			traces = append(traces, r.OTel.TraceID)
		}
		if slices.Index(traces, r.OTel.TraceID) == run {
			waits[agentsOf[r.OutputLength.V]] = r.Delay.V + r.ToolWait.V
		}
	}
	if len(at) != len(agentsWait) || len(waits) != len(agentsWait) {
		t.Fatalf("%d requests and %d rows of a run of %d", len(at), len(waits), len(agentsWait))
	}
	for who := "writer"; len(agentsWait[who]) > 0; {
		before := slices.MaxFunc(agentsWait[who], func(a, b string) int { return stdcmp.Compare(at[a].Ended, at[b].Ended) })
		sum += time.Duration(at[who].Received-at[before].Ended) - time.Duration(waits[who]*float64(time.Millisecond))
		who = before
	}
	return sum
}

// runOf returns the requests of a run, counted from 0. Runs begin 1.5 s apart, so an agent, which is recognised by the length of its reply,
// makes its requests in the order of the runs.
func runOf(all []sighting, run int) (of []sighting) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b sighting) int { return stdcmp.Compare(a.Received, b.Received) })
	seen := map[int64]int{}
	for _, r := range all {
		if seen[r.Request.MaxTokens] == run {
			of = append(of, r)
		}
		seen[r.Request.MaxTokens]++
	}
	return of
}
