// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"cmp"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/genai"
	"github.com/moonloop/moonloop/semconv"
)

// Logs returns the spans that log records stand for, and cleans the records in place. Messages of a span's prompt become one span
// [semconv.SpanContent] below that span; a request of Dynamo's trace becomes an inference span. Records of both kinds are marked by
// [semconv.Identity], and the next receiver only cleans them: otherwise it would make the same span with another id, or find a prompt
// without text.
//
// The messages of a span are joined as far as they are in ld. If a sender ends a batch within a prompt, the prompt becomes two spans.
func (a *Annotator) Logs(ld plog.Logs) (ptrace.Traces, Counts) {
	w := a.worker()
	defer w.release()
	out := spanSink{traces: ptrace.NewTraces()}
	prompts := logPrompts{bySpan: map[spanKey]*logPrompt{}}
	for _, resource := range ld.ResourceLogs().All() {
		w.cleanResource(resource)
		for _, scope := range resource.ScopeLogs().All() {
			name := scope.Scope().Name()
			w.cleanScope(scope)
			for _, log := range scope.LogRecords().All() {
				w.log(resource.Resource(), name, log, &prompts, &out)
			}
		}
	}
	for _, p := range prompts.inOrder {
		identity := w.carrier(p, &out)
		for _, m := range p.messages {
			mark(m.log, identity)
		}
		for _, m := range slices.Concat(p.messages, p.replies) {
			w.cleanLog(m.log, true)
		}
	}
	return out.traces, w.counts
}

// log annotates and cleans a log record, or stores it for the prompt of its span.
func (w *worker) log(resource pcommon.Resource, scope string, log plog.LogRecord, prompts *logPrompts, out *spanSink) {
	w.counts.Logs++
	if isAnnotated(log.Attributes()) {
		w.counts.AnnotatedLogs++
		w.cleanLog(log, true)
		return
	}
	rec := w.reader.Log(scope, log)
	genAI := rec.Dialect != ""
	switch rec.Kind {
	case genai.KindInference:
		w.counts.RequestLogs++
		mark(log, w.request(rec, resource, log, out))
	case genai.KindContent:
		isReply, isPrompt := rec.Reply.Present(), rec.Content.Present()
		if isReply || isPrompt { // others, such as evaluations, have nothing that a span could carry
			w.counts.ContentLogs++
		}
		p := prompts.of(resource, log)
		if isReply {
			p.replies = append(p.replies, logMessage{scope: scope, log: log})
		}
		if unknown := p.key.trace.IsEmpty() || p.key.span.IsEmpty(); isPrompt && unknown {
			w.counts.Drop(ReasonLogNoSpan, 1)
			isPrompt = false
		}
		if isPrompt {
			p.messages = append(p.messages, logMessage{scope, log, rec.Content.Part()})
			return
		}
		mark(log, semconv.IdentityNone)
		if isReply {
			return
		}
	default:
	}
	w.cleanLog(log, genAI)
}

// mark writes the identity of a prompt to a log record about it.
func mark(log plog.LogRecord, identity string) { log.Attributes().PutStr(semconv.Identity, identity) }

// spanKey identifies the span of log records.
type spanKey struct {
	trace pcommon.TraceID
	span  pcommon.SpanID
}

// logPrompt is the prompt of one span, as far as a batch has it.
type logPrompt struct {
	key      spanKey
	resource pcommon.Resource
	messages []logMessage
	replies  []logMessage // to the prompt; if there are several, it is unknown which one continues the conversation
}

// logMessage is a log record with one message, or with a whole prompt.
type logMessage struct {
	scope string
	log   plog.LogRecord
	part  bool
}

// logPrompts collects the prompts of a batch.
type logPrompts struct {
	bySpan  map[spanKey]*logPrompt
	inOrder []*logPrompt
}

// of returns the prompt of a record's span.
func (ps *logPrompts) of(resource pcommon.Resource, log plog.LogRecord) *logPrompt {
	key := spanKey{log.TraceID(), log.SpanID()}
	p := ps.bySpan[key]
	if p == nil {
		p = &logPrompt{key: key, resource: resource}
		ps.bySpan[key] = p
		ps.inOrder = append(ps.inOrder, p)
	}
	return p
}

// recordTime returns when a log record was made, or else observed.
func recordTime(log plog.LogRecord) pcommon.Timestamp {
	return cmp.Or(log.Timestamp(), log.ObservedTimestamp())
}

// logText hashes the prompt of log records, and the reply to it. A record with a whole prompt is used alone. Otherwise all records with one
// message each are used, in order of time, then of position.
func (w *worker) logText(p *logPrompt) (id identity, session string) {
	slices.SortStableFunc(p.messages, func(a, b logMessage) int { return cmp.Compare(recordTime(a.log), recordTime(b.log)) })
	d := w.domain(semconv.IdentityText, "", "")
	var all Written
	missing := false
	for _, part := range [...]bool{false, true} {
		for _, m := range p.messages {
			if m.part != part {
				continue
			}
			rec := w.reader.Log(m.scope, m.log)
			session = cmp.Or(session, rec.Session)
			seen := Prompt(d.hasher, &rec.Content)
			w.tools.add(w, &rec.Tools)
			switch {
			case part:
				missing = missing || seen.Extent == genai.ExtentNone
				all.Extent, all.MediaEnd = join(all.Extent, seen.Extent), max(all.MediaEnd, seen.MediaEnd)
			case seen.Extent != genai.ExtentNone:
				return w.logReply(w.text(d, seen), d, p), session
			default:
				d.hasher.Reset()
			}
		}
	}
	if missing && all.Extent != genai.ExtentNone {
		all.Extent = genai.ExtentGaps
	}
	return w.logReply(w.text(d, all), d, p), session
}

// logReply adds the end of the batch's reply to the identity of the batch's prompt.
func (w *worker) logReply(id identity, d *domain, p *logPrompt) identity {
	switch n := len(p.replies); {
	case n == 1:
		w.addReply(&id, d, &w.reader.Log(p.replies[0].scope, p.replies[0].log).Reply)
	case n > 1 && w.takesReply(&id):
		w.counts.Drop(ReasonReplyPartial, 1)
	}
	return id
}

// countAlone counts the replies whose prompt is not in the batch: if a batch ends between the two, for example because replies take longer
// than batches, the replies are lost.
func (w *worker) countAlone(p *logPrompt) {
	for _, r := range p.replies {
		if !w.config.OmitMessageEnds && w.reader.Log(r.scope, r.log).Reply.Walk(func(genai.Piece) bool { return true }) {
			w.counts.Drop(ReasonReplyAlone, 1)
		}
	}
}

// join returns the extent of a prompt after one more message, which may have no text.
func join(before, message genai.Extent) genai.Extent {
	switch {
	case message == genai.ExtentNone:
		return before
	case before == genai.ExtentCut, before == genai.ExtentGaps:
		return genai.ExtentGaps // text after a cut comes after a gap
	default:
		return message
	}
}
