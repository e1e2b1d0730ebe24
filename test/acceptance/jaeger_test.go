// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/internal/testport"
)

// TestAcceptanceJaeger checks what a user of Jaeger sees while a replay runs, and after one was killed: every trace with a finished
// request has its root, so that the list has a name for it, and the documented searches find their results.
func TestAcceptanceJaeger(t *testing.T) {
	moonloop, dir := setting(t, "MOONLOOP_BIN"), artefacts(t)
	j := startJaeger(t, dir)
	engine := startSimulator(t, dir)
	trace := filepath.Join("..", "..", "examples", "demo.jsonl")
	replay := func(run string) *process {
		return start(t, dir, run, nil, moonloop, "replay", trace, "--url", engine, "--run-id", run, "--progress", "none",
			"--otlp-endpoint", "http://"+j.otlpHTTP, "--out", filepath.Join(dir, run+".results"))
	}

	killed := replay("killed")
	var during []jaegerSpan
	for deadline := time.Now().Add(2 * time.Minute); len(during) < 100; time.Sleep(time.Second) {
		if during = j.ofRun(t, "killed"); time.Now().After(deadline) {
			t.Fatalf("Jaeger has %d spans of a replay that runs\n%s", len(during), killed.tail())
		}
	}
	checkRoots(t, "during the run", during, 10)
	checkPhases(t, during)
	checkSearches(t, j, "killed", during[0])
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed.wait(t, time.Minute)
	time.Sleep(time.Second) // Jaeger stores what was still on the wire
	left := j.ofRun(t, "killed")
	checkRoots(t, "after kill -9", left, 10)
	checkPhases(t, left)
	checkSearches(t, j, "killed", left[0])

	whole := replay("whole")
	if code := whole.wait(t, 5*time.Minute); code != 0 && code != 3 {
		t.Fatalf("the replay ended with status %d\n%s", code, whole.tail())
	}
	spans := j.ofRun(t, "whole")
	checkRoots(t, "after the run", spans, 100)
	checkPhases(t, spans)
	requests, events := 0, 0
	for _, s := range spans {
		if !s.has("mooncake.row") {
			continue
		}
		requests++
		events += count(s.Events(), "mooncake.token")
	}
	if rows := len(readLines[struct{}](t, trace)); requests != rows {
		t.Errorf("Jaeger has %d requests with a row, the trace has %d rows", requests, rows)
	}
	if events == 0 {
		t.Error("no request has an event for a token")
	}
	t.Logf("%d spans during the run, %d of the whole one: %d requests, %d events for tokens", len(during), len(spans), requests, events)
}

// TestAcceptanceJaegerProduction goes from production to its replay and back, through the configuration at the repository's root: the
// cells of prompts are in the journal and not in Jaeger, the names of requests there have their row and turn, each has a link to
// production, and a search by the trace of production finds the replay.
func TestAcceptanceJaegerProduction(t *testing.T) {
	moonloop, dir := setting(t, "MOONLOOP_BIN"), artefacts(t)
	j := startJaeger(t, dir)
	c := startDocumented(t, dir, "production", j)
	production := sendProduction(t, c.address)
	time.Sleep(3 * time.Second)
	sent := production()
	trace := filepath.Join(dir, "production.jsonl")
	c.compile(t, dir, trace)
	type captured struct {
		OTel struct {
			TraceID string `json:"trace_id"`
			SpanID  string `json:"span_id"`
		} `json:"otel"`
		HashIDs []uint64 `json:"hash_ids"`
	}
	rows := readLines[captured](t, trace)
	shared := map[uint64]int{}
	for _, row := range rows {
		for _, id := range row.HashIDs {
			shared[id]++
		}
	}
	if len(rows) != len(sent) || len(rows) < 10 || len(shared) == 0 {
		t.Fatalf("%d rows of %d requests, %d block ids: the journal lacks what Jaeger must not have", len(rows), len(sent), len(shared))
	}
	seen := 0
	for _, s := range j.find(t, "shop", map[string]string{"gen_ai.operation.name": "chat"}) {
		seen++
		if s.Name() != "chat sim" {
			t.Errorf("a request of production is called %q", s.Name())
		}
		for key := range s.Attributes().All() {
			if strings.HasPrefix(key, "mooncake.cells") || strings.HasPrefix(key, "gen_ai.input") {
				t.Fatalf("production's span has %s in Jaeger", key)
			}
		}
		if s.value("mooncake.identity") != "text" {
			t.Errorf("production's span has the identity %q", s.value("mooncake.identity"))
		}
	}
	if seen != len(sent) {
		t.Errorf("Jaeger has %d requests of production, %d were made", seen, len(sent))
	}

	c = startDocumented(t, dir, "replayed", j)
	engine := startSimulator(t, dir)
	replay := start(t, dir, "replay", nil, moonloop, "replay", trace, "--url", engine, "--run-id", "again", "--progress", "none", "--speedup", "2",
		"--otlp-endpoint", "http://"+c.http, "--out", filepath.Join(dir, "results"))
	if code := replay.wait(t, 5*time.Minute); code != 0 && code != 3 {
		t.Fatalf("the replay ended with status %d\n%s", code, replay.tail())
	}
	c.stop(t) // then it has exported all its spans
	again := j.ofRun(t, "again")
	checkRoots(t, "after the replay", again, 5)
	for index, row := range rows {
		var found []jaegerSpan
		for _, s := range j.find(t, "moonloop", map[string]string{"mooncake.link.trace_id": row.OTel.TraceID, "mooncake.run.id": "again"}) {
			if s.value("mooncake.row") == fmt.Sprint(index) {
				found = append(found, s)
			}
		}
		if len(found) != 1 {
			t.Fatalf("a search by production's trace %s finds %d spans of row %d, want its replay", row.OTel.TraceID, len(found), index)
		}
		s := found[0]
		if want := fmt.Sprintf("chat sim row %d turn %s", index, s.value("mooncake.turn")); s.Name() != want {
			t.Errorf("in Jaeger, row %d is called %q, want %q", index, s.Name(), want)
		}
		links := s.Links()
		if links.Len() != 1 || links.At(0).TraceID().String() != row.OTel.TraceID || links.At(0).SpanID().String() != row.OTel.SpanID {
			t.Errorf("row %d has %d links, want one to %s", index, links.Len(), row.OTel.TraceID)
			continue
		}
		if !slices.ContainsFunc(j.trace(t, row.OTel.TraceID), func(p jaegerSpan) bool { return p.SpanID() == links.At(0).SpanID() }) {
			t.Errorf("the link of row %d leads to no span", index)
		}
	}
	t.Logf("%d requests of production, each found from its replay and the other way", len(rows))
}

