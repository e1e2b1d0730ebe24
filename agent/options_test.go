// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/internal/simulator"
)

// ids is the configuration of most tests here: token ids need no calibration.
var ids = Prompt{Endpoint: prompt.Completions}

// rows returns n rows at equal intervals (every, in ms), with 100 input and 2 output tokens, each with a block of its own.
func rows(n, every int) []string {
	var lines []string
	for i := range n {
		lines = append(lines, fmt.Sprintf(`{"timestamp": %d, "input_length": 100, "output_length": 2, "hash_ids": [%d]}`, i*every, i))
	}
	return lines
}

// sentRows returns the rows that reached the engine.
func (r replayed) sentRows() (sent []int) {
	for i, rec := range r.sent {
		if rec != nil {
			sent = append(sent, i)
		}
	}
	return sent
}

func TestOptionWindowAndLimit(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	for _, tc := range []struct {
		name  string
		trace Trace
		want  string
	}{
		{"all", Trace{}, "[0 1 2 3 4 5 6 7]"},
		{"start", Trace{Start: 30 * time.Millisecond}, "[3 4 5 6 7]"},
		{"end", Trace{End: 30 * time.Millisecond}, "[0 1 2 3]"},
		{"both", Trace{Start: 20 * time.Millisecond, End: 40 * time.Millisecond}, "[2 3 4]"},
		{"max requests", Trace{MaxRows: 3}, "[0 1 2]"},
		{"shard 0 of 2", Trace{Shards: 2}, "[0 2 4 6]"},
		{"shard 1 of 2", Trace{Shard: 1, Shards: 2}, "[1 3 5 7]"},
	} {
		r := e.replay(t, Config{Trace: tc.trace, Prompt: ids}, rows(8, 10)...)
		if r.err != nil {
			t.Errorf("%s: %v", tc.name, r.err)
			continue
		}
		if got := fmt.Sprint(r.sentRows()); got != tc.want {
			t.Errorf("%s: rows %s were sent, want %s", tc.name, got, tc.want)
		}
	}
}

func TestOptionReadStamps(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux stamps arrivals in the kernel")
	}
	e := newEngine(t, simulator.Config{})
	for _, read := range []bool{false, true} {
		r := e.replay(t, Config{Prompt: ids, Target: Target{ReadStamps: read}}, rows(3, 10)...)
		if r.err != nil {
			t.Fatal(r.err)
		}
		want := int64(3)
		if read {
			want = 0
		}
		if got := r.report.Figures().Chunks.KernelStamps; got != want {
			t.Errorf("read stamps %t: %d streams stamped by the kernel, want %d", read, got, want)
		}
	}
}

func TestOptionSpeedup(t *testing.T) {
	virtually(t, simulator.Config{}, func(t bubble, e engine) {
		for _, speed := range []float64{0.5, 4} {
			r := e.replay(t, Config{Schedule: Schedule{Speedup: speed}, Prompt: ids}, rows(3, 100)...)
			if r.err != nil {
				t.Fatal(r.err)
			}
			want := time.Duration(200/speed) * time.Millisecond
			if took := r.sent[2].Headers - r.sent[0].Headers; took != want {
				t.Errorf("speed-up %v: 200 ms of trace took %v, want %v", speed, took, want)
			}
			if got := r.results[2].Result.Intended - r.results[0].Result.Intended; got < want.Seconds()*1e3-0.01 || got > want.Seconds()*1e3+0.01 {
				t.Errorf("speed-up %v: intended %.3f ms apart, want %v", speed, got, want)
			}
		}
	})
}

func TestOptionSpread(t *testing.T) {
	var lines []string
	for i := range 40 {
		lines = append(lines, fmt.Sprintf(`{"timestamp": %d, "input_length": 100, "output_length": 1}`, 50*(i/4)))
	}
	e := newEngine(t, simulator.Config{})
	at := func(s load.Spread) map[float64]int {
		r := e.replay(t, Config{Schedule: Schedule{Spread: s}, Prompt: ids}, lines...)
		if r.err != nil {
			t.Fatal(r.err)
		}
		instants := make(map[float64]int)
		for _, res := range r.results {
			instants[res.Result.Intended]++
		}
		return instants
	}
	if n := len(at(load.SpreadNone)); n != 10 {
		t.Errorf("no spreading: %d instants, want the 10 timestamps", n)
	}
	if n := len(at(load.SpreadEven)); n != 40 {
		t.Errorf("even spreading: %d instants, want 40", n)
	}
	if n := len(at(load.SpreadUniform)); n != 40 {
		t.Errorf("uniform spreading: %d instants, want 40", n)
	}
}

