// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/moonloop/moonloop/agent/carry"
	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// arrival is a request for a row, as the engine got it.
type arrival struct {
	row int64
	*simulator.Record
}

// arrivals returns the requests for rows that an engine got, in order.
func (e engine) arrivals(t testing.TB) (all []arrival) {
	t.Helper()
	for _, r := range e.Records() {
		_, row, found := strings.Cut(r.Header.Get("X-Request-Id"), "run-")
		if index, err := strconv.ParseInt(row, 10, 64); found && err == nil && index >= 0 {
			all = append(all, arrival{index, r})
		}
	}
	return all
}

// rowsOf returns the rows of arrivals, sorted.
func rowsOf(all []arrival) (rows []int64) {
	for _, a := range all {
		rows = append(rows, a.row)
	}
	slices.Sort(rows)
	return rows
}

// snapshot copies the files of a folder at an instant, as a kill would leave them.
func snapshot(t testing.TB, from, to string) {
	t.Helper()
	entries, err := os.ReadDir(from)
	if err = cmp.Or(err, os.MkdirAll(to, 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(from, entry.Name()))
		if err = cmp.Or(err, os.WriteFile(filepath.Join(to, entry.Name()), text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// The rows of these tests are 100 ms apart.
func plainRow(i int) string {
	return fmt.Sprintf(`{"timestamp": %d, "input_length": %d, "output_length": 12, "hash_ids": [0, %d]}`, 100*i, 600+i, i+1)
}

// sessionRow makes rows of sessions of four turns.
func sessionRow(i int) string {
	return strings.TrimSuffix(plainRow(i), "}") + fmt.Sprintf(`, "session_id": "s%d"}`, i/8*2+i%2)
}

// graphRow makes rows of graphs of eight rows, each of which waits for the two rows before it.
func graphRow(i int) string {
	var names []string
	for back := range min(2, i%8) {
		names = append(names, fmt.Sprintf(`"r%d"`, i-1-back))
	}
	return strings.TrimSuffix(plainRow(i), "}") + fmt.Sprintf(`, "request_id": "r%d", "delay": 30, "wait_for": [%s]}`, i, strings.Join(names, ", "))
}

// branchRow makes rows of two branches of a session: of each eight rows, the second one waits for the first one, and is sent long after the others.
func branchRow(i int) string {
	row := strings.TrimSuffix(plainRow(i), "}") + fmt.Sprintf(`, "request_id": "r%d", "session_id": "s%d"`, i, i/8)
	if i%8 == 1 {
		return row + fmt.Sprintf(`, "delay": 1200, "wait_for": ["r%d"]}`, i-1)
	}
	return row + `, "wait_for": []}`
}

// replyRow makes rows whose prompts contain the reply to the row six rows before.
func replyRow(i int) string {
	if i < 6 {
		return plainRow(i)
	}
	return strings.TrimSuffix(plainRow(i), "}") + `, "replies": [[6, 520, 12]]}`
}

// TestResume: if a run is killed at any instant, any number of times, each row ends as one record, and is sent to the engine once. None is
// sent at a different instant of the schedule than in a run that is not cut short.
func TestResume(t *testing.T) {
	const n = 40
	for name, tc := range map[string]struct {
		set   func(*Config)
		row   func(int) string // nil = plainRow
		rows  int              // that the run has; 0 = n, -1 = not checked
		free  bool             // instants depend on when earlier requests end
		delta bool             // prompts hold replies, of which those before the break are lost
	}{
		"timestamps":                {set: func(*Config) {}},
		"request rate":              {set: func(c *Config) { c.Schedule.Arrivals = load.Arrivals{Rate: 10} }},
		"closed loop":               {set: func(c *Config) { c.Schedule.FileOrder, c.Schedule.Concurrency = true, 3 }, free: true},
		"capped concurrency":        {set: func(c *Config) { c.Schedule.Concurrency = 2 }, free: true},
		"loop":                      {set: func(c *Config) { c.Trace.Loop, c.Schedule.Speedup = 2, 2 }, rows: 2 * n},
		"shard":                     {set: func(c *Config) { c.Trace.Shard, c.Trace.Shards = 1, 2 }, rows: -1},
		"max requests":              {set: func(c *Config) { c.Trace.MaxRows = 36 }, rows: 36},
		"whole prompts of sessions": {set: func(c *Config) { c.Trace.Sessions = mooncake.SessionFull }, row: sessionRow, free: true},
		"turns of sessions":         {set: func(c *Config) { c.Trace.Sessions, c.Prompt = mooncake.SessionDelta, Prompt{} }, row: sessionRow, free: true, delta: true},
		"graphs":                    {set: func(*Config) {}, row: graphRow, free: true},
		"branches of sessions":      {set: func(*Config) {}, row: branchRow, free: true},
		"replies":                   {set: func(c *Config) { c.Prompt = Prompt{Carry: carry.Always} }, row: replyRow, delta: true},
		"maximum duration":          {set: func(c *Config) { c.Schedule.MaxDuration = 3500 * time.Millisecond }},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, simulator.Config{Latency: simulator.Latency{Prefill: 70 * time.Millisecond, Decode: 20 * time.Millisecond}}, func(t bubble, e engine) {
				if tc.row == nil {
					tc.row = plainRow
				}
				var lines []string
				for i := range n {
					lines = append(lines, tc.row(i))
				}
				testResume(t, e, tc.set, lines, tc.rows, tc.free, tc.delta)
			})
		})
	}
}

func testResume(t bubble, e engine, set func(*Config), lines []string, want int, free, delta bool) {
	dir := t.TempDir()
	cfg := Config{
		Trace: Trace{Name: filepath.Join(dir, "trace.jsonl")}, Target: Target{URL: e.url, Model: "m"}, Prompt: ids, Lead: time.Millisecond, RunID: "run",
		DialContext: e.network.Dial, Waiter: schedule.NewSleeper,
	}
	set(&cfg)
	if err := os.WriteFile(cfg.Trace.Name, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// run runs a part into a folder, and copies it after a while, as a kill would leave it. Everything that the part did after that does
	// not count.
	engineZero := time.Now()
	run := func(out string, resume bool, killAfter time.Duration) (arrived []arrival, killed string, rep *report.Report) {
		before := len(e.arrivals(t))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := cfg
		c.Out, c.Resume = out, resume
		var at time.Duration
		if killAfter > 0 {
			killed = out + "+"
			time.AfterFunc(killAfter, func() {
				at = time.Since(engineZero)
				snapshot(t, out, killed)
				cancel()
			})
		}
		rep, err := Run(ctx, c)
		if err != nil && killAfter == 0 { // a killed run may have been killed before its schedule began
			t.Fatal(err)
		}
		if err := e.WaitIdle(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, a := range e.arrivals(t)[before:] {
			if killAfter == 0 || a.Headers <= at {
				arrived = append(arrived, a)
			}
		}
		return arrived, killed, rep
	}
	whole, _, unbroken := run(filepath.Join(dir, "whole"), false, 0)
	var arrived []arrival
	out, resume := filepath.Join(dir, "out"), false
	kills := []time.Duration{2634 * time.Millisecond, 3 * time.Millisecond, 700 * time.Millisecond, 251 * time.Millisecond}
	for _, after := range kills {
		part, killed, _ := run(out, resume, after)
		arrived = append(arrived, part...)
		out, resume = killed, true
	}
	journal, err := report.ReadJournal(out, func(int64, time.Duration, int) {}, func(int64) {})
	if err != nil {
		t.Fatal(err)
	}
	breaks := len(journal.Parts)
	spans := &keepSpans{InMemoryExporter: tracetest.NewInMemoryExporter()}
	cfg.Telemetry.SpanExporter = spans
	part, _, rep := run(out, true, 0)
	arrived = append(arrived, part...)
	if got, want := rowsOf(arrived), rowsOf(whole); !slices.Equal(got, want) {
		t.Errorf("rows at the engine:\n%v, want\n%v", got, want)
	}
	prompts := make(map[int64]*simulator.Record)
	for _, a := range whole {
		prompts[a.row] = a.Record
	}
	for _, a := range arrived {
		if was := prompts[a.row]; was != nil && (!delta && a.PromptHash != was.PromptHash || a.PromptTokens != was.PromptTokens) {
			t.Errorf("row %d has another prompt, of %d tokens; want that of %d", a.row, a.PromptTokens, was.PromptTokens)
		}
	}
	if want == 0 {
		want = len(lines)
	}
	figures := rep.Figures()
	if n := int(figures.Rows.Total); want > 0 && n != want || int64(n) != unbroken.Figures().Rows.Total || rep.Trace.Rows != unbroken.Trace.Rows {
		t.Errorf("%d records of %d rows; want %d records of %d rows, as in one piece", n, rep.Trace.Rows, want, unbroken.Trace.Rows)
	}
	records, inOnePiece := replayed{report: rep}, replayed{report: unbroken}
	records.read(t, out)
	inOnePiece.read(t, filepath.Join(dir, "whole"))
	var lost int64
	for i, res := range records.results {
		is, was := res.Result, inOnePiece.results[i].Result
		switch {
		case is.Row != was.Row:
			t.Fatalf("record %d is of row %d, want %d", i, is.Row, was.Row)
		case is.Reason == measure.CancelBroken:
			lost++
		case is.Outcome != was.Outcome, !free && math.Abs(is.Intended-was.Intended) > 0.002, !free && is.Lateness != 0, is.Turn != was.Turn:
			t.Errorf("row %d: %s, turn %d, at %.3f ms, late by %.3f ms; want %s, turn %d, at %.3f ms", is.Row, is.Outcome, is.Turn, is.Intended, is.Lateness, was.Outcome, was.Turn, was.Intended)
		}
	}
	if rep.Resumed == nil || len(rep.Resumed.Parts) != breaks+1 || breaks < 2 || rep.Resumed.InFlight != lost || lost == 0 {
		t.Errorf("%+v, %d rows in flight", rep.Resumed, lost)
	}
	// Each row of the last part has its span, including those that were in flight when it began.
	ended := make(map[string]string)
	for _, span := range spans.GetSpans() {
		for _, a := range span.Attributes {
			if a.Key == semconv.Outcome {
				ended[span.SpanContext.SpanID().String()] = a.Value.AsString()
			}
		}
	}
	told := make(map[measure.Outcome]int)
	err = report.Records(out, func(r *measure.Record) error {
		if id := hex.EncodeToString(r.Span.SpanID[:]); !r.Span.IsZero() && ended[id] != r.Outcome.String() {
			t.Errorf("row %d: its span says %q, want %s", r.Index, ended[id], r.Outcome)
		} else if !r.Span.IsZero() {
			told[r.Outcome]++
		}
		return nil
	})
	if err != nil || told[measure.Served] == 0 || told[measure.Cancelled] == 0 || len(ended) != told[measure.Served]+told[measure.Cancelled]+told[measure.Skipped] {
		t.Errorf("spans: %v of %d, %v", told, len(ended), err)
	}
	if lost := slices.ContainsFunc(figures.Replies.Invented, func(r measure.Reason) bool { return r.Reason == carry.Broken }); lost != (figures.Replies.Needed > 0) {
		t.Errorf("replies: %+v", figures.Replies)
	}
	duration, _ := figures.Stat(measure.Duration)
	if was, _ := unbroken.Figures().Stat(measure.Duration); !free && math.Abs(duration.Avg-was.Avg) > 1e-3 {
		t.Errorf("the run took %v s, want %v: the gaps do not count", duration.Avg, was.Avg)
	}
	if rep.Verdict.Class == judge.Valid || !slices.ContainsFunc(rep.Verdict.Reasons, func(r judge.Reason) bool { return r.Metric == "run_breaks" && r.Value == float64(breaks) }) {
		t.Errorf("verdict: %v", rep.Verdict)
	}
	if _, err := os.Stat(filepath.Join(out, report.JournalFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a finished run still has its journal: %v", err)
	}
}
