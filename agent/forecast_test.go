// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/internal/simulator"
)

// predict forecasts a replay of rows.
func predict(t *testing.T, cfg Config, lines ...string) (f *Forecast, rows []string, at []time.Duration) {
	t.Helper()
	cfg.Trace.Name = filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(cfg.Trace.Name, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Predict(t.Context(), cfg, func(it *schedule.Item) {
		rows, at = append(rows, fmt.Sprint(it.Index)), append(at, it.Offset)
	})
	if err != nil {
		t.Fatal(err)
	}
	return f, rows, at
}

// TestForecastIsWhatArrives: a dry run says when each row is sent, to the nanosecond.
func TestForecastIsWhatArrives(t *testing.T) {
	lines := rows(200, 30)
	for name, cfg := range map[string]Config{
		"timestamps":        {Schedule: Schedule{Speedup: 3}},
		"a rate":            {Schedule: Schedule{Arrivals: load.Arrivals{Rate: 30, Pattern: load.Gamma, Burstiness: 0.5, RampUp: time.Second}}},
		"a window":          {Trace: Trace{Start: time.Second, End: 2 * time.Second}},
		"a limit":           {Trace: Trace{MaxRows: 7}},
		"a loop":            {Trace: Trace{Loop: 3, LoopFresh: true}},
		"a loop for a time": {Trace: Trace{LoopFor: 10 * time.Second}, Schedule: Schedule{Speedup: 2}},
		"max duration":      {Schedule: Schedule{MaxDuration: 2 * time.Second}},
	} {
		f, due, at := predict(t, cfg, lines...)
		rep, got := inVirtualTime(t, simulator.Config{}, cfg, lines...)
		arrived, when := order(got)
		first := at[0] // the window begins before its first row
		for i := range when {
			when[i] += first
		}
		if !slices.Equal(due, arrived) || !slices.Equal(at, when) {
			t.Errorf("%s: forecast rows %v at %v, arrived %v at %v", name, due, at, arrived, when)
		}
		n := rep.Figures().Rows
		if f.Rows != n.Served || f.PastEnd != n.Skipped || f.Rows != int64(len(due)) {
			t.Errorf("%s: forecast %+v, replayed %+v", name, f, n)
		}
		binned, peak := int64(0), int64(0)
		for _, n := range f.Bins {
			binned += n
		}
		for _, from := range at {
			second := from.Truncate(time.Second)
			n := int64(0)
			for _, a := range at {
				if a.Truncate(time.Second) == second {
					n++
				}
			}
			peak = max(peak, n)
		}
		if binned != f.Rows || len(f.Bins) > maxBins || f.Peak != peak || f.Last != at[len(at)-1].Seconds() {
			t.Errorf("%s: %d of %d rows in %d bins; peak %d, want %d; last at %v", name, binned, f.Rows, len(f.Bins), f.Peak, peak, f.Last)
		}
		if f.Schedule.Mode != rep.Schedule.Mode || !reflect.DeepEqual(f.Schedule, rep.Schedule) || f.InputTokens != 100*f.Rows || f.OutputTokens != 2*f.Rows {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// TestForecastOfTheUnknown: a dry run does not guess what the engine decides.
func TestForecastOfTheUnknown(t *testing.T) {
	f, _, _ := predict(t, Config{Schedule: Schedule{FileOrder: true, Concurrency: 4}}, rows(5, 10)...)
	if f.Rows != 5 || f.Bins != nil || f.Schedule.Mode != "closed_loop" || f.Schedule.Concurrency != 4 {
		t.Errorf("closed loop: %+v", f)
	}
	f, _, _ = predict(t, Config{},
		`{"session_id": "a", "timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [0, 1]}`,
		`{"session_id": "a", "delay": 50, "input_length": 1124, "hash_ids": [0, 1, 2]}`)
	if f.Rows != 2 || f.Following != 1 || f.Unasked != 1 || f.CachedTokens != 512 || len(f.Bins) != 1 {
		t.Errorf("a turn with a delay: %+v", f)
	}
	if _, err := Run(t.Context(), Config{DryRun: true, Trace: Trace{Name: "x"}}); err == nil {
		t.Error("a dry run ran")
	}
	if _, err := Predict(t.Context(), Config{Trace: Trace{Name: filepath.Join(t.TempDir(), "missing")}}, nil); err == nil {
		t.Error("no error for a trace that does not exist")
	}
}
