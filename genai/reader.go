// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
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
	// SessionKeys are attributes that hold a session id, best first; they come before the known ones.
	SessionKeys []string
	Limits      Limits
}

// Reader reads spans and log records. It keeps its buffers from one to the next, and is for one goroutine at a time.
type Reader struct {
	index    map[string][]slot
	sessions []string
	limits   Limits

	scan   scan
	record Record
	doc    tree // documents that hold facts
	walker walker
}

// maxSessionKeys bounds the session keys that a reader looks for; those past it are not looked for.
const maxSessionKeys = 64

// NewReader returns a reader.
func NewReader(options Options) *Reader {
	var sessions []string
	for _, name := range slices.Concat(options.SessionKeys, sessionNames) {
		if len(sessions) < maxSessionKeys && !slices.Contains(sessions, name) {
			sessions = append(sessions, name)
		}
	}
	return &Reader{index: slots(sessions), sessions: sessions, limits: options.Limits.withDefaults()}
}

// Span reads a span. The scope is the name of its instrumentation scope. The record is valid until the reader's next
// use, its content only while the span is unchanged.
func (r *Reader) Span(scope string, span ptrace.Span) *Record {
	rec := r.begin()
	attributes := span.Attributes()
	r.attributes(attributes)
	rec.Dialect = r.scan.dialectOf(scope, span.Name())
	rec.Kind = r.scan.kindOf(rec.Dialect, span.Name())
	rec.StartUnixNano, rec.EndUnixNano = uint64(span.StartTimestamp()), uint64(span.EndTimestamp())
	if rec.Dialect == "" {
		return rec // an application's own span may name a session, and nothing else of ours
	}
	r.facts(scope, span.Name())
	if rec.Kind != KindInference {
		return rec
	}
	r.error(span)
	r.content(attributes, span.DroppedAttributesCount() > 0)
	r.reply(attributes, span.DroppedAttributesCount() > 0)
	r.spanEvents(span)
	r.replyEvents(span)
	r.weigh()
	r.estimate(span.Name())
	return rec
}

// Log reads a log record. Messages of a span are [KindContent]; a request of Dynamo's is [KindInference]. A record with
// attributes of GenAI and another event is [KindOther], and has a dialect.
func (r *Reader) Log(scope string, log plog.LogRecord) *Record {
	rec := r.begin()
	attributes := log.Attributes()
	if schema, ok := attributes.Get("schema"); scope == dynamoScope || ok && schema.Type() == pcommon.ValueTypeStr && schema.Str() == dynamoSchema {
		rec.Dialect = DialectDynamo
		if payload, ok := attributes.Get("payload"); ok && payload.Type() == pcommon.ValueTypeStr {
			r.dynamo(payload.Str(), uint64(log.Timestamp()))
		}
		return rec
	}
	name := eventName(log)
	r.attributes(attributes)
	ours := strings.HasPrefix(name, "gen_ai.")
	if !ours && r.scan.marks == 0 { // a scope alone says little: servers log all they do
		return rec
	}
	rec.Dialect = r.scan.dialectOf(scope, name)
	if rec.Dialect == "" {
		rec.Dialect = DialectUnknown
	}
	if !ours {
		return rec // by a producer of GenAI telemetry, about whatever
	}
	rec.StartUnixNano = uint64(log.Timestamp())
	rec.Kind = KindContent
	r.facts(scope, name)
	if role := messageRole(name); role != "" {
		rec.Content.source, rec.Content.role = sourceBody, role
		rec.Content.value, rec.Content.attributes = log.Body(), attributes
		return rec
	}
	if name == eventChoice {
		if body := log.Body(); body.Type() == pcommon.ValueTypeMap {
			if reason, ok := body.Map().Get("finish_reason"); ok {
				r.finishReasons(reason)
			}
			attributes = body.Map()
		}
		rec.Reply.source, rec.Reply.attributes = replyChoice, attributes // the first revisions had it there
		r.weigh()
		return rec
	}
	if body := log.Body(); body.Type() == pcommon.ValueTypeMap && !r.scan.has(fieldContent) {
		attributes = body.Map() // some put all of it there
		r.attributes(attributes)
	}
	r.content(attributes, log.DroppedAttributesCount() > 0)
	r.reply(attributes, log.DroppedAttributesCount() > 0)
	r.weigh()
	return rec
}

// eventChoice is the event of a reply.
const eventChoice = "gen_ai.choice"

// eventName returns a log record's event, from wherever the producer put it.
func eventName(log plog.LogRecord) string {
	if name := log.EventName(); name != "" {
		return name
	}
	for _, key := range [...]string{"event.name", "event_name"} {
		if v, ok := log.Attributes().Get(key); ok && v.Type() == pcommon.ValueTypeStr {
			return v.Str()
		}
	}
	return ""
}

// Reset lets go of the telemetry that was read last. A reader can do without it; one that waits for its next use should
// not hold the text of a prompt till then.
func (r *Reader) Reset() {
	clear(r.record.Sessions[:cap(r.record.Sessions)])
	clear(r.record.FinishReasons[:cap(r.record.FinishReasons)])
	r.begin()
	r.doc.forget()
	r.walker.forget()
}

