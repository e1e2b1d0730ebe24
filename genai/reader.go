// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/semconv"
)

// Options configure a [Reader]. The zero Options work.
type Options struct {
	// SessionKeys are attributes with a session id, best first; they come before the known ones.
	SessionKeys []string
	// ClassKeys are attributes with the class of a request, in the same way.
	ClassKeys []string
	Limits    Limits
}

// Reader reads spans and log records. It reuses its buffers, and is for one goroutine at a time.
type Reader struct {
	index  map[string][]slot
	limits Limits

	scan   scan
	record Record
	doc    tree // documents with facts
	walker walker
	tools  toolScan
}

// maxKeys is the maximum number of attributes for a session, or a class; further ones are ignored.
const maxKeys = 64

// NewReader returns a reader.
func NewReader(options Options) *Reader {
	named := map[field][]string{}
	for f, keys := range map[field][]string{fieldSession: options.SessionKeys, fieldClass: options.ClassKeys} {
		for _, name := range slices.Concat(keys, fields[f].names) {
			if len(named[f]) < maxKeys && !slices.Contains(named[f], name) {
				named[f] = append(named[f], name)
			}
		}
	}
	r := &Reader{index: slots(named), limits: options.Limits.withDefaults()}
	r.doc.limits = &r.limits
	for _, t := range r.walker.trees() {
		t.limits = &r.limits
	}
	return r
}

// Span reads a span. The scope is the name of its instrumentation scope. The record is valid until the reader's next
// use, its content only while the span is unchanged.
func (r *Reader) Span(scope string, span ptrace.Span) *Record {
	rec := r.begin()
	attributes := span.Attributes()
	r.attributes(attributes)
	rec.Dialect = r.scan.dialectOf(scope, span.Name())
	rec.StartUnixNano, rec.EndUnixNano = uint64(span.StartTimestamp()), uint64(span.EndTimestamp())
	if rec.Dialect == "" {
		return rec // an application's own span has at most a session and a class
	}
	rec.Kind = r.scan.kindOf(rec.Dialect, span.Name())
	r.facts(span.Name())
	if rec.Kind == KindTool {
		if id := r.scan.text(fieldToolCall); id != "" {
			rec.Tools.Given = append(rec.Tools.Given, id)
		}
	}
	if rec.Kind != KindInference {
		return rec
	}
	r.findContent(attributes, span.DroppedAttributesCount() > 0)
	r.error(span, r.events(span))
	r.findReply(attributes, span.DroppedAttributesCount() > 0)
	r.findReplyEvents(span)
	r.boundReply()
	r.estimate(span.Name())
	return rec
}

// Log reads a log record. Messages of a span are [KindContent]; a request of Dynamo's is [KindInference]. A record with
// GenAI attributes but another event is [KindOther], and has a dialect.
func (r *Reader) Log(scope string, log plog.LogRecord) *Record {
	rec := r.begin()
	attributes := log.Attributes()
	schema := textOf(attributes, "schema")
	for _, own := range requestLogs {
		if scope == own.scope || schema == own.schema {
			rec.Dialect = own.dialect
			own.read(r, log)
			return rec
		}
	}
	name := eventName(log)
	r.attributes(attributes)
	ours := strings.HasPrefix(name, "gen_ai.")
	if !ours && r.scan.marks == 0 { // the scope alone shows little: servers log everything that they do
		return rec
	}
	rec.Dialect = r.scan.dialectOf(scope, name)
	if rec.Dialect == "" {
		rec.Dialect = DialectUnknown
	}
	if !ours {
		return rec // a producer of GenAI telemetry logs something else
	}
	rec.StartUnixNano = uint64(log.Timestamp())
	rec.Kind = KindContent
	r.facts(name)
	body, fields := log.Body(), log.Body().Type() == pcommon.ValueTypeMap
	switch role := messageRole(name); {
	case role != "":
		rec.Content.form, rec.Content.role = formMessage, role
		rec.Content.value, rec.Content.attributes = body, attributes
		return rec
	case name == eventChoice:
		if fields {
			attributes = body.Map() // the first revisions had the role in the attributes
			if reason, ok := attributes.Get("finish_reason"); ok {
				r.finishReasons(reason)
			}
		}
		rec.Reply.form, rec.Reply.attributes = formChoice, attributes
	default:
		if fields && !r.scan.has(fieldContent) {
			attributes = body.Map() // some producers put everything there
			r.attributes(attributes)
		}
		r.findContent(attributes, log.DroppedAttributesCount() > 0)
		r.findReply(attributes, log.DroppedAttributesCount() > 0)
	}
	r.boundReply()
	return rec
}

// eventChoice is the event of a reply.
const eventChoice = "gen_ai.choice"

// eventName returns a log record's event, from the various positions in which producers write it.
func eventName(log plog.LogRecord) string {
	if name := log.EventName(); name != "" {
		return name
	}
	return textOf(log.Attributes(), "event.name", "event_name")
}

// firstOf returns the first of these attributes that exists.
func firstOf(m pcommon.Map, names ...string) (v pcommon.Value, ok bool) {
	for _, name := range names {
		if v, ok = m.Get(name); ok {
			break
		}
	}
	return v, ok
}