func TestOptionConcurrencyCap(t *testing.T) {
	virtually(t, simulator.Config{Latency: simulator.Latency{Prefill: 30 * time.Millisecond}}, func(t bubble, e engine) {
		r := e.replay(t, Config{Schedule: Schedule{Concurrency: 2}, Prompt: ids}, rows(6, 0)...)
		if r.err != nil {
			t.Fatal(r.err)
		}
		if most := mostAtOnce(r.sent); most != 2 {
			t.Errorf("%d requests at once, the cap is 2", most)
		}
		wait, ok := r.report.Figures().Stat(measure.CapWait)
		if !ok || wait.Max != 60 { // the last two wait for two rounds of 30 ms
			t.Errorf("wait for the cap: %+v, %v", wait, ok)
		}
		if v := r.report.Verdict; v.Class != judge.Degraded && v.Class != judge.Invalid {
			t.Errorf("a run that its cap held back is %v", v.Class)
		}
	})
}

func TestOptionNoFixedSchedule(t *testing.T) {
	virtually(t, simulator.Config{}, func(t bubble, e engine) {
		started := time.Now()
		r := e.replay(t, Config{Schedule: Schedule{FileOrder: true, Concurrency: 1}, Prompt: ids}, rows(5, 3_600_000)...)
		if r.err != nil {
			t.Fatal(r.err)
		}
		if len(r.sentRows()) != 5 || time.Since(started) >= time.Hour {
			t.Error("timestamps were not ignored")
		}
		for i := 1; i < 5; i++ {
			if r.sent[i].Headers < r.sent[i-1].Ended {
				t.Errorf("row %d overtook row %d", i, i-1)
			}
		}
		if got := r.report.Schedule.Mode; got != "closed_loop" {
			t.Errorf("schedule mode %q", got)
		}
	})
}

func TestOptionMaxDuration(t *testing.T) {
	virtually(t, simulator.Config{}, func(t bubble, e engine) {
		r := e.replay(t, Config{Schedule: Schedule{MaxDuration: 100 * time.Millisecond}, Prompt: ids}, append(rows(3, 40), `{"timestamp": 3600000, "input_length": 100}`)...)
		if r.err != nil {
			t.Fatal(r.err)
		}
		if got := fmt.Sprint(r.sentRows()); got != "[0 1 2]" {
			t.Errorf("rows %s were sent, want [0 1 2]", got)
		}
		if res := r.results[3].Result; res.Outcome != "skipped" || res.Reason != measure.SkipDuration {
			t.Errorf("last row: %+v", res)
		}
	})
}

func TestOptionGrace(t *testing.T) {
	virtually(t, simulator.Config{Latency: simulator.Latency{Prefill: time.Hour}}, func(t bubble, e engine) {
		r := e.replay(t, Config{
			Schedule: Schedule{MaxDuration: 20 * time.Millisecond, Grace: 20 * time.Millisecond}, Prompt: ids,
			SLO: measure.SLO{TTFT: 30 * time.Millisecond}, GoodputGoal: 0.5,
		}, rows(2, 15)...)
		if r.err != nil {
			t.Fatal(r.err)
		}
		for i, res := range r.results {
			if res.Result.Outcome != "cancelled" || res.Result.Reason != measure.CancelEnd {
				t.Errorf("row %d: %s %s, want cancelled after the grace", i, res.Result.Outcome, res.Result.Reason)
			}
		}
		// The first row waited 40 ms for its first token, and missed it; the second one 25 ms.
		good, ok := r.report.Figures().Stat(measure.GoodFraction)
		if rows := r.report.Figures().Rows; rows.CutOff != 2 || rows.CutOffMissed != 1 || !ok || good.Avg != 0 || len(r.report.Missed) != 1 {
			t.Errorf("%+v, goodput %v %t, missed %q", rows, good.Avg, ok, r.report.Missed)
		}
		if v := r.report.Verdict.String(); !strings.Contains(v, "degraded: cut_off_share 100 %") {
			t.Error(v)
		}
	})
}

