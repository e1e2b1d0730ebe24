// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// traceRow is a row of the public trace, read without the project's reader.
type traceRow struct {
	Timestamp    float64 `json:"timestamp"`
	InputLength  int64   `json:"input_length"`
	OutputLength int64   `json:"output_length"`
}

// requestLine is a line of requests.jsonl, with the fields that these tests use: the row and its result.
type requestLine struct {
	traceRow
	Result struct {
		Row     int64  `json:"row"`
		Outcome string `json:"outcome"`
		Reason  string `json:"reason"`
		Usage   struct {
			Prompt     *int64 `json:"prompt_tokens"`
			Completion *int64 `json:"completion_tokens"`
			Cached     *int64 `json:"cached_tokens"`
		} `json:"usage"`
	} `json:"result"`
}

// engineRecord is what the simulated engine recorded about a request.
type engineRecord struct {
	Time    time.Time           `json:"time"` // the request's headers had been read
	Header  map[string][]string `json:"header"`
	Request struct {
		Prompt string `json:"prompt"`
		Stream bool   `json:"stream"`
	} `json:"request"`
	PromptTokens int64 `json:"prompt_tokens"`
	CachedTokens int64 `json:"cached_tokens"`
	OutputTokens int64 `json:"output_tokens"`
}

// readLines decodes a file of JSON lines.
func readLines[T any](t *testing.T, name string) []T {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxLine)
	var all []T
	for lines.Scan() {
		var one T
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			t.Fatalf("%s:%d: %v", name, len(all)+1, err)
		}
		all = append(all, one)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

var listening = regexp.MustCompile(`(http://127\.0\.0\.1:\d+)`)

// engine is a running simulated engine.
type engine struct {
	*process
	url, record string
}

// startEngine starts the simulator with the settings of the golden cache figure: blocks of 512 tokens, infinite cache, lookup and commit
// at admission. Its latencies are small, but long enough for hundreds of concurrent streams.
func startEngine(t *testing.T, dir string, flags ...string) *engine {
	t.Helper()
	e := &engine{record: filepath.Join(dir, "engine.jsonl")}
	e.process = start(t, dir, "engine", nil, setting(t, "MOONLOOP_BIN"), append([]string{
		"simulate", "--listen", "127.0.0.1:0", "--prefill", "5ms", "--prefill-per-token", "1us", "--decode", "5ms",
		"--block-size", "512", "--cache-blocks", "0", "--cache-commit", "admission", "--record", e.record, "--record-writes=false",
	}, flags...)...)
	e.url = e.find(t, listening)
	return e
}

// replay replays the public trace and returns the process once it has ended.
func replay(t *testing.T, dir, url string, environment []string, flags ...string) *process {
	t.Helper()
	trace := setting(t, "MOONLOOP_TRACE")
	args := append([]string{
		"replay", trace, "--url", url, "--model", "sim", "--speedup", setting(t, "MOONLOOP_SPEEDUP"), "--seed", "1",
		"--out", filepath.Join(dir, "out"), "--progress", "lines",
	}, flags...)
	p := start(t, dir, "replay", environment, setting(t, "MOONLOOP_BIN"), args...)
	if code := p.wait(t, 30*time.Minute); code == 3 {
		t.Log("the run says that it is not a valid measurement; if it blames the machine (hiccups, lateness), run this on an idle one")
	} else if code != 0 {
		t.Logf("replay said:\n%s", p.tail())
	}
	return p
}

// TestAcceptanceReplayTokens replays the whole trace with prompts as token ids and spans to the witness, and rebuilds
// the trace from those spans alone.
func TestAcceptanceReplayTokens(t *testing.T) {
	trace := readLines[traceRow](t, setting(t, "MOONLOOP_TRACE"))
	dir := artefacts(t)
	collector, sim := startWitness(t, dir), startEngine(t, dir)
	p := replay(t, dir, sim.url, tracesTo(collector.address), "--endpoint", "completions", "--prompt", "tokens")
	sim.stop(t)

	checkRun(t, p, dir)
	checkRequests(t, trace, dir)
	served := checkEngine(t, p, trace, sim)
	var cached int64
	for _, record := range served {
		cached += record.CachedTokens
	}
	equal(t, "cached tokens at the engine, full blocks", cached, fullBlockHits)

	spans := collector.read(t)
	checkSpans(t, trace, dir, spans, served)
	checkRebuilt(t, trace, dir, spans)
}