// documented is a Collector with a configuration from which users start.
type documented struct {
	distribution
	http string
}

// startDocumented starts such a Collector with separate ports, a separate folder, and Jaeger behind it.
func startDocumented(t *testing.T, dir, name string, j *jaeger) *documented {
	t.Helper()
	return startConfigured(t, dir, name, "otelcol-config.yaml", `
exporters: {mooncake: {compile: false}}
service: {telemetry: {metrics: {level: none, readers: []}}}
`, "JAEGER_ENDPOINT="+j.otlpGRPC, "PROMETHEUS_ENDPOINT=http://"+testport.Address(t)) // where nobody listens
}

// startConfigured runs a configuration of the repository, with separate ports, a separate folder, and additional settings.
func startConfigured(t *testing.T, dir, name, config, more string, environment ...string) *documented {
	t.Helper()
	data := filepath.Join(dir, name)
	c := &documented{distribution{address: testport.Address(t), journals: filepath.Join(data, "traces")}, testport.Address(t)}
	ports, settings := filepath.Join(dir, name+".ports.yaml"), filepath.Join(dir, name+".yaml")
	if err := errors.Join(os.WriteFile(ports, fmt.Appendf(nil, `
receivers: {mooncake: {protocols: {grpc: {endpoint: %q}, http: {endpoint: %q}}}}
extensions: {health_check: {endpoint: %q}}
`, c.address, c.http, testport.Address(t)), 0o644), os.WriteFile(settings, []byte(more), 0o644)); err != nil {
		t.Fatal(err)
	}
	c.process = start(t, dir, name, append(environment, "MOONLOOP_HASH_KEY="+strings.Repeat("5eed", 16), "MOONLOOP_DIR="+data),
		setting(t, "MOONLOOP_OTELCOL"), "--config", filepath.Join("..", "..", config), "--config", ports, "--config", settings)
	c.awaitConnections(t, c.address)
	return c
}

// startSimulator returns the address of a simulated engine.
func startSimulator(t *testing.T, dir string, flags ...string) string {
	t.Helper()
	return start(t, dir, "simulate", nil, setting(t, "MOONLOOP_BIN"), append([]string{"simulate", "--listen", "127.0.0.1:0"}, flags...)...).
		find(t, regexp.MustCompile(`listening on (\S+)`))
}

// rootName is the form of the name of a session's root, which a list of traces shows.
var rootName = regexp.MustCompile(`^session (\S+) from row (\d+), (\S+), run (\S+)$`)