func TestOptionHeadersAndKey(t *testing.T) {
	e := newEngine(t, simulator.Config{APIKey: "sesame"})
	r := e.replay(t, Config{
		Target: Target{APIKey: "sesame", Header: http.Header{"X-Test": {"yes"}}}, Prompt: ids,
	}, rows(1, 0)...)
	if r.err != nil {
		t.Fatal(r.err)
	}
	if rec := r.sent[0]; !rec.Authorized || rec.Header.Get("X-Test") != "yes" || rec.Status != 200 {
		t.Errorf("record %+v", rec)
	}
	r = e.replay(t, Config{Target: Target{APIKey: "wrong", Model: "m"}, Prompt: ids}, rows(1, 0)...)
	if r.err != nil || r.results[0].Result.Reason != "401" {
		t.Errorf("error %v, results %+v", r.err, r.results)
	}
	if strings.Contains(fmt.Sprintf("%+v", r.results), "wrong") {
		t.Error("the key is in the results")
	}
}

func TestOptionSeedExtraAndOutputs(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	base := Config{Prompt: Prompt{Endpoint: prompt.Completions, Seed: 7}}
	line := []string{
		`{"timestamp": 0, "input_length": 100, "output_length": 50, "hash_ids": [1]}`,
		`{"timestamp": 1, "input_length": 100, "hash_ids": [1]}`,
	}
	a, b := e.replay(t, base, line...), e.replay(t, base, line...)
	if a.err != nil || b.err != nil {
		t.Fatal(a.err, b.err)
	}
	if string(a.sent[0].Body) != string(b.sent[0].Body) {
		t.Error("the same seed gives other bytes")
	}
	base.Prompt.Seed = 8
	if c := e.replay(t, base, line...); c.sent[0].PromptHash == a.sent[0].PromptHash {
		t.Error("another seed gives the same prompt")
	}
	base.Prompt.Extra, base.Prompt.Output, base.Prompt.OutputCap = []byte(`{"temperature": 0.5}`), 9, 20
	c := e.replay(t, base, line...)
	if got := body(t, c.sent[0]); got.Temperature == nil || *got.Temperature != 0.5 {
		t.Error("extra inputs were not sent")
	}
	if c.sent[0].Request.MaxTokens != 20 || c.sent[1].Request.MaxTokens != 9 {
		t.Errorf("at most %d and %d tokens, want the cap 20 and the default 9", c.sent[0].Request.MaxTokens, c.sent[1].Request.MaxTokens)
	}
}

func TestOptionNoStream(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	r := e.replay(t, Config{Prompt: Prompt{Endpoint: prompt.Completions, NoStream: true}}, rows(2, 1)...)
	if r.err != nil {
		t.Fatal(r.err)
	}
	if r.sent[0].Request.Stream || r.results[0].Result.Outcome != "served" || r.results[0].Result.Usage.Prompt != 100 {
		t.Errorf("request %+v, result %+v", r.sent[0].Request, r.results[0])
	}
}

func TestOptionTooShort(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	lines := []string{`{"timestamp": 0, "input_length": 3, "output_length": 2}`, `{"timestamp": 1, "input_length": 100, "output_length": 2}`}
	r := e.replay(t, Config{Prompt: Prompt{}}, lines...)
	if r.err != nil {
		t.Fatal(r.err)
	}
	if res := r.results[0].Result; !res.TooShort || res.Prompt != "different" || res.Usage.Prompt <= 3 {
		t.Errorf("a row shorter than the template: %+v", res)
	}
	r = e.replay(t, Config{Prompt: Prompt{TooShort: prompt.Skip}}, lines...)
	if res := r.results[0].Result; res.Outcome != "skipped" || res.Reason != measure.SkipTooShort || r.sent[0] != nil {
		t.Errorf("skipped on request: %+v", res)
	}
}

func TestOptionModelFromTheEngine(t *testing.T) {
	e := newEngine(t, simulator.Config{Models: []string{"the-model"}})
	r := e.replay(t, Config{Prompt: ids}, rows(1, 0)...)
	if r.err != nil || r.sent[0].Request.Model != "the-model" {
		t.Fatalf("error %v", r.err)
	}
	r = e.replay(t, Config{Target: Target{Model: "another"}, Prompt: ids}, rows(1, 0)...)
	if r.err != nil || r.results[0].Result.Reason != "404" || r.report.ExitStatus == 0 {
		t.Errorf("a model that nobody serves: error %v, exit %d, %+v", r.err, r.report.ExitStatus, r.results)
	}
}

