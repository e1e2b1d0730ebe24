// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/internal/simulator"
)

// asked counts the waits of a schedule, and those that may begin patiently.
type asked struct {
	schedule.Waiter
	all, calm int
}

func (a *asked) Wait(until time.Duration, calm func() bool) bool {
	if a.all++; calm != nil && calm() {
		a.calm++
	}
	return a.Waiter.Wait(until, calm)
}

// TestPatience needs a replay that reads replies at once, which the race detector does not allow. At a high rate, waits are patient while replies have no gaps to measure, and not while streams are open, or turns wait.
func TestPatience(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that waits that may be patient are
	for _, c := range []struct {
		name    string
		row     string // with %d for the row's number
		latency simulator.Latency
		calm    bool // waits are patient
	}{
		{"one token", `"input_length": 512, "output_length": 1, "hash_ids": [%d]`, simulator.Latency{}, true},
		{"streams", `"input_length": 512, "output_length": 4, "hash_ids": [%d]`, simulator.Latency{Prefill: 2 * time.Millisecond, Decode: 10 * time.Millisecond}, false},
		{"turns", `"input_length": 512, "output_length": 1, "hash_ids": [%[2]d], "session_id": "s%[2]d"`, simulator.Latency{Prefill: 20 * time.Millisecond}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, stop := serving{Whole: c.calm, Latency: c.latency}.start(t)
			defer stop()
			waits := replayWaits(t, url, c.row)
			for n := 0; c.calm && waits.calm == 0 && n < 30; n++ { // a machine that has too little to give is always busy
				waits = replayWaits(t, url, c.row)
			}
			if (waits.calm > 0) != c.calm {
				t.Errorf("%d of %d waits may be patient", waits.calm, waits.all)
			}
		})
	}
}

// replayWaits replays rows at 2,000 a second, and returns the waits.
func replayWaits(t *testing.T, url, row string) (waits *asked) {
	t.Helper()
	const n = 1000
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, `{"timestamp": %g, `+row+"}\n", float64(i)/2, i)
	}
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(trace, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	rep, err := Run(t.Context(), Config{
		Trace: Trace{Name: trace}, Target: Target{URL: url, Model: "m"},
		Prompt: Prompt{Endpoint: prompt.Completions}, Schedule: Schedule{Spread: load.SpreadNone},
		Waiter: func(clk clock.Clock) schedule.Waiter {
			w, err := schedule.NewWaiter(clk, schedule.Spin)
			if err != nil {
				t.Fatal(err)
			}
			waits = &asked{Waiter: w}
			return waits
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if served := rep.Figures().Rows.Served; served != n {
		t.Errorf("%d of %d rows served", served, n)
	}
	return waits
}
