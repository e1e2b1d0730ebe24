// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/mooncake"
)

// wide is a trace with many kinds of rows: with a session, a class or a priority, without ids, and with too few ids.
const wide = `{"timestamp": 0, "input_length": 40, "output_length": 8, "hash_ids": [0, 1, 2], "session_id": "s1", "request_id": "a", "model": "m", "observed": {"ttft_ms": 5}}
{"timestamp": 1250.5, "input_length": 64, "output_length": 4, "hash_ids": [0, 1, 3, 4], "delay": 10, "session_id": "s1", "class": "batch", "priority": 3}
{"timestamp": 2000, "input_length": 20, "output_length": 2}
{"timestamp": 2000.0001, "input_length": 60, "output_length": 0, "hash_ids": [0, 1]}
`

// served is a trace whose rows have durations.
const served = `{"timestamp": 0, "input_length": 48, "output_length": 8, "hash_ids": [0, 1, 2], "model": "m", "observed": {"cached_tokens": 16, "ttft_ms": 5, "duration_ms": 40, "finish_reason": "stop"}}
{"timestamp": 1250.5, "input_length": 64, "output_length": 4, "hash_ids": [0, 1, 3, 4], "session_id": "s1", "request_id": "b", "model": "m", "class": "batch", "priority": 3, "observed": {"cached_tokens": 0, "ttft_ms": 7.25, "duration_ms": 10.25}}
{"timestamp": 2000, "input_length": 20, "output_length": 1, "model": "m", "observed": {"ttft_ms": 3}}
{"timestamp": 2000.5, "input_length": 60, "output_length": 0, "hash_ids": [0, 1], "model": "m", "observed": {"ttft_ms": 0}}
`

// elsewhere lists the fields that a format can hold only in part, or under another name: see TestSessions.
var elsewhere = map[Target][]string{"blis": {"observed"}, "burstgpt": {"observed"}, "weka": {"observed", "hash_ids"}, "satf": {"observed", "request_id", "wait_for"}}

// TestTargets writes a trace for each tool and compares the file with the golden one. Then it reads the file again: the fields that the
// format can hold are the same.
func TestTargets(t *testing.T) {
	for _, to := range Targets() {
		t.Run(string(to), func(t *testing.T) {
			opt := Options{Format: Mooncake, To: to, Meta: &mooncake.Meta{BlockSize: 16, SessionMode: mooncake.SessionFull}}
			rows := wide
			if slices.Contains(to.target().fields, "observed") || to == "lmcache" { // lmcache has only whole blocks
				rows = served
			}
			got, meta := convert(t, opt, text("wide.jsonl", rows))
			golden := filepath.Join("testdata", "targets", string(to)+".golden")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if diff := cmp.Diff(string(want), got); diff != "" || err != nil {
				t.Errorf("%v (-golden +got); run with -update:\n%s", err, diff)
			}
			if !strings.Contains(meta.Transformations[len(meta.Transformations)-1].Effect, "The file is for: ") || meta.Rows != 4 {
				t.Errorf("sidecar %+v", meta)
			}
			back := Format(to)
			if to == "guidellm" { // the format of this name is that of GuideLLM's results
				back = "vllm"
			}
			if to == "aiperf" || to == "dynamo" || to == "dynamo-agentic" {
				back = Mooncake // these files have rows of Mooncake
				opt.To = to
			} else {
				opt = Options{Format: back}
				if to == "burstgpt" {
					opt.Failed = FailedKeep // in BurstGPT, a request without output is one that failed
				}
			}
			again, second := convert(t, opt, text("again", got))
			if back == Mooncake {
				if diff := cmp.Diff(got, again); diff != "" {
					t.Errorf("written twice (-once +twice):\n%s", diff)
				}
				return
			}
			if second.BlockSize != 16 && slices.Contains(to.target().fields, "hash_ids") || second.Rows != 4 {
				t.Errorf("read again: sidecar %+v", second)
			}
			wantRow, gotRow := strings.Split(rows, "\n")[1], strings.Split(again, "\n")[1]
			for _, field := range to.target().fields {
				if a, b := member(t, wantRow, field), member(t, gotRow, field); field != "session_id" && a != b && !slices.Contains(elsewhere[to], field) {
					t.Errorf("%s of the second row: %s, want %s", field, b, a)
				}
			}
		})
	}
}

