// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate_test

import (
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/internal/testproducers"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// FuzzTraces: for any bytes, annotating does not fail, loses no span, and a second pass changes nothing.
func FuzzTraces(f *testing.F) {
	for _, td := range []ptrace.Traces{hostile(f), ptrace.NewTraces()} {
		f.Add([]byte(testproducers.TraceBytes(f, td)[0]))
	}
	for _, in := range []attributes{
		chat(attributes{"gen_ai.input.messages": hello, "session.id": "s"}),
		{"genkit:input": "Hello", "gen_ai.usage.input_tokens": int64(9), "gen_ai.request.model": "llama"},
		{"traceloop.span.kind": "workflow", "llm.request.type": "chat", "gen_ai.prompt.0.content": "Hello"},
		{"ai.operationId": "ai.streamText.doStream", "ai.prompt.messages": hello, "ai.usage.promptTokens": int64(3)},
		{"langfuse.observation.type": "generation", "langfuse.observation.input": hello},
		{"llm_d.pd_proxy.true_ttft_ms": 3.5, "gen_ai.usage.input_tokens": int64(9)},
		chat(attributes{"gen_ai.input.messages": hello, "gen_ai.output.messages": `[{"role":"assistant","content":"Fine."}]`}),
		{"llm.input_messages.0.message.content": "Hello", "llm.output_messages.0.message.content": "Fine.", "openinference.span.kind": "LLM"},
		{"mooncake.identity": "text", "mooncake.cells": make([]byte, 16), "mooncake.cells.ends": make([]byte, 24), "mooncake.cells.reply": make([]byte, 12)},
		{"rid": "r", "gen_ai.usage.prompt_tokens": int64(3), "mooncake.identity": int64(1), "mooncake.cells": []byte{1}},
	} {
		td, _ := oneSpan(f, in)
		f.Add([]byte(testproducers.TraceBytes(f, td)[0]))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(data)
		if err != nil {
			return
		}
		checkTwice(t, td)
	})
}

// FuzzLogs: the same as FuzzTraces; and a log record becomes a span only once.
func FuzzLogs(f *testing.F) {
	for _, ld := range []plog.Logs{
		plog.NewLogs(),
		dynamoLog(`{"event_type":"request_end","request":{"request_id":"r","replay":{"trace_block_size":64,"input_length":64,"input_sequence_hashes":[18446744073709551615]}}}`),
		logsOf(f, message{"gen_ai.user.message", attributes{"content": "Hello"}, 1, 2}, message{"gen_ai.choice", attributes{"index": int64(0)}, 2, 2}),
		logsOf(f, message{"gen_ai.user.message", attributes{"content": "Hello"}, 1, 2}, message{"gen_ai.choice", attributes{"message": attributes{"content": "Fine."}}, 2, 2}),
	} {
		f.Add([]byte(testproducers.LogBytes(f, ld)[0]))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ld, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(data)
		if err != nil {
			return
		}
		records := ld.LogRecordCount()
		td, _ := newAnnotator(t, annotate.Config{}).Logs(ld)
		if ld.LogRecordCount() != records {
			t.Errorf("%d log records of %d", ld.LogRecordCount(), records)
		}
		checkTwice(t, td)
		once := testproducers.LogBytes(t, ld)[0]
		made, counts := newAnnotator(t, annotate.Config{Key: testKey(t, 'x')}).Logs(ld)
		if made.SpanCount() > 0 || len(counts.Removed) > 0 || testproducers.LogBytes(t, ld)[0] != once {
			t.Errorf("a second receiver makes %d spans of logs and removes %v", made.SpanCount(), counts.Removed)
		}
	})
}

// FuzzPlaces puts a text that is too long for any value into any field of a span or a log record, under any name, next to any other text:
// none of it leaves, and its removal is counted.
func FuzzPlaces(f *testing.F) {
	for place := range uint8(places) {
		f.Add("gen_ai.input.messages", "", place, place%6, true)
		f.Add("url.full", "https://example.com/a?b=", place, uint8(0), place%2 == 0)
		f.Add("mooncake.hash_ids", "[", place, place%6, false)
		f.Add("mooncake.cells.ends", "", place, place%6, true)
		f.Add("mooncake.cells.reply", "", place, uint8(1), false)
		f.Add("http.request.header.x-request-id", "{\"a\": \"", place, uint8(2), true)
	}
	a, b := newAnnotator(f, annotate.Config{}), newAnnotator(f, annotate.Config{SessionKeys: []string{"user"}, Deny: []string{"app.*"}})
	canary := strings.Repeat(secret, 1+1024/len(secret))
	f.Fuzz(func(t *testing.T, name, before string, place, how uint8, genAI bool) {
		if strings.Contains(name+before, secret[:16]) {
			return
		}
		text := before + canary
		put := func(m pcommon.Map) {
			switch how % 6 {
			case 0:
				m.PutStr(name, text)
			case 1:
				m.PutEmptyBytes(name).FromRaw([]byte(text))
			case 2:
				m.PutEmptySlice(name).AppendEmpty().SetStr(text)
			case 3:
				m.PutEmptyMap(name).PutStr(before, text)
			case 4:
				m.PutStr(name+text, before)
			case 5:
				deep := m.PutEmptyMap(name)
				for range 3 + len(before)%20 {
					deep = deep.PutEmptySlice("a").AppendEmpty().SetEmptyMap()
				}
				deep.PutStr(name, text)
			}
		}
		td, span := oneSpan(t, nil)
		ld := plog.NewLogs()
		sl := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty()
		log := sl.LogRecords().AppendEmpty()
		if genAI {
			span.Attributes().PutStr("gen_ai.operation.name", "chat")
			log.SetEventName("gen_ai.user.message")
		}
		switch place % places {
		case 0:
			put(span.Attributes())
		case 1:
			event := span.Events().AppendEmpty()
			event.SetName(before)
			put(event.Attributes())
		case 2:
			put(span.Links().AppendEmpty().Attributes())
		case 3:
			put(td.ResourceSpans().At(0).Resource().Attributes())
		case 4:
			put(td.ResourceSpans().At(0).ScopeSpans().At(0).Scope().Attributes())
		case 5:
			span.SetName(text)
			span.Status().SetMessage(text)
			span.TraceState().FromRaw(text)
		case 6:
			put(log.Attributes())
		case 7: // the body of a GenAI record; bodies of other records stay
			if !genAI {
				return // what an application logs belongs to the application, and stays unless its name marks it as a prompt or a reply
			}
			put(log.Body().SetEmptyMap())
		case 8:
			sl.Scope().SetName(text)
			log.SetEventName(text)
			log.SetSeverityText(text)
		}
		for _, a := range []*annotate.Annotator{a, b} {
			spans, logs := ptrace.NewTraces(), plog.NewLogs()
			td.CopyTo(spans)
			ld.CopyTo(logs)
			counts := a.Traces(spans)
			made, more := a.Logs(logs)
			counts.Add(more)
			after := slices.Concat(testproducers.TraceBytes(t, spans), testproducers.TraceBytes(t, made), testproducers.LogBytes(t, logs))
			for _, text := range after {
				if i := strings.Index(text, secret[:16]); i >= 0 {
					t.Fatalf("the text is in the output: %q", text[max(i-80, 0):min(i+80, len(text))])
				}
			}
			removed := int64(0)
			for what, n := range counts.Removed {
				if removed += n; strings.Contains(what, secret[:16]) {
					t.Fatal("a count has the text as its name")
				}
			}
			if removed == 0 {
				t.Fatal("the text was removed, but not counted")
			}
		}
	})
}

const places = 9
