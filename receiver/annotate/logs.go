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

// Logs returns the spans that log records stand for, and cleans the records in place. Messages of a span's prompt
// become one span [semconv.SpanContent] below it, a request of Dynamo's trace becomes an inference span. Records of both
// kinds are marked by [semconv.Identity], and are only cleaned by the next receiver: it would make the same span under
// another id, or find a prompt without text.
//
// The messages of a span are joined as far as they are in ld. A sender that cuts its batches within a prompt makes two
// spans of it.
func (a *Annotator) Logs(ld plog.Logs) (ptrace.Traces, Counts) {
	var counts Counts
	w := a.pool.Get().(*worker) //nolint:forcetypeassert // the pool has nothing else
	defer w.release()
	out := spanSink{traces: ptrace.NewTraces()}
	prompts := logPrompts{bySpan: map[spanKey]*logPrompt{}}
	var genAI []bool // of each record, whether a GenAI producer wrote it
	for _, resource := range ld.ResourceLogs().All() {
		for _, scope := range resource.ScopeLogs().All() {
			name := scope.Scope().Name()
			for _, log := range scope.LogRecords().All() {
				counts.Logs++
				if annotated(log.Attributes()) {
					counts.AnnotatedLogs++
					genAI = append(genAI, true)
					continue
				}
				rec := w.reader.Log(name, log)
				genAI = append(genAI, rec.Dialect != "")
				switch rec.Kind {
				case genai.KindInference:
					counts.RequestLogs++
					mark(log, w.request(&counts, rec, resource.Resource(), log, &out))
				case genai.KindContent:
					counts.ContentLogs++
					if rec.Reply.Present() {
						prompts.reply(name, log)
					}
					switch {
					case !rec.Content.Present():
						mark(log, semconv.IdentityNone)
					case !prompts.add(resource.Resource(), name, log, rec.Content.Part()):
						counts.Drop(ReasonLogNoSpan, 1)
						mark(log, semconv.IdentityNone)
					}
				default:
				}
			}
		}
	}
	for _, p := range prompts.inOrder {
		p.replies = prompts.replies[p.key]
		kind := w.carrier(&counts, p, &out)
		for _, m := range p.messages {
			mark(m.log, kind)
		}
	}
	w.alone(&counts, &prompts)
	if a.config.Content != ContentKeep {
		c := cleaner{rules: a.rules, counts: &counts, twin: w.twin}
		c.logs(ld, genAI)
	}
	out.finish()
	return out.traces, counts
}

// mark says on a log record what identifies the prompt that it is about.
func mark(log plog.LogRecord, identity string) { log.Attributes().PutStr(semconv.Identity, identity) }

// logs cleans log records; those that genAI marks strictly.
func (c *cleaner) logs(ld plog.Logs, genAI []bool) {
	i := 0
	for _, resource := range ld.ResourceLogs().All() {
		c.resource(resource.Resource())
		c.schema(resource)
		for _, scope := range resource.ScopeLogs().All() {
			c.scope(scope.Scope())
			c.schema(scope)
			for _, log := range scope.LogRecords().All() {
				c.log(log, genAI[i])
				i++
			}
		}
	}
}

// spanKey is the span that log records name.
type spanKey struct {
	trace pcommon.TraceID
	span  pcommon.SpanID
}

// logPrompt is what a batch holds of the prompt of one span.
type logPrompt struct {
	key      spanKey
	resource pcommon.Resource
	messages []logMessage
	replies  []logMessage // to it; of several nobody knows which one the prompt goes on with
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
	replies map[spanKey][]logMessage // records that hold one
}

// reply takes a record with a reply.
func (ps *logPrompts) reply(scope string, log plog.LogRecord) {
	if ps.replies == nil {
		ps.replies = map[spanKey][]logMessage{}
	}
	key := spanKey{log.TraceID(), log.SpanID()}
	ps.replies[key] = append(ps.replies[key], logMessage{scope: scope, log: log})
}

// add takes a record, unless it names no span.
func (ps *logPrompts) add(resource pcommon.Resource, scope string, log plog.LogRecord, part bool) bool {
	key := spanKey{log.TraceID(), log.SpanID()}
	if key.trace.IsEmpty() || key.span.IsEmpty() {
		return false
	}
	p := ps.bySpan[key]
	if p == nil {
		p = &logPrompt{key: key, resource: resource}
		ps.bySpan[key] = p
		ps.inOrder = append(ps.inOrder, p)
	}
	p.messages = append(p.messages, logMessage{scope, log, part})
	return true
}

// recordTime returns when a log record was made, or else seen.
func recordTime(log plog.LogRecord) pcommon.Timestamp {
	if t := log.Timestamp(); t != 0 {
		return t
	}
	return log.ObservedTimestamp()
}

// logText hashes the prompt of log records. A record with a whole prompt counts; without one, all records with a
// message each, in the order of their time, and of their place where that is the same.
func (w *worker) logText(counts *Counts, p *logPrompt) (id identity, session string) {
	slices.SortStableFunc(p.messages, func(a, b logMessage) int { return cmp.Compare(recordTime(a.log), recordTime(b.log)) })
	var all Written
	d := w.domain(semconv.IdentityText, "", "")
	for _, m := range p.messages {
		if m.part {
			continue
		}
		rec := w.reader.Log(m.scope, m.log)
		session = cmp.Or(session, rec.SessionID())
		if seen := Prompt(d.hasher, &rec.Content); seen.Extent != genai.ExtentNone {
			id = w.text(counts, d, seen)
			w.addLogReply(counts, &id, d, p)
			return id, session
		}
		d.hasher.Reset()
	}
	missing := false
	for _, m := range p.messages {
		if !m.part {
			continue
		}
		rec := w.reader.Log(m.scope, m.log)
		session = cmp.Or(session, rec.SessionID())
		seen := Prompt(d.hasher, &rec.Content)
		missing = missing || seen.Extent == genai.ExtentNone
		all.Extent, all.MediaEnd = join(all.Extent, seen.Extent), max(all.MediaEnd, seen.MediaEnd)
	}
	if missing && all.Extent != genai.ExtentNone {
		all.Extent = genai.ExtentGaps
	}
	id = w.text(counts, d, all)
	w.addLogReply(counts, &id, d, p)
	return id, session
}

// addLogReply adds the end of the reply that a batch holds to the identity of the prompt that it holds.
func (w *worker) addLogReply(counts *Counts, id *identity, d *domain, p *logPrompt) {
	switch n := len(p.replies); {
	case n == 1:
		w.addReply(counts, id, d, &w.reader.Log(p.replies[0].scope, p.replies[0].log).Reply)
	case n > 1 && w.takesReply(id):
		counts.Drop(ReasonReplyPartial, 1)
	}
}

// alone counts the replies whose prompts are not in the batch: a sender that cuts its batches between the two, as one whose replies
// take longer than its batches does, loses them.
func (w *worker) alone(counts *Counts, prompts *logPrompts) {
	for key, replies := range prompts.replies {
		if prompts.bySpan[key] != nil || w.config.OmitMessageEnds {
			continue
		}
		for _, r := range replies {
			if w.reader.Log(r.scope, r.log).Reply.Walk(func(genai.Piece) bool { return true }) {
				counts.Drop(ReasonReplyAlone, 1)
			}
		}
	}
}

// join returns the extent of a prompt of which one more message is known, which has text or not.
func join(before, message genai.Extent) genai.Extent {
	switch {
	case message == genai.ExtentNone:
		return before
	case before == genai.ExtentCut, before == genai.ExtentGaps:
		return genai.ExtentGaps // what follows a cut stands after a hole
	default:
		return message
	}
}