// TestRoundTrips writes a trace for each tool that has a format of its own, and reads it back: the sidecar has the digests of the rows
// that are read. A digest is that of the trace itself if the format can hold everything that the digest covers, and undefined if it cannot.
// Formats of whole blocks have digests of their own.
func TestRoundTrips(t *testing.T) {
	var rows strings.Builder
	digester := mooncake.NewDigester(mooncake.CheckOptions{BlockSize: 16})
	for i := range int64(40) {
		row := &mooncake.Row{
			Timestamp: mooncake.Some(float64(i*i*7) + 0.25), InputLength: mooncake.Some(40 + i%9), OutputLength: mooncake.Some(1 + i%4),
			HashIDs: []uint64{0, uint64(1 + i%3), uint64(100 + i)}, Model: "m",
			Observed: mooncake.Observed{TTFT: mooncake.Some(5.), Duration: mooncake.Some(9.)},
		}
		digester.Add(row, i+1)
		rows.Write(append(mooncake.AppendRow(nil, row), '\n'))
	}
	source := digester.Digests()
	if !source.Defined() {
		t.Fatalf("the trace has no digests: %+v", source)
	}
	for _, to := range Targets() {
		opt := Options{Format: Mooncake, To: to, Meta: &mooncake.Meta{BlockSize: 16}}
		content, meta := convert(t, opt, text("trace.jsonl", rows.String()))
		back := map[Target]Format{"aiperf": Mooncake, "dynamo": Mooncake, "dynamo-agentic": Mooncake, "guidellm": "vllm"}[to]
		if back == "" {
			back = Format(to)
		}
		opt = Options{Format: back}
		if back == Mooncake {
			opt.To, opt.Meta = to, meta
		}
		_, again := convert(t, opt, text("again", content))
		a, b := meta.Digests, again.Digests
		if a.Seq != b.Seq || a.Tree != b.Tree || a.Arrival != b.Arrival || meta.Rows != again.Rows {
			t.Errorf("%s: %d rows, %+v\nread: %d rows, %+v", to, meta.Rows, a, again.Rows, b)
		}
		fields := to.target().fields
		for what, digest := range map[string]struct {
			got, source string
			has         bool
		}{
			"what prompts share": {a.Tree, source.Tree, slices.Contains(fields, "hash_ids") && slices.Contains(fields, "output_length")},
			"arrivals":           {a.Arrival, source.Arrival, slices.Contains(fields, "timestamp")},
		} {
			switch same := digest.got == digest.source; {
			case !digest.has && digest.got != mooncake.Undefined:
				t.Errorf("%s: has a digest of %s", to, what)
			case digest.has && (digest.got == mooncake.Undefined || !same && !to.target().whole):
				t.Errorf("%s: the digest of %s is %s, want %s", to, what, digest.got, digest.source)
			}
		}
	}
}

// TestTargetsReveal: the sidecar of a file for another tool describes the information in that file, not in the trace, and the unit of its
// times.
func TestTargetsReveal(t *testing.T) {
	for to, want := range map[Target]struct {
		privacy mooncake.Privacy
		unit    string
	}{
		"azure":  {mooncake.Privacy{Mode: mooncake.PrivacyPerfOnly}, "ms"},
		"vllm":   {mooncake.Privacy{Mode: mooncake.PrivacyBlockHash, HashedRows: 4}, "s"}, // a prompt without ids gets some
		"vidur":  {mooncake.Privacy{Mode: mooncake.PrivacyBlockHash, HashedRows: 3}, "ms"},
		"satf":   {mooncake.Privacy{Mode: mooncake.PrivacyBlockHash, HashedRows: 3}, "ms"},
		"aiperf": {mooncake.Privacy{Mode: mooncake.PrivacyBlockHash, HashedRows: 3}, "ms"},
	} {
		name := filepath.Join(t.TempDir(), "out.jsonl")
		result, err := Convert(t.Context(), Options{Format: Mooncake, To: to}, func(capture.Partition) (capture.TraceWriter, error) {
			return mooncake.Create(name)
		}, text("wide.jsonl", wide))
		if err != nil {
			t.Fatal(err)
		}
		meta, err := mooncake.LoadMeta(name)
		if err != nil || meta.Privacy == nil {
			t.Fatalf("%s: %+v, %v", to, meta, err)
		}
		if diff := cmp.Diff(want.privacy, *meta.Privacy); diff != "" || meta.TimeUnit != want.unit {
			t.Errorf("%s, in %s, want %s (-want +got):\n%s", to, meta.TimeUnit, want.unit, diff)
		}
		if told := result.Traces[0].Meta; len(told.Dropped) != len(meta.Dropped) || told.Privacy == nil || len(told.Transformations) != 2 {
			t.Errorf("%s: the result says %+v, the sidecar %+v", to, told, meta)
		}
	}
}