// textOf returns the first of these attributes that is a text, of any length, or "".
func textOf(m pcommon.Map, names ...string) string {
	for _, name := range names {
		if v, ok := m.Get(name); ok && v.Type() == pcommon.ValueTypeStr {
			return v.Str()
		}
	}
	return ""
}

// Reset releases the telemetry that was read last. It is optional, but a reader that waits for its next use should not keep the text of a
// prompt in memory.
func (r *Reader) Reset() {
	clear(r.record.FinishReasons[:cap(r.record.FinishReasons)])
	r.record.Tools.forget()
	clear(r.tools.found[:cap(r.tools.found)])
	r.tools = toolScan{found: r.tools.found[:0]}
	r.begin()
	r.doc.forget()
	r.walker.forget()
}

func (r *Reader) begin() *Record {
	r.scan.reset()
	r.record = Record{
		FinishReasons: r.record.FinishReasons[:0],
		Engine:        Engine{Hashes: r.record.Engine.Hashes[:0]},
		Content:       Content{source: source{reader: r}, system: nothing, tools: nothing},
		Reply:         Reply{source: source{reader: r}, calls: nothing},
		Tools:         ToolIDs{Made: r.record.Tools.Made[:0], Given: r.record.Tools.Given[:0]},
	}
	return &r.record
}

// attributes scans attributes.
func (r *Reader) attributes(m pcommon.Map) {
	r.scan.attributes(m, r.index)
	r.record.Session = toSession(r.scan.values[fieldSession])
	r.record.Class = toClass(r.scan.values[fieldClass])
	r.record.Priority = r.scan.count(fieldPriority)
}

// facts fills in the facts from attributes of their own, or else from documents in attributes.
func (r *Reader) facts(name string) {
	rec, s := &r.record, &r.scan
	rec.Operation = s.operationName(rec.Dialect)
	rec.Provider = s.text(fieldProvider)
	rec.RequestModel = s.text(fieldRequestModel)
	rec.ResponseModel = s.text(fieldResponseModel)
	rec.ResponseID = s.text(fieldResponseID)
	rec.Stream = toBool(s.values[fieldStream])
	rec.MaxTokens = s.count(fieldMaxTokens)
	rec.Choices = s.count(fieldChoices)
	rec.InputTokens = s.count(fieldInput)
	rec.OutputTokens = s.count(fieldOutput)
	rec.CachedTokens = s.count(fieldCached)
	rec.CacheWriteTokens = s.count(fieldCacheWrite)
	rec.ReasoningTokens = s.count(fieldReasoning)
	rec.TimeToFirstToken = s.seconds(fieldTTFT)
	rec.PreviousResponseID = s.text(fieldPrevious)
	if s.has(fieldFinish) {
		r.finishReasons(s.values[fieldFinish])
	}
	if !rec.Stream.Set && strings.HasSuffix(s.vercelOperation(), ".doStream") || rec.Dialect == DialectTGI && name == "generate_stream" {
		rec.Stream = Some(true)
	}
	r.documents()
	rec.whole()
	rec.RequestModel = cmp.Or(rec.RequestModel, s.text(fieldAnyModel))
	rec.ResponseModel = cmp.Or(rec.ResponseModel, s.text(fieldAnyModel))
	if rec.Operation == "" && rec.Kind == KindInference {
		rec.Operation = guessOperation(rec.Dialect, name)
	}
	// A reply that was not streamed always has its usage; servers only omit it for streams, unless asked.
	whole := rec.Stream.Set && !rec.Stream.V
	rec.UsageDoubtful = rec.Dialect == DialectOpenLIT && !whole && !rec.CachedTokens.Set && (rec.InputTokens.Set || rec.OutputTokens.Set)
	if start := s.text(fieldCompletionStart); start != "" && !rec.TimeToFirstToken.Set && rec.StartUnixNano > 0 {
		// A JSON string within a string.
		if at, err := time.Parse(time.RFC3339Nano, strings.Trim(start, `"`)); err == nil {
			rec.TimeToFirstToken = sinceStart(rec, uint64(max(at.UnixNano(), 0)))
		}
	}
	if !rec.TimeToFirstToken.Set && rec.Dialect != DialectOpenLIT { // OpenLIT's value is wrong
		rec.TimeToFirstToken = s.seconds(fieldServerTTFT)
	}
}

// sinceStart returns the seconds from the span's start to a time within the span.
func sinceStart(rec *Record, instant uint64) Opt[float64] {
	if rec.StartUnixNano == 0 || instant < rec.StartUnixNano || rec.EndUnixNano > 0 && instant > rec.EndUnixNano {
		return Opt[float64]{}
	}
	return Some(float64(instant-rec.StartUnixNano) / 1e9)
}

const maxFinishReasons = 16

