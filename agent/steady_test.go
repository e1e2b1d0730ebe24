// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/mooncake"
)

// inBubble replays n equal rows, of 16 output tokens, against an engine that takes 100 ms for a prefill and for each further token, in
// virtual time.
func inBubble(t *testing.T, n int, change func(*Config)) (rep *report.Report) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	var rows strings.Builder
	for i := range n {
		fmt.Fprintf(&rows, `{"input_length": 600, "output_length": 16, "hash_ids": [%d, %d]}`+"\n", 2*i, 2*i+1)
	}
	if err := os.WriteFile(path, []byte(rows.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		_, network, stop := serveVirtually(t, simulator.Config{Latency: simulator.Latency{Prefill: 100 * time.Millisecond, Decode: 100 * time.Millisecond}})
		cfg := Config{
			Trace: Trace{Name: path}, Target: Target{URL: "http://engine", Model: "m"}, Prompt: Prompt{Endpoint: prompt.Completions},
			RunID: "run", DialContext: network.Dial, Waiter: schedule.NewSleeper,
		}
		change(&cfg)
		var err error
		rep, err = Run(t.Context(), cfg)
		stop()
		if err != nil {
			t.Fatal(err)
		}
	})
	return rep
}

// A constant rate of 10 requests a second, each in flight for 1.6 s: the load rises to 16 in 1.5 s, stays, and drains in 1.6 s. The steady
// state has the throughput of 16 streams; the whole run has less.
func TestSteadyState(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	for name, change := range map[string]func(*Config){
		"with results":    func(cfg *Config) { cfg.Out = out },
		"without results": func(*Config) {},
	} {
		t.Run(name, func(t *testing.T) {
			temp := t.TempDir()
			t.Setenv("TMPDIR", temp) // which nobody else writes to
			rep := inBubble(t, 400, func(cfg *Config) {
				cfg.Schedule.Arrivals = load.Arrivals{Rate: 10, Pattern: load.Constant}
				cfg.Steady.Auto = true
				change(cfg)
			})
			if rep.Steady == nil {
				t.Fatal("the report has no steady state")
			}
			w := rep.Steady.Window
			if w.From < 1400 || w.From > 1700 || w.To < 39_800 || w.To > 39_999 || w.Level != 16 || w.Peak != 16 {
				t.Errorf("%+v, want from 1.5 to 39.9 s at 16", w)
			}
			f := rep.Steady.Figures()
			got, _ := f.Stat(measure.TokenThroughput)
			whole, _ := rep.Figures().Stat(measure.TokenThroughput)
			if got.Avg < 159 || got.Avg > 161 || whole.Avg > 156 {
				t.Errorf("%v tokens/s, and %v of the whole run", got.Avg, whole.Avg)
			}
			if ttft, _ := f.Stat(measure.TTFT); ttft.Min != 100 || ttft.Max != 100 || f.Rows.Served != 384 {
				t.Errorf("%+v of %+v", ttft, f.Rows)
			}
			if rep.Verdict.Class == judge.Invalid || len(rep.Verdict.TooFew) != 0 && strings.Contains(rep.Verdict.String(), "steady") {
				t.Error(rep.Verdict)
			}
			if left, err := filepath.Glob(filepath.Join(temp, "moonloop-*")); err != nil || len(left) > 0 {
				t.Errorf("%v are left, %v", left, err)
			}
		})
	}
	b, err := os.ReadFile(filepath.Join(out, report.SummaryJSON))
	if err != nil {
		t.Fatal(err)
	}
	var summary struct {
		Whole  struct{ Avg float64 } `json:"output_token_throughput"`
		Steady struct {
			Window report.Window
			Rows   measure.Rows
			Tokens struct{ Avg float64 } `json:"output_token_throughput"`
		} `json:"steady_state"`
	}
	if err := json.Unmarshal(b, &summary); err != nil || summary.Steady.Tokens.Avg <= summary.Whole.Avg || summary.Steady.Rows.Total != 384 || summary.Steady.Window.Zero <= 0 {
		t.Errorf("%+v, %v", summary, err)
	}
}

// The ramp of the rate is not steady, whatever the median. A closed loop is steady once it is full. A chosen part is used as given.
func TestSteadyStateBounds(t *testing.T) {
	for name, test := range map[string]struct {
		change   func(*Config)
		from, to float64 // ms
	}{
		"ramp": {func(cfg *Config) {
			cfg.Schedule.Arrivals = load.Arrivals{Rate: 10, Pattern: load.Constant, RampUp: 20 * time.Second}
			cfg.Steady.Auto = true
		}, 20_000, 30_000},
		"closed loop": {func(cfg *Config) {
			cfg.Schedule.FileOrder, cfg.Schedule.Concurrency, cfg.Steady.Auto = true, 4, true
		}, 0, 78_400}, // 200 requests, 4 at a time, 1.6 s each; the last four begin at 49 · 1.6 s
		"chosen part": {func(cfg *Config) {
			cfg.Schedule.Arrivals = load.Arrivals{Rate: 10, Pattern: load.Constant}
			cfg.Steady.From, cfg.Steady.To = Mark{Given: true, Share: 0.1}, Mark{Given: true, After: -5 * time.Second}
		}, 1990, 14_900},
		"chosen beginning of an automatic part": {func(cfg *Config) {
			cfg.Schedule.Arrivals = load.Arrivals{Rate: 10, Pattern: load.Constant}
			cfg.Steady.Auto, cfg.Steady.From = true, Mark{Given: true, After: 9 * time.Second}
		}, 9000, 19_900},
	} {
		t.Run(name, func(t *testing.T) {
			rep := inBubble(t, 200, test.change)
			if rep.Steady == nil {
				t.Fatal(rep.Warnings)
			}
			if w := rep.Steady.Window; w.From < test.from-20 || w.From > test.from+20 || w.To < test.to-100 || w.To > test.to+100 {
				t.Errorf("%+v, want %v to %v", w, test.from, test.to)
			}
		})
	}
}

