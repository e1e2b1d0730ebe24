// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"bytes"
	"fmt"
	"math"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/grpc/codes"

	"github.com/moonloop/moonloop/internal/testwire"
	"github.com/moonloop/moonloop/semconv"
)

// The signals, as the URL paths of OTLP over HTTP name them at their ends.
const (
	signalTraces  = "traces"
	signalLogs    = "logs"
	signalMetrics = "metrics"
)

// attack is hostile telemetry, with the expected result.
type attack struct {
	name, reason string
	signal       string // traces where it is empty
	// send makes the requests and sends each.
	send func(f *forge, send func(body []byte))
	// code is the answer to each request; OK is an acknowledgement.
	code codes.Code
	// counted is the change of the Collector's own counters, for all requests together: "spans", "records/kind", "invalid/attribute",
	// "dropped/reason" and so on. Others may change, too, except refusals.
	counted map[string]int64
}

// Counters as attacks name them: the metric without otelcol_ and _mooncake.
const (
	inferences   = "exporter_records/inference"
	unannotated  = "exporter_records/unannotated"
	contents     = "exporter_records/content"
	links        = "exporter_records/link"
	noTraceID    = "exporter_dropped_spans/no_trace_id"
	noSpanID     = "exporter_dropped_spans/no_span_id"
	invalid      = "exporter_invalid_attributes/"
	removed      = "receiver_removed_values/"
	dropped      = "receiver_dropped/"
	refused      = "receiver_refused_requests/"
	identities   = "receiver_inference_spans/"
	received     = "receiver_spans"
	carriers     = "receiver_carrier_spans"
	sessionTwins = "receiver_sessions"
)

type counted = map[string]int64

// one returns the send function of an attack that is one request with spans.
func one(fill func(f *forge, to ptrace.SpanSlice)) func(*forge, func([]byte)) {
	return func(f *forge, send func([]byte)) {
		send(f.spans(func(to ptrace.SpanSlice) { fill(f, to) }))
	}
}

// oneLog returns that of an attack that is one request with log records.
func oneLog(fill func(f *forge, to plog.LogRecordSlice)) func(*forge, func([]byte)) {
	return func(f *forge, send func([]byte)) {
		send(f.logs(func(to plog.LogRecordSlice) { fill(f, to) }))
	}
}

// wire returns that of an attack that is one request with the given bytes.
func wire(body func(f *forge) []byte) func(*forge, func([]byte)) {
	return func(f *forge, send func([]byte)) { send(body(f)) }
}

