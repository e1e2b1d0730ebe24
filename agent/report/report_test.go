// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/mooncake"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const ms = time.Millisecond

// records returns the records of forty rows: served ones whose latencies grow with their index, and a few of other kinds.
func records() []*measure.Record {
	var list []*measure.Record
	for i := range 40 {
		n := time.Duration(i)
		intended := 500*ms + n*300*ms
		wire := intended + 400*time.Microsecond + n*10*time.Microsecond
		first := wire + 80*ms + n*25*ms
		r := &measure.Record{
			Row: &mooncake.Row{
				Timestamp: mooncake.Some(float64(i * 300)), InputLength: mooncake.Some(int64(600 + 3000*i)),
				OutputLength: mooncake.Some[int64](8), HashIDs: []uint64{0, uint64(i) + 1},
			},
			Index: int64(i), Scheduled: true, Offset: n * 300 * ms, Intended: intended,
			Dispatched: intended + 50*time.Microsecond, Admitted: intended + 50*time.Microsecond,
			Sent: true, PromptTokens: int64(600 + 3000*i), OutputTokensAsked: 8,
			Prompt: measure.AgreeEqual, Output: measure.AgreeEqual, Predicted: 512,
			Span: mooncake.SpanRef{TraceID: [16]byte{15: byte(i + 1)}, SpanID: [8]byte{7: byte(i + 1)}},
			Exchange: send.Exchange{
				Start: intended + 100*time.Microsecond, Wire: wire, FirstByte: first - 5*ms, Headers: first - 5*ms,
				FirstEvent: first - ms, FirstAnswer: first, Usage: send.Usage{Prompt: int64(600 + 3000*i), Completion: 8, Cached: 512, Reasoning: send.Unknown},
				Phases:       send.Phases{Sending: 200 * time.Microsecond, Waiting: 75 * ms, Receiving: 100 * ms},
				FinishReason: "length", ResponseID: "r-1", Status: 200, Attempts: 1, Reused: i > 0, KernelStamps: true,
				BytesSent: int64(2000 * i), BytesRead: 4000,
			},
		}
		for token := range time.Duration(8) {
			r.Exchange.At = append(r.Exchange.At, int64(first+token*(10*ms+n*100*time.Microsecond)))
		}
		r.Exchange.End = time.Duration(r.Exchange.At[7]) + ms
		list = append(list, r)
	}
	list[7].Outcome, list[7].Reason, list[7].Message = measure.Failed, "429", "the engine asks to slow down"
	list[8].Outcome, list[8].Reason, list[8].Message = measure.Skipped, measure.SkipSession, "turn 0 of its session failed"
	list[9].Outcome, list[9].Reason, list[9].Message = measure.Failed, "connect", "connection refused"
	list[9].Exchange = send.Exchange{
		Start: list[9].Intended, End: list[9].Intended + ms, Wire: clock.Never, FirstByte: clock.Never, Headers: clock.Never,
		FirstEvent: clock.Never, FirstAnswer: clock.Never, Usage: send.NoUsage, Attempts: 1,
	}
	list[10].Prompt, list[10].Exchange.Usage.Prompt = measure.AgreeDifferent, 30607
	list[11].Exchange.Usage = send.NoUsage
	list[11].Prompt, list[11].Output = measure.AgreeUnknown, measure.AgreeUnknown
	list[12].Exchange.Coalesced = 1
	return list
}

func sample(t *testing.T) *Report {
	t.Helper()
	slo, err := measure.ParseSLO("ttft=500ms,itl=13ms")
	if err != nil {
		t.Fatal(err)
	}
	a := measure.NewAggregate(measure.Options{SLO: slo})
	for _, r := range records() {
		a.Add(r)
	}
	r := New(a.Figures())
	start := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	cpu, throttled, step := 0.123, 0.0, 0.02
	r.Run = Run{
		ID: "4f1c", Tool: "moonloop", Version: "v0.1.0", Command: "moonloop replay trace.jsonl --url http://localhost:8000",
		Target: "localhost:8000", Endpoint: "/v1/completions", Model: "m", Streaming: true, GoVersion: "go1.26.0", Platform: "linux/amd64", CPUs: 2,
		Start: start, End: start.Add(14 * time.Second),
	}
	r.Trace = Trace{Name: "trace.jsonl", Rows: 40, Filtered: map[string]int64{"window": 3}, BlockSize: 512, SessionMode: "none", Unit: "ms", Grid: 300}
	r.Schedule = Schedule{Mode: "timestamps", Speedup: 1, Spread: "none", Warmup: 1, Seed: 7}
	r.Machine = Machine{
		Elapsed: 14000, Hiccups: 12, HiccupTime: 196, HiccupMax: 29.3, CPUShare: &cpu, GCPauses: 3, GCPauseMax: 0.21,
		Throttled: &throttled, ClockStep: &step, MaxRSS: 80 << 20,
	}
	r.Telemetry = Telemetry{Enabled: true, SpansEnded: 40, SpansAccepted: 38, SpansLost: map[string]int64{"queue full": 2}, MetricExports: 3}
	r.Warnings = []string{"the timestamps lie on a grid of 300 ms: rows of one instant are sent as a burst (--spread=uniform spreads them)"}
	f := judge.FromFigures(r.Figures())
	f.Rows, f.Elapsed, f.HiccupShare, f.SpansLost = 40, 14, judge.Know(196./14000), judge.Know(2./40)
	r.Verdict = judge.Judge(f)
	return r
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s differs (go test -update rewrites it):\n%s", name, d)
	}
}

