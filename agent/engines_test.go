// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/internal/testpipe"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// overEngines replays rows over several engines in a bubble. It returns the report, the engine that each row reached, and the requests that
// each engine got.
func overEngines(t *testing.T, servers []simulator.Config, cfg Config, lines ...string) (rep *report.Report, engine map[string]int, got [][]*simulator.Record, err error) {
	t.Helper()
	return overEnginesDown(t, servers, func(time.Duration) bool { return false }, cfg, lines...)
}

// overEnginesDown is overEngines with a first engine that accepts no connection while down says so.
func overEnginesDown(t *testing.T, servers []simulator.Config, down func(time.Duration) bool, cfg Config, lines ...string) (rep *report.Report, engine map[string]int, got [][]*simulator.Record, err error) {
	t.Helper()
	engine = make(map[string]int)
	synctest.Test(t, func(t *testing.T) {
		networks := make(map[string]*testpipe.Network)
		var all []*simulator.Engine
		for i, c := range servers {
			c.Record.Keep = len(lines)*2 + 10
			e, network, stop := serveVirtually(t, c)
			defer stop()
			name := fmt.Sprintf("engine%d", i)
			networks[name+":80"], all = network, append(all, e)
			if i == 0 {
				cfg.Target.URL = "http://" + name
			} else {
				cfg.Target.Further = append(cfg.Target.Further, "http://"+name)
			}
		}
		cfg.Trace.Name, cfg.Prompt.Endpoint, cfg.RunID, cfg.Waiter = filepath.Join(t.TempDir(), "trace.jsonl"), ids.Endpoint, "run", schedule.NewSleeper
		if err := os.WriteFile(cfg.Trace.Name, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		cfg.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "engine0:80" && down(time.Since(began)) {
				return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
			}
			return networks[address].Dial(ctx, network, address)
		}
		rep, err = Run(t.Context(), cfg)
		got = make([][]*simulator.Record, len(all))
		for i, e := range all {
			for _, rec := range e.Records() {
				if row, found := strings.CutPrefix(rec.Header.Get("X-Request-Id"), "run-"); found && !strings.HasPrefix(row, "-") {
					engine[row] = i
					got[i] = append(got[i], rec)
				}
			}
		}
	})
	return rep, engine, got, err
}

func TestRoundRobin(t *testing.T) {
	quick := simulator.Config{Latency: simulator.Latency{Prefill: 10 * time.Millisecond}}
	slow := simulator.Config{Latency: simulator.Latency{Prefill: 2 * time.Second}}
	spans := tracetest.NewInMemoryExporter()
	cfg := Config{Schedule: Schedule{Warmup: 2}}
	cfg.Telemetry.SpanExporter = keepSpans{spans}
	rep, engine, _, err := overEngines(t, []simulator.Config{quick, slow, quick}, cfg, rows(30, 100)...)
	if err != nil {
		t.Fatal(err)
	}
	for row, i := range engine { // two warm-up requests came before
		var n int
		if _, err := fmt.Sscan(row, &n); err != nil || (n+2)%3 != i {
			t.Errorf("row %s was sent to engine %d", row, i)
		}
	}
	var names []string
	for i, f := range rep.Figures().Servers {
		names = append(names, f.Server)
		want := quick.Latency.Prefill
		if i == 1 {
			want = slow.Latency.Prefill
		}
		if f.Rows != (measure.Rows{Total: 10, Served: 10}) || f.TTFT.Max != want.Seconds()*1e3 || f.TTFT.Min != f.TTFT.Max || f.Latency.Count != 10 || f.PromptTokens != 1000 {
			t.Errorf("%+v", f)
		}
	}
	if fmt.Sprint(names) != "[engine0:80 engine1:80 engine2:80]" || rep.Schedule.Balance != "round-robin" || rep.Run.Target != "engine0, engine1, engine2" {
		t.Errorf("servers %v, %+v, target %s", names, rep.Schedule, rep.Run.Target)
	}
	if late, _ := rep.Figures().Stat(measure.Lateness); late.Max != 0 {
		t.Errorf("up to %v ms late", late.Max)
	}
	told := make(map[string]int)
	for _, span := range spans.GetSpans() {
		address, row := "", false
		for _, a := range span.Attributes {
			switch string(a.Key) {
			case semconv.ServerAddress:
				address = a.Value.AsString()
			case semconv.Row:
				row = true
			}
		}
		if row {
			told[address]++
		}
	}
	if fmt.Sprint(told) != "map[engine0:10 engine1:10 engine2:10]" {
		t.Errorf("spans name the engines %v", told)
	}
}

