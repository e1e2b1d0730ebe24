// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/study"
)

// summary is the part of a replay's summary.json that a comparison reads.
type summary struct {
	ttft, throughput float64
	verdict          string
	seq, schedule    string
	start            int
	beyond           int // tokens of 1,000 that an earlier run left in the cache
	rows             int
	cut              string // what a run that was interrupted says
}

func (s summary) json() string {
	if s.verdict == "" {
		s.verdict = study.ValidVerdict
	}
	if s.seq == "" {
		s.seq = "abc"
	}
	if s.schedule == "" {
		s.schedule = `{"mode": "timestamps", "speedup": 2, "seed": 7}`
	}
	if s.rows == 0 {
		s.rows = 100
	}
	return fmt.Sprintf(`{"schema_version": "1.0", %s "start_time": %q, "verdict": {"class": %q},
		"time_to_first_token": {"unit": "ms", "avg": %g, "p50": %g, "count": 100},
		"output_token_throughput": {"unit": "tokens/sec", "avg": %g},
		"request_error_rate": {"unit": "%%", "avg": 0},
		"trace": {"rows": %d, "seq_digest": %q, "tree_digest": "t", "arrival_digest": "a"}, "schedule": %s,
		"total_isl": {"unit": "tokens", "avg": 1000}, "fidelity": {"cache": {"beyond_tokens": %d}}}`,
		s.cut, time.Unix(int64(s.start), 0).UTC().Format(time.RFC3339), s.verdict, s.ttft, s.ttft, s.throughput, s.rows, s.seq, s.schedule, s.beyond)
}

// write makes a folder of runs.
func write(t *testing.T, runs ...summary) string {
	t.Helper()
	dir := t.TempDir()
	for i, s := range runs {
		put(t, filepath.Join(dir, fmt.Sprint("run", i), "summary.json"), s.json())
	}
	return dir
}

