// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/mooncake"
)

// inVirtualTime replays rows in a bubble and returns the report and the requests that the engine got, in the order of their arrival.
func inVirtualTime(t *testing.T, engine simulator.Config, cfg Config, lines ...string) (rep *report.Report, got []*simulator.Record) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		engine.Record.Keep = len(lines)*10 + 10
		e, network, stop := serveVirtually(t, engine)
		path := filepath.Join(t.TempDir(), "trace.jsonl")
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg.Trace.Name, cfg.Target, cfg.Prompt.Endpoint = path, Target{URL: "http://engine", Model: "m"}, ids.Endpoint
		cfg.RunID, cfg.DialContext, cfg.Waiter = "run", network.Dial, schedule.NewSleeper
		var err error
		if rep, err = Run(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		stop()
		for _, rec := range e.Records() {
			if strings.HasPrefix(rec.Header.Get("X-Request-Id"), "run-") {
				got = append(got, rec)
			}
		}
	})
	slices.SortFunc(got, func(a, b *simulator.Record) int { return int(a.Headers - b.Headers) })
	return rep, got
}

// order returns, for each request, the index of its row, and the time of its arrival since that of the first request.
func order(got []*simulator.Record) (rows []string, offsets []time.Duration) {
	for _, rec := range got {
		rows = append(rows, strings.TrimPrefix(rec.Header.Get("X-Request-Id"), "run-"))
		offsets = append(offsets, rec.Headers-got[0].Headers)
	}
	return rows, offsets
}

// TestRequestRate: what arrives, and when, follows the schedule that was asked for, and the verdict compares the run with that schedule.
func TestRequestRate(t *testing.T) {
	lines := rows(400, 3000)
	for _, tc := range []struct {
		a  load.Arrivals
		is report.Schedule
	}{
		{load.Arrivals{Rate: 20, Pattern: load.Constant}, report.Schedule{Mode: report.AtRate, RequestRate: 20, Arrival: "constant"}},
		{load.Arrivals{Rate: 20}, report.Schedule{Mode: report.AtRate, RequestRate: 20, Arrival: "poisson"}},
		{load.Arrivals{Rate: 20, Pattern: load.Gamma, Burstiness: 0.3}, report.Schedule{Mode: report.AtRate, RequestRate: 20, Arrival: "gamma", Burstiness: 0.3}},
		{load.Arrivals{Rate: 20, Pattern: load.Constant, RampUp: 10 * time.Second}, report.Schedule{Mode: report.AtRate, RequestRate: 20, Arrival: "constant", RampUp: 10_000, RampShape: "linear"}},
		{
			load.Arrivals{Rate: 10, Pattern: load.Constant, Series: []load.RatePoint{{Seconds: 0, Rate: 10}, {Seconds: 10, Rate: 30}}},
			report.Schedule{Mode: report.AtRate, RequestRate: 10, Arrival: "constant", Series: []report.RatePoint{{At: 0, Rate: 10}, {At: 10_000, Rate: 30}}},
		},
		{load.Arrivals{Rate: math.Inf(1)}, report.Schedule{Mode: report.AllAtOnce}},
	} {
		cfg := Config{Schedule: Schedule{Arrivals: tc.a}}
		cfg.Prompt.Seed = 5
		rep, got := inVirtualTime(t, simulator.Config{Latency: simulator.Latency{Prefill: 70 * time.Millisecond}}, cfg, lines...)
		arrived, at := order(got)
		if len(got) != len(lines) {
			t.Fatalf("%+v: %d requests", tc.a, len(got))
		}
		for i, row := range arrived {
			if !tc.a.AtOnce() && row != fmt.Sprint(i) {
				t.Fatalf("%+v: row %s came as number %d", tc.a, row, i)
			}
		}
		last := at[len(at)-1].Seconds()
		switch {
		case tc.a.AtOnce() && last != 0:
			t.Errorf("all at once: the last came after %v s", last)
		case tc.a.Series != nil: // 200 rows until the second point
			if at[200] != 10*time.Second || at[201]-at[200] != 33_333_333*time.Nanosecond {
				t.Errorf("series: row 200 at %v, 201 at %v", at[200], at[201])
			}
		case tc.a.Pattern == load.Constant && tc.a.RampUp == 0:
			for i := range at {
				if want := time.Duration(i) * 50 * time.Millisecond; at[i] != want {
					t.Fatalf("constant: number %d came at %v, want %v", i, at[i], want)
				}
			}
		case tc.a.RampUp > 0: // 100 rows in the ramp
			if at[100] != 10*time.Second || at[101]-at[100] != 50*time.Millisecond || at[25] != 5*time.Second {
				t.Errorf("ramp: row 25 at %v, 100 at %v, 101 at %v", at[25], at[100], at[101])
			}
		case !tc.a.AtOnce() && (last < 399/20.*0.75 || last > 399/20.*1.25):
			t.Errorf("%+v: %v s for 400 requests at 20 a second", tc.a, last)
		}
		late, _ := rep.Figures().Stat(measure.Lateness)
		if late.Max != 0 || late.Count != int64(len(lines)) || rep.Verdict.Class == judge.Invalid {
			t.Errorf("%+v: lateness up to %v ms of %d rows, verdict %v", tc.a, late.Max, late.Count, rep.Verdict)
		}
		tc.is.Speedup, tc.is.Seed = 1, 5
		if !reflect.DeepEqual(rep.Schedule, tc.is) {
			t.Errorf("the summary has %+v, want %+v", rep.Schedule, tc.is)
		}
	}
}