// checkRoots fails unless each trace with a finished request has exactly one root, whose name differs from all others, and unless at
// least this many traces have a root.
func checkRoots(t *testing.T, when string, spans []jaegerSpan, least int) {
	t.Helper()
	roots, finished := map[pcommon.TraceID][]jaegerSpan{}, map[pcommon.TraceID][]jaegerSpan{}
	for _, s := range spans {
		if s.ParentSpanID().IsEmpty() {
			roots[s.TraceID()] = append(roots[s.TraceID()], s)
		}
		if s.has("mooncake.row") {
			finished[s.TraceID()] = append(finished[s.TraceID()], s)
		}
	}
	without, names := 0, map[string]int{}
	for id, requests := range finished {
		if len(roots[id]) != 1 {
			without++
			continue
		}
		root := roots[id][0]
		names[root.Name()]++
		if root.has("mooncake.row") {
			continue // a request without a session
		}
		parts := rootName.FindStringSubmatch(root.Name())
		want := []string{root.Name(), root.value("mooncake.session"), root.value("mooncake.session.first_row"), root.value("gen_ai.request.model"), root.run}
		if !slices.Equal(parts, want) || root.value("gen_ai.operation.name") != "invoke_workflow" {
			t.Errorf("%s a root is called %q and is an %q, want a name with its attributes %q", when, root.Name(), root.value("gen_ai.operation.name"), want[1:])
		}
		for _, request := range requests {
			if request.ParentSpanID() != root.SpanID() || request.value("mooncake.session") != parts[1] {
				t.Errorf("%s row %s of session %s is not below %q", when, request.value("mooncake.row"), request.value("mooncake.session"), root.Name())
			}
		}
	}
	for name, n := range names {
		if n > 1 && strings.HasPrefix(name, "session ") {
			t.Errorf("%s %d traces are called %q", when, n, name)
		}
	}
	if without > 0 || len(finished) < least {
		t.Errorf("%s Jaeger has %d traces with a finished request, at least %d were expected; %d do not have exactly one root",
			when, len(finished), least, without)
	}
}

// checkPhases fails unless the phases of each served request follow one another without a gap and fill it.
func checkPhases(t *testing.T, spans []jaegerSpan) {
	t.Helper()
	below := map[pcommon.SpanID][]jaegerSpan{}
	for _, s := range spans {
		below[s.ParentSpanID()] = append(below[s.ParentSpanID()], s)
	}
	for _, s := range spans {
		phases := below[s.SpanID()]
		if s.value("mooncake.outcome") != "served" || len(phases) == 0 { // the last requests of a killed process may lack them
			continue
		}
		slices.SortStableFunc(phases, func(a, b jaegerSpan) int {
			if d := int(a.StartTimestamp()) - int(b.StartTimestamp()); d != 0 {
				return d
			}
			return strings.Compare(b.Name(), a.Name()) // queue, prefill, decode
		})
		var names []string
		at := s.StartTimestamp()
		for _, phase := range phases {
			names = append(names, phase.Name())
			if phase.StartTimestamp() != at {
				t.Fatalf("row %s: %s begins %d ns after the phase before has ended", s.value("mooncake.row"), phase.Name(), int64(phase.StartTimestamp())-int64(at))
			}
			at = phase.EndTimestamp()
		}
		if want := []string{"queue", "prefill", "decode"}; !slices.Equal(names, want) || at != s.EndTimestamp() {
			t.Fatalf("below a request are %v, want %v, to its end", names, want)
		}
	}
}

// checkSearches searches for a request of the run as documented: by run and row, by session, and by lateness.
func checkSearches(t *testing.T, j *jaeger, run string, of jaegerSpan) {
	t.Helper()
	by := func(attributes map[string]string) (found []jaegerSpan) {
		attributes["mooncake.run.id"] = run
		return j.find(t, "moonloop", attributes)
	}
	session := of.value("mooncake.session")
	for _, s := range by(map[string]string{"mooncake.row": "0"}) {
		if s.value("mooncake.row") != "0" {
			continue
		}
		if !strings.HasPrefix(s.Name(), "chat ") || s.Kind() != ptrace.SpanKindClient || s.run != run || count(s.Events(), "mooncake.token") == 0 {
			t.Errorf("row 0 of %s: name %q, kind %v, run %q, %d events", run, s.Name(), s.Kind(), s.run, s.Events().Len())
		}
		session = s.value("mooncake.session")
	}
	if session == "" {
		t.Errorf("a search for row 0 of %s does not find it", run)
	}
	for _, attributes := range []map[string]string{
		{"mooncake.session": session}, {"gen_ai.conversation.id": session}, {"gen_ai.operation.name": "invoke_workflow"}, {"mooncake.turn": "0"},
	} {
		if found := by(attributes); len(found) == 0 {
			t.Errorf("a search for %v finds nothing", attributes)
		}
	}
	late := 0
	for _, class := range []string{"on_time", "late", "very_late"} {
		late += len(by(map[string]string{"mooncake.schedule.lateness_class": class}))
	}
	if late == 0 {
		t.Error("no request is found by how late it was")
	}
}

func count(events ptrace.SpanEventSlice, name string) (n int) {
	for _, e := range events.All() {
		if e.Name() == name {
			n++
		}
	}
	return n
}