func (r *Reader) begin() *Record {
	r.scan.reset()
	r.record = Record{
		Sessions:      r.record.Sessions[:0],
		FinishReasons: r.record.FinishReasons[:0],
		Engine:        Engine{Hashes: r.record.Engine.Hashes[:0]},
		Content:       Content{reader: r},
		Reply:         Reply{reader: r},
	}
	return &r.record
}

// attributes scans attributes and collects the sessions among them.
func (r *Reader) attributes(m pcommon.Map) {
	r.scan.attributes(m, r.index)
	if !r.scan.has(fieldSession) {
		return
	}
	r.record.Sessions = r.record.Sessions[:0]
	for rank, key := range r.sessions[r.scan.ranks[fieldSession]:] {
		value := r.scan.values[fieldSession]
		if rank > 0 {
			var ok bool
			if value, ok = m.Get(key); !ok {
				continue
			}
		}
		if id, ok := toSession(value); ok {
			r.record.Sessions = append(r.record.Sessions, Session{key, id})
		}
	}
}

// facts fills in what attributes hold, and what documents in attributes hold where no attribute does.
func (r *Reader) facts(scope, name string) {
	rec, s := &r.record, &r.scan
	rec.Operation = s.operationName(rec.Dialect)
	rec.Provider = s.str(fieldProvider)
	rec.RequestModel = s.str(fieldRequestModel)
	rec.ResponseModel = s.str(fieldResponseModel)
	rec.ResponseID = s.str(fieldResponseID)
	rec.Stream = s.bool(fieldStream)
	rec.MaxTokens = s.int(fieldMaxTokens)
	rec.Choices = s.int(fieldChoices)
	rec.Priority = s.int(fieldPriority)
	rec.InputTokens = s.int(fieldInput)
	rec.OutputTokens = s.int(fieldOutput)
	rec.CachedTokens = s.int(fieldCached)
	rec.CacheWriteTokens = s.int(fieldCacheWrite)
	rec.ReasoningTokens = s.int(fieldReasoning)
	rec.TimeToFirstToken = s.seconds(fieldTTFT)
	rec.PreviousResponseID = s.str(fieldPrevious)
	if s.has(fieldFinish) {
		r.finishReasons(s.values[fieldFinish])
	}
	if !rec.Stream.Set && strings.HasSuffix(s.vercelOperation(), ".doStream") || rec.Dialect == DialectTGI && name == "generate_stream" {
		rec.Stream = Some(true)
	}
	r.documents()
	rec.whole()
	anyModel := s.str(fieldAnyModel)
	if rec.RequestModel == "" {
		rec.RequestModel = anyModel
	}
	if rec.ResponseModel == "" {
		rec.ResponseModel = anyModel
	}
	if rec.Operation == "" && rec.Kind == KindInference {
		rec.Operation = guessOperation(rec.Dialect, name)
	}
	// A reply that was not streamed always has its usage; only of streams do servers leave it out unless they are asked.
	whole := rec.Stream.Set && !rec.Stream.V
	rec.UsageDoubtful = rec.Dialect == DialectOpenLIT && !whole && !rec.CachedTokens.Set && (rec.InputTokens.Set || rec.OutputTokens.Set)
	if start := s.str(fieldCompletionStart); start != "" && !rec.TimeToFirstToken.Set && rec.StartUnixNano > 0 {
		// A JSON string within a string.
		if at, err := time.Parse(time.RFC3339Nano, strings.Trim(start, `"`)); err == nil {
			rec.TimeToFirstToken = sinceStart(rec, uint64(max(at.UnixNano(), 0)))
		}
	}
	if !rec.TimeToFirstToken.Set && rec.Dialect != DialectOpenLIT { // whose value is wrong
		rec.TimeToFirstToken = s.seconds(fieldServerTTFT)
	}
}

// guessOperation names the operation of a request whose dialect has no word for it.
func guessOperation(dialect Dialect, name string) string {
	switch dialect {
	case DialectOpenInference, DialectEnvoy:
		if strings.HasSuffix(name, "Completions") && !strings.Contains(name, "Chat") || name == "Completion" || name == "CreateCompletion" {
			return semconv.OperationTextCompletion
		}
		return semconv.OperationChat
	case DialectVercel, DialectGenkit, DialectLangfuse, DialectLiteLLM:
		return semconv.OperationChat
	default:
		return "" // an engine's span is of either
	}
}

// sinceStart returns the seconds from the span's start to an instant within the span.
func sinceStart(rec *Record, instant uint64) Opt[float64] {
	if rec.StartUnixNano == 0 || instant < rec.StartUnixNano || rec.EndUnixNano > 0 && instant > rec.EndUnixNano {
		return Opt[float64]{}
	}
	return Some(float64(instant-rec.StartUnixNano) / 1e9)
}

const maxFinishReasons = 16

