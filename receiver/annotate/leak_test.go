// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate_test

import (
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/xpdata/entity"

	"github.com/moonloop/moonloop/internal/testproducers"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// TestNothingLeaks applies the leak test of all paths of telemetry to an annotator.
func TestNothingLeaks(t *testing.T) {
	testproducers.CheckNothingLeaks(t, producers(t), func(t *testing.T) testproducers.Path {
		t.Helper()
		a := newAnnotator(t, annotate.Config{})
		return testproducers.Path{
			Traces: func(td ptrace.Traces) { a.Traces(td) },
			Logs: func(ld plog.Logs) ptrace.Traces {
				td, _ := a.Logs(ld)
				return td
			},
		}
	})
}

// secret is a text that must not leave, in two lengths: as short as a name, and too long for any value. Both have a length that cells
// can have.
const secret = "the patient asked why so"

var longSecret = strings.Repeat(secret, 12)

// fill puts a text into attributes, under names and in types to which different rules of cleaning apply.
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

// TestEveryPlace puts a text into every field of a span and of a log record that can hold one.
func TestEveryPlace(t *testing.T) {
	for _, c := range []struct {
		name, reason, text string
		genAI              bool
	}{
		{"short, GenAI", "even a short value is removed if its name is not on the allow-list; names of up to 256 bytes stay", secret, true},
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

			untouched := testproducers.TraceBytes(t, td)
			if n := strings.Count(untouched[0], secret); n < 30 {
				t.Fatalf("the text is in %d places only", n)
			}
			a := newAnnotator(t, annotate.Config{})
			counts := a.Traces(td)
			made, more := a.Logs(ld)
			counts.Add(more)
			after := append(append(testproducers.TraceBytes(t, td), testproducers.LogBytes(t, ld)...), testproducers.TraceBytes(t, made)...)
			for _, text := range after {
				if i := strings.Index(text, secret[:16]); i >= 0 {
					t.Errorf("%s: the text is in the output: %q", c.reason, text[max(i-80, 0):min(i+80, len(text))])
				}
			}
			var n int64
			for key, removed := range counts.Removed {
				n += removed
				if strings.Contains(key, secret[:16]) {
					t.Errorf("a count has the text as its name")
				}
			}
			if n < 40 {
				t.Errorf("only %d values were removed, fewer than were put there: %v", n, counts.Removed)
			}
		})
	}
}
