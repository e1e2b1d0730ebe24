// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

// The root span of a session's trace. A list of traces shows the names of roots and nothing else of them, so this name tells one
// session from another. The attributes say the same to a search.

import (
	"cmp"
	"context"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/moonloop/moonloop/semconv"
)

// Session is the trace of one session. A nil Session is none.
//
// A span leaves the process when it ends, and a trace without its root has no name in any backend. So the root does not wait
// for the session's last turn: it ends with the first request that does, and goes out before that. The turns that follow are its
// children all the same, and outlast it. It says nothing that is known later only, such as the number of turns.
type Session struct {
	Opening

	span trace.Span
	once sync.Once
}

// Opening is what is known of a session when its first request is about to go out.
type Opening struct {
	ID    string        // the session's name in the trace
	Model string        // that its first request asks for; empty = the run's
	Row   int64         // index of its first row
	At    time.Duration // the instant at which that was to go out, on the run's clock
}

// StartSession starts the root span of a session's trace. The first of its requests to come to Finish ends it.
func (p *Pipeline) StartSession(o Opening) *Session {
	if p == nil || p.tracer == nil {
		return nil
	}
	o.Model = cmp.Or(o.Model, p.cfg.Model)
	return &Session{Opening: o, span: p.start(context.Background(), semconv.SpanSession, o.At)}
}

// endSession names a session's root and ends it with its first request, not before its start, as that of a session whose first
// turn was skipped. When it returns, the root is queued: whoever comes second waits for whoever comes first.
func (p *Pipeline) endSession(s *Session, at time.Duration) {
	if s == nil {
		return
	}
	s.once.Do(func() {
		s.span.SetName(s.name(p.cfg.RunID))
		s.span.SetAttributes(p.sessionAttributes(s)...)
		p.queue.add(p.stop(nil, s.span, max(at, s.At))...)
	})
}

// name returns "session S from row 17, MODEL, run R".
func (s *Session) name(run string) string {
	name := semconv.SpanSession + " " + short(s.ID) + " from row " + strconv.FormatInt(s.Row, 10)
	if s.Model != "" {
		name += ", " + short(s.Model)
	}
	if run != "" {
		name += ", run " + short(run)
	}
	return name
}

// maxNamePart bounds each part of a root's name, in bytes: a UUID is 36 of them, and three parts fit a line of a list. What is cut is whole
// in the attributes.
const maxNamePart = 48

// short cuts text that is too long for a name, between two characters.
func short(text string) string {
	if len(text) <= maxNamePart {
		return text
	}
	end := 0
	for i := range text {
		if i > maxNamePart-len("…") {
			break
		}
		end = i
	}
	return text[:end] + "…"
}

// sessionAttributes are those of a session's root. By its operation, tools that know the GenAI conventions show it as what stands
// around requests. It has no usage: that is counted with the requests.
func (p *Pipeline) sessionAttributes(s *Session) (a attributes) {
	a.add(
		attribute.String(semconv.GenAIOperationName, semconv.OperationInvokeWorkflow),
		attribute.String(semconv.GenAIWorkflowName, semconv.SpanSession),
	)
	a.text(semconv.GenAIProviderName, p.cfg.Provider)
	a.text(semconv.GenAIRequestModel, s.Model)
	a.text(semconv.GenAIConversationID, s.ID)
	a.text(semconv.Session, s.ID)
	a.add(attribute.Int64(semconv.SessionFirstRow, s.Row))
	return a
}
