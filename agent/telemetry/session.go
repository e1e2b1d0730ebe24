// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

// This file makes the root span of a session's trace. A list of traces shows only the names of roots, so the root's name tells sessions
// apart. The root's attributes have the same values for searches.

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

// Session is the trace of one session. A nil Session records nothing.
//
// A span leaves the process when it ends, and backends show no name for a trace without its root. So the root does not wait for the
// session's last turn: it ends when the first of the session's requests ends, and is exported before that request. Later turns are still
// its children, and end after it. So it cannot have values that become known later, such as the number of turns.
type Session struct {
	Opening

	span trace.Span
	once sync.Once
}

// Opening is what is known of a session when its first request is about to be sent.
type Opening struct {
	ID    string        // the session's name in the trace
	Model string        // that its first request asks for; empty = the run's
	Row   int64         // index of its first row
	At    time.Duration // the scheduled time of its first request, on the run's clock
}

// StartSession starts the root span of a session's trace. The first of its requests that is passed to Finish ends it.
func (p *Pipeline) StartSession(o Opening) *Session {
	if p == nil || p.tracer == nil {
		return nil
	}
	o.Model = cmp.Or(o.Model, p.cfg.Model)
	return &Session{Opening: o, span: p.start(context.Background(), semconv.SpanSession, o.At)}
}

// endSession names a session's root and ends it with its first request, but not before its start, as would happen to a session whose first
// turn was skipped. When it returns, the root is queued: concurrent callers wait for the first one.
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

// maxNamePart is the maximum length of each part of a root's name, in bytes: a UUID has 36, and three parts fit into a line of a list. The
// attributes have the full values.
const maxNamePart = 48

// short shortens a text for a name, between two characters.
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

// sessionAttributes are those of a session's root. Because of its operation, tools that know the GenAI conventions show it as the parent of
// requests. The root has no usage; usage is counted with the requests.
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