// TestAcceptanceReplayChat replays the whole trace as chats, with prompts of words. The engine wraps them into a template, whose size the
// replay must have measured with two requests.
func TestAcceptanceReplayChat(t *testing.T) {
	trace := readLines[traceRow](t, setting(t, "MOONLOOP_TRACE"))
	dir := artefacts(t)
	sim := startEngine(t, dir)
	p := replay(t, dir, sim.url, []string{"OTEL_TRACES_EXPORTER=none", "OTEL_METRICS_EXPORTER=none"},
		"--endpoint", "chat", "--prompt", "words")
	sim.stop(t)
	checkRun(t, p, dir)
	checkRequests(t, trace, dir)
	checkEngine(t, p, trace, sim)
}

// checkRun records the verdict of the replay on itself, its duration and its memory.
func checkRun(t *testing.T, p *process, dir string) {
	t.Helper()
	equal(t, "exit status", p.code, 0)
	summary := readSummary(t, dir)
	note(t, "verdict", at[string](t, summary, "verdict", "class"))
	for _, reason := range at[[]any](t, summary, "verdict", "reasons") {
		note(t, "  "+at[string](t, reason, "class"), fmt.Sprintf("%s %.4g > %g", at[string](t, reason, "metric"),
			at[float64](t, reason, "value"), at[float64](t, reason, "bound")))
	}
	note(t, "wall time, s", fmt.Sprintf("%.1f", p.lasted.Seconds()))
	note(t, "peak memory, MiB", fmt.Sprintf("%.0f", p.peakMiB()))
}

func readSummary(t *testing.T, dir string) any {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "out", "summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, content)
}

// checkRequests compares requests.jsonl with the trace: each row once, unchanged, served, and with the token counts of the trace
// according to the engine.
func checkRequests(t *testing.T, trace []traceRow, dir string) {
	t.Helper()
	lines := readLines[requestLine](t, filepath.Join(dir, "out", "requests.jsonl"))
	equal(t, "records in requests.jsonl", len(lines), len(trace))
	rows := map[int64]bool{}
	outcomes := map[string]int{}
	prompts, outputs, changed := 0, 0, 0
	for _, line := range lines {
		row := line.Result.Row
		rows[row] = true
		outcomes[strings.TrimSpace(line.Result.Outcome+" "+line.Result.Reason)]++
		if row < 0 || row >= int64(len(trace)) || line.traceRow != trace[row] {
			changed++
		}
		if n := line.Result.Usage.Prompt; n != nil && *n == line.InputLength {
			prompts++
		}
		if n := line.Result.Usage.Completion; n != nil && *n == line.OutputLength {
			outputs++
		}
	}
	equal(t, "different rows in requests.jsonl", len(rows), len(trace))
	equal(t, "rows in requests.jsonl that are not the trace's", changed, 0)
	equal(t, "outcomes", fmt.Sprint(outcomes), fmt.Sprint(map[string]int{"served": len(trace)}))
	equal(t, "rows with usage.prompt_tokens = input_length", prompts, len(trace))
	equal(t, "rows with usage.completion_tokens = output_length", outputs, len(trace))
}

// checkEngine compares the engine's record with the trace, and returns the record of the rows' requests: calibration asks for whole
// replies, rows for streams.
func checkEngine(t *testing.T, p *process, trace []traceRow, sim *engine) []engineRecord {
	t.Helper()
	records := readLines[engineRecord](t, sim.record)
	served := slices.DeleteFunc(slices.Clone(records), func(r engineRecord) bool { return !r.Request.Stream })
	note(t, "calibration requests", len(records)-len(served))
	equal(t, "requests at the engine", len(served), len(trace))
	if len(served) == 0 {
		return nil
	}
	var prompt, output, wantPrompt, wantOutput int64
	first := served[0].Time
	for _, record := range served {
		prompt, output = prompt+record.PromptTokens, output+record.OutputTokens
		if record.Time.Before(first) {
			first = record.Time
		}
	}
	for _, row := range trace {
		wantPrompt, wantOutput = wantPrompt+row.InputLength, wantOutput+row.OutputLength
	}
	equal(t, "prompt tokens at the engine", prompt, wantPrompt)
	equal(t, "output tokens from the engine", output, wantOutput)
	below(t, "first request at the engine after process start, s", first.Sub(p.started).Seconds(), 1)
	return served
}

