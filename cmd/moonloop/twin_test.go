// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/study"
)

// TestTwinOfAnApplication captures our own application on a simulated engine, and replays the trace on an equal engine and on one with a
// slower prefill. Only on the latter is the median time to first token outside the tolerance, and neither loses a third of the hits. On a
// busy machine, the tails may be outside, too.
func TestTwinOfAnApplication(t *testing.T) {
	l := &realLoop{folder: t.TempDir(), config: simulator.VLLM(), block: 16, conversations: 10}
	l.config.TokensPerChunk = 16
	l.config.Latency = simulator.Latency{Prefill: 60 * time.Millisecond, Decode: 2 * time.Millisecond}
	l.capture(t, 7)
	equal, _ := l.send(t, "equal")
	l.config.Latency.Prefill *= 8 // far above what a busy machine adds to the others
	slower, _ := l.send(t, "slower")
	read := func(folder string) (w study.Twin, status int) {
		var out, stderr strings.Builder
		status = run(t.Context(), []string{"twin", folder, "--json", "--tolerance", "ttft.p50=3,ttft.p99=10,duration.p50=10,duration.p99=10,hit_rate=0.3", "--html", folder + ".html"}, strings.NewReader(""), &out, &stderr)
		if err := json.Unmarshal([]byte(out.String()), &w); err != nil {
			t.Fatalf("%v: exit status %d, %s%s", err, status, &out, &stderr)
		}
		return w, status
	}
	for _, test := range []struct {
		folder string
		slower bool
	}{{equal, false}, {slower, true}} {
		w, status := read(test.folder)
		var outside []string
		for _, c := range w.Checks {
			if c.Outcome == study.OutsideTolerance {
				outside = append(outside, c.Name)
			}
			if c.Rows < study.MinTwinRows {
				t.Errorf("%s: %s is known of %d rows", test.folder, c.Name, c.Rows)
			}
		}
		want := exitOK
		switch {
		case w.Verdict != study.ValidVerdict: // of a machine that is too busy to measure
			want = exitInvalid
		case len(outside) > 0: // one that is busy from time to time has long tails
			want = exitGoals
		}
		// On a machine that is too busy to measure, production may have been as slow as the slower engine.
		told := slices.Contains(outside, "ttft.p50") == test.slower || test.slower && w.Verdict != study.ValidVerdict
		if !told || slices.Contains(outside, "hit_rate") || status != want {
			t.Errorf("%s: outside %v, exit status %d; want ttft.p50 outside: %t, and exit status %d: %+v", test.folder, outside, status, test.slower, want, w.Checks)
		}
		page, err := os.ReadFile(test.folder + ".html")
		if err != nil || !strings.Contains(string(page), "Percentile against percentile") || strings.Contains(string(page), "<script") {
			t.Errorf("the page: %v, %d bytes", err, len(page))
		}
	}
}

// TestTwinVerb: wrong uses are refused.
func TestTwinVerb(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("empty", 0o700); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"":                            "twin takes one folder, but 0 were given",
		"a b":                         "twin takes one folder, but 2 were given",
		"empty":                       "no replay wrote its results there",
		"empty --json --markdown":     "two forms of one output",
		"empty --tolerance ttft.p1=1": `there is no check "ttft.p1": want one of ttft.p50, ttft.p99, `,
		"empty --tolerance errors=-1": "want a share above 0 and at most 10, such as errors=0.2",
		filepath.Join("no", "where"):  "no replay wrote its results there",
	} {
		var out strings.Builder
		if status := run(t.Context(), append([]string{"twin"}, strings.Fields(args)...), strings.NewReader(""), &out, &out); status != exitUsage || !strings.Contains(out.String(), want) {
			t.Errorf("twin %s: exit status %d, %s\nwant %s", args, status, out.String(), want)
		}
	}
}
