// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/internal/testproducers"
	"github.com/moonloop/moonloop/receiver/annotate"
	"github.com/moonloop/moonloop/semconv"
)

// message is a log record with a message of a prompt.
type message struct {
	event string
	body  any
	at    pcommon.Timestamp
	span  byte // of the span's id; 0 means none
}

func logsOf(t testing.TB, messages ...message) plog.Logs {
	t.Helper()
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	rl.Resource().Attributes().PutStr("service.name", "shop")
	rl.Resource().Attributes().PutStr(semconv.RunID, "run-1")
	sl := rl.ScopeLogs().AppendEmpty()
	sl.Scope().SetName("@opentelemetry/instrumentation-openai")
	for _, m := range messages {
		log := sl.LogRecords().AppendEmpty()
		log.SetEventName(m.event)
		log.SetTimestamp(m.at)
		if m.span != 0 {
			log.SetTraceID(pcommon.TraceID{1})
			log.SetSpanID(pcommon.SpanID{m.span})
		}
		if err := log.Body().FromRaw(m.body); err != nil {
			t.Fatal(err)
		}
	}
	return ld
}

// spans returns the spans of telemetry.
func spans(td ptrace.Traces) (all []ptrace.Span) {
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				all = append(all, span)
			}
		}
	}
	return all
}

