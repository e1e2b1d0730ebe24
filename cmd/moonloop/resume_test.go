// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/internal/simulator"
)

// broken is a run that is cut short, and its engine.
type broken struct {
	*testing.T
	engine     *simulator.Engine
	url        string
	trace, out string
}

// newBroken makes the trace of a run, whose rows are this far apart, and an engine that takes a while for each.
func newBroken(t *testing.T, rows int, apart time.Duration) *broken {
	t.Helper()
	e, err := simulator.New(simulator.Config{Latency: simulator.Latency{Prefill: 100 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(e)
	t.Cleanup(func() {
		s.Close()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	b := &broken{t, e, s.URL, filepath.Join(dir, "trace.jsonl"), filepath.Join(dir, "out")}
	var lines strings.Builder
	for i := range rows {
		fmt.Fprintf(&lines, `{"timestamp": %d, "input_length": %d, "output_length": 3, "hash_ids": [0, %d]}`+"\n", int64(i)*apart.Milliseconds(), 600+i, i+1)
	}
	b.write(b.trace, lines.String())
	return b
}

func (b *broken) write(name, text string) {
	b.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
}

func (b *broken) read(name string) string {
	b.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		b.Fatal(err)
	}
	return string(text)
}

// args returns the command line of the whole run.
func (b *broken) args(more ...string) []string {
	return append([]string{"replay", b.trace, "--url", b.url, "--model", "m", "--endpoint", "completions", "--out", b.out, "--progress", "none"}, more...)
}

// do runs a command.
func (b *broken) do(ctx context.Context, args ...string) (status int, stdout, stderr string) {
	b.Helper()
	var out, said strings.Builder
	status = run(ctx, args, strings.NewReader(""), &out, &said)
	return status, out.String(), said.String()
}

// kill runs a command as a process, and kills it as soon as this many rows are noted as sent in the folder of its run.
func (b *broken) kill(notes int, out string, args ...string) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), "moonloop", args...)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(filepath.Join(out, "resume.jsonl"))
		if err == nil && strings.Count(string(text), `{"sent":`) >= notes {
			break
		}
		if time.Now().After(deadline) {
			b.Fatalf("the run does not begin: %v\n%s", err, said.String())
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		b.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != -1 {
		b.Fatalf("it ended before it was killed: %v\n%s", err, said.String())
	}
}

// arrived counts the requests that the engine got, by row.
func (b *broken) arrived() map[int]int {
	b.Helper()
	if err := b.engine.WaitIdle(b.Context()); err != nil {
		b.Fatal(err)
	}
	rows := make(map[int]int)
	for _, r := range b.engine.Records() {
		id := r.Header.Get("X-Request-Id")
		if row, err := strconv.Atoi(id[strings.LastIndex(id, "-")+1:]); err == nil && !strings.Contains(id, "--") {
			rows[row]++
		}
	}
	return rows
}

// resultOfRow is the result of a row in its record.
type resultOfRow struct {
	Row             int
	Outcome, Reason string
}

// whole checks the folder of a complete run: each row has one record, and was sent once; or it was in flight when the run was cut short,
// and was sent at most once.
func (b *broken) whole(out string, rows int, arrived map[int]int) (inFlight int) {
	b.Helper()
	seen := make(map[int]bool)
	for line := range strings.Lines(b.read(filepath.Join(out, "requests.jsonl"))) {
		var rec struct{ Result resultOfRow }
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			b.Fatal(err)
		}
		r := rec.Result
		switch {
		case seen[r.Row]:
			b.Errorf("row %d has two records", r.Row)
		case r.Outcome == "served" && arrived[r.Row] == 1:
		case r.Reason == "broken_off" && arrived[r.Row] <= 1:
			inFlight++
		default:
			b.Errorf("row %d: %s %s, and the engine had it %d times", r.Row, r.Outcome, r.Reason, arrived[r.Row])
		}
		seen[r.Row] = true
	}
	if len(seen) != rows || len(arrived) > rows {
		b.Errorf("%d records, %d rows at the engine; want %d", len(seen), len(arrived), rows)
	}
	for _, name := range []string{"resume.jsonl", "requests.jsonl.partial", "requests.jsonl.partial.meta.json", ".replay.lock"} {
		if _, err := os.Lstat(filepath.Join(out, name)); !errors.Is(err, os.ErrNotExist) {
			b.Errorf("%s is left: %v", name, err)
		}
	}
	return inFlight
}

// summary reads the parts from summary.json.
func (b *broken) summary(out string) (s struct {
	Run     struct{ ID, Command string }
	Config  struct{ Seed uint64 }
	Resumed *struct {
		Parts    []struct{ From, To float64 }
		InFlight int `json:"rows_in_flight"`
	}
},
) {
	b.Helper()
	if err := json.Unmarshal([]byte(b.read(filepath.Join(out, "summary.json"))), &s); err != nil {
		b.Fatal(err)
	}
	return s
}

// ended reports whether an exit status is that of a complete run; a busy machine makes a measurement invalid.
func ended(status int) bool { return status == exitOK || status == exitInvalid }

// TestResumeKilled kills a run by SIGKILL at several instants, and also each run that resumes it. The engine gets no row twice, and every
// row, except perhaps for those that were in flight.
func TestResumeKilled(t *testing.T) {
	const rows = 60
	b := newBroken(t, rows, 20*time.Millisecond)
	b.kill(12, b.out, b.args("--run-id", "night", "-H", "X-Secret: planted", "--seed", "18446744073709551615")...)
	if text := b.read(filepath.Join(b.out, "resume.jsonl")); strings.Contains(text, "planted") {
		t.Errorf("the secret is in the journal: %s", text)
	}
	if status, _, stderr := b.do(t.Context(), "replay", "--resume", b.out); status != exitUsage || !strings.Contains(stderr, "header: its value was left out of this file") {
		t.Errorf("without its secret: %d %s", status, stderr)
	}
	again := []string{"replay", "--resume", b.out, "-H", "X-Secret: planted"}
	b.kill(13, b.out, again...) // soon after this part has sent its first row
	b.kill(40, b.out, again...)
	status, stdout, stderr := b.do(t.Context(), again...)
	if !ended(status) || !strings.Contains(stderr, "the run was cut short at") {
		t.Fatalf("status %d\n%s%s", status, stdout, stderr)
	}
	arrived := b.arrived()
	inFlight := b.whole(b.out, rows, arrived)
	if s := b.summary(b.out); s.Run.ID != "night" || s.Config.Seed != 1<<64-1 || !strings.Contains(s.Run.Command, "--run-id night") || s.Resumed == nil || len(s.Resumed.Parts) < 3 || len(s.Resumed.Parts) > 4 || s.Resumed.InFlight != inFlight || inFlight == 0 {
		t.Errorf("%+v; %d rows in flight", s, inFlight)
	}
	// The first part may have noted more rows than kill waited for. Then the second part is killed before it has begun.
	if !strings.Contains(stdout, "degraded: run_breaks 3") && !strings.Contains(stdout, "degraded: run_breaks 2") && !strings.Contains(stdout, "invalid") || !strings.Contains(stdout, "were in flight when the run was cut short") {
		t.Error(stdout)
	}
	// There is nothing to resume.
	before := len(b.engine.Records())
	if status, _, stderr := b.do(t.Context(), again...); status != exitUsage || !strings.Contains(stderr, "is complete: there is nothing to resume") || len(b.engine.Records()) != before {
		t.Errorf("again: %d %s", status, stderr)
	}
}

// interrupt runs the command in this process, and interrupts it when the engine has had this many requests.
func (b *broken) interrupt(requests int, args ...string) (stdout string) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	before := len(b.engine.Records())
	go func() {
		for ctx.Err() == nil && len(b.engine.Records()) < before+requests {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	status, stdout, stderr := b.do(ctx, args...)
	if status != exitInterrupted {
		b.Fatalf("status %d\n%s%s", status, stdout, stderr)
	}
	return stdout
}

// TestResumeInterrupted: a run that was interrupted can be resumed, although it has results; rows that were cancelled stay cancelled.
func TestResumeInterrupted(t *testing.T) {
	t.Parallel()
	const rows = 100 // due over two seconds, so that a busy machine is interrupted before the last one, too
	b := newBroken(t, rows, 20*time.Millisecond)
	if stdout := b.interrupt(8, b.args()...); !strings.Contains(stdout, "to resume it: moonloop replay --resume "+b.out) {
		t.Error(stdout)
	}
	if status, stdout, stderr := b.do(t.Context(), "replay", "--resume", b.out); !ended(status) {
		t.Fatalf("status %d\n%s%s", status, stdout, stderr)
	}
	rowsByOutcome := make(map[string]int)
	for line := range strings.Lines(b.read(filepath.Join(b.out, "requests.jsonl"))) {
		var rec struct{ Result resultOfRow }
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			t.Fatal(err)
		}
		rowsByOutcome[rec.Result.Outcome+" "+rec.Result.Reason]++
	}
	arrived := b.arrived()
	if n := rowsByOutcome["served "] + rowsByOutcome["cancelled cancelled"]; n != rows || len(rowsByOutcome) > 2 || len(arrived) > rows {
		t.Errorf("%v, %d rows at the engine", rowsByOutcome, len(arrived))
	}
	for row, n := range arrived {
		if n != 1 {
			t.Errorf("row %d came %d times", row, n)
		}
	}
}

// TestInterruptedRuns: a run that is interrupted is not in the spread, because its figures are those of a part of the trace.
func TestInterruptedRuns(t *testing.T) {
	t.Parallel()
	b := newBroken(t, 10, 20*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for ctx.Err() == nil && len(b.engine.Records()) < 17 { // rows of the second run are over
			time.Sleep(time.Millisecond)
		}
	}()
	status, stdout, stderr := b.do(ctx, b.args("--runs", "4", "--runs-fresh")...)
	if status != exitInterrupted || !strings.Contains(stdout, "over 1 run:") || !strings.Contains(stdout, "run-2: interrupted, and not in the figures above\n2 further runs not made\n") {
		t.Fatalf("status %d\n%s%s", status, stdout, stderr)
	}
	if text := b.read(filepath.Join(b.out, runsFile)); strings.Count(text, `"interrupted": true`) != 1 || strings.Contains(text, `"runs": 2`) {
		t.Error(text)
	}
}

// TestResumeRuns: of several runs, those that are not complete are resumed.
func TestResumeRuns(t *testing.T) {
	t.Parallel()
	const rows = 10
	b := newBroken(t, rows, 20*time.Millisecond)
	args := b.args("--runs", "3", "--runs-fresh")
	b.kill(4, filepath.Join(b.out, "run-2"), args...)
	if status, _, stderr := b.do(t.Context(), "replay", "--resume", runFolder(b.out, 2)); !ended(status) { // by itself
		t.Fatalf("status %d\n%s", status, stderr)
	}
	b.kill(4, runFolder(b.out, 3), "replay", "--resume", b.out)
	status, stdout, stderr := b.do(t.Context(), "replay", "--resume", b.out)
	if !ended(status) || !strings.Contains(stderr, "run 2 of 3 was complete already") || !strings.Contains(stderr, "run 3 of 3 is resumed") || !strings.Contains(stdout, "over 3 runs") {
		t.Fatalf("status %d\n%s%s", status, stdout, stderr)
	}
	seeds := make(map[uint64]bool)
	for i := 1; i <= 3; i++ {
		var s struct {
			Schedule struct{ Seed uint64 }
			Rows     struct{ Total int }
		}
		if err := json.Unmarshal([]byte(b.read(filepath.Join(runFolder(b.out, i), "summary.json"))), &s); err != nil || s.Rows.Total != rows {
			t.Errorf("run %d: %+v, %v", i, s, err)
		}
		seeds[s.Schedule.Seed] = true
	}
	if len(seeds) != 3 {
		t.Errorf("seeds %v", slices.Collect(maps.Keys(seeds)))
	}
	if status, _, stderr := b.do(t.Context(), "replay", "--resume", b.out); status != exitUsage || !strings.Contains(stderr, "all 3 runs") {
		t.Errorf("again: %d %s", status, stderr)
	}
	// One whose journal lacks requests is neither resumed nor replaced.
	b.write(filepath.Join(runFolder(b.out, 3), report.IncompleteJournal), "")
	if status, _, stderr := b.do(t.Context(), "replay", "--resume", b.out); status != exitUsage || !strings.Contains(stderr, "cannot be resumed: requests that it sent") {
		t.Errorf("an incomplete journal: %d %s", status, stderr)
	}
}

// TestResumeRefused: what cannot be resumed is refused, and neither the engine nor the folder changes.
func TestResumeRefused(t *testing.T) {
	t.Parallel()
	const rows = 20
	b := newBroken(t, rows, 20*time.Millisecond)
	b.kill(6, b.out, b.args()...)
	b.arrived() // waits until the engine has recorded the requests in flight
	journal, records := filepath.Join(b.out, "resume.jsonl"), filepath.Join(b.out, "requests.jsonl.partial")
	whole := map[string]string{journal: b.read(journal), records: b.read(records), b.trace: b.read(b.trace)}
	head, rest, _ := strings.Cut(whole[journal], "\n")
	empty := t.TempDir()
	record := `{"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [0, 1], "result": {"outcome":"served","row":%d,"turn":0,"start":1,"end":2}}` + "\n"
	for name, tc := range map[string]struct {
		files map[string]string
		args  []string
		want  string
	}{
		"no folder":                             {nil, []string{"--resume", filepath.Join(empty, "gone")}, "no such file or directory; name the folder that was given to --out"},
		"a file":                                {nil, []string{"--resume", b.trace}, "this is not a folder; name the one that was given to --out"},
		"an empty folder":                       {nil, []string{"--resume", empty}, "has no resume.jsonl: no run was cut short there"},
		"a flag of the schedule":                {nil, []string{"--resume", b.out, "--speedup", "2", "--seed=1"}, "leave --speedup, --seed out"},
		"a file of settings":                    {nil, []string{"--resume", b.out, "--config", "x.yaml"}, "leave --config out"},
		"another trace":                         {map[string]string{b.trace: strings.Replace(whole[b.trace], `"output_length": 3, "hash_ids": [0, 20]`, `"output_length": 4, "hash_ids": [0, 20]`, 1)}, nil, "it is not the trace that the run began with"},
		"a trace that is gone":                  {nil, []string{filepath.Join(empty, "x.jsonl"), "--resume", b.out}, "no such file"},
		"a journal without its first line":      {map[string]string{journal: rest}, nil, "resume.jsonl: line 1: schema_version is"},
		"an empty journal":                      {map[string]string{journal: ""}, nil, "resume.jsonl: line 1: "},
		"another version":                       {map[string]string{journal: strings.Replace(whole[journal], `"schema_version":"1.0"`, `"schema_version":"9.0"`, 1)}, nil, "another version of moonloop wrote it"},
		"no settings":                           {map[string]string{journal: regexp.MustCompile(`"config":\{.*?\},"config_sources":\{.*?\},`).ReplaceAllString(head, "") + "\n" + rest}, nil, "it has no settings"},
		"an unknown setting":                    {map[string]string{journal: strings.Replace(whole[journal], `"config":{`, `"config":{"spedup":2,`, 1)}, nil, "resume.jsonl:1: spedup: there is no such setting"},
		"another schedule":                      {map[string]string{journal: strings.Replace(whole[journal], `"mode":"timestamps","speedup":1`, `"mode":"timestamps","speedup":3`, 1)}, nil, "it began with speedup 3, not 1"},
		"a line of the journal is damaged":      {map[string]string{journal: head + "\n{\n" + rest}, nil, "resume.jsonl: line 2: "},
		"a line of the records is damaged":      {map[string]string{records: "{\n" + whole[records] + fmt.Sprintf(record, 0)}, nil, "requests.jsonl.partial: line 1: "},
		"a part that begins after 1e300 ms":     {map[string]string{journal: strings.Replace(whole[journal], `"from_ms":0`, `"from_ms":1e300`, 1)}, nil, "no run lasts that long"},
		"a note whose time is no number":        {map[string]string{journal: strings.Replace(whole[journal], `"at":`, `"at":NaN`, 1)}, nil, "resume.jsonl: line 3: "},
		"a second record":                       {map[string]string{records: fmt.Sprintf(record+record+record, 2, 2, 3)}, nil, "requests.jsonl.partial: line 2: row 2 has a second record"},
		"a record of a negative row":            {map[string]string{records: fmt.Sprintf(record+record, -1, 1)}, nil, "a trace has none below 0"},
		"a record of a row that does not exist": {map[string]string{records: fmt.Sprintf(record, 1<<40)}, nil, "rows that it sent are no longer in the schedule"},
	} {
		for file, text := range whole {
			if other, changed := tc.files[file]; changed {
				text = other
			}
			b.write(file, text)
		}
		args := append([]string{"replay"}, tc.args...)
		if tc.args == nil {
			args = append(args, "--resume", b.out)
		}
		before := len(b.engine.Records())
		status, stdout, stderr := b.do(t.Context(), args...)
		if status != exitUsage || !strings.Contains(stderr, tc.want) || strings.Count(stderr, "moonloop: error: ") != 1 {
			t.Errorf("%s: status %d, want an error with %q\n%s%s", name, status, tc.want, stdout, stderr)
		}
		if n := len(b.engine.Records()) - before; n > 2 { // the calibration asks twice
			t.Errorf("%s: the engine was asked %d times", name, n)
		}
		if text := b.read(journal); text != intendedContent(tc.files, journal, whole[journal]) {
			t.Errorf("%s: the journal changed:\n%s", name, text)
		}
	}
	// Torn lines at the ends are not damage: a machine that dies leaves them.
	b.write(b.trace, whole[b.trace])
	b.write(journal, whole[journal]+`{"sent":7,"a`)
	b.write(records, whole[records]+strings.Repeat("\x00", 5000))
	if status, stdout, stderr := b.do(t.Context(), "replay", "--resume", b.out); !ended(status) {
		t.Errorf("torn lines: status %d\n%s%s", status, stdout, stderr)
	}
	b.whole(b.out, rows, b.arrived())
}

// intendedContent returns the content that a test case gives a file, else the given text.
func intendedContent(files map[string]string, name, text string) string {
	if other, changed := files[name]; changed {
		return other
	}
	return text
}

// TestResumeInUse: a running replay cannot be resumed.
func TestResumeInUse(t *testing.T) {
	t.Parallel()
	r := startReplay(t)
	var stdout, stderr strings.Builder
	if status := run(t.Context(), []string{"replay", "--resume", r.out}, strings.NewReader(""), &stdout, &stderr); status != exitUsage || !strings.Contains(stderr.String(), "another replay is writing its results there") {
		t.Errorf("exit status %d\n%s", status, stderr.String())
	}
	if err := r.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = r.Wait()
}