// TestTargetsReadUnits: timestamps are converted once from the unit that the sidecar gives or, without one, that their size shows.
func TestTargetsReadUnits(t *testing.T) {
	for _, c := range []struct{ unit, in, seconds string }{
		{"", "1700000000.5", "1700000000.5"},
		{"s", "1700000000.5", "1700000000.5"},
		{"ms", "1500000000", "1500000"}, // without a unit, these would be seconds since 1970
		{"us", "250", "0.00025"},
		{"s", "0.1", "0.1"},
	} {
		opt := Options{Format: Mooncake, To: "splitwise", Meta: &mooncake.Meta{TimeUnit: c.unit}}
		got, _ := convert(t, opt, text("trace.jsonl", `{"timestamp": `+c.in+`, "input_length": 5, "output_length": 1}`))
		if want := "0,2,0," + c.seconds + ",1,5,1\n"; !strings.HasSuffix(got, "\n"+want) {
			t.Errorf("%s %q: %s, want the row %s", c.in, c.unit, got, want)
		}
	}
}

// TestTargetsOfWholeTraces: a trace that was cut does not become a file that looks complete.
func TestTargetsOfWholeTraces(t *testing.T) {
	opt := Options{Format: Mooncake, To: "vllm", Meta: &mooncake.Meta{Rows: 5}}
	if _, err := Convert(t.Context(), opt, writeTo(new(strings.Builder)).sink, text("wide.jsonl", wide)); !strings.Contains(fmt.Sprint(err), "wide.jsonl: the trace has 4 rows, its sidecar says 5") {
		t.Errorf("%v", err)
	}
}

// TestTargetsDigestTheirBlocks: the sidecar of a file that is converted directly for a tool has the digests of the blocks in it, although
// their size is known only from the file that is read.
func TestTargetsDigestTheirBlocks(t *testing.T) {
	file := text("bailian.jsonl", `{"chat_id": 1, "parent_chat_id": -1, "timestamp": 0, "input_length": 40, "output_length": 8, "hash_ids": [7, 8, 9]}
{"chat_id": 2, "parent_chat_id": -1, "timestamp": 1, "input_length": 48, "output_length": 8, "hash_ids": [7, 8, 5]}
`)
	_, want := convert(t, Options{Format: Bailian}, file)
	_, got := convert(t, Options{Format: Bailian, To: "dynamo"}, file)
	if diff := cmp.Diff(want.Digests, got.Digests); diff != "" || !want.Digests.Defined() {
		t.Errorf("(-trace +for dynamo):\n%s", diff)
	}
}

// member returns a member of a row as text.
func member(t *testing.T, row, name string) string {
	t.Helper()
	var r record
	if fault := r.parse([]byte(row)); fault != nil {
		t.Fatal(fault)
	}
	return strings.ReplaceAll(string(r.raw(name)), " ", "")
}

// talks has a session with an agent, a row without a session, and a graph of two requests with a tool between them.
const talks = `{"timestamp": 0, "input_length": 40, "output_length": 8, "hash_ids": [0, 1, 2], "session_id": "s", "model": "big", "observed": {"ttft_ms": 5, "duration_ms": 40}}
{"timestamp": 20, "input_length": 32, "output_length": 4, "hash_ids": [0, 5], "session_id": "s/a", "model": "small"}
{"timestamp": 30.25, "input_length": 10, "output_length": 1}
{"timestamp": 90, "input_length": 64, "output_length": 4, "hash_ids": [0, 1, 3, 4], "delay": 50, "session_id": "s", "model": "big"}
{"timestamp": 95, "input_length": 16, "output_length": 2, "hash_ids": [9], "session_id": "row-1", "request_id": "p", "wait_for": [], "observed": {"duration_ms": 10}}
{"timestamp": 140, "input_length": 32, "output_length": 2, "hash_ids": [9, 10], "session_id": "row-1", "request_id": "q", "delay": 5, "tool_wait_ms": 30, "wait_for": ["p"]}
`