// TestCarriers has one row for each rule of joining messages.
func TestCarriers(t *testing.T) {
	key := testKey(t, 'k')
	user := func(text string, at pcommon.Timestamp) message {
		return message{"gen_ai.user.message", attributes{"content": text}, at, 2}
	}
	system := func(text string, at pcommon.Timestamp) message {
		return message{"gen_ai.system.message", attributes{"content": text}, at, 2}
	}
	choice := message{"gen_ai.choice", attributes{"finish_reason": "stop", "message": attributes{"content": "Fine."}}, 9, 2}
	for _, c := range []struct {
		reason  string
		logs    []message
		want    []string // canonical prompts of the spans
		starts  []pcommon.Timestamp
		dropped reasons
		reply   string // to the first prompt
	}{
		{"messages of one span are one prompt", []message{system("Be kind.", 1), user("Hello", 2), choice}, []string{"system\nBe kind.\nuser\nHello\n"}, []pcommon.Timestamp{1}, nil, "Fine."},
		{"of two replies, it is unknown which one is sent again", []message{user("Hello", 2), choice, choice}, []string{"user\nHello\n"}, []pcommon.Timestamp{2}, reasons{annotate.ReasonReplyPartial: 1}, ""},
		{"a second reply without the first is not used", []message{user("Hello", 2), {"gen_ai.choice", attributes{"index": int64(1), "message": attributes{"content": "Fine."}}, 9, 2}}, []string{"user\nHello\n"}, []pcommon.Timestamp{2}, reasons{annotate.ReasonReplyPartial: 1}, ""},
		{"a reply without text is not used", []message{user("Hello", 2), {"gen_ai.choice", attributes{"finish_reason": "stop", "index": int64(0), "message": attributes{}}, 9, 2}}, []string{"user\nHello\n"}, []pcommon.Timestamp{2}, reasons{annotate.ReasonReplyPartial: 1}, ""},
		{"a reply whose tool call is missing is not used", []message{user("Hello", 2), {"gen_ai.choice", attributes{"finish_reason": "tool_calls", "message": attributes{"content": "Fine."}}, 9, 2}}, []string{"user\nHello\n"}, []pcommon.Timestamp{2}, reasons{annotate.ReasonReplyPartial: 1}, ""},
		{"a reply that is cut is not used", []message{user("Hello", 2), {"gen_ai.choice", attributes{"message": attributes{"content": strings.Repeat("x", 2048)}}, 9, 2}}, []string{"user\nHello\n"}, []pcommon.Timestamp{2}, reasons{annotate.ReasonReplyPartial: 1}, ""},
		{"the reply of another span is not used", []message{user("Hello", 2), {"gen_ai.choice", choice.body, 9, 3}}, []string{"user\nHello\n"}, []pcommon.Timestamp{2}, reasons{annotate.ReasonReplyAlone: 1}, ""},
		{
			"a whole prompt and its reply in two records",
			[]message{
				{semconv.EventInferenceDetails, attributes{"gen_ai.input.messages": `[{"role":"user","parts":[{"type":"text","content":"Hello"}]}]`}, 2, 2},
				{semconv.EventInferenceDetails, attributes{"gen_ai.output.messages": `[{"role":"assistant","parts":[{"type":"text","content":"Fine."}],"finish_reason":"stop"}]`}, 3, 2},
			},
			[]string{"user\nHello\n"},
			[]pcommon.Timestamp{2},
			nil,
			"Fine.",
		},
		{
			"a whole prompt and its reply in one record",
			[]message{{semconv.EventInferenceDetails, attributes{
				"gen_ai.input.messages":  `[{"role":"user","parts":[{"type":"text","content":"Hello"}]}]`,
				"gen_ai.output.messages": []any{attributes{"role": "assistant", "parts": []any{attributes{"type": "text", "content": "Fine."}}}},
			}, 2, 2}},
			[]string{"user\nHello\n"},
			[]pcommon.Timestamp{2},
			nil,
			"Fine.",
		},
		{"messages are joined in order of time", []message{user("Hello", 2), system("Be kind.", 1)}, []string{"system\nBe kind.\nuser\nHello\n"}, []pcommon.Timestamp{1}, nil, ""},
		{"messages with equal times are joined in order of position", []message{system("Be kind.", 1), user("A", 1), user("B", 1)}, []string{"system\nBe kind.\nuser\nA\nuser\nB\n"}, []pcommon.Timestamp{1}, nil, ""},
		{
			"each span has its own prompt",
			[]message{user("Hello", 1), {"gen_ai.user.message", attributes{"content": "Bye"}, 2, 3}},
			[]string{"user\nHello\n", "user\nBye\n"},
			[]pcommon.Timestamp{1, 2},
			nil,
			"",
		},
		{
			"a whole prompt is not joined with its messages",
			[]message{{semconv.EventInferenceDetails, attributes{"gen_ai.input.messages": `[{"role":"user","parts":[{"type":"text","content":"Hello"}]}]`}, 2, 2}, user("Hello", 1)},
			[]string{"user\nHello\n"},
			[]pcommon.Timestamp{1},
			nil,
			"",
		},
		{"a message without text leaves a hole", []message{system("Be kind.", 1), {"gen_ai.user.message", attributes{"id": "1"}, 2, 2}}, nil, nil, reasons{annotate.ReasonPromptGaps: 1}, ""},
		{"messages without text are not a prompt", []message{{"gen_ai.user.message", attributes{"id": "1"}, 2, 2}}, nil, nil, reasons{annotate.ReasonPromptTextless: 1}, ""},
		{"a record that names no span has nowhere to go", []message{{"gen_ai.user.message", attributes{"content": "Hello"}, 1, 0}}, nil, nil, reasons{annotate.ReasonLogNoSpan: 1}, ""},
		{"a reply alone is not a prompt", []message{choice}, nil, nil, reasons{annotate.ReasonReplyAlone: 1}, ""},
		{"a cut before the end is a hole", []message{system(strings.Repeat("x", 2048), 1), user("Hello", 2)}, nil, nil, reasons{annotate.ReasonPromptGaps: 1}, ""},
		{"a cut at the end leaves a prefix", []message{user("A", 1), user(strings.Repeat("x", 2048), 2)}, []string{"user\nA\nuser\n" + strings.Repeat("x", 2048)}, []pcommon.Timestamp{1}, nil, ""},
		{"other records are left alone", []message{{"shop.sale", "three apples", 1, 2}}, nil, nil, nil, ""},
	} {
		t.Run(c.reason, func(t *testing.T) {
			a := newAnnotator(t, annotate.Config{})
			ld := logsOf(t, c.logs...)
			again := plog.NewLogs()
			ld.CopyTo(again)
			td, counts := a.Logs(ld)
			made := spans(td)
			if len(made) != len(c.want) || counts.Carriers != int64(len(c.want)) {
				t.Fatalf("%d spans, %d counted, want %d", len(made), counts.Carriers, len(c.want))
			}
			for i, span := range made {
				want := attributes{
					semconv.Identity: "text", semconv.HashDomain: blockhash.TextDomain(key), semconv.HashKey: key.Fingerprint(),
					semconv.Synthetic: true,
				}
				reply := ""
				if i == 0 {
					reply = c.reply
				}
				maps.Copy(want, chained(t, key, c.want[i], reply))
				if counts.Truncated > 0 {
					want[semconv.CellsPrefix] = true
				}
				if diff := cmp.Diff(want, span.Attributes().AsRaw()); diff != "" {
					t.Errorf("attributes (-want +got):\n%s", diff)
				}
				if span.Name() != semconv.SpanContent || span.TraceID() != (pcommon.TraceID{1}) || span.ParentSpanID().IsEmpty() ||
					span.SpanID().IsEmpty() || span.StartTimestamp() != c.starts[i] || span.EndTimestamp() != c.starts[i] {
					t.Errorf("%s %s below %s at %d", span.Name(), span.SpanID(), span.ParentSpanID(), span.StartTimestamp())
				}
			}
			if len(made) > 0 {
				if run, _ := td.ResourceSpans().At(0).Resource().Attributes().Get(semconv.RunID); run.AsString() != "run-1" {
					t.Errorf("the resource is not that of the records")
				}
			}
			if diff := cmp.Diff(c.dropped, counts.Dropped); diff != "" {
				t.Errorf("dropped (-want +got):\n%s", diff)
			}
			twice, _ := newAnnotator(t, annotate.Config{}).Logs(again)
			if diff := cmp.Diff(string(traceJSON(t, td)), string(traceJSON(t, twice))); diff != "" {
				t.Errorf("records that come again make other spans:\n%s", diff)
			}
			if third, _ := a.Logs(ld); third.SpanCount() > 0 {
				t.Errorf("cleaned records make spans")
			}
		})
	}
}

