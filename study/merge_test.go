// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/internal/testpipe"
	"github.com/moonloop/moonloop/study"
)

// fleet replays a trace in shards, concurrently in virtual time, into folders below dir, and returns what the engine received: the prompt
// and the lengths of each row. 0 shards means one run without shards.
func fleet(t *testing.T, trace, dir string, shards int, most int64) (received []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e, err := simulator.New(simulator.Config{
			Latency: simulator.Latency{Prefill: 70 * time.Millisecond, Decode: 20 * time.Millisecond},
			Record:  simulator.Recording{Keep: 1 << 20, NoWrites: true},
		})
		if err != nil {
			t.Fatal(err)
		}
		network := testpipe.New()
		stop := network.Serve(e.NewServer())
		var replaying sync.WaitGroup
		start := time.Now().Add(time.Hour)
		for i := range max(1, shards) {
			replaying.Go(func() {
				cfg := agent.Config{
					Trace: agent.Trace{Name: trace, Shard: i, Shards: shards, MaxRows: most}, Target: agent.Target{URL: "http://engine", Model: "m"},
					Prompt: agent.Prompt{Endpoint: prompt.Completions, OutputCap: 4}, Schedule: agent.Schedule{StartAt: start},
					Out: filepath.Join(dir, strconv.Itoa(i)), NoPage: true, DialContext: network.Dial, Waiter: schedule.NewSleeper,
				}
				if _, err := agent.Run(t.Context(), cfg); err != nil {
					t.Errorf("shard %d: %v", i, err)
				}
			})
		}
		replaying.Wait()
		stop()
		for _, r := range e.Records() {
			if row := r.Header.Get("X-Request-Id"); row != "" {
				received = append(received, fmt.Sprint(row[strings.LastIndexByte(row, '-')+1:], r.PromptHash, r.PromptTokens, r.OutputTokens))
			}
		}
		_ = e.Close()
	})
	slices.Sort(received)
	return received
}