func TestOptionGoals(t *testing.T) {
	e := newEngine(t, simulator.Config{Latency: simulator.Latency{Prefill: 30 * time.Millisecond}})
	slo := func(text string) measure.SLO {
		s, err := measure.ParseSLO(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	r := e.replay(t, Config{SLO: slo("ttft=1ms"), GoodputGoal: 0.5, Prompt: ids}, rows(4, 1)...)
	if r.err != nil || len(r.report.Missed) != 1 || r.report.ExitStatus == judge.ExitOK {
		t.Errorf("missed goal: error %v, missed %q, exit %d", r.err, r.report.Missed, r.report.ExitStatus)
	}
	r = e.replay(t, Config{SLO: slo("ttft=60s"), GoodputGoal: 1, Prompt: ids}, rows(4, 1)...)
	if r.err != nil || len(r.report.Missed) != 0 || r.report.ExitStatus == judge.ExitGoals {
		t.Errorf("reached goal: error %v, missed %q, exit %d", r.err, r.report.Missed, r.report.ExitStatus)
	}
}

func TestOptionErrorLimits(t *testing.T) {
	virtually(t, simulator.Config{Models: []string{"m"}}, func(t bubble, e engine) {
		bad := `, "extra": {"model": "nobody's"}}`
		var lines []string
		for i := range 60 {
			lines = append(lines, fmt.Sprintf(`{"timestamp": %d, "input_length": 100, "output_length": 2`, 20*i)+bad)
		}
		lines = append(lines, `{"timestamp": 3600000, "input_length": 100}`)
		r := e.replay(t, Config{AbortErrorRate: 0.5, Prompt: ids}, lines...)
		if r.err != nil {
			t.Fatal(r.err)
		}
		if n := len(r.sentRows()); n != 10 {
			t.Errorf("%d requests were sent, want the run to end after 10", n)
		}
		if res := r.results[60].Result; res.Outcome != "skipped" || res.Reason != measure.SkipAborted {
			t.Errorf("last row: %+v", res)
		}
		r = e.replay(t, Config{AbortErrors: 3, Prompt: ids}, lines...)
		if n := len(r.sentRows()); r.err != nil || n != 3 || r.results[60].Result.Reason != measure.SkipAborted {
			t.Errorf("%d requests were sent, want the run to end after 3; %v", n, r.err)
		}
		lines = append(rows(3, 1), lines[0])
		if r = e.replay(t, Config{MaxErrorRate: new(0.1), Prompt: ids}, lines...); len(r.report.Missed) != 1 || r.report.ExitStatus == judge.ExitOK {
			t.Errorf("1 of 4 failed with a limit of 10 %%: missed %q, exit %d", r.report.Missed, r.report.ExitStatus)
		}
		if r = e.replay(t, Config{MaxErrorRate: new(0.3), Prompt: ids}, lines...); len(r.report.Missed) != 0 || r.report.ExitStatus == judge.ExitGoals {
			t.Errorf("1 of 4 failed with a limit of 30 %%: missed %q, exit %d", r.report.Missed, r.report.ExitStatus)
		}
	})
}

func TestInterrupt(t *testing.T) {
	virtually(t, simulator.Config{Latency: simulator.Latency{Prefill: time.Hour}}, func(t bubble, e engine) {
		ctx, cancel := context.WithCancel(t.Context())
		cfg := Config{Prompt: ids, Progress: func(*Live) { time.AfterFunc(50*time.Millisecond, cancel) }}
		r := e.replayContext(ctx, t, cfg, append(rows(2, 1), `{"timestamp": 3600000, "input_length": 100}`)...)
		if r.err != nil {
			t.Fatal(r.err)
		}
		want := []string{"cancelled cancelled", "cancelled cancelled", "skipped interrupted"}
		for i, res := range r.results {
			if got := res.Result.Outcome + " " + res.Result.Reason; got != want[i] {
				t.Errorf("row %d: %s, want %s", i, got, want[i])
			}
		}
		if r.report.ExitStatus != judge.ExitInterrupted || !r.report.Run.Interrupted {
			t.Errorf("exit %d", r.report.ExitStatus)
		}
	})
}

func TestUnreachableEngine(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	e.url = "http://127.0.0.1:1"
	if r := e.replay(t, Config{Prompt: ids}, rows(1, 0)...); r.err == nil || !strings.Contains(r.err.Error(), "127.0.0.1:1") {
		t.Errorf("error %v, want one that names the engine", r.err)
	}
}

func TestValidateReportsAll(t *testing.T) {
	cfg := Config{Target: Target{URL: "ftp://x"}, Schedule: Schedule{Speedup: -1, Concurrency: -2}, GoodputGoal: 2}
	err := cfg.Validate()
	for _, want := range []string{"trace:", "url", "speed-up", "concurrency", "goodput goal"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not speak of %q", err, want)
		}
	}
}

// TestValidateRefusesWhatRunCannotUse: each of these once reached the trace or the engine, or was taken for something else.
func TestValidateRefusesWhatRunCannotUse(t *testing.T) {
	for want, cfg := range map[string]Config{
		"run id:":                       {RunID: "a\nb"},
		"header X-A:":                   {Target: Target{Header: http.Header{"X-A": {"canary\n"}}}},
		`header "a b":`:                 {Target: Target{Header: http.Header{"a b": {""}}}},
		"session header":                {Target: Target{SessionHeader: "a b"}},
		"API key:":                      {Target: Target{APIKey: "canary\n"}},
		`connections "x"`:               {Target: Target{Connections: "x"}},
		"shard 2 of 2: want 0 to 1":     {Trace: Trace{Shards: 2, Shard: 2}},
		"shard 1: the number":           {Trace: Trace{Shard: 1}},
		"shards -1":                     {Trace: Trace{Shards: -1}},
		"time unit 7ns: want":           {Trace: Trace{Unit: 7}},
		"its end 1s is before":          {Trace: Trace{Start: 2 * time.Second, End: time.Second}},
		"session mode 9":                {Trace: Trace{Sessions: 9}},
		"extra inputs: not a JSON":      {Prompt: Prompt{Extra: []byte("[1]")}},
		`profile "x"`:                   {Target: Target{Profile: "x"}},
		"lead -1s":                      {Lead: -time.Second},
		"slice -1s: want 1ms":           {Slice: -time.Second},
		"trace URL:":                    {TraceURL: "http://jaeger"},
		"spread 9":                      {Schedule: Schedule{Spread: 9}},
		"spread: it has no effect with": {Schedule: Schedule{Spread: load.SpreadEven, Arrivals: load.Arrivals{Rate: 1}}},
	} {
		cfg.Trace.Name, cfg.Target.URL = "trace.jsonl", "http://engine"
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v", want, err)
		}
	}
	cfg := Config{
		Trace: Trace{Name: "trace.jsonl", Unit: time.Microsecond, Shards: 2, Shard: 1, Start: time.Second}, Target: Target{URL: "http://engine", Header: http.Header{"X-A": {"b"}}},
		RunID: "nightly/7", Lead: time.Nanosecond, Slice: time.Millisecond, TraceURL: "http://jaeger/{trace_id}",
	}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
}