// If there is no steady state, or it is too short, the report says so, and the verdict reflects it.
func TestSteadyStateTooShort(t *testing.T) {
	rep := inBubble(t, 30, func(cfg *Config) {
		cfg.Schedule.Arrivals = load.Arrivals{Rate: 10, Pattern: load.Constant}
		cfg.Steady.From = Mark{Given: true, After: time.Hour}
	})
	if rep.Steady != nil || !strings.Contains(strings.Join(rep.Warnings, ""), "no steady state: it would begin at 2.900 s and end at 2.900 s") {
		t.Error(rep.Warnings)
	}
	if text := rep.Verdict.String(); !strings.Contains(text, "0 of the 100 steady requests that steady_latency_share needs") {
		t.Error(text)
	}
	var table strings.Builder
	if err := rep.Table(&table, 120, false); err != nil || !strings.Contains(table.String(), "LLM Metrics of the Whole Run\n") ||
		!strings.Contains(table.String(), "Steady      none, see Warnings: the table covers the whole run") {
		t.Errorf("%v\n%s", err, table.String())
	}
	rep = inBubble(t, 1, func(cfg *Config) { cfg.Steady.Auto = true })
	if rep.Steady != nil || !strings.Contains(strings.Join(rep.Warnings, ""), "no steady state: it needs two or more requests") {
		t.Error(rep.Warnings)
	}
	rep = inBubble(t, 400, func(cfg *Config) {
		cfg.Schedule.Arrivals = load.Arrivals{Rate: 100, Pattern: load.Constant}
		cfg.Steady.Auto = true
	})
	if text := rep.Verdict.String(); !strings.Contains(text, "degraded: steady_latency_share") {
		t.Error(text)
	}
}

// A part that no run can have is refused before the run.
func TestSteadyCheck(t *testing.T) {
	for _, test := range []struct {
		from, to string
		limit    time.Duration
		want     string // beginning of the error
	}{
		{"50%", "20%", 0, "steady-from 50%: the part would end before it begins, or at once, at --steady-to 20%"},
		{"29%", "29%", 0, "steady-from 29%: the part would end"},
		{"2m", "90s", 0, "steady-from 2m0s: the part would end"},
		{"-10s", "-30s", 0, "steady-from -10s: the part would end"},
		{"100%", "", 0, "steady-from 100%: the last request is sent then"},
		{"100%", "-1s", 0, "steady-from 100%: the last request is sent then"},
		{"10%", "0s", 0, "steady-to 0s: the schedule begins then"},
		{"", "0%", 0, "steady-to 0s: the schedule begins then"},
		{"100h", "", time.Hour, "steady-from 100h0m0s: the run ends before, at --max-duration 1h0m0s"},
		{"100h", "", 0, ""},
		{"10%", "90%", 0, ""},
		{"0s", "20%", 0, ""},
		{"0%", "20s", 0, ""},
		{"-30s", "-10s", time.Second, ""},
		{"30s", "20%", 0, ""},
		{"50%", "10s", 0, ""},
		{"-10s", "20s", 0, ""},
		{"20s", "-10s", time.Minute, ""},
		{"-1s", "100%", 0, ""},
	} {
		cfg := Config{Trace: Trace{Name: "t"}, Target: Target{URL: "http://e"}, Schedule: Schedule{MaxDuration: test.limit}}
		if test.from != "" {
			cfg.Steady.From, _ = ParseMark(test.from)
		}
		if test.to != "" {
			cfg.Steady.To, _ = ParseMark(test.to)
		}
		got := ""
		if err := cfg.Validate(); err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, test.want) || got != "" && test.want == "" {
			t.Errorf("from %q to %q, at most %v: %q, want %q", test.from, test.to, test.limit, got, test.want)
		}
	}
}

func TestParseMark(t *testing.T) {
	for text, want := range map[string]Mark{
		"10%": {true, 0.1, 0}, "30s": {true, 0, 30 * time.Second}, "-2m": {true, 0, -2 * time.Minute}, "0s": {Given: true}, "100%": {true, 1, 0},
	} {
		if got, err := ParseMark(text); got != want || err != nil {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "10", "101%", "-1%", "NaN%", "%", "soon", "1e999%"} {
		if m, err := ParseMark(text); err == nil {
			t.Errorf("%q is read as %+v", text, m)
		}
	}
}

// TestFailedStartLeavesNoFolder: if the records of a run without results cannot be stored, their temporary folder is removed.
func TestFailedStartLeavesNoFolder(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	p := plan{steady: Steady{Auto: true}, sidecar: mooncake.Meta{Transformations: []mooncake.Transformation{
		{Before: &mooncake.TraceFigures{Rate: math.NaN()}}, // which JSON cannot express
	}}}
	if _, err := newRecorder(p, texts{}, nil, nil, nil); err == nil {
		t.Error("no error")
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
