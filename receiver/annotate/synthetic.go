// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strconv"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/genai"
	"github.com/moonloop/moonloop/semconv"
)

// scopeName is the instrumentation scope of the spans made here.
const scopeName = "github.com/moonloop/moonloop/receiver/annotate"

// spanSink collects spans made from log records, by the resource of the records.
type spanSink struct {
	traces ptrace.Traces
	from   pcommon.Resource // of the last spans
	spans  ptrace.SpanSlice
}

// add returns a new span of a resource, which must have been cleaned. Spans of one resource are added consecutively.
func (s *spanSink) add(resource pcommon.Resource) ptrace.Span {
	if s.traces.ResourceSpans().Len() == 0 || s.from != resource {
		spans := s.traces.ResourceSpans().AppendEmpty()
		resource.CopyTo(spans.Resource())
		scope := spans.ScopeSpans().AppendEmpty()
		scope.Scope().SetName(scopeName)
		s.from, s.spans = resource, scope.Spans()
	}
	return s.spans.AppendEmpty()
}

// carrier makes the span with the content of log records about another span's prompt: its cells, and the ids of tool calls. It returns the
// identity of the prompt.
func (w *worker) carrier(p *logPrompt, out *spanSink) (kind string) {
	w.tools = toolIDs{w.tools.made[:0], w.tools.given[:0]}
	id, session := identity{kind: semconv.IdentityNone}, ""
	if len(p.messages) > 0 {
		id, session = w.logText(p)
	} else {
		w.countAlone(p)
	}
	w.logTools(p)
	if id.kind != semconv.IdentityText && (w.tools.empty() || p.key.trace.IsEmpty() || p.key.span.IsEmpty()) {
		return id.kind
	}
	at := recordTime(slices.Concat(p.messages, p.replies)[0].log)
	span := out.add(p.resource)
	span.SetName(semconv.SpanContent)
	span.SetKind(ptrace.SpanKindInternal)
	span.SetTraceID(p.key.trace)
	span.SetParentSpanID(p.key.span)
	span.SetSpanID(w.carrierID(p, &id))
	span.SetStartTimestamp(at)
	span.SetEndTimestamp(at)
	w.putIdentity(id, span.Attributes())
	w.tools.put(span.Attributes())
	span.Attributes().PutBool(semconv.Synthetic, true)
	if session != "" {
		span.Attributes().PutStr(semconv.Session, w.twin(session))
		w.counts.Sessions++
	}
	w.counts.Carriers++
	if id.kind == semconv.IdentityText {
		count(&w.counts.Identities, id.kind, 1)
	}
	return id.kind
}

// carrierID derives the id of a carrier from its content: for a text, from its tail and length.
func (w *worker) carrierID(p *logPrompt, id *identity) pcommon.SpanID {
	if id.kind == semconv.IdentityText {
		return w.spanID("content", p.key.name()+string(id.cells[len(id.cells)-16:]))
	}
	var ids []byte
	for _, list := range [...][]uint64{w.tools.made, w.tools.given} {
		for _, h := range list {
			ids = binary.LittleEndian.AppendUint64(ids, h)
		}
		ids = append(ids, '/')
	}
	return w.spanID("tools", p.key.name()+string(ids))
}

// request makes the span of a request that only a log record reports, and returns the identity of its prompt. Its ids are derived from the
// request's id, so that a record that is sent twice makes the same span twice.
func (w *worker) request(rec *genai.Record, resource pcommon.Resource, log plog.LogRecord, out *spanSink) (kind string) {
	start, end := pcommon.Timestamp(rec.StartUnixNano), pcommon.Timestamp(rec.EndUnixNano)
	if start == 0 {
		start = recordTime(log)
	}
	if start == 0 {
		w.counts.Drop(ReasonLogNoTime, 1)
		return semconv.IdentityNone
	}
	name := rec.ResponseID
	if name == "" {
		name = strconv.FormatUint(uint64(start), 10)
		if payload, ok := log.Attributes().Get("payload"); ok {
			name += payload.Str() // the reader accepts no other type
		}
	}
	id := w.identify(rec, serviceName(resource), name)
	span := out.add(resource)
	span.SetName("request")
	if model := rec.Model(); model != "" {
		span.SetName("request " + model)
	}
	span.SetKind(ptrace.SpanKindServer)
	high, low := w.spanID("trace, high", name), w.spanID("trace, low", name)
	span.SetTraceID(pcommon.TraceID(append(high[:], low[:]...)))
	span.SetSpanID(w.spanID("request", name))
	span.SetStartTimestamp(start)
	span.SetEndTimestamp(max(start, end))
	w.annotate(rec, id, span.Attributes())
	span.Attributes().PutBool(semconv.Synthetic, true)
	w.putSession(rec, span.Attributes())
	w.counts.RequestSpans++
	return id.kind
}

// spanID derives the id of a span. It is a keyed hash, as for sessions; the prefix keeps the two apart.
func (w *worker) spanID(kind, of string) (id pcommon.SpanID) {
	_, _ = hex.Decode(id[:], []byte(w.config.Key.Session("moonloop span id\x00"+kind+"\x00"+of))) // 16 digits
	if id.IsEmpty() {
		id[7] = 1
	}
	return id
}

// name returns a text that identifies the span, as input of a hash.
func (k spanKey) name() string { return hex.EncodeToString(append(k.trace[:], k.span[:]...)) }
