// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/exporter/decode"
	"github.com/moonloop/moonloop/receiver/annotate"
	"github.com/moonloop/moonloop/semconv"
)

// What the ends of messages show about random conversations in every dialect, and what they cost.

// messagesOf returns a text for each message of a prompt, tools included, in canonical order. Different messages have different texts.
func (a *asked) messagesOf() []string {
	var all []string
	tools := func() {
		if a.tools {
			all = append(all, "tools")
		}
	}
	if a.messages[0].role != "system" {
		tools()
	}
	for i, m := range a.messages {
		all = append(all, fmt.Sprintf("%s %q %x %s", m.role, m.text, m.image, m.call))
		if i == 0 && m.role == "system" {
			tools()
		}
	}
	return all
}

// take calls visit for the annotated spans of lines of telemetry, and for those made from its log records.
func take(t testing.TB, a *annotate.Annotator, lines string, visit func(ptrace.Traces)) {
	t.Helper()
	for line := range strings.Lines(lines) {
		if ld, err := new(plog.JSONUnmarshaler).UnmarshalLogs([]byte(line)); err == nil && ld.LogRecordCount() > 0 {
			td, _ := a.Logs(ld)
			visit(td)
			continue
		}
		td, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces([]byte(line))
		must(t, err)
		a.Traces(td)
		visit(td)
	}
}

// eachSpan calls visit for each span of a batch.
func eachSpan(td ptrace.Traces, visit func(ptrace.Span)) {
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				visit(span)
			}
		}
	}
}

// TestSharedEndsAreSharedMessages: two prompts never have more ends in common than messages, whatever the telemetry lacks. They have
// equally many in common if it lacks nothing and the messages are long enough for all ends.
func TestSharedEndsAreSharedMessages(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine works: the race detector would find nothing")
	}
	a, err := annotate.New(annotate.Config{Key: testKey(t)})
	must(t, err)
	equal, lacking := 0, 0
	for seed := range uint64(45) {
		r := author{rand.New(rand.NewPCG(seed, 2))}
		var prompts []*asked
		var truth [][]string
		var ends [][]blockhash.End
		for len(prompts) < 24 {
			for _, p := range r.conversation() {
				truth = append(truth, p.messagesOf())
				tokens := tokensOf(p.units())
				r.tell(p)
				var chain blockhash.Chain
				remote := false // a part is only on the server, so a log record's text is not the prompt
				take(t, a, p.span(t, len(prompts), tokens), func(td ptrace.Traces) {
					eachSpan(td, func(span ptrace.Span) {
						if cells, ok := span.Attributes().Get(semconv.Cells); ok {
							must(t, chain.UnmarshalBinary(cells.Bytes().AsRaw()))
						}
						if v, ok := span.Attributes().Get(semconv.CellsEnds); ok {
							must(t, chain.UnmarshalEnds(v.Bytes().AsRaw()))
						}
						_, is := span.Attributes().Get(semconv.PromptRemote)
						remote = remote || is
					})
				})
				if remote {
					chain.Ends = nil
				}
				prompts, ends = append(prompts, p), append(ends, chain.Ends)
			}
		}
		for i, p := range prompts {
			for j := range i {
				shared, common := 0, 0
				for _, end := range ends[i] {
					if slices.Contains(ends[j], end) {
						shared++
					}
				}
				for common < min(len(truth[i]), len(truth[j])) && truth[i][common] == truth[j][common] {
					common++
				}
				whole := p.missing == "" && prompts[j].missing == ""
				all := len(ends[i]) == len(truth[i]) && len(ends[j]) == len(truth[j])
				if shared > common || whole && all && shared < common {
					t.Fatalf("seed %d: %d by %s, lacking %q, and %d by %s, lacking %q, share %d ends and %d messages", seed,
						i, dialects[p.dialect].name, p.missing, j, dialects[prompts[j].dialect].name, prompts[j].missing, shared, common)
				}
				if whole && all && common > 0 {
					equal++
				} else if shared < common {
					lacking++
				}
			}
		}
	}
	if equal < 400 || lacking < 100 {
		t.Errorf("%d pairs share all they should, %d lack some: this test sees too little", equal, lacking)
	}
}

// sizes are the numbers of prompts, messages and replies, and the bytes of their spans' attributes and of their journal.
type sizes struct {
	prompts, messages, replies int
	attributes, journal        int
}

