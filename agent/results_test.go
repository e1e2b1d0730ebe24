// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/internal/simulator"
)

// traceFile writes a trace.
func traceFile(t *testing.T, lines ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(name, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestTwoRunsInOneFolder: the second is refused before it sends anything, and the first ends as if it had been alone.
func TestTwoRunsInOneFolder(t *testing.T) {
	e := newEngine(t, simulator.Config{Latency: simulator.Latency{Prefill: 300 * time.Millisecond}})
	out := filepath.Join(t.TempDir(), "out")
	var second error
	var before, after int
	cfg := Config{
		Trace: Trace{Name: traceFile(t, rows(20, 10)...)}, Target: Target{URL: e.url, Model: "m"}, Prompt: ids, Out: out, RunID: "first", Lead: time.Millisecond,
	}
	other := cfg
	other.RunID, other.Force = "second", true
	cfg.Progress = func(*Live) {
		before = len(e.Records())
		_, second = Run(t.Context(), other)
		after = len(e.Records())
	}
	rep, err := Run(t.Context(), cfg)
	if err != nil || rep.Figures().Rows.Served != 20 {
		t.Errorf("the first: error %v", err)
	}
	if second == nil || !strings.Contains(second.Error(), "another replay is writing its results there") || before != after {
		t.Errorf("the second: error %v, %d requests", second, after-before)
	}
	r := replayed{report: rep}
	r.read(t, out) // each row once
	if text, err := os.ReadFile(filepath.Join(out, report.SummaryJSON)); err != nil || !strings.Contains(string(text), `"id": "first"`) {
		t.Errorf("the summary is not the first run's: %v", err)
	}
}

// TestFolderRemoved: the error says that the records are lost, and does not name a file that does not exist.
func TestFolderRemoved(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	out := filepath.Join(t.TempDir(), "out")
	cfg := Config{Trace: Trace{Name: traceFile(t, rows(3, 1)...)}, Target: Target{URL: e.url, Model: "m"}, Prompt: ids, Out: out, Lead: time.Millisecond}
	cfg.Progress = func(*Live) {
		if err := os.RemoveAll(out); err != nil {
			t.Error(err)
		}
	}
	rep, err := Run(t.Context(), cfg)
	if err == nil || !strings.Contains(err.Error(), report.PartialFile+" was removed meanwhile") || strings.Contains(err.Error(), "no replay wrote") || strings.Contains(err.Error(), "what was written is in") {
		t.Errorf("error %v", err)
	}
	if rep == nil || rep.Figures().Rows.Served != 3 {
		t.Errorf("report %+v", rep)
	}
}

// TestResultsAreNotReplaced: a folder with results is refused before anything is sent, and the error names a file. With force, the results
// are replaced, and no other files. A file that only has the name of a result is protected in the same way.
func TestResultsAreNotReplaced(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	out := t.TempDir()
	summary, foreign := filepath.Join(out, report.SummaryJSON), filepath.Join(out, "notes.txt")
	for _, name := range []string{summary, foreign} {
		if err := os.WriteFile(name, []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg := Config{Trace: Trace{Name: traceFile(t, rows(3, 1)...)}, Target: Target{URL: e.url, Model: "m"}, Prompt: ids, Out: out, Lead: time.Millisecond}
	rep, err := Run(t.Context(), cfg)
	if rep != nil || !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), report.SummaryJSON) || len(e.Records()) != 0 {
		t.Errorf("error %v, %d requests", err, len(e.Records()))
	}
	if text, err := os.ReadFile(summary); err != nil || string(text) != "mine" {
		t.Errorf("%q, %v", text, err)
	}
	if entries, err := os.ReadDir(out); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v: the refused run left something", entries, err)
	}
	cfg.Force = true
	for range 2 {
		if _, err := Run(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(summary); err != nil || !strings.Contains(string(text), "schema_version") {
		t.Errorf("%q, %v", text, err)
	}
	if text, err := os.ReadFile(foreign); err != nil || string(text) != "mine" {
		t.Errorf("%q, %v", text, err)
	}
	if entries, err := os.ReadDir(out); err != nil || len(entries) != 7 { // and neither a lock nor a partial file
		t.Errorf("%v, %v", entries, err)
	}
}

// TestRunThatCannotBeginLeavesNothing: a replay that cannot begin leaves no folder, no file and no lock.
func TestRunThatCannotBeginLeavesNothing(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	good := traceFile(t, rows(3, 1)...)
	for name, change := range map[string]func(*Config){
		"no trace":     func(c *Config) { c.Trace.Name = "missing.jsonl" },
		"no engine":    func(c *Config) { c.Target.URL = "http://" + nobody(t) },
		"broken trace": func(c *Config) { c.Trace.Name = traceFile(t, rows(1, 1)[0], "no row") },
	} {
		top := t.TempDir()
		cfg := Config{Trace: Trace{Name: good}, Target: Target{URL: e.url, Model: "m"}, Prompt: ids, Out: filepath.Join(top, "out")}
		change(&cfg)
		if _, err := Run(t.Context(), cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
		if entries, err := os.ReadDir(top); err != nil || len(entries) != 0 {
			t.Errorf("%s: %v, %v", name, entries, err)
		}
	}
}

// TestFailureClasses: a message names the most frequent classes of failures, and one count of all others, those without a class included.
func TestFailureClasses(t *testing.T) {
	for _, c := range []struct {
		failures []measure.Reason
		want     string
	}{
		{nil, ""},
		{[]measure.Reason{{Reason: "404", Count: 2}, {Reason: "connect", Count: 1}}, "2 with HTTP status 404, 1 connection refused or unreachable"},
		{[]measure.Reason{{Reason: "_OTHER", Count: 9}, {Reason: "a", Count: 5}, {Reason: "b", Count: 4}, {Reason: "c", Count: 3}, {Reason: "d", Count: 2}}, "5 a, 4 b, 3 c, 11 of other kinds"},
	} {
		if got := classes(c.failures); got != c.want {
			t.Errorf("%v: %q, want %q", c.failures, got, c.want)
		}
	}
}

// TestFailuresFailTheRun: if the user sets no limit, a run fails if more than 1 % of its requests fail, and the report names the kinds of
// failure. A limit that the user sets replaces the 1 %, even if it is 0 or 1.
func TestFailuresFailTheRun(t *testing.T) {
	e := newEngine(t, simulator.Config{Models: []string{"m"}})
	lines := func(n, bad int) (list []string) {
		for i := range n {
			model := "m"
			if i < bad {
				model = "nobody's"
			}
			list = append(list, fmt.Sprintf(`{"timestamp": %d, "input_length": 20, "output_length": 1, "extra": {"model": %q}}`, i/4, model))
		}
		return list
	}
	for _, tc := range []struct {
		n, bad int
		limit  *float64
		want   string // in what was missed; empty = nothing
	}{
		{40, 17, nil, "errors: 17 of 40 requests failed: 17 with HTTP status 404; at most 1 % may fail (--max-error-rate)"},
		{40, 17, new(0.5), ""},
		{40, 17, new(1.), ""},
		{200, 3, nil, "3 of 200 requests failed"},
		{200, 2, nil, ""},
		{200, 1, new(0.), "1 of 200 requests failed: 1 with HTTP status 404; at most 0 % may"},
		{200, 0, new(0.), ""},
	} {
		r := e.replay(t, Config{Prompt: ids, MaxErrorRate: tc.limit, Target: Target{Model: "m"}}, lines(tc.n, tc.bad)...)
		if r.err != nil {
			t.Fatal(r.err)
		}
		missed := strings.Join(r.report.Missed, "\n")
		if (tc.want == "") != (missed == "") || !strings.Contains(missed, tc.want) {
			t.Errorf("%d of %d failed: missed %q, want %q; %v", tc.bad, tc.n, missed, tc.want, r.report.Figures().Errors)
		}
		status := judge.ExitOK
		if tc.want != "" {
			status = judge.ExitGoals
		}
		if got := r.report.ExitStatus; got != status && (got != judge.ExitInvalid || r.report.Verdict.Class != judge.Invalid) { // a loaded machine can make the run invalid
			t.Errorf("%d of %d failed: exit status %d, want %d; %v", tc.bad, tc.n, got, status, r.report.Verdict)
		}
		named := false
		for _, reason := range r.report.Verdict.Reasons {
			if reason.Metric == "failed_share" {
				named = true
				if (reason.Class == judge.Degraded) != (float64(tc.bad) > 0.01*float64(tc.n)) {
					t.Errorf("%d of %d failed: %v", tc.bad, tc.n, reason)
				}
			}
		}
		if named != (tc.bad > 0) {
			t.Errorf("%d of %d failed: named in the verdict: %t", tc.bad, tc.n, named)
		}
	}
}

// TestThreeRowsAreTooFewToJudge: a run of three rows is neither valid nor invalid by chance, on any machine.
func TestThreeRowsAreTooFewToJudge(t *testing.T) {
	e := newEngine(t, simulator.Config{}) // as simulate --fast: the chunks of a reply come all at once
	var lines []string
	for i := range 3 {
		lines = append(lines, fmt.Sprintf(`{"timestamp": %d, "input_length": 100, "output_length": 600}`, i))
	}
	for _, strict := range []bool{false, true} {
		r := e.replay(t, Config{Prompt: ids, StrictVerdict: strict}, lines...)
		if r.err != nil {
			t.Fatal(r.err)
		}
		v := r.report.Verdict
		status := judge.ExitOK
		if strict {
			status = judge.ExitInvalid
		}
		switch {
		case v.Class == judge.Undecided && r.report.ExitStatus == status && len(v.TooFew) > 0:
		case v.Class > judge.Undecided && regexp.MustCompile("lateness_max|clock_step|gc_pause_max").MatchString(v.String()): // the machine's fault
		default:
			t.Errorf("strict %t: exit status %d, %v", strict, r.report.ExitStatus, v)
		}
	}
}

// TestKilledRunCanBeRead: the records of a running replay can be read as a trace, and replayed.
func TestKilledRunCanBeRead(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	out := filepath.Join(t.TempDir(), "out")
	copied := filepath.Join(t.TempDir(), report.PartialFile)
	ctx, cancel := context.WithCancel(t.Context())
	cfg := Config{
		Trace:  Trace{Name: traceFile(t, append(rows(5, 1), `{"timestamp": 3600000, "input_length": 100}`)...), BlockSize: 256},
		Target: Target{URL: e.url, Model: "m"}, Prompt: ids, Out: out, Lead: time.Millisecond,
		Progress: func(*Live) {
			go func() { // a kill leaves the files as they are
				defer cancel()
				for {
					text, err := os.ReadFile(filepath.Join(out, report.PartialFile))
					meta, merr := os.ReadFile(filepath.Join(out, report.PartialFile+".meta.json"))
					if err != nil || merr != nil {
						t.Error(err, merr)
						return
					}
					if strings.Count(string(text), "\n") == 5 {
						if err := errors.Join(os.WriteFile(copied, text, 0o600), os.WriteFile(copied+".meta.json", meta, 0o600)); err != nil {
							t.Error(err)
						}
						return
					}
					time.Sleep(10 * time.Millisecond)
				}
			}()
		},
	}
	if _, err := Run(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	rep, err := Run(t.Context(), Config{Trace: Trace{Name: copied}, Target: cfg.Target, Prompt: ids, Lead: time.Millisecond})
	if err != nil || rep.Figures().Rows.Served != 5 || rep.Trace.BlockSize != 256 {
		t.Errorf("error %v, %+v", err, rep)
	}
}