// TestWholeRepliesHaveNoObjectivesOfTokens: without a stream, nothing measures these objectives, so no run can say whether they are met.
func TestWholeRepliesHaveNoObjectivesOfTokens(t *testing.T) {
	const why = "leave out --no-stream"
	for _, slo := range []measure.SLO{{TTFT: 1}, {TTST: 1}, {ITL: 1}, {TPOT: 1}, {TTFO: 1}, {Decode: 1}, {E2E: 1}} {
		for _, whole := range []bool{false, true} {
			cfg := Config{Trace: Trace{Name: "trace.jsonl"}, Target: Target{URL: "http://engine"}, Prompt: Prompt{NoStream: whole}, SLO: slo}
			err := cfg.Validate()
			if refused := err != nil && strings.Contains(err.Error(), why); refused != (whole && slo.E2E == 0) {
				t.Errorf("%s, whole replies %t: error %v", slo, whole, err)
			}
		}
	}
}

func TestNothingToReplayIsAnError(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	r := e.replay(t, Config{Trace: Trace{Start: time.Hour}, Prompt: ids}, rows(3, 1)...)
	if r.err == nil || !strings.Contains(r.err.Error(), "no row is left") || r.report.ExitStatus != judge.ExitInput {
		t.Errorf("error %v", r.err)
	}
}