// TestSessions: the rows of a session are next to each other, and are read back with their order, their times and their waits.
func TestSessions(t *testing.T) {
	for to, want := range map[Target]string{
		"weka": `0 40 s big 5 40|20 32 s/a small|30.25 10 row-2|90 64 s big|95 16 row-1 10|140 32 row-1`,
		"satf": `0 40 s big 5 40|20 32 s/a small|30.25 10 row-2|90 64 s big s/llm:1+50|95 16 row-1 10|140 32 row-1 row-1/p+5+30`,
	} {
		opt := Options{Format: Mooncake, To: to, Meta: &mooncake.Meta{BlockSize: 16, SessionMode: mooncake.SessionFull}}
		got, meta := convert(t, opt, text("talks.jsonl", talks))
		if strings.Contains(got, "\n\n") || to == "weka" && strings.Count(got, "\n") != 3 {
			t.Errorf("%s: written as:\n%s", to, got)
		}
		for _, d := range meta.Dropped {
			if to == "satf" {
				t.Errorf("%s: lost: %v", to, d)
			}
		}
		again, _ := convert(t, Options{Format: Format(to)}, text("again", got))
		var rows []string
		for line := range strings.Lines(again) {
			row, err := mooncake.ParseRow([]byte(line))
			if err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprintf("%g %d %s %s", row.Timestamp.V, row.InputLength.V, row.SessionID, row.Model)
			for _, ms := range []mooncake.Opt[float64]{row.Observed.TTFT, row.Observed.Duration} {
				if ms.Set {
					text += fmt.Sprintf(" %g", ms.V)
				}
			}
			if len(row.WaitFor) > 0 {
				text += fmt.Sprintf(" %s+%g", strings.Join(row.WaitFor, ","), row.Delay.V)
			}
			if row.ToolWait.Set {
				text += fmt.Sprintf("+%g", row.ToolWait.V)
			}
			rows = append(rows, strings.Join(strings.Fields(text), " "))
		}
		if diff := cmp.Diff(want, strings.Join(rows, "|")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", to, diff)
		}
	}
	for _, c := range []struct{ rows, want string }{
		{`{"input_length": 5, "output_length": 1, "session_id": "s"}`, `a row of session "s" cannot be written for satf: it has no timestamp`},
		{`{"timestamp": 0, "input_length": 5, "session_id": "s", "wait_for": ["x"], "request_id": "y"}` + "\n" + `{"timestamp": 1, "input_length": 5, "session_id": "t", "wait_for": [], "request_id": "x"}`, ""},
	} {
		folder := t.TempDir()
		opt := Options{Format: Mooncake, To: "satf"}
		opt.Compile.TempDir = folder
		w := writeTo(new(strings.Builder))
		_, err := Convert(t.Context(), opt, w.sink, text("f", c.rows))
		if fmt.Sprint(err) != c.want && (c.want == "" || !strings.Contains(fmt.Sprint(err), c.want)) && (c.want != "" || err != nil) {
			t.Errorf("%v, want %q", err, c.want)
		}
		if c.want == "" && !strings.Contains(fmt.Sprint(w.meta.Dropped), "no edges to requests of other sessions") {
			t.Errorf("lost: %v", w.meta.Dropped)
		}
		if left, _ := os.ReadDir(folder); len(left) > 0 {
			t.Errorf("a temporary file is left: %v", left)
		}
	}
	folder := t.TempDir()
	g, err := newGroups(folder)
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(folder); len(left) > 0 {
		t.Errorf("a temporary file would be left if the process were killed: %v", left)
	}
	g.close()
}