func put(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func compare(t *testing.T, a, b, metric string) (*study.Comparison, error) {
	t.Helper()
	left, err := study.ReadRuns(a)
	if err != nil {
		return nil, err
	}
	right, err := study.ReadRuns(b)
	if err != nil {
		return nil, err
	}
	m, err := study.ParseMetric(metric)
	if err != nil {
		return nil, err
	}
	return study.Compare(left, right, nil, m, 0.02)
}

// scatter is noise that both runs of a pair share, as two runs at nearly the same time do.
var scatter = []float64{1, 1.3, 0.9, 1.1, 0.8, 1.2}

func side(ttft, throughput float64) []summary {
	var runs []summary
	for i, s := range scatter {
		runs = append(runs, summary{ttft: ttft * s * (1 + 0.001*float64(i%3)), throughput: throughput / s * (1 + 0.001*float64(i%2)), start: i})
	}
	return runs
}

// TestCompare: pairs find what the scatter between rounds would hide.
func TestCompare(t *testing.T) {
	a := write(t, side(100, 1000)...)
	c, err := compare(t, a, write(t, side(106, 950)...), "ttft.p50")
	if err != nil {
		t.Fatal(err)
	}
	if p := c.Primary; p.Answer != study.Slower || math.Abs(p.Ratio-1.06) > 1e-9 || p.Pairs != 6 || p.Unit != "ms" {
		t.Errorf("%+v", p)
	}
	if len(c.Exploratory) != 1 || c.Exploratory[0].Metric.String() != "output_token_throughput.avg" {
		t.Fatalf("%+v", c.Exploratory)
	}
	if e := c.Exploratory[0]; e.Answer != study.Slower || !e.MoreIsBetter || math.Abs(e.Ratio-0.95) > 1e-9 || e.Low > e.Ratio || e.High < e.Ratio {
		t.Errorf("less throughput: %+v", e)
	}
	for name, test := range map[string]struct {
		ttft float64
		want study.Answer
	}{"equal": {100, study.NoDifference}, "faster": {94, study.Faster}, "below the minimum effect": {101, study.NoDifference}} {
		if c, err := compare(t, a, write(t, side(test.ttft, 1000)...), "ttft.p50"); err != nil || c.Primary.Answer != test.want {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
	if c, err := compare(t, a, write(t, side(100, 900)...), "throughput"); err != nil || c.Primary.Answer != study.Slower {
		t.Errorf("throughput: %+v, %v", c, err)
	}
}

// TestCompareEvidence: a run that is not evidence is left out with its pair, and named; pairs are formed by start time.
func TestCompareEvidence(t *testing.T) {
	runs := side(106, 950)
	runs[2].verdict = "degraded"
	dir := write(t, append(runs, summary{ttft: 1, throughput: 1, start: 9})...)
	put(t, filepath.Join(dir, "killed", "requests.jsonl.partial"), "")
	put(t, filepath.Join(dir, "notes", "readme.txt"), "not a run")
	c, err := compare(t, write(t, side(100, 1000)...), dir, "ttft.p50")
	if err != nil {
		t.Fatal(err)
	}
	if p := c.Primary; p.Answer != study.CannotTell || p.Pairs != 5 || p.More < 1 {
		t.Errorf("five pairs: %+v", p)
	}
	if len(c.LeftOut) != 3 || !strings.HasSuffix(c.LeftOut[0].Dir, "run2") || !strings.Contains(c.LeftOut[0].Reason, "degraded") ||
		!strings.HasSuffix(c.LeftOut[1].Dir, "run6") || !strings.HasSuffix(c.LeftOut[2].Dir, "killed") {
		t.Errorf("left out: %+v", c.LeftOut)
	}
}

// TestCompareRefuses: runs that cannot be compared are refused, and so are folders without runs.
func TestCompareRefuses(t *testing.T) {
	a := write(t, side(100, 1000)...)
	changed := func(change func(*summary)) string {
		runs := side(100, 1000)
		change(&runs[3])
		return write(t, runs...)
	}
	file := filepath.Join(t.TempDir(), "file")
	put(t, file, "{}")
	broken := t.TempDir()
	put(t, filepath.Join(broken, "summary.json"), `{"schema_version": "1.0"`)
	other := t.TempDir()
	put(t, filepath.Join(other, "summary.json"), `{"total": 5}`)
	deep := t.TempDir()
	put(t, filepath.Join(deep, "summary.json"), strings.Repeat("[", 1_000_000))
	for name, test := range map[string]struct{ b, metric, want string }{
		"another trace":        {changed(func(s *summary) { s.seq = "def" }), "ttft.p50", "they replayed different traces"},
		"no digest":            {changed(func(s *summary) { s.seq = " " }), "ttft.p50", "different traces"},
		"another schedule":     {changed(func(s *summary) { s.schedule = `{"mode": "timestamps", "speedup": 3}` }), "ttft.p50", "the schedule's speedup differs (2 and 3)"},
		"another arrival mode": {changed(func(s *summary) { s.schedule = `{"mode": "timestamps", "speedup": 2, "arrival": "poisson"}` }), "ttft.p50", "the schedule's arrival differs"},
		"a value of 0":         {changed(func(s *summary) { s.ttft = 0 }), "ttft.p50", "a ratio needs values above 0"},
		"no such figure":       {a, "colour.p50", "there is no figure colour"},
		"no such statistic":    {a, "ttft.p51", "has no statistic p51"},
		"no metric":            {a, ".p50", "is not a metric"},
		"an empty statistic":   {a, "ttft.", "is not a metric"},
		"an empty folder":      {t.TempDir(), "ttft.p50", "no replay wrote its results there"},
		"no folder":            {filepath.Join(a, "none"), "ttft.p50", "name a folder given to"},
		"a file":               {file, "ttft.p50", "is a file"},
		"half a summary":       {broken, "ttft.p50", "is not the summary of a replay"},
		"another JSON":         {other, "ttft.p50", "no schema_version"},
		"deep JSON":            {deep, "ttft.p50", "is not the summary of a replay"},
	} {
		if c, err := compare(t, a, test.b, test.metric); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %+v, %v; want %q", name, c, err, test.want)
		}
	}
}

// TestCompareSidecar: a trace that one of the runs read without its sidecar is recognised by its rows, and another one is refused.
func TestCompareSidecar(t *testing.T) {
	const rows = `{"timestamp": 0, "input_length": 5, "result": {"outcome": "served", "row": 0, "ttft_ms": %d}}` + "\n"
	folder := func(seq, rows string) string {
		dir := write(t, side(100, 1000)...)
		for i := range scatter {
			run := filepath.Join(dir, fmt.Sprint("run", i))
			name := filepath.Join(run, "summary.json")
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			put(t, name, strings.Replace(string(text), `"seq_digest": "abc", "tree_digest": "t", "arrival_digest": "a"`, seq, 1))
			if rows != "" {
				put(t, filepath.Join(run, "requests.jsonl"), fmt.Sprintf(rows, i))
			}
		}
		return dir
	}
	const digests = `"seq_digest": "abc", "tree_digest": "t", "arrival_digest": "a"`
	without, moved := folder(`"name": "t"`, rows), strings.Replace(rows, `"timestamp": 0`, `"timestamp": 1`, 1)
	for name, test := range map[string]struct{ other, want string }{
		"with its sidecar":              {folder(digests, rows), ""},
		"both without":                  {folder(`"name": "t"`, rows), ""},
		"another one, with a sidecar":   {folder(digests, moved), "the rows of their traces, or the times of these, differ (digest "},
		"another one, without":          {folder(`"name": "t"`, moved), "the rows of their traces, or the times of these, differ (digest "},
		"with its sidecar, but no rows": {folder(digests, ""), "has no readable requests.jsonl"},
	} {
		for _, sides := range [][2]string{{without, test.other}, {test.other, without}} {
			c, err := compare(t, sides[0], sides[1], "ttft.p50")
			switch {
			case test.want == "" && (err != nil || c.Primary.Pairs != len(scatter)):
				t.Errorf("%s: %+v, %v", name, c, err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("%s: %+v, %v; want %q", name, c, err, test.want)
			}
		}
	}
}

// TestCompareRefusesBeforeVerdicts: a verdict does not hide that runs cannot be compared. A run that ended early is only left out.
func TestCompareRefusesBeforeVerdicts(t *testing.T) {
	a := write(t, side(100, 1000)...)
	for name, test := range map[string]struct {
		change func(*summary)
		want   string
	}{
		"another trace":     {func(s *summary) { s.verdict, s.seq = "invalid", "def" }, "they replayed different traces"},
		"another schedule":  {func(s *summary) { s.verdict, s.schedule = "degraded", `{"mode": "timestamps", "speedup": 3}` }, "the schedule's speedup differs"},
		"in a warm cache":   {func(s *summary) { s.beyond, s.schedule = 500, `{"mode": "timestamps", "speedup": 3}` }, "the schedule's speedup differs"},
		"another length":    {func(s *summary) { s.verdict, s.rows = "degraded", 60 }, "different numbers of rows"},
		"interrupted":       {func(s *summary) { s.verdict, s.rows, s.cut = "invalid", 60, `"was_cancelled": true,` }, ""},
		"of another trace":  {func(s *summary) { s.verdict, s.seq, s.cut = "invalid", "def", `"was_cancelled": true,` }, "they replayed different traces"},
		"without a summary": {nil, ""},
	} {
		runs := side(100, 1000)
		if test.change != nil {
			test.change(&runs[0])
		}
		b := write(t, runs...)
		if test.change == nil {
			put(t, filepath.Join(b, "run0", "requests.jsonl.partial"), "")
			if err := os.Remove(filepath.Join(b, "run0", "summary.json")); err != nil {
				t.Fatal(err)
			}
		}
		for _, sides := range [][2]string{{a, b}, {b, a}} {
			c, err := compare(t, sides[0], sides[1], "ttft.p50")
			switch {
			case test.want == "" && (err != nil || c.Primary.Answer != study.CannotTell || c.Primary.Pairs != 5):
				t.Errorf("%s: %+v, %v", name, c, err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("%s: %+v, %v; want %q", name, c, err, test.want)
			}
		}
	}
}

// TestCompareWarmCache: if one run of a pair found what an earlier run had left in the cache, the pair says something about the caches, and
// is not evidence. If both found about as much, the pair is evidence.
func TestCompareWarmCache(t *testing.T) {
	warm, cold := side(100, 1000), side(113, 1000)
	for i := range warm {
		warm[i].beyond = 160
	}
	c, err := compare(t, write(t, warm...), write(t, cold...), "ttft.p50")
	if err != nil {
		t.Fatal(err)
	}
	if c.Primary.Answer != study.CannotTell || c.Primary.Pairs != 0 || len(c.LeftOut) != len(warm) ||
		!strings.Contains(c.LeftOut[0].Reason, "it found a warm cache: 16.0 % of its prompt tokens were there from an earlier run, and 0.0 %") {
		t.Errorf("%+v, left out: %v", c.Primary, c.LeftOut)
	}
	for i := range cold {
		cold[i].beyond = 170
	}
	if c, err = compare(t, write(t, warm...), write(t, cold...), "ttft.p50"); err != nil || c.Primary.Pairs != len(warm) || c.Primary.Answer != study.Slower {
		t.Errorf("%v: %+v", err, c)
	}
}
