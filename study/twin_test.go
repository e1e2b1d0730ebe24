// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/study"
)

// twin writes a run of 200 rows whose production took 100 ms to the first token and hit half of the cache, with slight differences between
// rows.
func twin(t *testing.T, verdict string, ttft float64, cached, failed int, schedule string) string {
	t.Helper()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "summary.json"), summary{ttft: 100, throughput: 1, verdict: verdict, schedule: schedule}.json())
	var b strings.Builder
	for i := range 200 {
		outcome := "served"
		if i < failed {
			outcome = "failed"
		}
		seen := 100 * (1 + 0.05*float64(i*7%11)/11)
		fmt.Fprintf(&b, `{"input_length": 1000, "output_length": 9, "observed": {"ttft_ms": %g, "duration_ms": %g, "cached_tokens": 500, "finish_reason": "stop"}, `+
			`"result": {"outcome": %q, "row": %d, "intended": %d, "ttft_ms": %g, "latency_ms": %g, "finish_reason": "length", "usage": {"prompt_tokens": 1000, "cached_tokens": %d}}}`+"\n",
			seen, 10*seen, outcome, i, i*100, ttft*seen*(1+0.01*float64(i*5%7)/7), 10*seen, cached)
	}
	put(t, filepath.Join(dir, "requests.jsonl"), b.String())
	return dir
}

const atProductionsTimes = `{"mode": "timestamps", "speedup": 1}`

// TestTwin: measures that differ are outside, and no others.
func TestTwin(t *testing.T) {
	most, err := study.ParseTolerances("")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		dir     string
		outside string
		answer  study.Outcome
	}{
		"a loop with new blocks": {twin(t, "valid", 1, 500, 0, `{"mode": "timestamps", "speedup": 1, "loop_passes": 2, "loop_fresh": true}`), "", study.WithinTolerance},
		"a part":                 {transformed(t, "convert", "window", "first"), "", study.WithinTolerance},
		"equal":                  {twin(t, "valid", 1, 500, 0, atProductionsTimes), "", study.WithinTolerance},
		"slower":                 {twin(t, "valid", 1.5, 500, 0, atProductionsTimes), "ttft.p50 ttft.p99", study.OutsideTolerance},
		"colder":                 {twin(t, "valid", 1, 400, 0, atProductionsTimes), "hit_rate", study.OutsideTolerance},
		"failing":                {twin(t, "valid", 1, 500, 10, atProductionsTimes), "errors", study.OutsideTolerance},
		"invalid":                {twin(t, "invalid", 1.5, 500, 0, atProductionsTimes), "ttft.p50 ttft.p99", study.OpenTolerance},
	} {
		w, err := study.ReadTwin(test.dir, most)
		if err != nil {
			t.Fatal(err)
		}
		var outside []string
		for _, c := range w.Checks {
			if c.Outcome == study.OutsideTolerance {
				outside = append(outside, c.Name)
			}
		}
		if got := strings.Join(outside, " "); got != test.outside || w.Answer != test.answer || w.OtherFinish != 200-w.Failed || len(w.Parts) != 5 {
			t.Errorf("%s: outside %q, %+v", name, got, w.Checks)
		}
		if name == "slower" && (math.Abs(w.Checks[0].Difference-0.5) > 0.02 || w.Distributions[0].KS < 0.99 || w.Distributions[1].KS != 0 || math.Abs(*w.Parts[0].TTFT-1.5) > 0.02) {
			t.Errorf("slower: %+v", w.Checks)
		}
	}
}