// TestCleanLogs: records of GenAI lose their bodies, others keep them.
func TestCleanLogs(t *testing.T) {
	ld := logsOf(t,
		message{"gen_ai.user.message", attributes{"content": "Hello"}, 1, 2},
		message{"", "three apples sold", 1, 2},
		message{"", attributes{"order": "apples", "gen_ai.input.messages": "Hello"}, 1, 2},
		message{"", []any{attributes{"question": "Hello", "tokens": attributes{"input": int64(3)}}, "apples"}, 1, 2},
		message{"shop.answered", strings.Repeat("Hello", 3000), 1, 2},
		message{"shop.answered", "Hello", 1, 2})
	records := ld.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords()
	for _, log := range records.All() {
		log.Attributes().PutStr("shop.note", "Hello")
		log.Attributes().PutStr("server.address", "engine")
		log.Attributes().PutStr("exception.message", "Hello")
	}
	records.At(4).Attributes().PutStr("gen_ai.request.model", "llama")
	records.At(5).Attributes().PutStr("gen_ai.system", "openai")
	_, counts := newAnnotator(t, annotate.Config{}).Logs(ld)
	for i, want := range []struct {
		body       any
		attributes attributes
	}{
		{nil, attributes{"server.address": "engine", semconv.Identity: "text"}},
		{"three apples sold", attributes{"server.address": "engine", "shop.note": "Hello"}},
		{attributes{"order": "apples"}, attributes{"server.address": "engine", "shop.note": "Hello"}},
		{[]any{attributes{"tokens": attributes{"input": int64(3)}}, "apples"}, attributes{"server.address": "engine", "shop.note": "Hello"}},
		{nil, attributes{"server.address": "engine", "gen_ai.request.model": "llama"}},
		{nil, attributes{"server.address": "engine", "gen_ai.system": "openai"}},
	} {
		if diff := cmp.Diff(want.body, records.At(i).Body().AsRaw()); diff != "" {
			t.Errorf("body %d (-want +got):\n%s", i, diff)
		}
		if diff := cmp.Diff(want.attributes, records.At(i).Attributes().AsRaw()); diff != "" {
			t.Errorf("attributes %d (-want +got):\n%s", i, diff)
		}
	}
	if diff := cmp.Diff(named{"(body)": 5, "exception.message": 6, "other": 3}, counts.Removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
}

// dynamoLog returns a log record of Dynamo's request trace.
func dynamoLog(payload string) plog.Logs {
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	rl.Resource().Attributes().PutStr("service.name", "dynamo")
	sl := rl.ScopeLogs().AppendEmpty()
	sl.Scope().SetName("dynamo.request_trace")
	log := sl.LogRecords().AppendEmpty()
	log.SetTimestamp(1_800_000_002_000_000_000)
	log.Body().SetStr("request_end")
	log.Attributes().PutStr("schema", "dynamo.request.trace.v1")
	log.Attributes().PutStr("event_type", "request_end")
	log.Attributes().PutStr("payload", payload)
	return ld
}

const dynamoRequest = `{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":1800000002000,
"agent_context":{"session_id":"sess-A"},"request":{"request_id":"req-1","model":"llama","input_tokens":%d,"output_tokens":7,
"cached_tokens":256,"request_received_ms":1800000000000,"ttft_ms":250,"total_time_ms":1500,
"replay":{"trace_block_size":%d,"input_length":%[1]d,"input_sequence_hashes":%[3]s}}}`

// TestDynamo: a record of a request becomes a span with the engine's hashes, re-blocked and keyed.
func TestDynamo(t *testing.T) {
	key := testKey(t, 'k')
	domain := blockhash.Domain("engine", key.Fingerprint(), "dynamo", "llama")
	h, err := blockhash.NewHasher(key, domain)
	if err != nil {
		t.Fatal(err)
	}
	hashes := []uint64{11, 1 << 63, 13, 1<<64 - 1, 15}
	ids, err := h.Reblock(nil, hashes, 256, 512, 1100, "req-1")
	if err != nil {
		t.Fatal(err)
	}
	list := strings.ReplaceAll(fmt.Sprint(hashes), " ", ",")
	want := attributes{
		semconv.Identity: "engine", semconv.HashDomain: domain, semconv.HashKey: key.Fingerprint(), semconv.BlockSize: int64(512),
		semconv.HashIDs: []any{int64(ids[0]), int64(ids[1]), int64(ids[2])}, semconv.Synthetic: true,
		semconv.Session: key.Session("sess-A"), "gen_ai.request.model": "llama", "gen_ai.response.id": "req-1",
		"gen_ai.usage.input_tokens": int64(1100), "gen_ai.usage.output_tokens": int64(7),
		"gen_ai.usage.cache_read.input_tokens": int64(256), "gen_ai.response.time_to_first_chunk": 0.25,
	}
	for _, c := range []struct {
		reason, payload string
		identity        string
		dropped         reasons
	}{
		{"blocks of half our size are merged", fmt.Sprintf(dynamoRequest, 1100, 256, list), "engine", nil},
		{"coarser blocks are of no use", fmt.Sprintf(dynamoRequest, 4500, 1024, list), "none", reasons{annotate.ReasonHashesBlockSize: 1}},
		{"blocks that do not divide ours are of no use", fmt.Sprintf(dynamoRequest, 1100, 250, list), "none", reasons{annotate.ReasonHashesBlockSize: 1}},
		{"hashes that do not fit the number of tokens are of no use", fmt.Sprintf(dynamoRequest, 9000, 256, list), "none", reasons{annotate.ReasonHashesLength: 1}},
		{"hashes that cannot all be read are of no use", fmt.Sprintf(dynamoRequest, 1100, 256, `[11,12,13,"x",15]`), "none", reasons{annotate.ReasonHashesPartial: 1}},
	} {
		t.Run(c.reason, func(t *testing.T) {
			a := newAnnotator(t, annotate.Config{})
			ld := dynamoLog(c.payload)
			td, counts := a.Logs(ld)
			made := spans(td)
			if len(made) != 1 || counts.RequestSpans != 1 || counts.RequestLogs != 1 {
				t.Fatalf("%d spans, counts %+v", len(made), counts)
			}
			span := made[0]
			if c.identity == "engine" {
				if diff := cmp.Diff(want, span.Attributes().AsRaw()); diff != "" {
					t.Errorf("attributes (-want +got):\n%s", diff)
				}
			}
			if v, _ := span.Attributes().Get(semconv.Identity); v.AsString() != c.identity {
				t.Errorf("identity %q, want %q", v.AsString(), c.identity)
			}
			if diff := cmp.Diff(c.dropped, counts.Dropped); diff != "" {
				t.Errorf("dropped (-want +got):\n%s", diff)
			}
			if span.Name() != "request llama" || span.StartTimestamp() != 1_800_000_000_000_000_000 || span.EndTimestamp() != 1_800_000_001_500_000_000 {
				t.Errorf("%s from %d to %d", span.Name(), span.StartTimestamp(), span.EndTimestamp())
			}
			again, _ := newAnnotator(t, annotate.Config{}).Logs(dynamoLog(c.payload))
			if diff := cmp.Diff(string(traceJSON(t, td)), string(traceJSON(t, again))); diff != "" {
				t.Errorf("a record that comes again makes another span:\n%s", diff)
			}
			log := ld.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0)
			if _, ok := log.Attributes().Get("payload"); ok || log.Body().Type() != pcommon.ValueTypeEmpty {
				t.Errorf("the record was not cleaned")
			}
			if third, _ := a.Logs(ld); third.SpanCount() > 0 {
				t.Errorf("a cleaned record makes a span")
			}
		})
	}
	t.Run("a record without any time is dropped", func(t *testing.T) {
		ld := dynamoLog(`{"event_type":"request_end","request":{"request_id":"req-1"}}`)
		ld.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).SetTimestamp(0)
		td, counts := newAnnotator(t, annotate.Config{}).Logs(ld)
		if td.SpanCount() != 0 || counts.Dropped[annotate.ReasonLogNoTime] != 1 {
			t.Errorf("%d spans, dropped %v", td.SpanCount(), counts.Dropped)
		}
	})
}