// TestTargetsRefuse: rows that a target cannot hold, and invalid options, are refused.
func TestTargetsRefuse(t *testing.T) {
	for _, c := range []struct {
		reason, rows, want string
		opt                Options
	}{
		{"no timestamp", `{"input_length": 5, "output_length": 1}`, "row 1 cannot be written for vllm: it has no timestamp", Options{To: "vllm"}},
		{"no latency", wide, "row 1 cannot be written for vllm-vcr: it has no latencies", Options{To: "vllm-vcr"}},
		{"a prompt of text", `{"timestamp": 0, "text_input": "my secret prompt"}`, "row 1 cannot be written for vllm: its prompt is a text", Options{To: "vllm"}},
		{"no target", wide, "f is a Mooncake trace already", Options{}},
		{"no such target", wide, `target "x": want one of`, Options{To: "x"}},
		{"another block size", wide, "block size 8: the trace's sidecar says 16", func() Options {
			o := Options{To: "vllm", Meta: &mooncake.Meta{BlockSize: 16}}
			o.Compile.BlockSize = 8
			return o
		}()},
		{"a bad row", `{"timestamp": 0, "input_length": -5}`, "f:1: input_length: -5: must be above 0", Options{To: "vllm"}},
		{"more blocks than ids can be made for", `{"timestamp": 0, "input_length": 1000000000000}`, "ids are made for 1048576 at most; correct the row", Options{To: "vllm"}},
		{"an empty trace", "", "no row could be made from f: there is no row in it; name a file that has some", Options{To: "vllm"}},
	} {
		c.opt.Format = Mooncake
		_, err := Convert(t.Context(), c.opt, writeTo(new(strings.Builder)).sink, text("f", c.rows))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v, want %q", c.reason, err, c.want)
		}
	}
	if about := Target("x").About() + Target("").About(); about != "" {
		t.Errorf("no target is described as %q", about)
	}
}

// agentic has rows as Dynamo writes them: a root, two rows that wait for it, one of them also for a tool, and a row that waits for both.
const agentic = `{"request_id": "a", "session_id": "s", "input_length": 40, "output_length": 8, "hash_ids": [0, 1, 2], "timestamp": 5, "request_kind": "llm", "branches": ["b", "c"]}
{"request_id": "b", "session_id": "s", "input_length": 50, "output_length": 9, "hash_ids": [0, 1, 2, 3], "delay": 2.5, "wait_for": ["a"], "tool_wait_ms": 250, "tool_events": [{"tool_call_id": "t", "tool_class": "search", "started_at_unix_ms": 1, "ended_at_unix_ms": 251, "duration_ms": 250, "status": "ok"}]}
{"request_id": "c", "session_id": "s2", "input_length": 20, "output_length": 1, "hash_ids": [4, 5], "wait_for": ["a"], "prefix_reset": true}
{"request_id": "d", "session_id": "s", "input_length": 60, "output_length": 2, "hash_ids": [0, 1, 2, 6], "delay": 1, "wait_for": ["b", "c"]}
`

// TestAgentic: agentic rows of Dynamo are read back unchanged, except for the order of their keys; sessions become graphs; other tools do
// not get what they cannot hold.
func TestAgentic(t *testing.T) {
	opt := Options{Format: Mooncake, To: "dynamo-agentic", Meta: &mooncake.Meta{BlockSize: 16, SessionMode: mooncake.SessionFull}}
	got, meta := convert(t, opt, text("agentic.jsonl", agentic))
	if len(meta.Dropped) > 0 {
		t.Errorf("lost: %v", meta.Dropped)
	}
	for i, line := range strings.Split(strings.TrimSpace(agentic), "\n") {
		again := strings.Split(got, "\n")[i]
		for _, field := range opt.To.target().fields {
			if a, b := member(t, line, field), member(t, again, field); a != b {
				t.Errorf("row %d: %s is %s, was %s", i+1, field, b, a)
			}
		}
	}
	turns := `{"timestamp": 0, "input_length": 5, "output_length": 1, "session_id": "s"}
{"input_length": 5, "output_length": 1, "session_id": "s", "delay": 7}
`
	got, _ = convert(t, opt, text("turns.jsonl", turns))
	if second := strings.Split(got, "\n")[1]; member(t, second, "wait_for") != `["row-1"]` || member(t, second, "request_id") != `"row-2"` {
		t.Errorf("a later turn: %s", second)
	}
	opt.To = "aiperf"
	turns = strings.Replace(turns, `"delay": 7`, `"timestamp": 3, "request_id": "b", "wait_for": ["a"], "wait_evidence": ["time"], "tool_wait_ms": 1`, 1)
	if got, meta = convert(t, opt, text("turns.jsonl", turns)); strings.Contains(got, "wait") || len(meta.Dropped) != 4 {
		t.Errorf("for aiperf: %s%v", got, meta.Dropped)
	}
}
