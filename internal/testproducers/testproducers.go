// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package testproducers makes telemetry in the formats of instrumentation libraries, gateways and engines, together with the requests that
// the engine really received. Everything is invented: no text, id or time is from a capture.
//
// Each producer reports the same application: two conversations that share a long system prompt, a request without a session, a request
// that the engine refused, and, for some producers, a request of a kind that only they report. The engine counts a token for every four
// bytes of a prompt that it renders as <|role|>, a line feed, the text and a line feed for each message, and <|assistant|> at the end.
package testproducers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Producer is the telemetry of one producer, and the expected result.
type Producer struct {
	Name, Reason string
	Traces, Logs []byte // export requests of OTLP in JSON, one on each line
	Truth        []byte // requests as the engine received them, as JSON, one on each line
	Want         Account
	hasText      bool // the telemetry contains prompts
	hasSessions  bool // the telemetry contains sessions
}

// Account has the expected counts of requests.
type Account struct {
	Requests   int // at the engine
	Rows       int // that the telemetry gives, with the engine's counts
	Failed     int // refused by the engine
	Uncounted  int // without a count of their tokens
	Embeddings int // requests for embeddings
	NoSpan     int // without a span
	Sessions   int // rows with a session
	Text       int // rows whose prompts are known from their text
}

// message is one message of a prompt.
type message struct{ Role, Text string }

// request is one request of the application.
type request struct {
	Case     string `json:"case"`
	Session  string `json:"session,omitempty"`
	ID       string `json:"id,omitempty"` // of the response; none if it failed
	Received int64  `json:"t_recv_unix_nano"`
	Input    int64  `json:"input_tokens,omitempty"`
	Output   int64  `json:"output_tokens,omitempty"`
	Cached   int64  `json:"cached_tokens,omitempty"`
	Prompt   string `json:"prompt,omitempty"`

	messages []message
	reply    string
	start    time.Time
	number   int
}

func (r *request) failed() bool { return r.Case == "error_429" }

const model = "harbour-8b"

// text makes sentences that occur nowhere else.
func text(about string, sentences int) string {
	var b strings.Builder
	for n := range sentences {
		fmt.Fprintf(&b, "The %s has entry %d, which the keeper checks at dusk. ", about, n)
	}
	return strings.TrimSpace(b.String())
}

// scenario returns the requests that all producers report, and one of a kind that only a few report.
func scenario(producer, more string) (all []*request) {
	base := time.Date(2026, 3, 14, 9, 26, 53, 0, time.UTC)
	system := message{"system", text("house rule", 110)}
	add := func(kind, session string, messages ...message) *request {
		r := &request{
			Case: kind, Session: session, number: len(all) + 1, start: base.Add(time.Duration(len(all)) * 2 * time.Second),
			messages: messages, reply: text(fmt.Sprint("answer ", len(all)), 2),
		}
		r.Received = r.start.Add(time.Millisecond).UnixNano()
		var prompt strings.Builder
		for _, m := range messages {
			fmt.Fprintf(&prompt, "<|%s|>\n%s\n", m.Role, m.Text)
		}
		r.Prompt = prompt.String() + "<|assistant|>\n"
		r.Input, r.Output = int64(len(r.Prompt)+3)/4, int64(20+r.number)
		if !r.failed() {
			r.ID = fmt.Sprintf("reply-%s-%02d", producer, r.number)
			r.Cached = min(r.Input, int64(len(all))*64)
		}
		all = append(all, r)
		return r
	}
	history := map[string][]message{"pier-A": {system}, "pier-B": {system}}
	for turn, session := range []string{"pier-A", "pier-B", "pier-A", "pier-B", "pier-A"} {
		asked := append(history[session], message{"user", text(fmt.Sprint("question ", turn, " of ", session), 12)})
		r := add("conversation", session, asked...)
		history[session] = append(slices.Clip(asked), message{"assistant", r.reply})
	}
	add("alone", "", message{"user", text("lonely boat", 40)})
	add("error_429", "", message{"user", text("refused ship", 30)})
	if more != "" {
		add(more, "", message{"user", text("lonely boat", 40)})
	}
	return all
}

