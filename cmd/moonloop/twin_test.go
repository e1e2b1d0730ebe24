// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
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

// TestTwinOfATransformedTrace: a replay says in which way its trace was transformed, so that it is not compared with production under another load.
func TestTwinOfATransformedTrace(t *testing.T) {
	server, _ := startSimulator(t)
	t.Chdir(t.TempDir())
	const row = `{"timestamp": %d, "input_length": 99, "output_length": 1, "observed": {"ttft_ms": 5}}` + "\n"
	if err := os.WriteFile("t.jsonl", fmt.Appendf(nil, row+row, 0, 20), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ steps, said string }{
		"as it was": {"--first=2", ""},
		"faster":    {"--first=2 --time-scale=0.5", "was transformed (time-scale)"},
	} {
		var out strings.Builder
		args := []string{"replay", "t.jsonl", "--url", server.URL, "--out", name, "--transform", test.steps}
		if status := run(t.Context(), args, strings.NewReader(""), &out, &out); status != exitOK {
			t.Fatalf("%s: exit status %d, %s", name, status, &out)
		}
		out.Reset()
		status := run(t.Context(), []string{"twin", name}, strings.NewReader(""), &out, &out)
		if refused := status == exitUsage; refused != (test.said != "") || !strings.Contains(out.String(), test.said) {
			t.Errorf("%s: exit status %d, %s", name, status, &out)
		}
	}
}