// TestRequestRateOfSessions: a turn that is due before the previous turn has ended waits for its end; a turn with a delay is sent that long
// after the previous turn's end.
func TestRequestRateOfSessions(t *testing.T) {
	const reply = 1500 * time.Millisecond
	row := func(rest string) string {
		return `{"session_id": "a", "input_length": 600, "output_length": 1, "hash_ids": [0, 1], ` + rest + `}`
	}
	cfg := Config{Trace: Trace{Sessions: mooncake.SessionFull}, Schedule: Schedule{Arrivals: load.Arrivals{Rate: 1, Pattern: load.Constant}}}
	_, got := inVirtualTime(t, simulator.Config{Latency: simulator.Latency{Prefill: reply}}, cfg,
		row(`"timestamp": 0`), row(`"timestamp": 1`), row(`"delay": 300`), row(`"timestamp": 7000`),
		`{"timestamp": 8000, "input_length": 600, "output_length": 1}`)
	arrived, at := order(got)
	// Rows 0, 1, 3 and 4 are due at 0, 1, 2 and 3 s. Row 2 has a delay instead.
	want := []time.Duration{0, reply, 3 * time.Second, 2*reply + 300*time.Millisecond, 3*reply + 300*time.Millisecond}
	if fmt.Sprint(arrived) != "[0 1 4 2 3]" || !slices.Equal(at, want) {
		t.Errorf("rows %v at %v, want %v", arrived, at, want)
	}
}

// TestPrefillConcurrency: the engine never has more requests in prefill than the cap allows, but has more than that in decode.
func TestPrefillConcurrency(t *testing.T) {
	cfg := Config{Schedule: Schedule{Arrivals: load.Arrivals{Rate: math.Inf(1)}, PrefillConcurrency: 2}}
	lines := rows(7, 0)
	for i := range lines {
		lines[i] = strings.Replace(lines[i], `"output_length": 2`, `"output_length": 50`, 1)
	}
	rep, got := inVirtualTime(t, simulator.Config{Latency: simulator.Latency{Prefill: time.Second, Decode: 100 * time.Millisecond}}, cfg, lines...)
	_, at := order(got)
	if want := []time.Duration{0, 0, time.Second, time.Second, 2 * time.Second, 2 * time.Second, 3 * time.Second}; !slices.Equal(at, want) {
		t.Errorf("requests came at %v, want %v", at, want)
	}
	if late, _ := rep.Figures().Stat(measure.Lateness); late.Max != 0 || rep.Figures().Schedule.CapWaits != 5 || rep.Schedule.PrefillConcurrency != 2 {
		t.Errorf("up to %v ms late, %d waited for the cap, %+v", late.Max, rep.Figures().Schedule.CapWaits, rep.Schedule)
	}
}