// finishReasons reads a list, a JSON list in a string, or one reason.
func (r *Reader) finishReasons(v pcommon.Value) {
	rec := &r.record
	rec.FinishReasons = rec.FinishReasons[:0]
	switch v.Type() {
	case pcommon.ValueTypeSlice:
		for i := range min(v.Slice().Len(), maxFinishReasons) {
			if reason, ok := toString(v.Slice().At(i)); ok {
				rec.addReason(reason)
			}
		}
	case pcommon.ValueTypeStr:
		r.doc.load(v, &r.limits)
		i, end := int32(0), r.doc.nodes[0].next
		if r.doc.kind(0) == nodeArray {
			i++
		}
		for ; i < end && len(rec.FinishReasons) < maxFinishReasons; i = r.doc.nodes[i].next {
			rec.addReason(r.doc.str(i))
		}
	default:
	}
}

// error fills in whether the request failed. Producers disagree on where they say so.
func (r *Reader) error(span ptrace.Span) {
	rec, s := &r.record, &r.scan
	exception := ""
	for _, event := range span.Events().All() {
		if event.Name() == "exception" {
			exception = semconv.ErrorOther
			if kind, ok := event.Attributes().Get("exception.type"); ok {
				if name, ok := toString(kind); ok {
					exception = name
				}
			}
		}
	}
	status := s.int(fieldHTTPStatus)
	switch failed := span.Status().Code() == ptrace.StatusCodeError || s.str(fieldLevel) == "ERROR"; {
	case s.has(fieldError):
		rec.ErrorType = s.str(fieldError)
	case status.Set && status.V >= 400:
		rec.ErrorType = s.str(fieldHTTPStatus)
	case exception != "":
		rec.ErrorType = exception
	case failed:
		rec.ErrorType = semconv.ErrorOther
	}
	if rec.ErrorType != "" {
		rec.ErrorType = wordOr(rec.ErrorType, semconv.ErrorOther)
	}
}

// content says where the prompt is.
func (r *Reader) content(attributes pcommon.Map, dropped bool) {
	s, c := &r.scan, &r.record.Content
	c.attributes, c.dropped = attributes, dropped
	c.inputTokens = r.record.InputTokens
	c.listInText = r.record.Dialect == DialectTraceloop
	c.remote = r.record.PreviousResponseID != ""
	c.system, c.hasSystem = s.values[fieldSystem], s.has(fieldSystem)
	c.tools, c.hasTools = s.values[fieldTools], s.has(fieldTools)
	if !s.has(fieldContent) {
		return
	}
	c.value, c.source = s.values[fieldContent], sourceValue
	name := s.names[fieldContent]
	for i := range flatContent {
		if name == flatContent[i].prefix {
			c.source, c.prefix, c.toolPrefix = sourceFlat, name, flatContent[i].tools
		}
	}
	if name != "input.value" {
		return
	}
	text := c.value.Type() == pcommon.ValueTypeStr && (strings.HasPrefix(s.str(fieldMimeType), "text/plain") || !jsonLike(c.value.Str()))
	switch flat := s.flat&flatInput != 0; {
	case flat && text: // which may be that of the last message only
		c.source, c.prefix, c.toolPrefix = sourceFlat, flatContent[0].prefix, flatContent[0].tools
	case text:
		c.source = sourceText
	case flat && !dropped:
		c.prefix, c.toolPrefix = flatContent[0].prefix, flatContent[0].tools // where the document is not enough
	}
}

// spanEvents reads content and first tokens that stand in events.
func (r *Reader) spanEvents(span ptrace.Span) {
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
			for _, key := range [...]string{semconv.GenAIInputMessages, semconv.GenAIPrompt} {
				if v, ok := event.Attributes().Get(key); ok && !rec.Content.Present() {
					rec.Content.value, rec.Content.source = v, sourceValue
				}
			}
		default:
			if !rec.Content.Present() && messageRole(name) != "" {
				rec.Content.events, rec.Content.source = events, sourceEvents
			}
		}
	}
	if !rec.TimeToFirstToken.Set && clearlyBefore(first, rec) {
		rec.TimeToFirstToken = sinceStart(rec, first)
	}
	if chunks > 0 && span.DroppedEventsCount() == 0 && !rec.OutputTokens.Set {
		rec.OutputEstimate = Some(int64(chunks))
	}
}

// clearlyBefore reports whether an instant lies before the last hundredth of the span: gateways that buffer stamp the
// first token when they send the last.
func clearlyBefore(instant uint64, rec *Record) bool {
	return instant >= rec.StartUnixNano && instant < rec.EndUnixNano &&
		float64(rec.EndUnixNano-instant) > 0.01*float64(rec.EndUnixNano-rec.StartUnixNano)
}

// estimate looks for what may stand in for a missing count of output tokens.
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
		total, errTotal := time.ParseDuration(s.str(fieldInferenceTime))
		each, errEach := time.ParseDuration(s.str(fieldTimePerToken))
		if n := math.Round(float64(total) / float64(each)); errTotal == nil && errEach == nil && n >= 0 && n < maxCount {
			rec.OutputEstimate = Some(int64(n))
		}
	}
}