// TestTwinErrors: the engine's failures are errors, and what followed from them. Rows that the replay left out itself are not.
func TestTwinErrors(t *testing.T) {
	for result, failed := range map[string]bool{
		`"outcome": "failed", "reason": "server_error"`:        true,
		`"outcome": "cancelled", "reason": "cut_off"`:          true,
		`"outcome": "skipped", "reason": "session_failed"`:     true,
		`"outcome": "skipped", "reason": "predecessor_failed"`: true,
		`"outcome": "cancelled"`:                               false,
		`"outcome": "cancelled", "reason": "broken_off"`:       false,
		`"outcome": "skipped", "reason": "max_duration"`:       false,
		`"outcome": "skipped", "reason": "interrupted"`:        false,
		`"outcome": "skipped", "reason": "prompt_too_short"`:   false,
		`"outcome": "disconnected"`:                            false,
	} {
		dir := twin(t, "valid", 1, 500, 0, atProductionsTimes)
		path := filepath.Join(dir, "requests.jsonl")
		served, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		others := strings.Repeat(`{"input_length": 9, "output_length": 9, "result": {`+result+`, "row": 999}}`+"\n", 50)
		put(t, path, string(served)+others)
		most, err := study.ParseTolerances("")
		if err != nil {
			t.Fatal(err)
		}
		w, err := study.ReadTwin(dir, most)
		if err != nil {
			t.Fatal(err)
		}
		c := w.Checks[slices.IndexFunc(w.Checks, func(c study.Check) bool { return c.Name == "errors" })]
		wantFailed, wantRows, wantAnswer := 0, 200, study.WithinTolerance
		if failed {
			wantFailed, wantRows, wantAnswer = 50, 250, study.OutsideTolerance
		}
		if w.Failed != wantFailed || c.Rows != wantRows || c.Difference != float64(wantFailed)/float64(wantRows) || w.Answer != wantAnswer {
			t.Errorf("%s: %d failed, %+v, %s; want %d of %d, %s", result, w.Failed, c, w.Answer, wantFailed, wantRows, wantAnswer)
		}
	}
}

// transformed writes a run of a trace whose metadata file names these steps.
func transformed(t *testing.T, steps ...string) string {
	t.Helper()
	dir := twin(t, "valid", 1, 500, 0, atProductionsTimes)
	path := filepath.Join(dir, "summary.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	put(t, path, strings.Replace(string(text), `"trace": {`, fmt.Sprintf(`"trace": {"transformations": ["%s"], `, strings.Join(steps, `", "`)), 1))
	return dir
}

func TestTwinRefuses(t *testing.T) {
	a := write(t, side(100, 1000)...)
	with := func(requests string) string {
		dir := twin(t, "valid", 1, 500, 0, atProductionsTimes)
		put(t, filepath.Join(dir, "requests.jsonl"), requests)
		return dir
	}
	for want, dir := range map[string]string{
		"at 2 times the speed":           twin(t, "valid", 1, 500, 0, ""),
		"followed the schedule \"rate\"": twin(t, "valid", 1, 500, 0, `{"mode": "rate"}`),
		"no replay wrote its results":    t.TempDir(),
		"has neither requests.jsonl":     filepath.Join(a, "run1"),
		"sent the trace in a loop":       twin(t, "valid", 1, 500, 0, `{"mode": "timestamps", "speedup": 1, "loop_passes": 2}`),
		"in a loop, so later passes":     twin(t, "valid", 1, 500, 0, `{"mode": "timestamps", "speedup": 1, "loop_for_ms": 60000}`),
		"transformed (time-scale)":       transformed(t, "convert", "window", "time-scale"),
		"no row says what production":    with(`{"result": {"outcome": "served"}}`),
		`line 1: no field "result"`:      with("{}\n"),
		"line 1: invalid character":      with("\x00\n"),
		"has no record of a request":     with("\n"),
	} {
		if w, err := study.ReadTwin(dir, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v, %v; want %q", w, err, want)
		}
	}
	for _, text := range []string{"ttft.p50", "x=1", "ttft.p50=0", "ttft.p50=NaN", "hit_rate=11", "hit_rate=0.1,", ","} {
		if _, err := study.ParseTolerances(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
	if most, err := study.ParseTolerances("hit_rate=0.5"); err != nil || most["hit_rate"] != 0.5 || most["errors"] != 0.01 {
		t.Errorf("%v, %v", most, err)
	}
}

// TestTwinLateness: times do not count if more than one of a hundred rows was sent late.
func TestTwinLateness(t *testing.T) {
	for late, want := range map[int]string{0: study.ValidVerdict, 1: study.ValidVerdict, 2: "late"} {
		var rows []study.TwinRow
		for i := range 100 {
			lateness := 1
			if i < late {
				lateness = 11
			}
			row, err := study.ParseTwinRow(fmt.Appendf(nil, `{"timestamp": %d, "input_length": 5, "observed": {"ttft_ms": 5}, "result": {"outcome": "served", "row": %d, "lateness_ms": %d, "ttft_ms": 5}}`, i, i, lateness))
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, row)
		}
		if twin, err := study.TwinOf(rows, nil); err != nil || twin.Verdict != want {
			t.Errorf("%d late rows: %+v, %v, want the verdict %s", late, twin, err, want)
		}
	}
}