// All returns every producer.
func All() []Producer {
	type report func(w *writer, r *request)
	var all []Producer
	for _, p := range []struct {
		Producer
		report report
		more   string // the kind of a request that only some producers report
	}{
		{Producer{Name: "events", Reason: "OpenTelemetry up to 1.36: messages in log records; sessions on the application's span", hasText: true, hasSessions: true}, (*writer).events, ""},
		{Producer{Name: "events-without-text", Reason: "the same with content capture off", hasSessions: true}, (*writer).eventsWithoutText, ""},
		{Producer{Name: "messages", Reason: "OpenTelemetry since 1.37, and vLLM's own span below, which is the row; embeddings are not requests", hasText: true, hasSessions: true}, (*writer).messages, "embeddings"},
		{Producer{Name: "openinference", Reason: "documents in input.value and output.value; no span for a request that failed", hasText: true, hasSessions: true}, (*writer).openInference, ""},
		{Producer{Name: "traceloop", Reason: "flat attributes below a workflow; no counts for a stream", hasText: true, hasSessions: true}, (*writer).traceloop, "stream"},
		{Producer{Name: "vercel", Reason: "the span above repeats prompt and counts", hasText: true, hasSessions: true}, (*writer).vercel, ""},
		{Producer{Name: "langfuse", Reason: "counts without the cached tokens; no response id, and errors as a level", hasText: true, hasSessions: true}, (*writer).langfuse, ""},
		{Producer{Name: "genkit", Reason: "a util span above repeats everything; no sessions, no counts for a stream", hasText: true}, (*writer).genkit, "stream"},
		{Producer{Name: "engine", Reason: "an engine alone: counts, but no prompts or sessions"}, (*writer).engine, ""},
	} {
		var truth bytes.Buffer
		encoder := json.NewEncoder(&truth)
		out := p.Producer
		for _, r := range scenario(p.Name, p.more) {
			w := newWriter(r)
			p.report(w, r)
			out.Traces = append(out.Traces, w.traces()...)
			out.Logs = append(out.Logs, w.records()...)
			_ = encoder.Encode(r) // texts and numbers cannot fail
			out.count(r, w)
		}
		out.Truth = truth.Bytes()
		all = append(all, out)
	}
	return all
}

// count adds a request to the expected counts.
func (p *Producer) count(r *request, w *writer) {
	p.Want.Requests++
	switch {
	case w.spans.Len() == 0:
		p.Want.NoSpan++
	case r.Case == "embeddings":
		p.Want.Embeddings++
	case r.failed():
		p.Want.Failed++
	case r.Case == "stream":
		p.Want.Uncounted++
	default:
		p.Want.Rows++
		if p.hasText {
			p.Want.Text++
		}
		if p.hasSessions && r.Session != "" {
			p.Want.Sessions++
		}
	}
}

// writer collects the telemetry of one request.
type writer struct {
	td    ptrace.Traces
	ld    plog.Logs
	scope ptrace.ScopeSpans
	spans ptrace.SpanSlice
	logs  plog.LogRecordSlice
	r     *request
}

func newWriter(r *request) *writer {
	w := &writer{td: ptrace.NewTraces(), ld: plog.NewLogs(), r: r}
	resource := w.td.ResourceSpans().AppendEmpty()
	resource.Resource().Attributes().PutStr("service.name", "harbour")
	w.scope = resource.ScopeSpans().AppendEmpty()
	w.spans = w.scope.Spans()
	logs := w.ld.ResourceLogs().AppendEmpty()
	logs.Resource().Attributes().PutStr("service.name", "harbour")
	w.logs = logs.ScopeLogs().AppendEmpty().LogRecords()
	return w
}

func (w *writer) traces() []byte {
	if w.spans.Len() == 0 {
		return nil
	}
	b, _ := new(ptrace.JSONMarshaler).MarshalTraces(w.td) // no value here can make it fail
	return append(b, '\n')
}

func (w *writer) records() []byte {
	if w.logs.Len() == 0 {
		return nil
	}
	b, _ := new(plog.JSONMarshaler).MarshalLogs(w.ld)
	return append(b, '\n')
}

// span adds a span below the last one, within its time.
func (w *writer) span(name string, kind ptrace.SpanKind, attributes map[string]any) ptrace.Span {
	level := w.spans.Len()
	s := w.spans.AppendEmpty()
	trace, id := pcommon.TraceID{0: 7, 15: byte(w.r.number)}, pcommon.SpanID{0: byte(level + 1), 7: byte(w.r.number)} //nolint:gosec // few
	s.SetTraceID(trace)
	s.SetSpanID(id)
	if level > 0 {
		s.SetParentSpanID(w.spans.At(level - 1).SpanID())
	}
	s.SetName(name)
	s.SetKind(kind)
	inside := time.Duration(level) * 100 * time.Microsecond
	s.SetStartTimestamp(pcommon.NewTimestampFromTime(w.r.start.Add(inside)))
	s.SetEndTimestamp(pcommon.NewTimestampFromTime(w.r.start.Add(time.Second - inside)))
	_ = s.Attributes().FromRaw(attributes) // plain values
	return s
}

// refuse marks a span as failed if its request is one that the engine refused.
func (w *writer) refuse(s ptrace.Span) {
	if w.r.failed() {
		s.Status().SetCode(ptrace.StatusCodeError)
		s.Attributes().PutStr("error.type", "RateLimitError")
	}
}

// served adds attributes of a reply, if there was one. Counts are left out for a stream, whose tokens nobody counted.
func (w *writer) served(to map[string]any, id string, counts map[string]any) map[string]any {
	if w.r.failed() {
		return to
	}
	if id != "" {
		to[id] = w.r.ID
	}
	if w.r.Case != "stream" {
		maps.Copy(to, counts)
	}
	return to
}

// app adds the application's own span, which has the session.
func (w *writer) app() {
	w.span("POST /assistant", ptrace.SpanKindServer, w.r.session(object{"http.request.method": "POST"}, "session.id"))
}

// document returns a value as JSON.
func document(v any) string {
	b, _ := json.Marshal(v) // texts, numbers and maps cannot fail
	return string(b)
}