func TestLeastLoaded(t *testing.T) {
	quick := simulator.Config{Latency: simulator.Latency{Prefill: 50 * time.Millisecond}}
	slow := simulator.Config{Latency: simulator.Latency{Prefill: time.Second}}
	cfg := Config{Target: Target{Balance: LeastLoaded}, Schedule: Schedule{Arrivals: load.Arrivals{Rate: 10, Pattern: load.Constant}}}
	_, _, got, err := overEngines(t, []simulator.Config{slow, quick}, cfg, rows(100, 1)...)
	if err != nil {
		t.Fatal(err)
	}
	// A request occupies the slow engine for 11 arrivals; the fast one is free at each arrival.
	if most := mostAtOnce(got[0]); most != 1 || len(got[0]) > 10 || len(got[0]) < 5 || len(got[0])+len(got[1]) != 100 {
		t.Errorf("the slow engine got %d, %d at once, the quick one %d", len(got[0]), most, len(got[1]))
	}
}

// TestLeastLoadedWithoutConnection: an engine that went down in the run gets a request a second, and not nearly all, although it has the fewest
// in flight, because those to it fail at once. When it is back, it gets its share again.
func TestLeastLoadedWithoutConnection(t *testing.T) {
	quick := simulator.Config{Latency: simulator.Latency{Prefill: 500 * time.Millisecond}}
	cfg := Config{
		Target: Target{Balance: LeastLoaded, Connections: send.ReuseNever}, Schedule: Schedule{Arrivals: load.Arrivals{Rate: 20, Pattern: load.Constant}},
		MaxErrorRate: new(1.0),
	}
	down := func(at time.Duration) bool { return at > 5*time.Second && at < 15*time.Second }
	rep, _, got, err := overEnginesDown(t, []simulator.Config{quick, quick}, down, cfg, rows(400, 1)...) // 20 s
	if err != nil {
		t.Fatal(err)
	}
	failed := rep.Figures().Rows.Failed
	if failed < 5 || failed > 15 {
		t.Errorf("%d of 400 requests failed; want about one for each of 10 s", failed)
	}
	if n := len(got[0]); n < 80 || n > 130 {
		t.Errorf("the engine that was down for 10 of 20 s got %d requests, the other one %d", n, len(got[1]))
	}
}

func TestBalanceBySession(t *testing.T) {
	var lines []string
	for turn := range 4 {
		for s := range 16 {
			lines = append(lines, fmt.Sprintf(`{"session_id": "s%d", "timestamp": %d, "input_length": %d, "output_length": 2, "hash_ids": [%d]}`, s, 1000*turn+s, 100+100*turn, s))
		}
	}
	cfg := Config{Trace: Trace{Sessions: mooncake.SessionFull}, Target: Target{Balance: BySession}}
	_, engine, got, err := overEngines(t, []simulator.Config{{}, {}}, cfg, lines...)
	if err != nil {
		t.Fatal(err)
	}
	for row := range 64 {
		if engine[fmt.Sprint(row)] != engine[fmt.Sprint(row%16)] {
			t.Errorf("row %d was sent to a different engine than the first turn of its session", row)
		}
	}
	if len(got[0]) == 0 || len(got[1]) == 0 || len(engine) != 64 {
		t.Errorf("%d and %d rows", len(got[0]), len(got[1]))
	}
}

// TestEnginesThatDiffer: engines that differ are refused before a row is sent.
func TestEnginesThatDiffer(t *testing.T) {
	servers := []simulator.Config{{Models: []string{"a"}}, {Models: []string{"b"}}}
	_, engine, _, err := overEngines(t, servers, Config{}, rows(4, 10)...)
	if err == nil || !strings.Contains(err.Error(), `url http://engine1: it differs from http://engine0 in its first model ("b", not "a")`) || len(engine) > 0 {
		t.Errorf("%v, %d rows sent", err, len(engine))
	}
	one := newEngine(t, simulator.Config{})
	r := Config{Trace: Trace{Name: "x"}, Target: Target{URL: one.url, Further: []string{one.url}}}
	if err := r.Validate(); err == nil || !strings.Contains(err.Error(), "given twice") {
		t.Errorf("one engine twice: %v", err)
	}
	r.Target = Target{URL: one.url, Further: []string{"ftp://x"}, Balance: "dice"}
	if err := r.Validate(); err == nil || !strings.Contains(err.Error(), "ftp") || !strings.Contains(err.Error(), `balance "dice"`) {
		t.Errorf("an engine with another scheme, and an unknown balance: %v", err)
	}
}