// finishReasons reads a list, a JSON list in a string, or one reason.
func (r *Reader) finishReasons(v pcommon.Value) {
	rec, t := &r.record, &r.doc
	rec.FinishReasons = rec.FinishReasons[:0]
	t.load(v)
	rec.addReason(t.str(0))
	for i := range t.values(0) {
		if t.kind(0) == nodeArray && len(rec.FinishReasons) < maxFinishReasons {
			rec.addReason(t.str(i))
		}
	}
}

// error determines whether the request failed. Producers record this in different attributes.
func (r *Reader) error(span ptrace.Span, exception string) {
	rec, s := &r.record, &r.scan
	status := s.count(fieldHTTPStatus)
	switch failed := span.Status().Code() == ptrace.StatusCodeError || s.text(fieldLevel) == "ERROR"; {
	case s.has(fieldError):
		rec.ErrorType = s.text(fieldError)
	case status.V >= 400:
		rec.ErrorType = s.text(fieldHTTPStatus)
	case exception != "":
		rec.ErrorType = exception
	case failed:
		rec.ErrorType = semconv.ErrorOther
	default:
		return
	}
	rec.ErrorType = wordOr(rec.ErrorType, semconv.ErrorOther)
}

// findContent determines where the prompt is.
func (r *Reader) findContent(attributes pcommon.Map, dropped bool) {
	s, c := &r.scan, &r.record.Content
	c.attributes, c.dropped = attributes, dropped
	c.inputTokens = r.record.InputTokens
	c.listInText = r.record.Dialect == DialectTraceloop
	c.remote = r.record.PreviousResponseID != ""
	c.system, c.tools = s.values[fieldSystem], s.values[fieldTools]
	if !s.has(fieldContent) {
		return
	}
	c.choose(s.values[fieldContent], formDocument)
	name := s.name(fieldContent)
	if prefix, flat := strings.CutSuffix(name, "*"); flat {
		c.form, c.prefix = formFlat, prefix
	}
	if name != "input.value" {
		return
	}
	text := c.value.Type() == pcommon.ValueTypeStr && (strings.HasPrefix(s.text(fieldMimeType), "text/plain") || !jsonLike(c.value.Str()))
	switch flat := s.marks&markFlatInput != 0; {
	case flat && text: // it may be only the last message
		c.form, c.prefix = formFlat, flatInput
	case text:
		c.form = formText
	case flat && !dropped:
		c.prefix = flatInput // in case the document is incomplete
	}
}

// events reads content and first tokens from events, and returns the type of an exception among them, or "".
func (r *Reader) events(span ptrace.Span) (exception string) {
	rec := &r.record
	var first, chunks uint64
	events := span.Events()
	for _, event := range events.All() {
		switch name := event.Name(); name {
		case "First Token Stream Event", "ai.stream.firstChunk":
			if first == 0 {
				first = uint64(event.Timestamp())
			}
		case "gen_ai.content.completion.chunk", "llm.content.completion.chunk":
			if chunks++; chunks == 1 && first == 0 && span.DroppedEventsCount() == 0 {
				first = uint64(event.Timestamp())
			}
		case "gen_ai.content.prompt", semconv.EventInferenceDetails:
			if v, ok := firstOf(event.Attributes(), semconv.GenAIInputMessages, semconv.GenAIPrompt); ok {
				rec.Content.choose(v, formDocument)
			}
		case "exception":
			exception = semconv.ErrorOther
			if kind, ok := event.Attributes().Get("exception.type"); ok {
				exception = cmp.Or(toText(kind), exception)
			}
		default:
			if !rec.Content.Present() && messageRole(name) != "" {
				rec.Content.events, rec.Content.form = events, formEvents
			}
		}
	}
	if !rec.TimeToFirstToken.Set && clearlyBefore(first, rec) {
		rec.TimeToFirstToken = sinceStart(rec, first)
	}
	if chunks > 0 && span.DroppedEventsCount() == 0 && !rec.OutputTokens.Set {
		rec.OutputEstimate = Some(int64(chunks))
	}
	return exception
}

// clearlyBefore reports whether a time is before the last hundredth of the span: gateways that buffer record the first token when they send
// the last one.
func clearlyBefore(instant uint64, rec *Record) bool {
	return instant >= rec.StartUnixNano && instant < rec.EndUnixNano &&
		float64(rec.EndUnixNano-instant) > 0.01*float64(rec.EndUnixNano-rec.StartUnixNano)
}

// estimate looks for values that can replace a missing count of output tokens.
func (r *Reader) estimate(name string) {
	rec, s := &r.record, &r.scan
	if rec.OutputTokens.Set || rec.OutputEstimate.Set {
		return
	}
	if len(rec.FinishReasons) > 0 && rec.MaxTokens.Set && (rec.FinishReasons[0] == "length" || rec.FinishReasons[0] == "max_tokens") {
		rec.OutputEstimate = rec.MaxTokens
		return
	}
	if s.tgi(name) {
		total, errTotal := time.ParseDuration(s.text(fieldInferenceTime))
		each, errEach := time.ParseDuration(s.text(fieldTimePerToken))
		if n := math.Round(float64(total) / float64(each)); errTotal == nil && errEach == nil && n >= 0 && n < maxCount {
			rec.OutputEstimate = Some(int64(n))
		}
	}
}
