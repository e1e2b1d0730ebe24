// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate_test

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/internal/testproducers"
	"github.com/moonloop/moonloop/receiver/annotate"
	"github.com/moonloop/moonloop/semconv"
)

// checkTwice fails unless a second annotator, with another key, leaves telemetry unchanged.
func checkTwice(t testing.TB, td ptrace.Traces) {
	t.Helper()
	count := td.SpanCount()
	newAnnotator(t, annotate.Config{}).Traces(td)
	if td.SpanCount() != count {
		t.Fatalf("%d spans of %d", td.SpanCount(), count)
	}
	once := protobuf(t, td)
	counts := newAnnotator(t, annotate.Config{Key: testKey(t, 'x')}).Traces(td)
	if protobuf(t, td) != once {
		t.Errorf("a second receiver changes the telemetry")
	}
	if len(counts.Identities)+len(counts.Removed)+int(counts.Sessions) > 0 {
		t.Errorf("a second receiver annotates %v, removes %v, gives %d sessions", counts.Identities, counts.Removed, counts.Sessions)
	}
}

// protobuf returns spans as they are sent.
func protobuf(t testing.TB, td ptrace.Traces) string {
	t.Helper()
	b, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestTwiceIsOnce: a second receiver changes nothing, so receivers can be chained.
func TestTwiceIsOnce(t *testing.T) {
	folder := producers(t)
	stems, err := filepath.Glob(filepath.Join(folder, "*.traces.jsonl"))
	if err != nil || len(stems) < 7 {
		t.Fatalf("%d producers: %v", len(stems), err)
	}
	for _, stem := range stems {
		stem := strings.TrimSuffix(stem, ".traces.jsonl")
		t.Run(filepath.Base(stem), func(t *testing.T) {
			testproducers.EachTraces(t, stem, func(td ptrace.Traces) { checkTwice(t, td) })
			testproducers.EachLogs(t, stem, func(ld plog.Logs) {
				td, _ := newAnnotator(t, annotate.Config{}).Logs(ld)
				once := testproducers.LogBytes(t, ld)[0]
				checkTwice(t, td)
				made, counts := newAnnotator(t, annotate.Config{}).Logs(ld)
				if made.SpanCount() > 0 || len(counts.Removed) > 0 || testproducers.LogBytes(t, ld)[0] != once {
					t.Errorf("a second receiver makes %d spans of logs and removes %v", made.SpanCount(), counts.Removed)
				}
			})
		})
	}
}

// TestSamePrompt: one prompt has the same cells, whichever producer recorded it, and cells under two keys never match.
func TestSamePrompt(t *testing.T) {
	cells := func(config annotate.Config, in attributes) []byte {
		td, span := oneSpan(t, in)
		newAnnotator(t, config).Traces(td)
		v, ok := span.Attributes().Get(semconv.Cells)
		if !ok {
			t.Fatalf("no cells for %v", in)
		}
		return v.Bytes().AsRaw()
	}
	system := strings.Repeat("You are kind. ", 40)
	want := cells(annotate.Config{}, chat(attributes{
		"gen_ai.input.messages": `[{"role":"system","parts":[{"type":"text","content":"` + system + `"}]},` + hello[1:],
	}))
	text := hello[strings.Index(hello, "Hello"):strings.Index(hello, `"}]`)]
	for name, in := range map[string]attributes{
		"openinference": {
			"openinference.span.kind": "LLM", "llm.model_name": "other",
			"input.value":     `{"messages":[{"role":"system","content":"` + system + `"},{"role":"user","content":"` + text + `"}]}`,
			"input.mime_type": "application/json",
		},
		"traceloop": {
			"gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": system, "gen_ai.prompt.1.role": "user",
			"gen_ai.prompt.1.content": text, "llm.request.type": "chat", "gen_ai.request.model": "llama",
		},
		"separate instructions": chat(attributes{"gen_ai.system_instructions": `[{"type":"text","content":"` + system + `"}]`, "gen_ai.input.messages": hello}),
	} {
		if diff := cmp.Diff(want, cells(annotate.Config{}, in)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	other := cells(annotate.Config{Key: testKey(t, 'x')}, chat(attributes{"gen_ai.input.messages": hello}))
	if cmp.Equal(other[:8], cells(annotate.Config{}, chat(attributes{"gen_ai.input.messages": hello}))[:8]) {
		t.Errorf("two keys make the same cells")
	}
}

// hostile returns spans that no producer makes.
func hostile(t testing.TB) ptrace.Traces {
	t.Helper()
	td, span := oneSpan(t, chat(attributes{
		"gen_ai.usage.input_tokens": int64(math.MaxInt64), "gen_ai.usage.output_tokens": int64(math.MinInt64),
		"gen_ai.response.time_to_first_chunk": math.NaN(), "gen_ai.request.max_tokens": math.Inf(1),
		"gen_ai.request.model": "\xff\xfe", "session.id": "\xff", "": "no name",
		"gen_ai.input.messages": strings.Repeat(`[{"parts":`, 10_000), "gen_ai.response.finish_reasons": strings.Repeat("[", 1000),
	}))
	deep := span.Attributes().PutEmptySlice("deep")
	for range 5_000 {
		deep = deep.AppendEmpty().SetEmptySlice()
	}
	deepMap := span.Attributes().PutEmptyMap("gen_ai.output.messages")
	for range 5_000 {
		deepMap = deepMap.PutEmptyMap("a")
	}
	empty := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().AppendEmpty() // no ids, no name, no times
	empty.Events().AppendEmpty()
	empty.Links().AppendEmpty()
	td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
	return td
}

// TestHostile: annotating never fails, and always leaves the telemetry clean.
func TestHostile(t *testing.T) {
	checkTwice(t, hostile(t))
	a := newAnnotator(t, annotate.Config{})
	a.Traces(ptrace.NewTraces())
	a.Logs(plog.NewLogs())

	td, span := oneSpan(t, nil)
	const many = 200_000
	span.Attributes().EnsureCapacity(many)
	raw := make(map[string]any, many)
	for i := range many {
		raw["llm.input_messages."+strings.Repeat("9", i%9)+".message.content"+string(rune('a'+i%26))+strings.Repeat("x", i%200)] = "Hello"
	}
	if err := span.Attributes().FromRaw(raw); err != nil {
		t.Fatal(err)
	}
	span.Attributes().PutStr("gen_ai.operation.name", "chat")
	checkTwice(t, td)
	if span.Attributes().Len() > 10 {
		t.Errorf("%d attributes are left", span.Attributes().Len())
	}
}

// TestConcurrent: one annotator serves many senders.
func TestConcurrent(t *testing.T) {
	a := newAnnotator(t, annotate.Config{})
	want, _ := oneSpan(t, chat(attributes{"gen_ai.input.messages": hello, "session.id": "s"}))
	a.Traces(want)
	done := make(chan bool)
	for range 8 {
		go func() {
			ok := true
			for range 100 {
				td, _ := oneSpan(t, chat(attributes{"gen_ai.input.messages": hello, "session.id": "s"}))
				a.Traces(td)
				ok = ok && string(traceJSON(t, td)) != "" && attributesEqual(td, want)
			}
			done <- ok
		}()
	}
	for range 8 {
		if !<-done {
			t.Errorf("senders at the same time get other annotations than a single one")
		}
	}
}

func attributesEqual(a, b ptrace.Traces) bool {
	m := func(td ptrace.Traces) pcommon.Map { return spans(td)[0].Attributes() }
	return cmp.Equal(m(a).AsRaw(), m(b).AsRaw())
}