// buckets returns the buckets of all histograms of the records in some folders.
func buckets(t *testing.T, dirs ...string) map[string]map[float64]int64 {
	t.Helper()
	all := measure.NewAggregate(measure.Options{})
	for _, dir := range dirs {
		if err := report.Records(dir, func(r *measure.Record) error { all.Add(r); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	out := make(map[string]map[float64]int64)
	for id := measure.ID(0); id < measure.TokenThroughput; id++ {
		if b := all.Buckets(id); len(b) > 0 {
			out[id.String()] = b
		}
	}
	return out
}

// madeTrace writes a trace with turns of conversations under one system prompt, in bursts, like the public trace.
func madeTrace(t *testing.T, rows int) string {
	t.Helper()
	var b bytes.Buffer
	for i := range rows {
		fmt.Fprintf(&b, `{"timestamp": %d, "input_length": %d, "output_length": %d, "hash_ids": [0, %d, %d]}`+"\n", 3000*(i/9), 1100+i%400, 1+i%17, 1+i%97, 1000+i)
	}
	name := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := os.WriteFile(name, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestMergeIsTheRunOfOneProcess: the engine gets the same requests from any number of shards, and the merged run has the histograms of all
// their records, bucket for bucket. In virtual time, these are the histograms of a run of one process.
func TestMergeIsTheRunOfOneProcess(t *testing.T) {
	trace, most := filepath.Join("..", "..", "shared", "data", "conversation_trace.jsonl"), int64(1500)
	shards := []int{1, 2, 8, 64}
	if testing.Short() {
		most, shards = 200, []int{2, 8}
	}
	if testing.Short() { // which has no rows to read ahead that are not sent
		trace = madeTrace(t, int(most))
	} else if _, err := os.Stat(trace); err != nil {
		t.Log("the public conversation trace is not in ../shared/data (see CONTRIBUTING.md): a generated one is used")
		trace = madeTrace(t, int(most))
	}
	dir := t.TempDir()
	single := filepath.Join(dir, "single")
	want := fleet(t, trace, single, 0, most)
	if len(want) != int(most) {
		t.Fatalf("the engine got %d requests of %d rows", len(want), most)
	}
	one := buckets(t, filepath.Join(single, "0"))
	delete(one, "http_req_data_received")
	for _, n := range shards {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			parts, out := filepath.Join(dir, fmt.Sprint("parts", n)), filepath.Join(dir, fmt.Sprint("merged", n))
			got := fleet(t, trace, parts, n, most)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("the engine got other requests (-one +shards):\n%.2000s", d)
			}
			rep, err := study.Merge([]string{parts}, study.MergeOptions{Out: out})
			if err != nil {
				t.Fatal(err)
			}
			var shards []string
			for i := range n {
				shards = append(shards, filepath.Join(parts, strconv.Itoa(i)))
			}
			merged := buckets(t, out)
			if d := cmp.Diff(buckets(t, shards...), merged); d != "" {
				t.Errorf("the histograms are not those of all records (-records +merged):\n%.2000s", d)
			}
			delete(merged, "http_req_data_received") // which depends on the numbers that the engine gave its replies
			if d := cmp.Diff(one, merged); d != "" {
				t.Errorf("the histograms are not those of one process (-one +merged):\n%.2000s", d)
			}
			if rows := rep.Figures().Rows; rows.Served != most || rows.Total != most || rep.Trace.Rows != most {
				t.Errorf("%+v of %d rows", rows, most)
			}
			// The merged run is read like any other run, and has the figures of the run of one process.
			runs, err := study.ReadRuns(out)
			if err != nil {
				t.Fatal(err)
			}
			alone, err := study.ReadRuns(filepath.Join(single, "0"))
			if err != nil {
				t.Fatal(err)
			}
			for _, metric := range []study.Metric{{Figure: "time_to_first_token", Statistic: "p99"}, {Figure: "request_throughput", Statistic: "avg"}, {Figure: "peak_concurrency", Statistic: "avg"}} {
				a, _, okA := alone[0].Value(metric)
				b, _, okB := runs[0].Value(metric)
				if !okA || !okB || a != b {
					t.Errorf("%v: %v of one process, %v merged", metric, a, b)
				}
			}
			for _, file := range []string{"summary.csv", "series.csv", "requests.jsonl", "requests.meta.json", "report.html"} {
				if _, err := os.Stat(filepath.Join(out, file)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// change rewrites the summary of a shard.
func change(dir string, by func(summary map[string]any)) error {
	name := filepath.Join(dir, "summary.json")
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var s map[string]any
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	by(s)
	if b, err = json.Marshal(s); err != nil {
		return err
	}
	return os.WriteFile(name, b, 0o600)
}

// TestMergeRefuses: folders that are not the complete set of shards of one run are refused, and named.
func TestMergeRefuses(t *testing.T) {
	trace, dir := madeTrace(t, 60), t.TempDir()
	fleet(t, trace, dir, 3, 0)
	if _, err := study.Merge(nil, study.MergeOptions{Out: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "no folder of a shard is given") {
		t.Error(err)
	}
	summary := func(by func(s map[string]any)) func(string) error {
		return func(dir string) error { return change(filepath.Join(dir, "1"), by) }
	}
	section := func(name string, set map[string]any) func(string) error {
		return summary(func(s map[string]any) { maps.Copy(s[name].(map[string]any), set) }) //nolint:forcetypeassert // it is one
	}
	remove := func(names ...string) func(string) error {
		return func(dir string) (err error) {
			for _, name := range names {
				err = errors.Join(err, os.RemoveAll(filepath.Join(dir, name)))
			}
			return err
		}
	}
	for name, c := range map[string]struct {
		do   func(dir string) error
		want string
	}{
		"one missing":       {remove("1"), "missing: shard 1/3;"},
		"two missing":       {remove("0", "2"), "missing: shard 0/3, 2/3;"},
		"no folder left":    {remove("0", "1", "2"), "no shard wrote its results there"},
		"records gone":      {remove("1/requests.jsonl"), "the records of shard 1/3 are not whole"},
		"sidecar gone":      {remove("1/requests.meta.json"), "requests.meta.json is not there; copy the whole folder"},
		"a shard twice":     {section("shard", map[string]any{"index": 0}), "are both shard 0/3"},
		"of another split":  {section("shard", map[string]any{"of": 4}), "the number of shards (3 and 4)"},
		"out of range":      {section("shard", map[string]any{"index": -1}), "its shard -1/3 with"},
		"another run":       {section("run", map[string]any{"id": "other"}), "the run's id"},
		"another seed":      {section("schedule", map[string]any{"seed": 5}), "the seed (0 and 5)"},
		"another speed":     {section("schedule", map[string]any{"speedup": 2}), "the schedule ("},
		"another trace":     {section("trace", map[string]any{"seq_digest": "0123456789abcdef"}), "the rows of the trace (/ and 0123456789ab/)"},
		"another beginning": {section("shard", map[string]any{"lookahead_digest": "1"}), "the first rows of the trace"},
		"another plan":      {section("shard", map[string]any{"plan_digest": "1"}), "the schedule that they divided"},
		"another version":   {section("run", map[string]any{"version": "9"}), "the program's version"},
		"another model":     {section("run", map[string]any{"model": "x"}), "the model (m and x)"},
		"another start":     {summary(func(s map[string]any) { s["start_time"] = "2001-01-01T00:00:00Z" }), "the time at which they began; give all of them the same --start-at"},
		"interrupted":       {summary(func(s map[string]any) { s["was_cancelled"] = true }), "shard 1/3 was interrupted"},
		"not a shard":       {summary(func(s map[string]any) { delete(s, "shard") }), "this run is not a shard"},
		"shard is a text":   {summary(func(s map[string]any) { s["shard"] = "x" }), "is not the summary of a shard"},
		"another setting": {func(dir string) (err error) {
			for i, v := range []int{1, 2, 1} {
				err = errors.Join(err, change(filepath.Join(dir, strconv.Itoa(i)), func(s map[string]any) { s["config"] = map[string]any{"output-length": v} }))
			}
			return err
		}, "--output-length (1 and 2)"},
		"killed": {func(dir string) error {
			records := filepath.Join(dir, "1", "requests.jsonl")
			return errors.Join(os.Remove(filepath.Join(dir, "1", "summary.json")), os.Rename(records, records+".partial"))
		}, "this shard did not end: it has requests.jsonl.partial and no summary.json"},
		"a row twice": {func(dir string) error {
			b, err := os.ReadFile(filepath.Join(dir, "0", "requests.jsonl"))
			return errors.Join(err, os.WriteFile(filepath.Join(dir, "1", "requests.jsonl"), b, 0o600))
		}, "both have row 0"},
	} {
		t.Run(name, func(t *testing.T) {
			copied := t.TempDir()
			if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			if err := c.do(copied); err != nil {
				t.Fatal(err)
			}
			out := filepath.Join(t.TempDir(), "out")
			_, err := study.Merge([]string{copied}, study.MergeOptions{Out: out})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if _, err := os.Stat(filepath.Join(out, "summary.json")); err == nil {
				t.Error("a run was written nevertheless")
			}
		})
	}
}

// TestMergeOfASteadyState: shards that asked for a part of the run are merged to the whole, and the report says so.
func TestMergeOfASteadyState(t *testing.T) {
	trace, dir := madeTrace(t, 60), t.TempDir()
	fleet(t, trace, dir, 2, 0)
	for setting, want := range map[string]bool{"steady-from": true, "steady-to": true, "speedup": false} {
		for i := range 2 {
			if err := change(filepath.Join(dir, strconv.Itoa(i)), func(s map[string]any) { s["config"] = map[string]any{setting: "50%", "steady-state": false} }); err != nil {
				t.Fatal(err)
			}
		}
		rep, err := study.Merge([]string{dir}, study.MergeOptions{Out: filepath.Join(t.TempDir(), "out")})
		if err != nil || rep.NoSteady != want || slices.ContainsFunc(rep.Warnings, func(s string) bool { return strings.Contains(s, "those of the whole run") }) != want {
			t.Errorf("%s: %v, %v, want %v", setting, err, rep, want)
		}
	}
}

// TestMergeJudgesByTheWorst: the worst shard decides, and clocks that differ make requests late.
func TestMergeJudgesByTheWorst(t *testing.T) {
	trace, dir := madeTrace(t, 600), t.TempDir()
	fleet(t, trace, dir, 3, 0)
	for i := range 3 { // a busy machine may have stopped a shard, which is not judged here
		if err := change(filepath.Join(dir, strconv.Itoa(i)), func(s map[string]any) { s["verdict"] = judge.Verdict{Class: judge.Valid} }); err != nil {
			t.Fatal(err)
		}
	}
	merge := func(t *testing.T) *report.Report {
		t.Helper()
		rep, err := study.Merge([]string{dir}, study.MergeOptions{Out: filepath.Join(t.TempDir(), "out")})
		if err != nil {
			t.Fatal(err)
		}
		return rep
	}
	if v := merge(t).Verdict; v.Class > judge.Undecided || !slices.Contains(v.Unknown, "shard_clocks") {
		t.Errorf("nothing is wrong: %v; unknown are %v", v, v.Unknown)
	}
	clocks := func(offsets ...float64) {
		for i, at := range offsets {
			err := change(filepath.Join(dir, strconv.Itoa(i)), func(s map[string]any) {
				s["shard"].(map[string]any)["clock"] = report.Clock{Reference: "r", Start: at, End: at, Uncertain: 1} //nolint:forcetypeassert // it is one
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	clocks(5, 6, 7)
	if rep := merge(t); rep.Merged.ClocksApart == nil || *rep.Merged.ClocksApart != 4 || slices.ContainsFunc(rep.Verdict.Reasons, func(r judge.Reason) bool { return r.Class > judge.Valid }) {
		t.Errorf("clocks 4 ms apart: %v, %v", rep.Merged.ClocksApart, rep.Verdict)
	}
	clocks(0, 0, 300)
	v := merge(t).Verdict
	for _, metric := range []string{"shard_clocks", "lateness_p99"} {
		if !slices.ContainsFunc(v.Reasons, func(r judge.Reason) bool { return r.Metric == metric && r.Class == judge.Invalid && r.Value >= 302 }) {
			t.Errorf("clocks 302 ms apart: %s is not invalid: %v", metric, v)
		}
	}
	clocks(0, 0, 0)
	err := change(filepath.Join(dir, "1"), func(s map[string]any) {
		s["verdict"] = judge.Verdict{Class: judge.Degraded, Reasons: []judge.Reason{{Metric: "cpu_share", Value: 80, Bound: 70, Unit: "%", Class: judge.Degraded, Text: "busy"}}}
	})
	if err != nil {
		t.Fatal(err)
	}
	rep := merge(t)
	if text := rep.Verdict.String(); rep.Verdict.Class != judge.Degraded || !strings.Contains(text, "degraded: shard 1/3: cpu_share 80 % > 70 %: busy") {
		t.Errorf("one shard is degraded: %s", text)
	}
	{
		n := int64(0)
		for _, s := range rep.Merged.Shards {
			n += s.Rows
		}
		if n != 600 || rep.Merged.Shards[1].Verdict != judge.Degraded {
			t.Errorf("the shards are %+v", rep.Merged.Shards)
		}
	}
}
