// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCompareVerb: the exit status is the answer, and each form of output has it.
func TestCompareVerb(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, side := range []struct {
		name string
		ttft float64
		runs int
	}{{"a", 100, 6}, {"slower", 110, 6}, {"few", 110, 3}} {
		for i := range side.runs {
			dir := filepath.Join(side.name, fmt.Sprint(i))
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			summary := fmt.Sprintf(`{"schema_version": "1.0", "start_time": "2026-01-01T00:00:0%dZ", "verdict": {"class": "valid"},
				"time_to_first_token": {"unit": "ms", "p50": %g}, "request_error_rate": {"unit": "%%", "avg": 1},
				"trace": {"rows": 9, "seq_digest": "s"}, "schedule": {"seed": %d}}`, i, side.ttft*(1+0.01*float64(i%2)), i)
			if err := os.WriteFile(filepath.Join(dir, "summary.json"), []byte(summary), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, test := range []struct {
		args   string
		status int
		want   string
	}{
		{"a a", exitOK, "time_to_first_token.p50: no difference found\n"},
		{"a slower", exitGoals, "time_to_first_token.p50: B is slower by 10 % (10 to 10)\n"},
		{"slower a", exitOK, "time_to_first_token.p50: B is faster by 9.1 %"},
		{"a slower", exitGoals, "failed requests: 1 % of A, 1 % of B"},
		{"a slower --markdown", exitGoals, "| time_to_first_token.p50 | 100.5 ms | 110.5 ms | 1.1000 |"},
		{"a few", exitInvalid, "cannot tell: 3 pairs of valid runs, and at least 6 are needed\n"},
		{"a few", exitInvalid, "left out: a/5: the other side has no run to pair it with\n"},
		{"a/0 slower/0", exitInvalid, "cannot tell: 1 pair of valid runs"},
		{"a slower --metric e2e.p50", exitUsage, "has no figure request_latency"},
		{"--run x{out} --run y{out} --metric ttft.p51", exitUsage, `--metric "ttft.p51": time_to_first_token has no statistic p51`}, // before the rounds
		{"a slower --metric .", exitUsage, `--metric ".": "." is not a metric`},
		{"a", exitUsage, "compare takes two folders, but one was given"},
		{"a a a", exitUsage, "compare takes two folders, but 3 were given"},
		{"a nowhere", exitUsage, "name a folder given to `moonloop replay --out`"},
		{"a slower --again a", exitGoals, "± 0 %"},
		{"a a --again slower", exitOK, "warning: A differs from A run again, by 10 %"},
		{"--run x", exitUsage, "--run has 1 command: give two"},
		{"a a --run x --run y", exitUsage, "folders are existing runs, and --run makes new ones"},
		{"--run x --run y --again a", exitUsage, "with --run, give --calibrate"},
		{"--run x --run y", exitUsage, "does not contain {out}"},
		{"--run x{out} --run y{out}", exitUsage, "has what it printed"},
		{"a slower --junit no/such/folder", exitUsage, "the JUnit file no/such/folder cannot be written"},
		{"a slower --json --markdown", exitUsage, "--json and --markdown are two forms of one output"},
	} {
		var out strings.Builder
		if status := run(t.Context(), append([]string{"compare"}, strings.Fields(test.args)...), strings.NewReader(""), &out, &out); status != test.status || !strings.Contains(out.String(), test.want) {
			t.Errorf("compare %s: exit status %d, %s\nwant %d, %s", test.args, status, out.String(), test.status, test.want)
		}
	}
	var out strings.Builder
	var got struct {
		Answer  string
		Metrics []jsonResult
	}
	if status := run(t.Context(), []string{"compare", "a/1", "slower/1", "--json"}, strings.NewReader(""), &out, &out); status != exitInvalid {
		t.Error(status)
	}
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil || got.Answer != "cannot tell" || len(got.Metrics) != 1 || got.Metrics[0].P != nil || *got.Metrics[0].Ratio < 1.09 {
		t.Errorf("%v: %s", err, out.String())
	}
	if strings.Contains(out.String(), "more_rounds") {
		t.Errorf("one pair says how many more are needed: %s", out.String())
	}
}

// TestCompareRounds: with --run, compare makes the runs itself, and writes the answer for CI and as a page.
func TestCompareRounds(t *testing.T) {
	t.Chdir(t.TempDir())
	make := func(ttft int) string {
		return fmt.Sprintf(`mkdir -p {out}; echo '{"schema_version": "1.0", "start_time": "2026-01-01T00:00:0{round}Z", "verdict": {"class": "valid"}, `+
			`"time_to_first_token": {"unit": "ms", "p50": %d{round}}, "trace": {"rows": 9, "seq_digest": "s<script>"}, "schedule": {"seed": {seed}}}' >{out}/summary.json; exit 3`, ttft)
	}
	var out strings.Builder
	args := []string{"compare", "--run", make(100), "--run", make(110), "--rounds", "7", "--calibrate", "--junit", "j.xml", "--html", "c.html"}
	if status := run(t.Context(), args, strings.NewReader(""), &out, &out); status != exitGoals ||
		!strings.Contains(out.String(), "B is slower by 10 %") || !strings.Contains(out.String(), "round 7 of 7, again: time_to_first_token.p50 1007 ms, valid") {
		t.Fatalf("exit status %d: %s", status, out.String())
	}
	// The same comparison again draws other seeds: its runs do not find what the earlier runs left in an engine's cache.
	seeds := map[string]bool{}
	for _, dir := range []string{"rounds", "more"} {
		if dir == "more" {
			run(t.Context(), append(slices.Clone(args), "--out", dir), strings.NewReader(""), &out, &out)
		}
		names, err := filepath.Glob(filepath.Join(dir, "*", "*", "summary.json"))
		if err != nil || len(names) != 21 {
			t.Fatal(err, names)
		}
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			seeds[string(b[bytes.Index(b, []byte(`"seed":`)):])] = true
		}
	}
	if len(seeds) != 42 {
		t.Errorf("42 runs of two comparisons had %d seeds", len(seeds))
	}
	for name, wants := range map[string][]string{
		"j.xml":  {`<testsuite name="moonloop compare" tests="1" failures="1" errors="0" skipped="0">`, `<failure message="B is slower by 10 %`},
		"c.html": {`<section class="verdict invalid"`, "B is slower by 10 %", "Content-Security-Policy", "pair 7", "prefers-color-scheme: dark"},
	} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(b), want) {
				t.Errorf("%s does not say %s", name, want)
			}
		}
		if strings.Contains(string(b), "<script") {
			t.Errorf("%s has a script", name)
		}
	}
}
