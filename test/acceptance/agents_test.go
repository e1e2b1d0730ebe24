// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"bytes"
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

	"github.com/moonloop/moonloop/mooncake"
)

// agentsOf names the agents of agents/app.py by what only they ask for: the tokens of their replies.
var agentsOf = map[int64]string{
	40: "planner", 30: "scout 1", 25: "scout 2", 60: "miner 1", 20: "checker", 15: "miner 2", 10: "critic", 35: "reviewer", 80: "writer",
}

// agentsWait is who waits for whom in each of its runs, as its source says.
var agentsWait = map[string][]string{
	"planner": nil, "scout 1": {"planner"}, "miner 1": {"planner"}, "critic": {"planner"}, "scout 2": {"scout 1"}, "checker": {"miner 1"},
	"miner 2": {"checker"}, "reviewer": {"critic", "miner 2", "scout 2"}, "writer": {"reviewer"},
}

// agentsTools are the tools that run before a request, in ms.
var agentsTools = map[string]float64{"scout 2": 350, "checker": 150}

// sighting is what the simulator saw of a request, by its own clock.
type sighting struct {
	Path     string              `json:"path"`
	Header   map[string][]string `json:"header"`
	Received int64               `json:"received_ns"`
	Ended    int64               `json:"ended_ns"`
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

// makespan is the time from the first arrival to the last end.
func makespan(all []sighting) time.Duration {
	first, last := int64(math.MaxInt64), int64(0)
	for _, r := range all {
		first, last = min(first, r.Received), max(last, r.Ended)
	}
	return time.Duration(last - first)
}

// TestAcceptanceAgents captures runs of a team of agents, from the spans that OpenInference makes of LangGraph, and replays them. The graph
// must be that of the program, and by the simulator's own clock no request of the replay arrives before all that it follows have ended, and
// all take as long as in production.
func TestAcceptanceAgents(t *testing.T) {
	home, moonloop, dir := setting(t, "MOONLOOP_AGENTS"), setting(t, "MOONLOOP_BIN"), artefacts(t)
	const runs = 3
	simulate := func(name string) (url, record string) {
		record = filepath.Join(dir, name, "engine.jsonl")
		mkdir(t, filepath.Join(dir, name))
		return startSimulator(t, filepath.Join(dir, name), "--prefill", "200ms", "--decode", "20ms", "--record", record), record
	}
	otlp, trace := "127.0.0.1:"+freePort(t), filepath.Join(dir, "production.jsonl")
	capture := start(t, dir, "capture", []string{"MOONLOOP_HASH_KEY=" + strings.Repeat("a5", 32)}, moonloop, "capture", "--out", trace,
		"--json", "--progress", "none", "--http", otlp, "--grpc", "127.0.0.1:"+freePort(t))
	capture.find(t, regexp.MustCompile(`(listening for OTLP over HTTP)`))
	url, seen := simulate("production")
	app := start(t, dir, "app", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + otlp}, filepath.Join(home, "bin", "python"),
		filepath.Join("agents", "app.py"), url, strconv.Itoa(runs))
	if code := app.wait(t, 2*time.Minute); code != 0 {
		t.Fatalf("the application ended with status %d: see %s", code, app.err)
	}
	capture.stop(t)

	// The graph is that of the program.
	var rows []*mooncake.Row
	b, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	ids, waits, got := map[string]int{}, map[int][]int{}, map[string]int{}
	for line := range bytes.Lines(b) {
		r, err := mooncake.ParseRow(line)
		if err != nil {
			t.Fatal(err)
		}
		i := len(rows)
		rows = append(rows, r)
		if r.WaitFor == nil {
			continue // the request before all runs
		}
		ids[r.RequestID] = i
		var names []string
		for _, id := range r.WaitFor {
			at, known := ids[id]
			if !known || rows[at].OTel.TraceID != r.OTel.TraceID {
				t.Fatalf("row %d waits for %s, which is no row of its run", i, id)
			}
			waits[i] = append(waits[i], at)
			names = append(names, agentsOf[rows[at].OutputLength.V])
		}
		slices.Sort(names)
		who := agentsOf[r.OutputLength.V]
		got[fmt.Sprint(who, names)]++
		if tool := r.ToolWait.V; tool < agentsTools[who] || tool > agentsTools[who]+250 {
			t.Errorf("%s waited %g ms for tools, which took %g", who, tool, agentsTools[who])
		}
	}
	want := map[string]int{}
	for who, names := range agentsWait {
		want[fmt.Sprint(who, names)] = runs
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("who waits for whom (-want +got):\n%s", diff)
	}

	// The replay keeps to it.
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
	is, was := makespan(replayed), makespan(production)
	t.Logf("%d rows of %d runs; production took %v, the replay %v: %+.2f %%", len(rows), runs, was, is, 100*(is.Seconds()/was.Seconds()-1))
	if ratio := is.Seconds() / was.Seconds(); ratio < 0.98 || ratio > 1.02 {
		t.Errorf("the replay took %.4f of the time that production took", ratio)
	}
}
