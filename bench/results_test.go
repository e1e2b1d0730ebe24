// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/moonloop/moonloop/study/referee"
)

func TestResults(t *testing.T) {
	r := &results{Sections: map[string]string{"dispatch": "\n## Old\n", "go": "\n## Kept\n"}, Facts: [][2]string{{"skipped", "k6: not installed"}}}
	tab := &table{Scenario: "dispatch", Measured: "today", Title: "Speed", About: "Laps."}
	r.Tables = append(r.Tables, tab)
	for _, v := range []float64{2, 1, 3} {
		tab.add("us", num("ms", v), word("verdict", "valid"))
	}
	tab.add("us", num("ms", nan), word("verdict", "invalid"))
	tab.add("them", num("ms", 9), num("lost", 4))
	tab.aim("quick", tab.median("us", "ms") < 5, tab.median("us", "ms"))
	tab.aim("quicker", false, 1)
	tab.aim("unheard of", true, tab.median("nobody", "ms"))
	tab.note("a note")
	tab.note("a note")

	dir := t.TempDir()
	page, raw := filepath.Join(dir, "RESULTS.md"), filepath.Join(dir, "raw", "results.json")
	if err := r.write(page, raw); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| skipped | k6: not installed |",
		"## Speed\n\nLaps.\n\nMeasured today.\n",
		"## Kept\n",
		"| | ms | verdict | lost |",
		"| us | 2.00 (1.00–3.00) | valid 3×, invalid 1× | – |",
		"| them | 9.00 | – | 4.00 |",
		"quick: **holds** (2.00)",
		"quicker: **does not hold** (1.00)",
		"unheard of: **was not measured** (–)",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "Old") {
		t.Error("what a scenario said before must go when it is run again")
	}
	again := &results{}
	again.keep(page)
	if len(again.Sections) != 2 || !strings.Contains(again.Sections["dispatch"], "Laps.") {
		t.Errorf("kept: %v", again.Sections)
	}
	if strings.Count(string(text), "a note") != 1 {
		t.Error("a note must stand once")
	}
	var back any
	if text, err = os.ReadFile(raw); err != nil || json.Unmarshal(text, &back) != nil {
		t.Errorf("the raw results cannot be read back: %v", err)
	}
}

// TestWrk2: the percentiles that wrk2 prints; it prints nothing else.
func TestWrk2(t *testing.T) {
	text := "  Latency Distribution (HdrHistogram - Recorded Latency)\n 50.000%  842.00us\n 75.000%    1.20ms\n 90.000%  211.46ms\n 99.000%    1.18s \n 99.900%    1.21s \n100.000%    1.02m \n"
	got, err := readWrk2(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(referee.Percentiles{P50: 0.842, P90: 211.46, P99: 1180, P999: 1210, Max: 61200}, got, cmpopts.EquateApprox(0, 1e-6)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := readWrk2(strings.TrimSuffix(text, "100.000%    1.02m \n")); err == nil {
		t.Error("no error without the greatest")
	}
}
