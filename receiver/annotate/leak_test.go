// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/xpdata/entity"

	"github.com/moonloop/moonloop/receiver/annotate"
)

// Lengths of the pieces of text that are searched for, in bytes.
const (
	pieceSize = 24
	lineSize  = 12 // of whole lines that are shorter than a piece
)

// pieces collects distinctive pieces of texts: all of pieceSize bytes, side by side, that every encoding writes as they
// are, and whole lines that are shorter.
type pieces map[string]bool

func (p pieces) add(text string) {
	for text != "" {
		i := strings.IndexAny(text, "\"\\\n\r\t<>&")
		if i < 0 {
			i = len(text)
		}
		for run, least := text[:i], lineSize; len(run) >= least; least = pieceSize {
			piece := run[:min(len(run), pieceSize)]
			if strings.Contains(piece, " ") && ascii(piece) { // an id or a name is no text
				p[piece] = true
			}
			run = run[len(piece):]
		}
		text = text[min(i+1, len(text)):]
	}
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// addDocument adds the texts of a JSON document.
func (p pieces) addDocument(document any) {
	switch v := document.(type) {
	case string:
		p.add(v)
		var inner any
		if json.Unmarshal([]byte(v), &inner) == nil {
			if _, again := inner.(string); !again {
				p.addDocument(inner)
			}
		}
	case []any:
		for _, member := range v {
			p.addDocument(member)
		}
	case map[string]any:
		for _, member := range v {
			p.addDocument(member)
		}
	}
}

// in counts the pieces that occur.
func (p pieces) in(texts ...string) (n int, first string) {
	for piece := range p {
		for _, text := range texts {
			if strings.Contains(text, piece) {
				n, first = n+1, piece
				break
			}
		}
	}
	return n, first
}

// outputs are the names under which producers write replies.
var outputs = []string{"gen_ai.output.messages", "output.value", "genkit:output", "gen_ai.tool.call.result", "gen_ai.tool.call.arguments"}

// TestNothingLeaks sends the telemetry of each producer through and searches all that comes out for all that the
// server was asked and all that it replied.
func TestNothingLeaks(t *testing.T) {
	folder := producers(t)
	for _, c := range []struct {
		producer string
		prompts  int // share of the prompts' pieces that the telemetry has, in percent, at least
		replies  int // pieces of replies that it has, at least
	}{
		{"otel-js-openai", 90, 20},
		{"otel-js-openai-nocontent", 70, 0}, // the Responses API leaks the system prompt even so
		{"js-traceloop-openai", 90, 20},
		{"js-openinference-openai", 90, 20},
		{"js-openinference-longconv", 90, 1},
		{"vercel-ai7-otel", 90, 20},
		{"go-genkit", 90, 10},
	} {
		t.Run(c.producer, func(t *testing.T) {
			stem := filepath.Join(folder, c.producer)
			prompts, replies := pieces{}, pieces{}
			lines(t, stem+".truth.jsonl", func(line []byte) {
				var request struct{ Prompt string }
				if err := json.Unmarshal(line, &request); err != nil {
					t.Fatal(err)
				}
				prompts.add(request.Prompt)
			})
			a := newAnnotator(t, annotate.Config{})
			var before, after []string
			eachTraces(t, stem, func(td ptrace.Traces) {
				before = append(before, traceBytes(t, td)...)
				for _, rs := range td.ResourceSpans().All() {
					for _, ss := range rs.ScopeSpans().All() {
						for _, span := range ss.Spans().All() {
							for _, name := range outputs {
								if v, ok := span.Attributes().Get(name); ok {
									replies.addDocument(v.AsRaw())
								}
							}
						}
					}
				}
				a.Traces(td)
				after = append(after, traceBytes(t, td)...)
			})
			eachLogs(t, stem, func(ld plog.Logs) {
				before = append(before, logBytes(t, ld)...)
				for _, rl := range ld.ResourceLogs().All() {
					for _, sl := range rl.ScopeLogs().All() {
						for _, log := range sl.LogRecords().All() {
							if name, ok := log.Attributes().Get("event.name"); ok && name.Str() == "gen_ai.choice" {
								replies.addDocument(log.Body().AsRaw())
							}
						}
					}
				}
				td, _ := a.Logs(ld)
				after = append(after, logBytes(t, ld)...)
				after = append(after, traceBytes(t, td)...)
			})
			if len(prompts) < 90 {
				t.Fatalf("only %d pieces of prompts to search for", len(prompts))
			}
			if n, _ := prompts.in(before...); 100*n < c.prompts*len(prompts) {
				t.Errorf("only %d of %d pieces of prompts are in the telemetry: this test would see no leak", n, len(prompts))
			}
			if n, _ := replies.in(before...); n < c.replies {
				t.Errorf("only %d of %d pieces of replies are in the telemetry: this test would see no leak", n, len(replies))
			}
			for what, p := range map[string]pieces{"prompts": prompts, "replies": replies} {
				if n, first := p.in(after...); n > 0 {
					t.Errorf("%d of %d pieces of %s have left, such as %q", n, len(p), what, first)
				}
			}
		})
	}
}

// traceBytes returns spans as they go over the wire: as protobuf and as JSON.
func traceBytes(t testing.TB, td ptrace.Traces) []string {
	t.Helper()
	proto, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
	if err != nil {
		t.Fatal(err)
	}
	text, err := (&ptrace.JSONMarshaler{}).MarshalTraces(td)
	if err != nil {
		t.Fatal(err)
	}
	return []string{string(proto), string(text)}
}

// logBytes returns log records as they go over the wire.
func logBytes(t testing.TB, ld plog.Logs) []string {
	t.Helper()
	proto, err := (&plog.ProtoMarshaler{}).MarshalLogs(ld)
	if err != nil {
		t.Fatal(err)
	}
	text, err := (&plog.JSONMarshaler{}).MarshalLogs(ld)
	if err != nil {
		t.Fatal(err)
	}
	return []string{string(proto), string(text)}
}

// secret is a text that must not come out, in two lengths: what is short for a name, and what is long for any value. Both
// are of as many bytes as cells are.
const secret = "the patient asked why so"

var longSecret = strings.Repeat(secret, 12)

// fill writes a text to every place of a map where an attribute can have one.
func fill(m pcommon.Map, text string) {
	m.PutStr("unheard.of", text)
	m.PutStr("gen_ai.input.messages", text)
	m.PutStr("gen_ai.prompt.0.content", text)
	m.PutStr("llm.prompts.1.user", text)
	m.PutStr("exception.message", text)
	m.PutStr("db.query.text", text)
	m.PutEmptySlice("list").AppendEmpty().SetStr(text)
	m.PutEmptyMap("map").PutStr("text", text)
	m.PutEmptyMap("deep").PutEmptyMap("gen_ai.input.messages").PutStr("content", text)
	m.PutEmptyBytes("bytes").FromRaw([]byte(text))
	m.PutEmptyBytes("mooncake.cells").FromRaw([]byte(text))
	m.PutEmptyBytes("mooncake.cells.ends").FromRaw([]byte(text))
	m.PutEmptyBytes("mooncake.cells.reply").FromRaw([]byte(text)[:12])
	m.PutEmptySlice("mooncake.hash_ranges").AppendEmpty().SetStr(text)
	m.PutEmptySlice("mooncake.replies").AppendEmpty().SetStr(text)
	m.PutStr("gen_ai.output.messages", text)
	m.PutStr("gen_ai.completion.0.content", text)
	m.PutStr("ai.response.text", text)
	m.PutStr("mooncake.identity", text)
	m.PutStr("mooncake.hash.domain", text)
	m.PutStr("mooncake.hash.key", text)
	m.PutStr("mooncake.outcome.reason", text)
	m.PutStr("gen_ai.is_streaming", `[{"role":"user","content":"`+text+`"}]`)
	m.PutStr("tool_call.id", `[{"role":"user","content":"`+text+`"}]`)
	m.PutStr("gen_ai.request.model", ` {"content":"`+text+`"}`)
	m.PutStr("gen_ai.output.type", text)
	m.PutStr("error.type", text)
	m.PutStr("exception.type", text)
	m.PutEmptySlice("gen_ai.response.finish_reasons").AppendEmpty().SetStr(text)
	m.PutStr("url.full", "https://example.com/?q="+text)
	m.PutStr("url.path", "/#"+text)
	m.PutEmptySlice("http.request.header.authorization").AppendEmpty().SetStr(text)
	m.PutStr("agentops.entity.input", text)
	m.PutEmptyMap("mooncake.hash_ids").PutStr("text", text)
	m.PutEmptySlice("mooncake.token.gaps").AppendEmpty().SetStr(text)
	m.PutStr(text, "a name")
	m.PutInt(text+"1", 1)
}

// TestEveryPlace puts a text into every place of a span and of a log record that can hold one.
func TestEveryPlace(t *testing.T) {
	for _, c := range []struct {
		name, reason, text string
		genAI              bool
	}{
		{"short, GenAI", "the allow-list does not care for length, but names of 256 bytes are names", secret, true},
		{"long, GenAI", "nothing that is long stays", longSecret, true},
		{"long, other", "nothing that is named as content or is above 1 KiB stays", strings.Repeat(longSecret, 4), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			long := c.text
			if len(long) < 256 {
				long = "a name"
			}
			everywhere := func(m pcommon.Map) {
				fill(m, c.text)
				if long != c.text {
					m.Remove(c.text)
					m.Remove(c.text + "1")
				}
			}
			td := ptrace.NewTraces()
			rs := td.ResourceSpans().AppendEmpty()
			rs.SetSchemaUrl(long)
			ref := entity.ResourceEntityRefs(rs.Resource()).AppendEmpty()
			ref.SetType("service")
			ref.DescriptionKeys().Append(long)
			ss := rs.ScopeSpans().AppendEmpty()
			ss.SetSchemaUrl(long)
			ss.Scope().SetName(long)
			ss.Scope().SetVersion(long)
			span := ss.Spans().AppendEmpty()
			span.SetName(long)
			span.TraceState().FromRaw(strings.Repeat(long, 2))
			span.Status().SetMessage(c.text)
			everywhere(span.Attributes())
			event, link := span.Events().AppendEmpty(), span.Links().AppendEmpty()
			event.SetName(long)
			link.TraceState().FromRaw(strings.Repeat(long, 2))
			everywhere(event.Attributes())
			everywhere(link.Attributes())
			token := span.Events().AppendEmpty()
			token.SetName("mooncake.token")
			everywhere(token.Attributes())
			if c.genAI {
				span.Attributes().PutStr("gen_ai.operation.name", "chat")
			} else {
				span.Attributes().RemoveIf(func(name string, _ pcommon.Value) bool {
					return strings.HasPrefix(name, "gen_ai.") || strings.HasPrefix(name, "llm.")
				})
				everywhere(rs.Resource().Attributes())
				everywhere(ss.Scope().Attributes())
			}

			ld := plog.NewLogs()
			rl := ld.ResourceLogs().AppendEmpty()
			rl.SetSchemaUrl(long)
			sl := rl.ScopeLogs().AppendEmpty()
			sl.SetSchemaUrl(long)
			sl.Scope().SetName(long)
			log := sl.LogRecords().AppendEmpty()
			log.SetSeverityText(long)
			log.SetEventName(long)
			everywhere(log.Attributes())
			body := log.Body().SetEmptyMap()
			body.PutStr("gen_ai.input.messages", c.text)
			body.PutEmptyMap("request").PutStr("gen_ai.input.messages", c.text)
			body.PutEmptySlice("list").AppendEmpty().SetEmptyMap().PutStr("ai.prompt", c.text)
			list := sl.LogRecords().AppendEmpty().Body().SetEmptySlice()
			list.AppendEmpty().SetEmptyMap().PutStr("gen_ai.input.messages", c.text)
			list.AppendEmpty().SetEmptySlice().AppendEmpty().SetEmptyMap().PutStr("content", c.text)
			if c.genAI {
				log.SetEventName("gen_ai.user.message")
				body.PutStr("content", c.text)
			}

			untouched := traceBytes(t, td)
			if n := strings.Count(untouched[0], secret); n < 30 {
				t.Fatalf("the text is in %d places only", n)
			}
			a := newAnnotator(t, annotate.Config{})
			counts := a.Traces(td)
			made, more := a.Logs(ld)
			counts.Add(more)
			after := append(append(traceBytes(t, td), logBytes(t, ld)...), traceBytes(t, made)...)
			for _, text := range after {
				if i := strings.Index(text, secret[:16]); i >= 0 {
					t.Errorf("%s: the text has left: %q", c.reason, text[max(i-80, 0):min(i+80, len(text))])
				}
			}
			var n int64
			for key, removed := range counts.Removed {
				n += removed
				if strings.Contains(key, secret[:16]) {
					t.Errorf("a count is called by the text itself")
				}
			}
			if n < 40 {
				t.Errorf("%d values removed, and fewer than were put there: %v", n, counts.Removed)
			}
		})
	}
}