// measure annotates telemetry and adds up the results. If without is true, the ends of messages are left out.
func measure(t testing.TB, without bool, lines []string) sizes {
	t.Helper()
	a, err := annotate.New(annotate.Config{Key: testKey(t), OmitMessageEnds: without})
	must(t, err)
	var sum sizes
	d := decode.New(decode.Config{})
	for _, line := range lines {
		take(t, a, line, func(td ptrace.Traces) {
			eachSpan(td, func(span ptrace.Span) {
				if _, ok := span.Attributes().Get(semconv.Cells); ok {
					sum.prompts++
					if v, ok := span.Attributes().Get(semconv.CellsEnds); ok {
						sum.messages += v.Bytes().Len() / 12
					}
					if _, ok := span.Attributes().Get(semconv.CellsReply); ok {
						sum.replies++
					}
					sum.attributes += encoded(t, span.Attributes())
				}
			})
			var b journal.Batch
			_, err := d.Traces(td, func(r journal.Record) error {
				inference, ok := r.(*journal.Inference)
				if ok && without {
					inference.Finish = journal.Name{}
				}
				if content, isContent := r.(*journal.Content); ok && inference.Chain.Bytes > 0 || isContent && content.Chain.Bytes > 0 {
					return b.Add(r)
				}
				return nil
			})
			must(t, err)
			sum.journal += b.Size()
		})
	}
	return sum
}

// encoded returns the bytes that attributes take on the wire.
func encoded(t testing.TB, attributes pcommon.Map) int {
	t.Helper()
	size := func(fill bool) int {
		td := ptrace.NewTraces()
		span := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		if fill {
			attributes.CopyTo(span.Attributes())
		}
		return new(ptrace.ProtoMarshaler).TracesSize(td)
	}
	return size(true) - size(false)
}

// chats returns the telemetry of conversations with the given number of turns: a system prompt of 3 to 9 kB, questions of up to 1.2 kB,
// replies of 100 to 600 tokens. Only by chance does a text end where a cell does.
func chats(t testing.TB, conversations, turns int) (lines []string) {
	t.Helper()
	r := author{rand.New(rand.NewPCG(11, 3))}
	for talk := range conversations {
		messages := []said{{role: "system", text: prose(r.Uint64N(4), 3000+r.IntN(6000))}}
		for range turns {
			messages = append(messages, said{role: "user", text: prose(r.Uint64(), 40+r.IntN(1200))})
			reply := said{role: "assistant", text: prose(r.Uint64(), 4*(100+r.IntN(500)))}
			lines = append(lines, spoken(t, messages, reply, talk, len(lines)))
			messages = append(messages, reply)
		}
	}
	return lines
}

// smallTalk returns the telemetry of conversations in which each message has about 30 bytes. Requests with fewer messages than from are left
// out; the last request of each conversation has as many messages as to says.
func smallTalk(t testing.TB, conversations, from, to int) (lines []string) {
	t.Helper()
	r := author{rand.New(rand.NewPCG(12, 3))}
	for talk := range conversations {
		messages := []said{{role: "system", text: prose(0, 60)}}
		for len(messages) < to {
			messages = append(messages, said{role: "user", text: prose(r.Uint64(), 24+r.IntN(8))})
			reply := said{role: "assistant", text: prose(r.Uint64(), 24+r.IntN(8))}
			if len(messages) >= from {
				lines = append(lines, spoken(t, messages, reply, talk, len(lines)))
			}
			messages = append(messages, reply)
		}
	}
	return lines
}

// errands returns the telemetry of agents that have one task each and call many tools between two calls of the model. Each tool answers in a
// few words.
func errands(t testing.TB, agents, calls int) (lines []string) {
	t.Helper()
	r := author{rand.New(rand.NewPCG(13, 3))}
	for agent := range agents {
		messages := []said{{role: "system", text: prose(1, 1500)}, {role: "user", text: prose(r.Uint64(), 300)}}
		for range calls {
			reply := said{role: "assistant", text: prose(r.Uint64(), 100+r.IntN(200))}
			lines = append(lines, spoken(t, messages, reply, agent, len(lines)))
			messages = append(messages, reply)
			for range 6 + r.IntN(15) {
				messages = append(messages, said{role: "tool", text: prose(r.Uint64(), 10+r.IntN(30))})
			}
		}
	}
	return lines
}