var attacks = []attack{
	{
		name: "wrong types", reason: "each known attribute with a value of each type: it is left out, the span stays",
		send: func(f *forge, send func([]byte)) {
			for n := range wrongs {
				send(f.spans(func(to ptrace.SpanSlice) {
					for _, name := range names() {
						f.wrong(f.plain(to).Attributes().PutEmpty(name), n)
						f.wrong(f.request(to).Attributes().PutEmpty(name), n)
					}
				}))
			}
		},
		counted: counted{received: int64(2 * wrongs * len(names()))},
	},
	{
		name: "large prompt", reason: "10 MB of prompt are hashed and removed",
		send: one(func(f *forge, to ptrace.SpanSlice) {
			f.request(to).Attributes().PutStr("gen_ai.input.messages",
				`[{"role":"user","parts":[{"type":"text","content":"`+f.long("prompt", f.scale*1_000_000)+`"}]}]`)
		}),
		counted: counted{inferences: 1, identities + "text": 1, removed + "gen_ai.input.messages": 1},
	},
	{
		name: "large values", reason: "strings, bytes and maps of 10 MB under unknown names are removed",
		send: func(f *forge, send func([]byte)) {
			size := f.scale * 1_000_000
			for _, fill := range []func(v pcommon.Value){
				func(v pcommon.Value) { v.SetStr(f.long("prompt", size)) },
				func(v pcommon.Value) { v.SetEmptyBytes().FromRaw([]byte(f.long("prompt", size))) },
				func(v pcommon.Value) {
					many := make(map[string]any, size/100)
					for n := range size / 100 {
						many[fmt.Sprint("k", n)] = f.text("prompt")
					}
					if err := v.SetEmptyMap().FromRaw(many); err != nil { // PutStr looks for the key each time
						f.t.Error(err)
					}
				},
				func(v pcommon.Value) {
					for m, n := v.SetEmptyMap(), 0; n < 100; n++ {
						m = m.PutEmptyMap(f.long("prompt", size/100))
					}
				},
			} {
				send(f.spans(func(to ptrace.SpanSlice) { fill(f.plain(to).Attributes().PutEmpty("blob")) }))
				send(f.spans(func(to ptrace.SpanSlice) { fill(f.request(to).Attributes().PutEmpty("gen_ai.prompt")) }))
			}
		},
		counted: counted{links: 4, inferences: 4, removed + "other": 4},
	},
	{
		name: "one trace", reason: "a million spans of one trace, one under the other, are as many records",
		send: func(f *forge, send func([]byte)) {
			trace, parent := f.trace(), pcommon.SpanID{}
			for range 10 * f.scale * f.scale {
				send(f.spans(func(to ptrace.SpanSlice) {
					for range 1000 {
						s := f.plain(to)
						s.SetTraceID(trace)
						s.SetParentSpanID(parent)
						parent = s.SpanID()
					}
				}))
			}
		},
		counted: counted{},
	},
	{
		name: "cycles", reason: "spans that are their own ancestors: compiling ends",
		send: one(func(f *forge, to ptrace.SpanSlice) {
			self := f.request(to)
			self.SetParentSpanID(self.SpanID())
			trace, ring := f.trace(), make([]ptrace.Span, 100)
			for i := range ring {
				ring[i] = f.request(to)
				ring[i].SetTraceID(trace)
			}
			for i := range ring {
				ring[i].SetParentSpanID(ring[(i+1)%len(ring)].SpanID())
			}
		}),
		counted: counted{inferences: 101},
	},
	{
		name: "equal ids", reason: "spans of one id are all in the journal, one of them in the trace",
		send: one(func(f *forge, to ptrace.SpanSlice) {
			trace, span := f.trace(), f.span()
			for i := range 100 {
				s := f.request(to)
				s.SetTraceID(trace)
				s.SetSpanID(span)
				s.Attributes().PutInt(semconv.GenAIUsageInputTokens, int64(i))
			}
		}),
		counted: counted{inferences: 100},
	},
	{
		name: "no ids", reason: "a span without ids is not a record, and is counted",
		send: one(func(f *forge, to ptrace.SpanSlice) {
			f.request(to).SetTraceID(pcommon.TraceID{})
			f.request(to).SetSpanID(pcommon.SpanID{})
			to.AppendEmpty()
		}),
		counted: counted{noTraceID: 2, noSpanID: 1},
	},
	{
		name: "invalid UTF-8", reason: "every string is invalid: names of models are hashed, the rest is treated like any text",
		send: wire(func(f *forge) []byte {
			const text = "YYYYYYYYYYYY"
			return scatter(f.traces(func(r ptrace.ResourceSpans) {
				r.SetSchemaUrl(text)
				r.Resource().Attributes().PutStr(text, text)
				r.Resource().Attributes().PutStr("service.name", text)
				sc := r.ScopeSpans().AppendEmpty()
				sc.Scope().SetName(text)
				sc.Scope().SetVersion(text)
				s := f.request(sc.Spans())
				s.SetName(text)
				s.TraceState().FromRaw(text)
				s.Status().SetMessage(text)
				for _, name := range names() {
					if name != semconv.GenAIOperationName && name != "gen_ai.usage.input_tokens" && !strings.Contains(name, "kind") && !strings.HasPrefix(name, "mooncake.") {
						s.Attributes().PutStr(name, text)
					}
				}
				s.Attributes().PutStr(text, text)
				e := s.Events().AppendEmpty()
				e.SetName(text)
				e.Attributes().PutStr(text, text)
				s.Links().AppendEmpty().TraceState().FromRaw(text)
			}), text)
		}),
		counted: counted{received: 1},
	},
	{
		name: "times", reason: "none, reversed, from far away: unreadable ones are 0 and counted",
		send: one(func(f *forge, to ptrace.SpanSlice) {
			for _, t := range [][2]pcommon.Timestamp{
				{0, 0},
				{base, 0},
				{base, base - 1e9},
				{0, base},
				{1, math.MaxInt64},
				{math.MaxInt64, 1},
				{math.MaxInt64 + 1, base},
				{base, math.MaxUint64},
				{math.MaxUint64, math.MaxUint64},
			} {
				s := f.request(to)
				s.SetStartTimestamp(t[0])
				s.SetEndTimestamp(t[1])
				s.Attributes().PutDouble("gen_ai.response.time_to_first_chunk", 1e6)
				e := s.Events().AppendEmpty()
				e.SetName("mooncake.token")
				e.SetTimestamp(t[1])
				e.Attributes().PutInt("mooncake.token.index", 0)
			}
		}),
		counted: counted{inferences: 9, invalid + "start_time": 2, invalid + "end_time": 2},
	},
	{
		name: "sessions", reason: "ten thousand new sessions at once get their hashes, and memory does not keep them",
		send: func(f *forge, send func([]byte)) {
			for range f.scale {
				send(f.spans(func(to ptrace.SpanSlice) {
					for i := range 10_000 {
						f.plain(to).Attributes().PutStr("session.id", fmt.Sprint("s", f.ids, i))
					}
				}))
			}
		},
		counted: counted{},
	},
	{
		name: "nested", reason: "a value 100 deep is decoded, and removed because it is deeper than 16",
		send: wire(func(f *forge) []byte {
			attribute := append(testwire.Within([]byte("blob"), 1), testwire.Within(testwire.Nested(100), 2)...)
			trace, span := f.trace(), f.span()
			return testwire.Within(append(append(testwire.Within(trace[:], 1), testwire.Within(span[:], 2)...), testwire.Within(attribute, 9)...), 1, 2, 2)
		}),
		counted: counted{links: 1, removed + "other": 1},
	},
	{
		name: "nested without end", reason: "8 MB of lists in lists would take half a gigabyte of stack to decode, and 12 MB would crash the process",
		send: wire(func(f *forge) []byte { return testwire.Within(testwire.Nested(100_000*f.scale), 1, 2, 2, 9, 2) }),
		code: codes.InvalidArgument, counted: counted{refused + "too_deep": 1},
	},
	{
		name: "nested log", signal: signalLogs, reason: "the nested body of a log record would exhaust the stack, too",
		send: wire(func(f *forge) []byte { return testwire.Within(testwire.Nested(100_000*f.scale), 1, 2, 2, 5) }),
		code: codes.InvalidArgument, counted: counted{refused + "too_deep": 1},
	},
	{
		name: "nested metric", signal: signalMetrics, reason: "a nested attribute of a metric's point would exhaust the stack, too",
		send: wire(func(f *forge) []byte { return testwire.Within(testwire.Nested(100_000*f.scale), 1, 2, 2, 7, 1, 7, 2) }),
		code: codes.InvalidArgument, counted: counted{refused + "too_deep": 1},
	},
	{
		name: "empty spans", reason: "4 MB of spans of 2 bytes each would be half a gigabyte",
		send: wire(func(*forge) []byte { return testwire.Within(bytes.Repeat([]byte{2<<3 | 2, 0}, 2<<20), 1, 2) }),
		code: codes.ResourceExhausted, counted: counted{refused + "too_large": 1},
	},
	{
		name: "empty attributes", reason: "5 MB of attributes of 2 bytes each would be half a gigabyte, too",
		send: wire(func(*forge) []byte { return testwire.Within(bytes.Repeat([]byte{9<<3 | 2, 0}, 5<<19), 1, 2, 2) }),
		code: codes.ResourceExhausted, counted: counted{refused + "too_large": 1},
	},
	{
		name: "truncated", reason: "a truncated request does not count",
		send: wire(func(f *forge) []byte {
			body := f.spans(func(to ptrace.SpanSlice) { f.request(to).Attributes().PutStr("gen_ai.prompt", f.text("prompt")) })
			return body[:len(body)-5]
		}),
		code: codes.InvalidArgument, counted: counted{refused + "malformed": 1},
	},
	{
		name: "junk", reason: "a text is not a request, either",
		send: wire(func(f *forge) []byte { return []byte(f.long("prompt", 10_000)) }),
		code: codes.InvalidArgument, counted: counted{refused + "malformed": 1},
	},
	{
		name: "deep JSON", reason: "content that is JSON in JSON is read up to the limits of the reader, and removed",
		send: one(func(f *forge, to ptrace.SpanSlice) {
			for _, name := range []string{"gen_ai.input.messages", "input.value", "ai.prompt.messages", "genkit:input", "langfuse.observation.input", "llm.invocation_parameters"} {
				for _, text := range []string{
					strings.Repeat(`[{"parts":`, 100_000), strings.Repeat(`{"messages":[`, 100_000) + f.text("prompt"),
					`[{"role":"user","content":"` + strings.Repeat(`\\`, 100_000) + f.text("prompt"), strings.Repeat("[", 1_000_000),
				} {
					f.request(to).Attributes().PutStr(name, text)
				}
			}
		}),
		counted: counted{inferences: 20, links: 4}, // genkit's are flows, as nothing marks them as models
	},
	{
		name: "events and links", reason: "a hundred thousand of each on one span",
		send: one(func(f *forge, to ptrace.SpanSlice) {
			s := f.request(to)
			for i := range 20_000 * min(f.scale, 5) {
				e := s.Events().AppendEmpty()
				e.SetName("gen_ai.content.prompt")
				e.Attributes().PutStr("gen_ai.prompt", f.text("prompt"))
				e.Attributes().PutInt("mooncake.token.index", int64(-i))
				s.Links().AppendEmpty().Attributes().PutStr("text", f.text("prompt"))
			}
		}),
		counted: counted{inferences: 1},
	},
	{
		name: "nothing", reason: "empty messages in empty messages",
		send: wire(func(*forge) []byte {
			span := append(append(testwire.Within(nil, 9), testwire.Within(nil, 11)...), append(testwire.Within(nil, 13), testwire.Within(nil, 15)...)...)
			scope := append(testwire.Within(span, 2), testwire.Within(nil, 1)...)
			return append(append(testwire.Within(append(testwire.Within(scope, 2), testwire.Within(nil, 1, 1)...), 1), testwire.Within(nil, 1)...), testwire.Within(nil, 1, 2)...)
		}),
		counted: counted{noTraceID: 1},
	},
	{
		name: "resources and scopes", reason: "what surrounds spans is cut to size like the spans",
		send: wire(func(f *forge) []byte {
			return f.traces(func(r ptrace.ResourceSpans) {
				long := f.long("prompt", 10_000)
				r.SetSchemaUrl(long)
				r.Resource().Attributes().PutStr(long, long)
				r.Resource().Attributes().PutStr("blob", long)
				sc := r.ScopeSpans().AppendEmpty()
				sc.SetSchemaUrl(long)
				sc.Scope().SetName(long)
				sc.Scope().SetVersion(long)
				sc.Scope().Attributes().PutStr("blob", long)
				s := f.plain(sc.Spans())
				s.SetName(long)
				s.TraceState().FromRaw(long)
				s.Status().SetMessage(f.text("prompt"))
			})
		}),
		counted: counted{links: 1, removed + "(schema url)": 2, removed + "(scope)": 2, removed + "(span name)": 1, removed + "(trace state)": 1, removed + "(status message)": 1, removed + "other": 2, removed + "(attribute name)": 1},
	},
	{
		name: "forged annotation", reason: "our own attributes are checked like any others: invalid ones are left out and counted, and the span is a request without identity",
		send: one(func(f *forge, to ptrace.SpanSlice) {
			for _, fill := range []func(pcommon.Map){
				func(m pcommon.Map) { m.PutStr(semconv.Identity, "god") },
				func(m pcommon.Map) { m.PutInt(semconv.Identity, 1) },
				func(m pcommon.Map) {
					m.PutStr(semconv.Identity, semconv.IdentityText)
					m.PutEmptyBytes(semconv.Cells).FromRaw([]byte(f.text("prompt")))
				},
				func(m pcommon.Map) {
					m.PutStr(semconv.Identity, semconv.IdentityText)
					m.PutStr(semconv.Cells, f.text("prompt"))
				},
				func(m pcommon.Map) {
					m.PutStr(semconv.Identity, semconv.IdentityEngine)
					m.PutStr(semconv.HashDomain, "0000000a")
					m.PutInt(semconv.BlockSize, math.MaxInt64)
					m.PutEmptySlice(semconv.HashIDs).AppendEmpty().SetInt(math.MinInt64) // 2^63
				},
				func(m pcommon.Map) {
					m.PutStr(semconv.Identity, semconv.IdentityEngine)
					m.PutStr(semconv.HashDomain, f.text("prompt"))
					m.PutInt(semconv.BlockSize, 512)
					ids := m.PutEmptySlice(semconv.HashIDs)
					for i := range 100_000 {
						ids.AppendEmpty().SetInt(int64(i))
					}
				},
				func(m pcommon.Map) {
					m.PutStr(semconv.Identity, semconv.IdentityTokens)
					m.PutEmptySlice(semconv.HashIDs).AppendEmpty().SetStr("9223372036854775808")
				},
			} {
				fill(f.request(to).Attributes())
			}
		}),
		counted: counted{inferences: 7},
	},
	{
		name: "forged replay", reason: "rows of an unknown run: an invalid row number is left out; the rows belong to their run and never to production",
		send: wire(func(f *forge) []byte {
			return f.traces(func(r ptrace.ResourceSpans) {
				r.Resource().Attributes().PutStr(semconv.RunID, f.text("prompt")) // not a word: its keyed hash replaces it
				spans := r.ScopeSpans().AppendEmpty().Spans()
				for _, row := range []int64{0, 0, -1, math.MaxInt64, math.MinInt64, 1 << 40} {
					a := f.request(spans).Attributes()
					a.PutInt(semconv.Row, row)
					a.PutStr(semconv.Identity, semconv.IdentityTrace)
					a.PutDouble(semconv.Timestamp, math.Inf(1))
					a.PutInt(semconv.InputLength, math.MaxInt64)
					a.PutInt(semconv.OutputLength, -1)
				}
			})
		}),
		counted: counted{inferences: 6, removed + "mooncake.run.id": 1, invalid + "mooncake.row": 4, invalid + "mooncake.timestamp": 6, invalid + "mooncake.input_length": 6, invalid + "mooncake.output_length": 6},
	},
	{
		name: "forged agent", reason: "spans named like an agent's, with children like those of an agent's span, in production",
		send: one(func(f *forge, to ptrace.SpanSlice) {
			parent := f.request(to)
			parent.Attributes().PutInt(semconv.Row, 0)
			for _, name := range []string{"queue", "prefill", "decode", "session", semconv.SpanContent, semconv.SpanContent} {
				s := f.plain(to)
				s.SetName(name)
				s.SetTraceID(parent.TraceID())
				s.SetParentSpanID(parent.SpanID())
				s.Attributes().PutEmptyBytes(semconv.Cells).FromRaw(make([]byte, 24))
			}
		}),
		counted: counted{inferences: 1, links: 6},
	},
	{
		name: "log bodies", signal: signalLogs, reason: "content in every shape: what is a prompt becomes cells, and nothing passes",
		send: oneLog(func(f *forge, to plog.LogRecordSlice) {
			for _, event := range []string{"gen_ai.user.message", "gen_ai.client.inference.operation.details", "gen_ai.choice", semconv.SpanContent} {
				for n := range wrongs {
					log := to.AppendEmpty()
					log.SetEventName(event)
					log.SetTimestamp(base)
					log.SetTraceID(f.trace())
					log.SetSpanID(f.span())
					f.wrong(log.Body(), n)
					f.wrong(log.Attributes().PutEmpty("gen_ai.input.messages"), n)
					f.wrong(log.Attributes().PutEmpty("event.name"), n)
				}
			}
			to.AppendEmpty()
		}),
		counted: counted{},
	},
	{
		name: "log without a span", signal: signalLogs, reason: "a prompt that belongs to no span is dropped and counted",
		send: oneLog(func(f *forge, to plog.LogRecordSlice) {
			log := to.AppendEmpty()
			log.SetEventName("gen_ai.user.message")
			log.Body().SetEmptyMap().PutStr("content", f.text("prompt"))
		}),
		counted: counted{dropped + "log_no_span": 1, carriers: 0},
	},
	{
		name: "broken Dynamo", signal: signalLogs, reason: "records of Dynamo's trace that are invalid or have invalid numbers: no span, or one without blocks",
		send: oneLog(func(f *forge, to plog.LogRecordSlice) {
			for _, payload := range []string{
				"", "null", "[]", "{", strings.Repeat("[", 100_000), f.text("prompt"), `{"request":null}`, `{"event_type":"request_end","request":{"request_id":7}}`,
				`{"event_type":"request_end","request":{"request_id":"r","request_received_ms":-1,"output_tokens":1e99}}`,
				`{"event_type":"request_end","request":{"request_id":"r","replay":{"trace_block_size":0,"input_length":-5,"input_sequence_hashes":[-1]}}}`,
				`{"event_type":"request_end","request":{"request_id":"r","replay":{"trace_block_size":64,"input_length":64,"input_sequence_hashes":[18446744073709551616]}}}`,
			} {
				log := to.AppendEmpty()
				log.SetTimestamp(base)
				log.Body().SetStr("request_end")
				log.Attributes().PutStr("schema", "dynamo.request.trace.v1")
				log.Attributes().PutStr("event_type", "request_end")
				log.Attributes().PutStr("payload", payload)
			}
		}),
		counted: counted{},
	},
	{
		name: "metrics", signal: signalMetrics, reason: "attributes of points and exemplars are cleaned like those of spans",
		send: wire(func(f *forge) []byte {
			return f.metrics(func(r pmetricotlp.ExportRequest) {
				m := r.Metrics().ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
				m.SetName(f.long("prompt", 1000))
				m.SetDescription(f.long("prompt", 5000))
				p := m.SetEmptySum().DataPoints().AppendEmpty()
				p.Attributes().PutStr("gen_ai.prompt", f.text("prompt"))
				p.Attributes().PutStr("blob", f.long("prompt", 2000))
				p.Exemplars().AppendEmpty().FilteredAttributes().PutStr("gen_ai.input.messages", f.text("prompt"))
			})
		}),
		counted: counted{"receiver_metric_points": 1},
	},
	{
		name: "texts where none belong", reason: "prompts in every field of a span of GenAI, and where a text may pass if it is short",
		send: one(func(f *forge, to ptrace.SpanSlice) {
			s := f.request(to)
			s.SetName(f.word("spanname"))
			s.TraceState().FromRaw("a=" + f.word("tracestate"))
			s.Status().SetMessage(f.text("status"))
			a := s.Attributes()
			a.PutStr("gen_ai.agent.name", f.text("fact"))
			a.PutStr("gen_ai.response.id", f.word("word"))
			f.request(to).Attributes().PutStr("gen_ai.request.model", f.word("model"))
			a.PutStr("url.path", "/"+f.word("path")+"?q="+f.word("query"))
			a.PutStr("url.full", "https://h/"+f.word("whole"))
			a.PutStr("error.type", f.text("error"))
			a.PutStr("http.request.header.authorization", "Bearer "+f.word("bearer"))
			a.PutStr("gen_ai.unheard.of", f.text("genai"))
			a.PutStr("api_key", f.word("apikey"))
			for _, name := range []string{
				"gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "gen_ai.tool.definitions", "gen_ai.prompt", "gen_ai.completion",
				"gen_ai.prompt.0.content", "gen_ai.completion.0.content", "llm.input_messages.0.message.content", "llm.output_messages.0.message.content", "llm.prompts",
				"input.value", "output.value", "ai.prompt", "ai.prompt.messages", "ai.response.text", "ai.toolCall.args", "langfuse.observation.input",
				"langfuse.observation.output", "genkit:input", "genkit:output", "traceloop.entity.input", "traceloop.entity.output", "gen_ai.tool.call.arguments",
				"gen_ai.tool.call.result", "metadata", "tag.tags", "hidden_params", "exception.message", "exception.stacktrace", "db.query.text",
			} {
				a.PutStr(name, f.text("prompt"))
			}
			e := s.Events().AppendEmpty()
			e.SetName("exception")
			e.Attributes().PutStr("exception.message", f.text("prompt"))
			e.Attributes().PutStr("exception.stacktrace", f.text("prompt"))
			other := f.plain(to).Attributes()
			other.PutStr("unheard.of", f.text("unheard"))
			other.PutStr(f.text("key"), "1")
			other.PutStr(semconv.Session, f.text("session"))
			other.PutStr("url.full", "https://u:"+f.word("password")+"@h/"+f.word("path")+"?q="+f.word("query")+"#"+f.word("fragment"))
			other.PutStr("db.statement", f.text("prompt"))
			other.PutStr("url.query", f.text("prompt"))
			other.PutStr("http.request.header.cookie", f.word("bearer"))
		}),
		counted: counted{inferences: 2, links: 1},
	},
	{
		name: "texts in resources and scopes", reason: "the same for resources, scopes and runs",
		send: wire(func(f *forge) []byte {
			return f.traces(func(r ptrace.ResourceSpans) {
				r.Resource().Attributes().PutStr("unheard.of", f.text("resource"))
				r.Resource().Attributes().PutStr("gen_ai.prompt", f.text("prompt"))
				r.Resource().Attributes().PutStr(semconv.RunID, f.word("run"))
				sc := r.ScopeSpans().AppendEmpty()
				sc.Scope().SetName(f.text("scope"))
				s := f.request(sc.Spans())
				s.Attributes().PutInt(semconv.Row, 0)
				s.Attributes().PutInt(semconv.InputLength, 100)
				s.Attributes().PutInt(semconv.OutputLength, 10)
				s.Attributes().PutDouble(semconv.Timestamp, 0)
			})
		}),
		counted: counted{inferences: 1},
	},
	{
		name: "texts in logs", signal: signalLogs, reason: "the same for log records",
		send: oneLog(func(f *forge, to plog.LogRecordSlice) {
			to.AppendEmpty().Body().SetStr(f.text("body"))
			log := to.AppendEmpty()
			log.SetEventName("gen_ai.choice")
			log.Body().SetEmptyMap().PutStr("message", f.text("prompt"))
			log.Attributes().PutStr("exception.message", f.text("prompt"))
			details := to.AppendEmpty()
			details.SetEventName("gen_ai.client.inference.operation.details")
			details.SetTraceID(f.trace())
			details.SetSpanID(f.span())
			details.SetTimestamp(base)
			details.Attributes().PutStr("gen_ai.input.messages", `[{"role":"user","parts":[{"type":"text","content":"`+f.text("prompt")+`"}]}]`)
		}),
		counted: counted{contents: 1, carriers: 1},
	},
	{
		name: "texts in metrics", signal: signalMetrics, reason: "the same for metrics",
		send: wire(func(f *forge) []byte {
			return f.metrics(func(r pmetricotlp.ExportRequest) {
				m := r.Metrics().ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
				m.SetName(f.word("metric"))
				m.SetEmptyGauge().DataPoints().AppendEmpty().Attributes().PutStr("url.query", f.text("query"))
			})
		}),
		counted: counted{"receiver_metric_points": 1},
	},
}