func TestRecordsKeepWhatTheirRowsMean(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	dir := t.TempDir()
	trace := filepath.Join(dir, "seconds.jsonl")
	const text = `{"timestamp": 0, "input_length": 40, "output_length": 1, "hash_ids": [0, 1, 2], "session_id": "a"}
{"timestamp": 0.01, "input_length": 60, "output_length": 1, "hash_ids": [0, 1, 3, 4], "session_id": "a"}
`
	if err := os.WriteFile(trace, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Trace:  Trace{Name: trace, BlockSize: 16, Unit: time.Second},
		Target: Target{URL: e.url}, Prompt: ids, Out: filepath.Join(dir, "out"), Lead: time.Millisecond,
	}
	if _, err := Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	// The records alone say how to read them.
	again := Config{Trace: Trace{Name: filepath.Join(cfg.Out, report.RequestsFile)}, Target: cfg.Target, Prompt: ids, Lead: cfg.Lead}
	rep, err := Run(t.Context(), again)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Trace.BlockSize != 16 || rep.Trace.Unit != "ms" || rep.Trace.SessionMode != "full" {
		t.Errorf("trace %+v, want blocks of 16, milliseconds, whole prompts", rep.Trace)
	}
	again.Trace.Unit = time.Second
	if _, err := Run(t.Context(), again); err == nil || !strings.Contains(err.Error(), "contradicts") {
		t.Errorf("a unit that contradicts the sidecar: error %v", err)
	}
}

func TestSidecarOfAnotherTrace(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	dir := t.TempDir()
	trace := filepath.Join(dir, "cut.jsonl")
	for name, text := range map[string]string{trace: rows(1, 0)[0], filepath.Join(dir, "cut.meta.json"): `{"schema": 1, "rows": 99}`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rep, err := Run(t.Context(), Config{Trace: Trace{Name: trace}, Target: Target{URL: e.url}, Prompt: ids, Lead: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(rep.Warnings, func(w string) bool { return strings.Contains(w, "99") }) {
		t.Errorf("a trace that was cut replays unnoticed: %q", rep.Warnings)
	}
}

func TestWarmCacheIsNamed(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	line := []string{
		`{"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]}`,
		`{"timestamp": 1, "input_length": 1024, "output_length": 1, "hash_ids": [1, 3]}`,
	}
	warm := func(r replayed) bool {
		return slices.ContainsFunc(r.report.Warnings, func(w string) bool { return strings.Contains(w, "--seed") })
	}
	if r := e.replay(t, Config{Prompt: ids}, line...); warm(r) {
		t.Errorf("the first run: %q", r.report.Warnings)
	}
	if r := e.replay(t, Config{Prompt: ids}, line...); !warm(r) {
		t.Errorf("the second run with the same seed: %q", r.report.Warnings)
	}
}

func TestWarmupLeavesTheCacheCold(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	line := fmt.Sprintf(`{"timestamp": 0, "text_input": %q, "output_length": 1}`, strings.Repeat("some words ", 600))
	r := e.replay(t, Config{Schedule: Schedule{Warmup: 2}}, line)
	if r.err != nil || len(r.warmups) != 2 || r.sent[0].CachedTokens != 0 {
		t.Errorf("error %v, %d warm-ups, %d tokens of the first row cached", r.err, len(r.warmups), r.sent[0].CachedTokens)
	}
}

func TestOptionLookahead(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	lines := append(rows(8, 10), `{"timestamp": 5, "input_length": 100}`)
	if r := e.replay(t, Config{Trace: Trace{Lookahead: 4}, Prompt: ids}, lines...); r.err == nil || !strings.Contains(r.err.Error(), "--lookahead") {
		t.Errorf("error %v", r.err)
	}
	if r := e.replay(t, Config{Trace: Trace{Lookahead: 9}, Prompt: ids}, lines...); r.err != nil || len(r.sentRows()) != 9 {
		t.Errorf("error %v, rows %v", r.err, r.sentRows())
	}
}

func TestInterruptWhileTheTraceIsSilent(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := Run(ctx, Config{Trace: Trace{Name: "-", Stdin: read}, Target: Target{URL: e.url}, Prompt: ids}); err == nil || !strings.Contains(err.Error(), "interrupted before the first request") {
		t.Errorf("error %v", err)
	}
}