// spoken returns the telemetry of one request of a conversation.
func spoken(t testing.TB, messages []said, reply said, talk, number int) string {
	t.Helper()
	a := asked{messages: messages, gap: -1}
	td, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces([]byte(a.span(t, number, tokensOf(a.units()))))
	must(t, err)
	eachSpan(td, func(span ptrace.Span) {
		m := span.Attributes()
		m.PutStr("gen_ai.output.messages", text(t, list{reply.modern()}))
		m.PutInt("gen_ai.usage.output_tokens", int64(len(reply.text)/bytesOfToken))
		m.PutInt("gen_ai.usage.cache_read.input_tokens", 1024)
		m.PutStr("gen_ai.provider.name", "openai")
		m.PutStr("gen_ai.response.model", "m-2026-01-01")
		m.PutStr("gen_ai.response.id", fmt.Sprintf("chatcmpl-%032x", number))
		m.PutStr("server.address", "engine.example.com")
		m.PutInt("server.port", 443)
		m.PutEmptySlice("gen_ai.response.finish_reasons").AppendEmpty().SetStr("stop")
		m.PutStr("session.id", fmt.Sprintf("session-%d", talk))
	})
	line, err := new(ptrace.JSONMarshaler).MarshalTraces(td)
	must(t, err)
	return string(line)
}

// TestWhatEndsCost requires that the ends of messages and of replies add at most a quarter to spans and journals of text, however short
// messages are. Only prompts of less than two kilobytes may add more, up to 24 bytes each.
func TestWhatEndsCost(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine works: the race detector would find nothing")
	}
	captured := func(t *testing.T, producer string) []string {
		t.Helper()
		lines := strings.Split(strings.TrimSpace(producerFile(t, producer+".traces.jsonl")), "\n")
		if files, _ := filepath.Glob(filepath.Join("..", "..", "shared", "data", "producers", producer+".logs.jsonl")); len(files) > 0 {
			lines = append(lines, strings.Split(strings.TrimSpace(producerFile(t, producer+".logs.jsonl")), "\n")...)
		}
		return lines
	}
	for _, c := range []struct {
		name  string
		lines func(*testing.T) []string
	}{
		{"6 conversations of 12 turns", func(t *testing.T) []string { t.Helper(); return chats(t, 6, 12) }},
		{"70 messages of 30 bytes", func(t *testing.T) []string { t.Helper(); return smallTalk(t, 8, 69, 70) }},
		{"300 messages of 30 bytes", func(t *testing.T) []string { t.Helper(); return smallTalk(t, 2, 299, 300) }},
		{"50 to 120 messages of 30 bytes", func(t *testing.T) []string { t.Helper(); return smallTalk(t, 3, 50, 120) }},
		{"2 to 50 messages of 30 bytes", func(t *testing.T) []string { t.Helper(); return smallTalk(t, 4, 2, 50) }},
		{"4 agents of 10 calls", func(t *testing.T) []string { t.Helper(); return errands(t, 4, 10) }},
		{"js-openinference-longconv", func(t *testing.T) []string { t.Helper(); return captured(t, "js-openinference-longconv") }},
		{"otel-js-openai", func(t *testing.T) []string { t.Helper(); return captured(t, "otel-js-openai") }},
		{"js-traceloop-openai", func(t *testing.T) []string { t.Helper(); return captured(t, "js-traceloop-openai") }},
		{"js-openinference-openai", func(t *testing.T) []string { t.Helper(); return captured(t, "js-openinference-openai") }},
		{"vercel-ai7-otel", func(t *testing.T) []string { t.Helper(); return captured(t, "vercel-ai7-otel") }},
		{"go-genkit", func(t *testing.T) []string { t.Helper(); return captured(t, "go-genkit") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			lines := c.lines(t)
			before, after := measure(t, true, lines), measure(t, false, lines)
			ratio := func(a, b int) float64 { return float64(a) / float64(b) }
			attributes, journal := ratio(after.attributes, before.attributes), ratio(after.journal, before.journal)
			t.Logf("%d prompts, %d messages, %d replies: attributes %d bytes, x%.3f; journal %d bytes, x%.3f",
				after.prompts, after.messages, after.replies, after.attributes, attributes, after.journal, journal)
			const few = 24 // bytes that a short prompt may add
			short := 0
			if strings.HasPrefix(c.name, "2 to 50") {
				short = few * after.prompts
			}
			if ratio(after.attributes-short, before.attributes) > 1.25 || ratio(after.journal-short, before.journal) > 1.25 {
				t.Errorf("attributes x%.3f, journal x%.3f; want x1.25 at most", attributes, journal)
			}
			if after.messages < 2*after.prompts || after.replies == 0 || before.messages+before.replies > 0 {
				t.Errorf("%d messages and %d replies of %d prompts, and %d and %d without: this test measures nothing",
					after.messages, after.replies, after.prompts, before.messages, before.replies)
			}
		})
	}
}