// TestConcurrencyRamp: as the cap rises, an engine with long replies gets one more request at a time, in a closed loop and by timestamps.
// The steady state begins when the cap has risen.
func TestConcurrencyRamp(t *testing.T) {
	slow := simulator.Config{Latency: simulator.Latency{Prefill: 10 * time.Second}}
	rising := Schedule{Concurrency: 4, ConcurrencyRampUp: 6 * time.Second}
	closed := rising
	closed.FileOrder = true
	for name, s := range map[string]Schedule{"timestamps": rising, "closed loop": closed} {
		rep, got := inVirtualTime(t, slow, Config{Schedule: s, Steady: Steady{Auto: true}}, rows(10, 0)...)
		_, at := order(got)
		want := []time.Duration{0, 2, 4, 6, 10, 12, 14, 16, 20, 22}
		for i := range want {
			want[i] *= time.Second
		}
		late, _ := rep.Figures().Stat(measure.Lateness)
		if !slices.Equal(at, want) || late.Max != 0 || rep.Schedule.ConcurrencyRampUp != 6000 || rep.Schedule.Concurrency != 4 {
			t.Errorf("%s: requests came at %v, want %v; up to %v ms late, %+v", name, at, want, late.Max, rep.Schedule)
		}
		if rep.Steady == nil || rep.Steady.Window.From != 6000 {
			t.Errorf("%s: the steady state is %+v", name, rep.Steady)
		}
	}
	cfg := Config{Schedule: Schedule{FileOrder: true, Concurrency: 4, PrefillConcurrency: 3, PrefillRampUp: 20 * time.Second}}
	rep, got := inVirtualTime(t, slow, cfg, rows(6, 0)...)
	_, at := order(got)
	want := []time.Duration{0, 10 * time.Second, 10 * time.Second, 20 * time.Second, 20 * time.Second, 20 * time.Second}
	if !slices.Equal(at, want) || rep.Schedule.PrefillRampUp != 20_000 {
		t.Errorf("prefills: requests came at %v, want %v; %+v", at, want, rep.Schedule)
	}
}

// TestUsers: the users send one after the other, at equal intervals. A turn whose predecessor has not ended arrives when its predecessor
// ends; the turns after it arrive at their own times.
func TestUsers(t *testing.T) {
	row := func(session string, further int) string {
		return fmt.Sprintf(`{"session_id": %q, "timestamp": 7, "input_length": 600, "output_length": %d, "hash_ids": [0, 1]}`, session, 1+further)
	}
	cfg := Config{Trace: Trace{Sessions: mooncake.SessionFull}, Schedule: Schedule{Arrivals: load.Arrivals{Rate: 2, Users: 2}}}
	engine := simulator.Config{Latency: simulator.Latency{Prefill: 100 * time.Millisecond, Decode: time.Second}}
	// The second row's reply takes 1.1 s, which is longer than the 1 s between two turns of its user.
	rep, got := inVirtualTime(t, engine, cfg, row("a", 0), row("b", 1), row("b", 0), row("c", 0), row("a", 0), row("b", 0))
	arrived, at := order(got)
	// Due: a at 0 s, b at 0.5, a at 1, b at 1.5 (it waits until 1.6), c at 2, b at 2.5.
	want := []time.Duration{0, 500, 1000, 1600, 2000, 2500}
	for i := range want {
		want[i] *= time.Millisecond
	}
	if fmt.Sprint(arrived) != "[0 1 4 2 3 5]" || !slices.Equal(at, want) {
		t.Errorf("rows %v at %v, want %v", arrived, at, want)
	}
	late, _ := rep.Figures().Stat(measure.Lateness)
	if is := rep.Schedule; late.Max != 0 || is.Mode != report.AtRate || is.Users != 2 || is.RequestRate != 2 || is.Arrival != "constant" {
		t.Errorf("up to %v ms late, %+v", late.Max, is)
	}
	cfg.Trace.Sessions = mooncake.SessionNone
	rep, _ = inVirtualTime(t, engine, cfg, rows(3, 0)...)
	if !slices.ContainsFunc(rep.Warnings, func(s string) bool { return strings.Contains(s, "no session has a second turn") }) {
		t.Errorf("warnings for a trace without sessions: %q", rep.Warnings)
	}
}
