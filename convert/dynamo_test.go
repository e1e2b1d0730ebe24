// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/convert"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// hashes returns chained hashes of n blocks of a prompt. As many of its first blocks as shared says are those of prompt 0. The hashes use
// all 64 bits.
func hashes(prompt, shared, n int) []uint64 {
	list := make([]uint64, n)
	for i := range list {
		owner := prompt
		if i < shared {
			owner = 0
		}
		list[i] = ^uint64(owner*1000 + i)
	}
	return list
}

// record returns a line of Dynamo's request trace.
func record(id string, receivedMS, tokens, blockSize int, session string, list []uint64) string {
	agent := ""
	if session != "" {
		agent = fmt.Sprintf(`"agent_context":{"session_id":%q},`, session)
	}
	text := strings.ReplaceAll(fmt.Sprint(list), " ", ",")
	return fmt.Sprintf(`{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":%d,%s"request":{"request_id":%q,"model":"m",`+
		`"input_tokens":%d,"output_tokens":7,"request_received_ms":%d,"total_time_ms":100.5,"ttft_ms":20.25,`+
		`"replay":{"trace_block_size":%d,"input_length":%d,"input_sequence_hashes":%s}}}`,
		receivedMS+101, agent, id, tokens, receivedMS, blockSize, tokens, text)
}

const (
	epoch  = 1_795_222_780_000 // ms
	secret = "the text of a prompt"
)

func TestDynamo(t *testing.T) {
	payload := `{"schema":"dynamo.request.trace.v1","event_type":"request_payload","event_time_unix_ms":1,"payload":{"request":{"messages":[{"content":"` + secret + `"}]}}}`
	tool := `{"schema":"dynamo.request.trace.v1","event_type":"tool_end","event_time_unix_ms":1,"tool":{}}`
	choices := strings.Replace(record("j", epoch+900, 64, 64, "", hashes(9, 0, 1)), `"output_tokens":7,`,
		`"output_tokens":21,"finish_reason_metadata":{"choices":[{"choice_index":0,"finish_reason":"stop"},{"choice_index":1},{"choice_index":2}]},`, 1)
	file := strings.Join([]string{
		payload,
		record("b", epoch+250, 1600, 64, "chat", hashes(2, 15, 25)), // written when it ended: not in the order of arrival
		record("a", epoch, 1000, 64, "chat", hashes(0, 0, 16)),
		record("a", epoch, 1000, 64, "chat", hashes(0, 0, 16)), // sent twice
		`{"timestamp":1,"event":` + record("c", epoch+300, 1000, 64, "", hashes(0, 0, 16)) + `}`,
		"",
		tool,
		`{"schema":"dynamo.request.trace.v1","event_type":"request_migrated","event_time_unix_ms":1}`, // of a later revision
		strings.Replace(record("k", epoch+420, 1000, 64, "", hashes(0, 0, 16)), `"request_end"`, `""`, 1),
		record("d", epoch+400, 1024, 64, "", hashes(3, 15, 16)), // fills the block in which others end
		record("e", epoch+500, 1000, 64, "", hashes(0, 0, 15)),  // hashes of full blocks only, so its end is not shared
		record("f", epoch+600, 1000, 64, "", hashes(0, 0, 15)),  // likewise
		record("g", epoch+700, 1000, 1024, "", hashes(0, 0, 1)), // blocks too large
		record("h", epoch+800, 1000, 64, "", hashes(0, 0, 3)),   // too few hashes
		strings.Replace(record("i", epoch+850, 30, 64, "", nil), `"replay"`, `"nothing"`, 1),
		choices, // without a newline
	}, "\n")
	var traces []*trace
	result, err := convert.Convert(t.Context(), convert.Options{Format: convert.Dynamo, Annotate: annotate.Config{Key: testKey(t)}}, memory(&traces), source("d.jsonl", file))
	if err != nil {
		t.Fatal(err)
	}
	if len(traces) != 1 || result.Lines != 15 || result.Copies != 1 {
		t.Fatalf("%d traces of %d lines, %d copies", len(traces), result.Lines, result.Copies)
	}
	type row struct {
		at, in, out int64
		ids         []uint64
		session     bool
	}
	var got []row
	for _, r := range traces[0].rows(t) {
		got = append(got, row{int64(r.Timestamp.V), r.InputLength.V, r.OutputLength.V, r.HashIDs, r.SessionID != ""})
	}
	want := []row{
		{0, 1000, 7, []uint64{0, 1}, true},
		{250, 1600, 7, []uint64{0, 2, 3, 4}, true},
		{300, 1000, 7, []uint64{0, 1}, false},
		{400, 1024, 7, []uint64{0, 5}, false},
		{420, 1000, 7, []uint64{0, 1}, false},
		{500, 1000, 7, []uint64{0, 6}, false},
		{600, 1000, 7, []uint64{0, 7}, false},
		{700, 1000, 7, nil, false},
		{800, 1000, 7, nil, false},
		{850, 30, 7, nil, false},
		{900, 64, 21, []uint64{8}, false},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{})); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	// Row 1 shares 15 of the engine's blocks of 64 tokens with row 0. Its ranges show that in fine blocks of 16 tokens.
	if diff := cmp.Diff([]mooncake.HashRange{{First: 0, Count: 60}, {First: 63, Count: 40}}, traces[0].rows(t)[1].HashRanges); diff != "" {
		t.Errorf("ranges (-want +got):\n%s", diff)
	}
	meta := traces[0].meta
	if meta.TimeBase.UnixMilli() != epoch || meta.BlockSize != 512 || meta.SessionMode != mooncake.SessionFull {
		t.Errorf("sidecar %+v", meta)
	}
	dropped := make(map[string]int64)
	for _, d := range meta.Dropped {
		dropped[d.What+": "+d.Reason] = d.Count
	}
	if diff := cmp.Diff(map[string]int64{
		"hash ids: blocksize": 1, "hash ids: length": 1, "lines: payloads of requests": 1, "lines: tool calls": 1,
		"lines: events of an unknown type": 1,
	}, dropped); diff != "" {
		t.Errorf("dropped (-want +got):\n%s", diff)
	}
	if strings.Contains(traces[0].text.String(), secret) {
		t.Error("text in the trace")
	}
}