// TestLogsOnce: a receiver only cleans log records that another receiver has read, even with another key.
func TestLogsOnce(t *testing.T) {
	for _, content := range []annotate.Policy{annotate.ContentDrop, annotate.ContentKeep} {
		t.Run(string(content), func(t *testing.T) {
			ld := logsOf(t,
				message{"gen_ai.user.message", attributes{"content": "Hello"}, 1, 2},
				message{"gen_ai.user.message", attributes{"id": "without text"}, 1, 3},
				message{"gen_ai.user.message", attributes{"content": "without a span"}, 1, 0},
				message{"gen_ai.choice", attributes{"index": int64(0)}, 1, 2},
				message{"", "three apples sold", 1, 2})
			request := dynamoLog(fmt.Sprintf(dynamoRequest, 512, 512, "[11]"))
			request.ResourceLogs().MoveAndAppendTo(ld.ResourceLogs())
			td, counts := newAnnotator(t, annotate.Config{Content: content}).Logs(ld)
			if td.SpanCount() != 2 || counts.ContentLogs != 4 || counts.RequestLogs != 1 || counts.AnnotatedLogs != 0 {
				t.Fatalf("%d spans, counts %+v", td.SpanCount(), counts)
			}
			if diff := cmp.Diff(reasons{annotate.ReasonLogNoSpan: 1, annotate.ReasonPromptTextless: 1, annotate.ReasonReplyPartial: 1}, counts.Dropped); diff != "" {
				t.Errorf("dropped (-want +got):\n%s", diff)
			}
			td, counts = newAnnotator(t, annotate.Config{Key: testKey(t, 'x')}).Logs(ld)
			if td.SpanCount() != 0 || counts.AnnotatedLogs != 5 || counts.Logs != 6 || len(counts.Dropped) > 0 || counts.ContentLogs+counts.RequestLogs > 0 {
				t.Errorf("a second receiver makes %d spans, counts %+v", td.SpanCount(), counts)
			}
			if text := testproducers.LogBytes(t, ld)[1]; strings.Contains(text, "Hello") {
				t.Errorf("a second receiver leaves text")
			}
		})
	}
}
