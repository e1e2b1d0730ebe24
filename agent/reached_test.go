// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/mooncake"
)

// endlessTrace is standard input that never ends: a row every 10 ms of trace time.
type endlessTrace struct {
	n    int
	rest []byte
	read int64 // bytes
}

func (e *endlessTrace) Read(p []byte) (int, error) {
	for len(e.rest) < len(p) {
		e.rest = fmt.Appendf(e.rest, `{"timestamp": %d, "input_length": 100, "output_length": 2}`+"\n", 10*e.n)
		e.n++
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	e.read += int64(n)
	return n, nil
}

// TestRowsNotReached ends runs early: each row that was read has its record; the rows after these are counted if their number is
// certain, and are not read.
func TestRowsNotReached(t *testing.T) {
	const n, limited = 50_000, 20_000
	dir := t.TempDir()
	var lines bytes.Buffer
	for i := range n {
		fmt.Fprintf(&lines, `{"timestamp": %d, "input_length": 100, "output_length": 2}`+"\n", 10*i)
		if i%1000 == 0 {
			lines.WriteString(" \n\r\n") // blank lines are not rows
		}
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(lines.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain, bare := file("plain.jsonl", lines.Bytes()), file("bare.jsonl.gz", packed.Bytes())
	known := file("known.jsonl.gz", packed.Bytes())
	file("known.meta.json", fmt.Appendf(nil, `{"schema": 1, "rows": %d}`, n))
	table := filepath.Join(dir, "table.parquet")
	rows, err := mooncake.Create(table)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := rows.Write(&mooncake.Row{Timestamp: mooncake.Some(10 * float64(i)), InputLength: mooncake.Some[int64](100), OutputLength: mooncake.Some[int64](2)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Commit(new(mooncake.Meta)); err != nil {
		t.Fatal(err)
	}
	e := newEngine(t, simulator.Config{})
	for _, tc := range []struct {
		name    string
		trace   Trace
		stop    bool // by an interrupt, else by --max-duration
		loop    bool // closed
		reason  string
		known   bool // the number of rows
		said    string
		without string // a pattern that must not be in the report
	}{
		{"duration", Trace{Name: plain}, false, false, measure.SkipDuration, true, "further rows of the trace were not reached", `at least [0-9,]+ further`},
		{"interrupt", Trace{Name: plain}, true, false, measure.SkipInterrupted, true, "further rows of the trace were not reached", `at least [0-9,]+ further`},
		{"duration of a closed loop", Trace{Name: plain}, false, true, measure.SkipDuration, true, "further rows of the trace were not reached", `at least [0-9,]+ further`},
		{"interrupt of a closed loop", Trace{Name: plain}, true, true, measure.SkipInterrupted, true, "further rows of the trace were not reached", `at least [0-9,]+ further`},
		{"interrupt of a limited loop", Trace{Name: plain, MaxRows: limited, Loop: 1000}, true, false, measure.SkipInterrupted, true, "further rows of the trace were not reached", `at least [0-9,]+ further`},
		{"compressed, with a sidecar", Trace{Name: known}, false, false, measure.SkipDuration, true, "further rows of the trace were not reached", `at least [0-9,]+ further`},
		{"Parquet, with a sidecar", Trace{Name: table}, false, false, measure.SkipDuration, true, "further rows of the trace were not reached", `at least [0-9,]+ further`},
		{"compressed, without a sidecar", Trace{Name: bare}, false, false, measure.SkipDuration, false, "number of its remaining rows is unknown", "further rows"},
		{"standard input without an end", Trace{Name: "-", Stdin: &endlessTrace{}}, true, false, measure.SkipInterrupted, false, "number of its remaining rows is unknown", "further rows"},
		{"standard input without an end, by duration", Trace{Name: "-", Stdin: &endlessTrace{}}, false, false, measure.SkipDuration, false, "number of its remaining rows is unknown", "further rows"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cfg := Config{
				Trace: tc.trace, Target: Target{URL: e.url, Model: "m"}, Prompt: ids, Lead: time.Millisecond,
				Out: filepath.Join(t.TempDir(), "out"), Schedule: Schedule{FileOrder: tc.loop, Grace: 20 * time.Second},
			}
			want := judge.ExitOK
			if tc.stop {
				cfg.Progress = func(l *Live) {
					go func() {
						defer cancel()
						for ctx.Err() == nil && l.Look().Served < 10 {
							time.Sleep(time.Millisecond)
						}
					}()
				}
				want = judge.ExitInterrupted
			} else {
				cfg.Schedule.MaxDuration = 200 * time.Millisecond
			}
			r := replayed{}
			r.report, r.err = Run(ctx, cfg)
			if r.err != nil {
				t.Fatal(r.err)
			}
			r.read(t, cfg.Out)
			f := r.report.Figures()
			if status := r.report.ExitStatus; status != want && status != judge.ExitInvalid {
				t.Errorf("exit status %d, want %d", status, want)
			}
			if len(f.Skips) != 1 || f.Skips[0].Reason != tc.reason || f.Rows.Served == 0 {
				t.Errorf("rows %+v, skipped %+v, want %s alone", f.Rows, f.Skips, tc.reason)
			}
			if f.Rows.Total != int64(len(r.results)) || !tc.loop && f.Rows.Total > 10_000 {
				t.Errorf("%d rows, %d records: rows that nobody needs were read", f.Rows.Total, len(r.results))
			}
			for _, reason := range r.report.Verdict.Reasons {
				if reason.Metric == "records_missing" {
					t.Error(reason)
				}
			}
			got, all := r.report.Trace, int64(n)
			if tc.trace.MaxRows > 0 {
				all = tc.trace.MaxRows
			}
			switch {
			case tc.known && (got.AtLeast || got.Rows+got.NotReached != all):
				t.Errorf("%d rows taken, %d not reached (at least: %t), want %d in all", got.Rows, got.NotReached, got.AtLeast, all)
			case !tc.known && (!got.AtLeast || got.NotReached != 0):
				t.Errorf("%d not reached (at least: %t), want unknown", got.NotReached, got.AtLeast)
			}
			var table strings.Builder
			if err := r.report.Table(&table, report.Width, false); err != nil {
				t.Fatal(err)
			}
			if text := table.String(); !strings.Contains(text, tc.said) || regexp.MustCompile(tc.without).MatchString(text) {
				t.Errorf("the report should say %q, and nothing that matches %s:\n%s", tc.said, tc.without, text)
			}
			if in, ok := tc.trace.Stdin.(*endlessTrace); ok && in.n > 50_000 {
				t.Errorf("%d rows of standard input were read", in.n)
			}
		})
	}
}

// TestWholeTraceIsReached: a run that reaches the end reports no missing rows.
func TestWholeTraceIsReached(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	r := e.replay(t, Config{Prompt: ids}, rows(5, 1)...)
	if r.err != nil || r.report.Trace.NotReached != 0 || r.report.Trace.AtLeast {
		t.Errorf("error %v, %+v", r.err, r.report.Trace)
	}
}

var _ io.Reader = (*endlessTrace)(nil)

// TestNoticesWhileTheTraceIsRead: a run that needs no more rows ends while the trace may still be read ahead. What a notice at the end
// says about the trace must not be read meanwhile; the race detector would see it.
func TestNoticesWhileTheTraceIsRead(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	for _, limit := range []Config{{Trace: Trace{MaxRows: 2}}, {Schedule: Schedule{MaxDuration: 15 * time.Millisecond}}} {
		cfg := limit
		cfg.Trace.Name, cfg.Trace.Stdin, cfg.Trace.Lookahead = "-", &endlessTrace{}, 1
		cfg.Target, cfg.Prompt, cfg.Lead = Target{URL: e.url, Model: "m"}, ids, time.Millisecond
		if rep, err := Run(t.Context(), cfg); err != nil || rep.Trace.Rows < 2 {
			t.Errorf("%d rows, %v", rep.Trace.Rows, err)
		}
	}
}

// TestLoopOfAKnownTrace: the number of rows in the sidecar is that of one pass, and so is the number of rows of which a share was rejected.
func TestLoopOfAKnownTrace(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	const rows, bad = 19, 1 // 5 % of the rows are bad, which is not yet invalid
	for _, tc := range []struct {
		name   string
		said   int // rows in the sidecar
		loop   int
		warned bool
	}{
		{"once", rows + bad, 0, false},
		{"three times", rows + bad, 3, false},
		{"three times, of a trace that was cut", rows + bad + 1, 3, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var lines bytes.Buffer
			for i := range rows {
				fmt.Fprintf(&lines, `{"timestamp": %d, "input_length": 100, "output_length": 2}`+"\n", i)
			}
			lines.WriteString(`{"timestamp": 19, "input_length": -1}` + "\n")
			for name, content := range map[string][]byte{"t.jsonl": lines.Bytes(), "t.meta.json": fmt.Appendf(nil, `{"schema": 1, "rows": %d}`, tc.said)} {
				if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			rep, err := Run(t.Context(), Config{
				Trace: Trace{Name: filepath.Join(dir, "t.jsonl"), Loop: tc.loop, Lenient: true}, Prompt: ids, Lead: time.Millisecond,
				Target: Target{URL: e.url, Model: "m"}, Out: filepath.Join(dir, "out"),
			})
			if err != nil {
				t.Fatal(err)
			}
			if sent := int64(rows * max(1, tc.loop)); rep.Trace.Rows != sent {
				t.Errorf("%d rows sent, want %d", rep.Trace.Rows, sent)
			}
			if warned := strings.Contains(strings.Join(rep.Warnings, "\n"), "sidecar says"); warned != tc.warned {
				t.Errorf("a warning of the number of rows: %t, want %t: %q", warned, tc.warned, rep.Warnings)
			}
			rejected := slices.IndexFunc(rep.Verdict.Reasons, func(r judge.Reason) bool { return r.Metric == "rows_rejected" })
			if share := 100 * float64(bad) / (rows + bad); rejected < 0 || rep.Verdict.Reasons[rejected].Value != share {
				t.Errorf("%+v: want rows_rejected %v %%", rep.Verdict.Reasons, share)
			}
		})
	}
}