// TestRowLines: what the lines say about the rows if many of them failed, and if a request was sent twice.
func TestRowLines(t *testing.T) {
	failed := func() *measure.Record {
		return &measure.Record{Outcome: measure.Failed, Reason: "connect", Exchange: send.Exchange{Attempts: 1}}
	}
	for _, test := range []struct {
		name          string
		good, bad     int
		resent        int
		want, without string
	}{
		{"none failed", 10, 0, 0, "10 served, 0 failed", "requests failed"},
		{"one in twenty failed", 19, 1, 0, "19 served, 1 failed", "requests failed"},
		{"all but one failed", 1, 1999, 0, "99.95 % of the requests failed: the figures describe the 1 that were served", "100 %"},
		{"nearly all failed", 1, 99999, 0, "99.99 % of the requests failed", "100 %"},
		{"a third failed", 196, 104, 0, "34.67 % of the requests failed", "34.6 %"},
		{"all failed", 0, 5, 0, "100 % of the requests failed: the figures describe the 0 that were served", "sent more than once"},
		{"a connection died", 10, 0, 1, "1 sent more than once, 1 of them served and left out of the latencies; 1 because a kept connection died", "requests failed"},
	} {
		a := measure.NewAggregate(measure.Options{})
		for i := range test.good {
			r := *records()[20]
			if i < test.resent {
				r.Exchange.Replays, r.Exchange.Resent = 1, 1
			}
			a.Add(&r)
		}
		for range test.bad {
			a.Add(failed())
		}
		got := strings.Join(New(a.Figures()).rowLines(false), "\n")
		if !strings.Contains(got, test.want) || strings.Contains(got, test.without) {
			t.Errorf("%s: %q; want %q and not %q", test.name, got, test.want, test.without)
		}
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	if err := sample(t).Table(&b, Width, false); err != nil {
		t.Fatal(err)
	}
	golden(t, "table.txt", b.Bytes())
	for line := range strings.Lines(b.String()) {
		if n := text.StringWidth(strings.TrimSuffix(line, "\n")); n > Width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Error("colours that nobody asked for")
	}
	var coloured bytes.Buffer
	if err := sample(t).Table(&coloured, Width, true); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(coloured.String(), "\x1b[1;33mdegraded\x1b[0m") {
		t.Error("no colour although asked")
	}
	if d := cmp.Diff(b.String(), text.StripEscape(coloured.String())); d != "" {
		t.Errorf("colours change the text:\n%s", d)
	}
}

// Numbers of the size that occurs in a long run on a real trace must still fit.
func TestTableOfALongRunFits(t *testing.T) {
	a := measure.NewAggregate(measure.Options{})
	for i, r := range records() {
		r.Intended += time.Duration(i) * 15 * time.Second
		for j := range r.Exchange.At {
			r.Exchange.At[j] += int64(time.Duration(i) * 15 * time.Second)
		}
		r.Exchange.End += time.Duration(i) * 15 * time.Second
		a.Add(r)
	}
	var b bytes.Buffer
	if err := New(a.Figures()).Table(&b, Width, false); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if n := text.StringWidth(strings.TrimSuffix(line, "\n")); n > Width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// A run without a reply still ends with a table.
func TestTableOfNothing(t *testing.T) {
	r := New(measure.NewAggregate(measure.Options{}).Figures())
	r.Verdict = judge.Judge(judge.Facts{})
	var b bytes.Buffer
	if err := r.Table(&b, Width, false); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "no request was served") || strings.Contains(b.String(), "NaN") {
		t.Error(b.String())
	}
	text, err := r.JSON()
	if err != nil || !json.Valid(text) {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestSummaryJSON(t *testing.T) {
	got, err := sample(t).JSON()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "summary.json", got)

	// A program that reads AIPerf's file finds each field where it expects it.
	var file struct {
		TTFT struct {
			Unit                    string
			Avg, Min, Max, P50, P99 float64
			Count                   int64
		} `json:"time_to_first_token"`
		Throughput map[string]any `json:"request_throughput"`
		Cancelled  *bool          `json:"was_cancelled"`
		Errors     []struct {
			Details map[string]string `json:"error_details"`
			Count   int
		} `json:"error_summary"`
	}
	if err := json.Unmarshal(got, &file); err != nil {
		t.Fatal(err)
	}
	// The fastest of the served rows is number 0: 80 ms after a wire that was 0.3 ms after the start.
	if f := file.TTFT; f.Unit != "ms" || f.Count != 37 || f.Min != 80.3 {
		t.Errorf("time_to_first_token %+v", f)
	}
	if len(file.Throughput) != 2 || file.Throughput["unit"] != "requests/sec" {
		t.Errorf("request_throughput %v", file.Throughput)
	}
	if file.Cancelled == nil || len(file.Errors) != 2 || file.Errors[0].Details["type"] == "" {
		t.Errorf("%+v", file)
	}
}

func TestSummaryCSV(t *testing.T) {
	var b bytes.Buffer
	if err := sample(t).CSV(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "summary.csv", b.Bytes())
	rows, err := csv.NewReader(&b).ReadAll() // which requires the same number of cells in each line
	if err != nil {
		t.Fatal(err)
	}
	figures := 0
	for range sample(t).figures.All {
		figures++
	}
	if len(rows) != 1+figures {
		t.Errorf("%d lines, want a header and one for each of %d figures", len(rows), figures)
	}
}

func TestGrouped(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.00", 1: "1.00", 999.994: "999.99", 999.996: "1,000.00", 12035.0613: "12,035.06", 99999.99: "99,999.99", 126195: "126,195",
		144793823: "144,793,823", -1234.5: "-1,234.50",
	} {
		if got := grouped(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}

func TestWriteFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	r := sample(t)
	if err := r.WriteFiles(dir); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteFiles(dir); err != nil {
		t.Fatalf("a second time: %v", err)
	}
	var names []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
	}
	if !slices.Equal(names, []string{SummaryCSV, SummaryJSON}) {
		t.Errorf("files %q", names)
	}
}

// TestCacheLine: both numbers and the percentage are about the same requests, those whose cached tokens are known.
func TestCacheLine(t *testing.T) {
	for _, test := range []struct {
		predicted int64 // of the first row; all others: 512
		want      []string
	}{
		{512, []string{
			"18,432 prompt tokens cached (0.8168 %), an infinite cache would have 18,432: 100 % realised",
			"requests left out, because their replies have no number of cached tokens: 1",
		}},
		{send.Unknown, []string{
			"18,432 prompt tokens cached (0.8168 %), 17,920 where an infinite cache would have 17,920: 100 % realised",
			"requests left out, because their replies have no number of cached tokens: 1",
		}},
	} {
		agg := measure.NewAggregate(measure.Options{})
		for i, r := range records() {
			if i == 0 {
				r.Predicted = test.predicted
			}
			agg.Add(r)
		}
		if d := cmp.Diff(test.want, []string(New(agg.Figures()).cacheLines())); d != "" {
			t.Error(d)
		}
	}
}

// TestProductionCacheLine: production's cached tokens are below those of this engine, and in the summary.
func TestProductionCacheLine(t *testing.T) {
	agg := measure.NewAggregate(measure.Options{})
	for i, r := range records() {
		row := *r.Row
		row.Observed.CachedTokens = mooncake.Some(int64(i % 2 * 600))
		r.Row = &row
		agg.Add(r)
	}
	f := agg.Figures()
	rep := New(f)
	p := f.Cache.Production
	if p.Requests == 0 || p.Production == 0 {
		t.Fatalf("nothing to compare: %+v", p)
	}
	lines := rep.cacheLines()
	want := "for the " + integer(p.Requests) + " requests with counts from production: " +
		percent(float64(p.Production)/float64(p.InputTokens)) + " of the prompt tokens cached there, " + percent(float64(p.Replay)/float64(p.InputTokens)) + " here"
	if len(lines) == 0 || lines[len(lines)-1] != want {
		t.Errorf("%q\nwant %q", lines, want)
	}
	data, err := rep.JSON()
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Fidelity struct {
			Cache struct{ Production measure.ProductionCache }
		}
	}
	if err := json.Unmarshal(data, &got); err != nil || got.Fidelity.Cache.Production != p {
		t.Errorf("summary: %+v, %v; want %+v", got.Fidelity.Cache.Production, err, p)
	}
}

// TestRowsNotReachedAreSaid: the number is reported if it is known; otherwise the report says that it is a bound, or unknown.
func TestRowsNotReachedAreSaid(t *testing.T) {
	for _, test := range []struct {
		trace Trace
		want  string
	}{
		{Trace{}, ""},
		{Trace{NotReached: 1}, "1 further row of the trace was not reached"},
		{Trace{NotReached: 1234}, "1,234 further rows of the trace were not reached"},
		{Trace{NotReached: 1234, AtLeast: true}, "at least 1,234 further rows of the trace were not reached"},
		{Trace{AtLeast: true}, "the trace was not read further; the number of its remaining rows is unknown"},
	} {
		r := sample(t)
		r.Trace = test.trace
		if got := r.notReached(); got != test.want {
			t.Errorf("%+v: %q, want %q", test.trace, got, test.want)
		}
		if text := strings.Join(r.rowLines(false), "\n"); !strings.Contains(text, test.want) {
			t.Errorf("%+v: %s", test.trace, text)
		}
	}
}
