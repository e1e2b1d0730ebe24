// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/exporter/decode"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// TestDealtSpans deals the spans of production and of a replay to eight collectors, like a load balancer without rules: their journals, in
// any order, give exactly the files that one collector would have given.
func TestDealtSpans(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(8, 8))
	spans := append(conversationSpans(random), replaySpans(300)...)
	want := dealt(t, random, spans, 1)
	if len(want) != 4 { // production and the replay, with their sidecars
		t.Fatalf("files: %v", slices.Collect(maps.Keys(want)))
	}
	if rows := bytes.Count(want["trace.jsonl"], []byte("\n")); rows < 200 || !bytes.Contains(want["trace.meta.json"], []byte(`"text": `+fmt.Sprint(rows))) {
		t.Fatalf("%d rows of production, by text:\n%s", rows, want["trace.meta.json"])
	}
	for range 5 {
		random.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
		got := dealt(t, random, spans, 8)
		for name, content := range want {
			if !bytes.Equal(got[name], content) {
				t.Errorf("%s of eight collectors is not that of one", name)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d files of eight collectors, %d of one", len(got), len(want))
		}
	}
}

// dealt gives each span to one of the collectors, at random, and returns the files compiled from their journals in a random order.
func dealt(t *testing.T, random *rand.Rand, spans []ptrace.Traces, collectors int) map[string][]byte {
	t.Helper()
	key, err := blockhash.NewKey(bytes.Repeat([]byte("k"), blockhash.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	journals := make([]*journal.Writer, collectors)
	sources := make([]capture.Source, collectors)
	receivers := make([]*annotate.Annotator, collectors)
	for i := range collectors {
		name := filepath.Join(dir, fmt.Sprintf("%d.journal", i))
		if journals[i], err = journal.OpenWriter(name, journal.WriterOptions{NoSync: true}); err != nil {
			t.Fatal(err)
		}
		sources[i] = capture.FileSource(name)
		if receivers[i], err = annotate.New(annotate.Config{Key: key}); err != nil {
			t.Fatal(err)
		}
	}
	decoder := decode.New(decode.Config{})
	for _, original := range spans {
		span := ptrace.NewTraces()
		original.CopyTo(span)
		i := random.IntN(collectors)
		receivers[i].Traces(span)
		if _, err := decoder.Traces(span, func(r journal.Record) error { return journals[i].Append(r) }); err != nil {
			t.Fatal(err)
		}
	}
	for _, journal := range journals {
		if err := journal.Close(); err != nil {
			t.Fatal(err)
		}
	}
	random.Shuffle(collectors, func(i, j int) { sources[i], sources[j] = sources[j], sources[i] })
	out := t.TempDir()
	if _, err := capture.Compile(t.Context(), capture.Options{TempDir: t.TempDir()}, capture.Files(filepath.Join(out, "trace.jsonl")), sources...); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	names, err := filepath.Glob(filepath.Join(out, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if files[filepath.Base(name)], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// newSpan returns telemetry of one span, and the span.
func newSpan(random *rand.Rand, traceID pcommon.TraceID, parent pcommon.SpanID, start int64) (ptrace.Traces, ptrace.Span) {
	td := ptrace.NewTraces()
	span := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	span.SetTraceID(traceID)
	span.SetParentSpanID(parent)
	span.SetSpanID(spanID(random))
	span.SetStartTimestamp(pcommon.Timestamp(start))
	span.SetEndTimestamp(pcommon.Timestamp(start + 100e6))
	return td, span
}

func spanID(random *rand.Rand) (id pcommon.SpanID) {
	for i := range id {
		id[i] = byte(1 + random.IntN(255))
	}
	return id
}

// conversationSpans returns conversations: the session on the application's span, the text on the client's and the usage on the gateway's
// below it.
func conversationSpans(random *rand.Rand) (all []ptrace.Traces) {
	type message struct {
		Role  string              `json:"role"`
		Parts []map[string]string `json:"parts"`
	}
	text := func(n int) []map[string]string {
		words := make([]string, n)
		for i := range words {
			words[i] = fmt.Sprintf("word%03x", random.IntN(1<<12))
		}
		return []map[string]string{{"type": "text", "content": strings.Join(words, " ")}}
	}
	system := message{"system", text(900)}
	at := int64(1_790_000_000_000_000_000)
	for conversation := range 40 {
		messages := []message{system}
		for range 1 + random.IntN(10) {
			at += random.Int64N(2e9)
			messages = append(messages, message{"user", text(20 + random.IntN(700))})
			content, err := json.Marshal(messages)
			if err != nil {
				panic(err) // of strings
			}
			var id pcommon.TraceID
			copy(id[:], fmt.Sprintf("%016x", random.Uint64()))
			app, top := newSpan(random, id, pcommon.SpanID{}, at)
			top.Attributes().PutStr("session.id", fmt.Sprintf("conversation-%d", conversation))
			client, call := newSpan(random, id, top.SpanID(), at+1e6)
			call.Attributes().PutStr("gen_ai.operation.name", "chat")
			call.Attributes().PutStr("gen_ai.request.model", "m")
			call.Attributes().PutStr("gen_ai.input.messages", string(content))
			gateway, served := newSpan(random, id, call.SpanID(), at+2e6)
			served.Attributes().PutStr("gen_ai.operation.name", "chat")
			served.Attributes().PutStr("gen_ai.request.model", "m")
			served.Attributes().PutInt("gen_ai.usage.input_tokens", int64(len(content)/4))
			served.Attributes().PutInt("gen_ai.usage.output_tokens", int64(1+random.IntN(500)))
			all = append(all, app, client, gateway)
			messages = append(messages, message{"assistant", text(10 + random.IntN(300))})
		}
	}
	return all
}

// replaySpans returns a replay of this many rows, each with the engine's own span below it.
func replaySpans(rows int) (all []ptrace.Traces) {
	random := rand.New(rand.NewPCG(9, 9))
	for row := range rows {
		var id pcommon.TraceID
		copy(id[:], fmt.Sprintf("%016x", random.Uint64()))
		td, span := newSpan(random, id, pcommon.SpanID{}, 1_790_000_000_000_000_000+int64(row/10)*1e8)
		td.ResourceSpans().At(0).Resource().Attributes().PutStr("mooncake.run.id", "dealt")
		a := span.Attributes()
		a.PutStr("gen_ai.operation.name", "chat")
		a.PutStr("gen_ai.request.model", "m")
		a.PutStr("mooncake.identity", "trace")
		a.PutStr("mooncake.hash.domain", "0a1b2c3d")
		a.PutInt("mooncake.block_size", 512)
		a.PutInt("mooncake.row", int64(row))
		a.PutDouble("mooncake.timestamp", float64(row/10*3000)) // as in the public traces, many rows share a timestamp
		length := 1 + random.Int64N(5000)
		a.PutInt("mooncake.input_length", length)
		a.PutInt("mooncake.output_length", random.Int64N(500))
		ids := a.PutEmptySlice("mooncake.hash_ids")
		for block := range (length + 511) / 512 {
			id := block // a beginning that some rows share
			if block > int64(row%4) {
				id = int64(row)<<20 + block
			}
			ids.AppendEmpty().SetInt(id)
		}
		engine, served := newSpan(random, id, span.SpanID(), 1_790_000_000_000_000_000+int64(row/10)*1e8+1e6)
		served.SetName("llm_request")
		served.Attributes().PutInt("gen_ai.usage.prompt_tokens", length)
		served.Attributes().PutInt("gen_ai.usage.completion_tokens", 7)
		all = append(all, td, engine)
	}
	return all
}