// TestTelemetryRefuses: errors say where the file is wrong, and repeat no text from it.
func TestTelemetryRefuses(t *testing.T) {
	spans := `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","name":"x"}]}]}]}`
	for _, c := range []struct {
		reason  string
		format  convert.Format
		content string
		want    string
	}{
		{"no requests", convert.OTLP, spans + "\n", "no row could be made from f, with 0 spans of requests to models and 1 others; record the spans of a GenAI instrumentation"},
		{"requests over several lines, in an array", convert.OTLP, "// x\n[" + strings.ReplaceAll(spans, "[", "[\n") + ",\n" + strings.ReplaceAll(spans, "]", "\n,]") + "]", "no row could be made from f, with 0 spans of requests to models and 2 others"},
		{"metrics only", convert.OTLP, `{"resourceMetrics":[]}` + "\n", "1 lines: metrics"},
		{"profiles only", convert.OTLP, `{"resourceProfiles":[]}` + "\n", "1 lines: profiles"},
		{"an empty file", convert.OTLP, "", "no row could be made from f: there is no span and no log record in it; name a file that has some, or another format than otlp"},
		{"cut off in the middle", convert.OTLP, spans + "\n{\"resourceSpans\":[{\n" + spans, "f:2: the JSON object does not end; the file may be cut off"},
		{"cut off at the end", convert.OTLP, spans + "\n{\"resourceSpans\":[{\"x\":\"" + secret, "1 lines: the last one is incomplete"},
		{"an end that is not JSON", convert.OTLP, spans + "\n{\"resourceSpans\":x", "f:2: is not valid JSON at byte 18"},
		{"text after the object", convert.OTLP, spans + " x", "f:1: is not valid JSON at byte 1"},
		{"an array", convert.OTLP, "[[]]", "f:1: the line must be a JSON object"},
		{"another object", convert.OTLP, `{"messages":"` + secret + `"}`, "f:1: the line is not an OTLP request"},
		{"spans of a wrong type", convert.OTLP, `{"resourceSpans":"` + secret + `"}`, "f:1: resourceSpans: is not an OTLP request of spans"},
		{"logs of a wrong type", convert.OTLP, "\xef\xbb\xbf" + `{"resourceLogs":{"a":"` + secret + `"}}`, "f:1: resourceLogs: is not an OTLP request of log records"},
		{"no schema", convert.Dynamo, `{"messages":"` + secret + `"}`, "f:1: schema: must be dynamo.request.trace.v1"},
		{"a schema of another type", convert.Dynamo, `{"schema":["` + secret + `"]}`, "f:1: schema: must be"},
		{"an unknown event", convert.Dynamo, `{"schema":"dynamo.request.trace.v1","event_type":"` + secret + `"}`, "1 lines: events of an unknown type"},
		{"an unknown format", "x", "", `format "x": want otlp, dynamo, `},
	} {
		var traces []*trace
		_, err := convert.Convert(t.Context(), convert.Options{Format: c.format}, memory(&traces), source("f", c.content))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: error %v, want it to contain %q", c.reason, err, c.want)
		}
	}
}