// checkSpans compares the witness's spans with the trace, the agent's own count and the engine's record.
func checkSpans(t *testing.T, trace []traceRow, dir string, spans *spanFile, served []engineRecord) {
	t.Helper()
	telemetry := at[map[string]any](t, readSummary(t, dir), "telemetry")
	equal(t, "request spans at the Collector", len(spans.requests), len(trace))
	equal(t, "spans lost, as the run says", at[float64](t, telemetry, "spans_ended")-at[float64](t, telemetry, "spans_accepted"), 0)
	equal(t, "spans at the Collector, as the run counts them", spans.spans-spans.copies, int(at[float64](t, telemetry, "spans_accepted")))
	note(t, "spans that came twice", spans.copies)
	equal(t, "span events dropped", spans.droppedEvents, 0)
	note(t, "token events", spans.tokenEvents)

	rows, traces := map[int64]bool{}, map[pcommon.TraceID]bool{}
	bySpan := map[pcommon.SpanID]*requestSpan{}
	failed, prompts, summed := 0, 0, 0
	var cached int64
	for i := range spans.requests {
		span := &spans.requests[i]
		rows[span.row], traces[span.traceID], bySpan[span.spanID] = true, true, span
		if span.failed {
			failed++
		}
		if span.promptTokens == span.inputLength {
			prompts++
		}
		cached += max(0, span.cachedTokens)
		if spans.phases[span.spanID] == uint64(span.end-span.start) {
			summed++
		}
	}
	equal(t, "different rows among the spans", len(rows), len(trace))
	equal(t, "traces, one for each request", len(traces), len(trace))
	equal(t, "request spans with an error", failed, 0)
	equal(t, "spans with gen_ai.usage.input_tokens = input_length", prompts, len(trace))
	equal(t, "cached tokens on the spans", cached, fullBlockHits)
	equal(t, "spans that queue + prefill + decode add up to", summed, len(trace))

	// The engine got each span's context in traceparent, on the request of that span's row.
	matched := map[pcommon.SpanID]bool{}
	for _, record := range served {
		id, ok := parentSpan(record.Header["Traceparent"])
		if span := bySpan[id]; ok && span != nil && span.inputLength == record.PromptTokens {
			matched[id] = true
		}
	}
	equal(t, "spans whose traceparent reached the engine", len(matched), len(trace))
}

// parentSpan returns the span id of a traceparent header.
func parentSpan(header []string) (id pcommon.SpanID, ok bool) {
	if len(header) != 1 {
		return id, false
	}
	parts := strings.Split(header[0], "-") // version, trace id, span id, flags
	if len(parts) != 4 {
		return id, false
	}
	n, err := hex.Decode(id[:], []byte(parts[2]))
	return id, err == nil && n == len(id)
}

// checkRebuilt writes the trace that the spans describe, and compares it with the one that was replayed.
func checkRebuilt(t *testing.T, trace []traceRow, dir string, spans *spanFile) {
	t.Helper()
	name := filepath.Join(dir, "rebuilt.jsonl")
	output := create(t, name)
	err := spans.rebuild(output)
	if err == nil {
		err = output.Close()
	}
	if err != nil {
		t.Fatalf("rebuild the trace from the spans: %v", err)
	}
	p := start(t, dir, "inspect", nil, setting(t, "MOONLOOP_BIN"), "inspect", "--json", name)
	if code := p.wait(t, time.Minute); code != 0 {
		t.Fatalf("inspect the rebuilt trace: exit status %d\n%s", code, p.tail())
	}
	equal(t, "seq_digest of the trace rebuilt from spans", at[string](t, readAnalysis(t, p.out), "digests", "seq_digest"), traceSeqDigest)
	same := 0
	for i, row := range readLines[traceRow](t, name) {
		if i < len(trace) && row.Timestamp == trace[i].Timestamp {
			same++
		}
	}
	equal(t, "rebuilt rows with the exact timestamp", same, len(trace))

	original, err := os.ReadFile(setting(t, "MOONLOOP_TRACE"))
	if err != nil {
		t.Fatal(err)
	}
	rebuilt, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "rebuilt file is the original, byte for byte", string(rebuilt) == string(original), true)
}

func TestParentSpan(t *testing.T) {
	for header, want := range map[string]string{
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01": "b7ad6b7169203331",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b71692033-01":   "", // seven bytes
		"b7ad6b7169203331": "",
	} {
		id, ok := parentSpan([]string{header})
		if ok != (want != "") || ok && id.String() != want {
			t.Errorf("%s: %s, %v; want %q", header, id, ok, want)
		}
	}
	if _, ok := parentSpan(nil); ok {
		t.Error("a request without traceparent has a parent span")
	}
}