// TestBalanceByPrefix: rows stay together by the first block after the trunk, in separate caches, and the trunk decides nothing.
func TestBalanceByPrefix(t *testing.T) {
	const turns, families = 5, 25
	var lines []string
	for turn := range turns {
		for f := range families {
			// A system prompt of two blocks that all rows share, a block of the family, and one of each row.
			lines = append(lines, fmt.Sprintf(`{"timestamp": %d, "input_length": 2048, "output_length": 2, "hash_ids": [0, 1, %d, %d]}`,
				1000*(families*turn+f), 100+f, 1000+families*turn+f))
		}
	}
	lines = append(lines, `{"timestamp": 200000, "input_length": 1024, "output_length": 2, "hash_ids": [0, 1]}`, `{"timestamp": 200001, "input_length": 1024, "output_length": 2, "hash_ids": [0, 1]}`)
	run := func(balance Balance) (rep *report.Report, engine map[string]int) {
		var notes []string
		cfg := Config{Target: Target{Balance: balance}, Note: func(s string) { notes = append(notes, s) }}
		rep, engine, _, err := overEngines(t, []simulator.Config{{}, {}, {}}, cfg, lines...)
		if err != nil {
			t.Fatal(err)
		}
		want := "balance: the trunk (blocks that more than 16.7 % of the first 127 rows have) has 2 blocks; requests are sent by their first block after the trunk"
		if said := slices.Contains(notes, want); said != (balance == ByPrefix) {
			t.Errorf("%s: told %q", balance, notes)
		}
		return rep, engine
	}
	rep, engine := run(ByPrefix)
	of := make(map[int]int)
	for f := range families {
		first := engine[fmt.Sprint(f)]
		of[first]++
		for turn := range turns {
			if at := engine[fmt.Sprint(families*turn+f)]; at != first {
				t.Errorf("row %d of family %d was sent to engine %d, the first to %d", turn, f, at, first)
			}
		}
	}
	if len(of) != 3 || len(engine) != len(lines) {
		t.Errorf("families by engine: %v, %d rows came", of, len(engine))
	}
	if engine["125"] == engine["126"] {
		t.Errorf("both rows that end in the trunk were sent to engine %d", engine["125"])
	}
	if rep.Schedule.Balance != "prefix" || len(rep.Figures().Servers) != 3 {
		t.Errorf("%+v", rep.Schedule)
	}
	cached := func(rep *report.Report) (n int64) {
		for _, s := range rep.Figures().Servers {
			n += s.CachedTokens
		}
		return n
	}
	// Each family hits its first three blocks from its second row on, and each engine hits at least a block of the trunk from its second
	// row on. With round robin, the rows hit less.
	whole := cached(rep)
	rep, _ = run(RoundRobin)
	turn := cached(rep)
	if least := int64(512 * ((turns-1)*families*3 + families - 3)); whole < least || turn >= whole {
		t.Errorf("%d tokens cached by prefix, want %d; %d in turn", whole, least, turn)
	}
}

// TestBalanceByPrefixOfOtherRows: rows without ids, and new turns, are sent by session.
func TestBalanceByPrefixOfOtherRows(t *testing.T) {
	var lines []string
	for turn := range 4 {
		for s := range 16 {
			lines = append(lines, fmt.Sprintf(`{"session_id": "s%d", "timestamp": %d, "input_length": %d, "output_length": 2, "hash_ids": [%d]}`, s, 1000*turn+s, 100+100*turn, turn*16+s))
		}
	}
	for name, all := range map[string][]string{
		"new turns":   lines,
		"without ids": strings.Split(regexp.MustCompile(`, "hash_ids": \[\d+\]`).ReplaceAllString(strings.Join(lines, "\n"), ""), "\n"),
	} {
		mode := mooncake.SessionDelta
		if name == "without ids" {
			mode = mooncake.SessionFull
		}
		rep, engine, got, err := overEngines(t, []simulator.Config{{}, {}}, Config{Trace: Trace{Sessions: mode}, Target: Target{Balance: ByPrefix}}, all...)
		if err != nil {
			t.Fatal(err)
		}
		for row := range 64 {
			if engine[fmt.Sprint(row)] != engine[fmt.Sprint(row%16)] {
				t.Errorf("%s: row %d was sent to a different engine than the first turn of its session", name, row)
			}
		}
		if len(got[0]) == 0 || len(got[1]) == 0 || !strings.Contains(strings.Join(rep.Warnings, "\n"), "not by prefix") {
			t.Errorf("%s: %d and %d rows, warnings %q", name, len(got[0]), len(got[1]), rep.Warnings)
		}
	}
}