func TestDetectTelemetry(t *testing.T) {
	for _, c := range []struct {
		reason, head string
		want         convert.Format
	}{
		{"spans", `{"resourceSpans":[{"resource":{"attr`, convert.OTLP},
		{"logs after a byte order mark", "\xef\xbb\xbf" + ` {"resourceLogs":`, convert.OTLP},
		{"metrics first", `{"resourceMetrics":[]}`, convert.OTLP},
		{"profiles first", `{"resourceProfiles":[]}`, convert.OTLP},
		{"a record", record("a", epoch, 1, 64, "", nil), convert.Dynamo},
		{"an envelope", `{"timestamp":1,"event":` + record("a", epoch, 1, 64, "", nil), convert.Dynamo},
		{"Mooncake", `{"timestamp": 0, "input_length": 1}`, convert.Mooncake},
		{"nothing", "", ""},
		{"CSV", "a,b\n", ""},
	} {
		if got, err := convert.Detect("f", []byte(c.head)); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", c.reason, got, err, c.want)
		}
	}
}

// fuzz checks for any file that nothing panics, and that the resulting trace can be read.
func fuzz(f *testing.F, format convert.Format, seeds ...string) {
	f.Helper()
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, content string) {
		var traces []*trace
		if _, err := convert.Convert(t.Context(), convert.Options{Format: format, MaxLine: 1 << 16}, memory(&traces), source("f", content)); err != nil {
			return
		}
		for _, trace := range traces {
			if n := int64(len(trace.rows(t))); n != trace.meta.Rows {
				t.Errorf("%d rows, the sidecar says %d", n, trace.meta.Rows)
			}
		}
	})
}

func FuzzDynamo(f *testing.F) {
	fuzz(f, convert.Dynamo, record("a", epoch, 1000, 64, "s", hashes(0, 0, 16))+"\n"+`{"timestamp":1,"event":`+record("b", epoch, 30, 16, "", hashes(1, 1, 2))+`}`)
}

func FuzzOTLP(f *testing.F) {
	fuzz(f, convert.OTLP, `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","name":"chat m",`+
		`"startTimeUnixNano":"1795222780963004192","endTimeUnixNano":1795222780963004193,"attributes":[{"key":"gen_ai.operation.name","value":{"stringValue":"chat"}},`+
		`{"key":"gen_ai.usage.input_tokens","value":{"intValue":"12"}},{"key":"gen_ai.usage.output_tokens","value":{"intValue":3}},`+
		`{"key":"gen_ai.prompt.0.content","value":{"stringValue":"hello"}}]}]}]}]}`+"\n"+`{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"x"}}]}]}]}`)
}
