// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/mooncake"
)

// session is what a conversation carries from turn to turn.
type session struct {
	span *telemetry.Session
	// history holds the turns so far where rows are new turns, else nil. Its turns are sent one after another,
	// so only one request uses it at a time.
	history *prompt.History
}

// fire starts an item's request. It runs on the scheduler's goroutine.
func (r *run) fire(ctx context.Context, it *schedule.Item) {
	ses := r.session(it)
	if ses.history != nil && it.Row.Kind() == mooncake.KindMessages && it.Row.MessageMode == "" {
		it.Row.MessageMode = "delta" // the session mode says so
	}
	dispatched := r.clk.Now()
	r.live.sent(it.Offset)
	r.tel.InFlight(1)
	// The schedule is over when the last request is; its record may still be on the way.
	r.recorder.giving.Go(func() { r.request(ctx, it, ses, dispatched) })
}

// session returns the item's session, with its root span and history, made at its first turn.
func (r *run) session(it *schedule.Item) *session {
	if it.Session == nil {
		return &session{}
	}
	ses, begun := it.Session.Data.(*session)
	if !begun {
		ses = &session{span: r.tel.StartSession(it.Session.ID, it.Intended)}
		if r.stream.Info().Sessions == mooncake.SessionDelta {
			ses.history = new(prompt.History)
		}
		it.Session.Data = ses
	}
	return ses
}

// endSession runs on the scheduler's goroutine when no further turn will be sent.
func (r *run) endSession(s *schedule.Session, at time.Duration) {
	if ses, begun := s.Data.(*session); begun {
		ses.span.End(at)
	}
}

// request carries one item, which was let go at dispatched, to the engine and back.
func (r *run) request(ctx context.Context, it *schedule.Item, ses *session, dispatched time.Duration) {
	rec := newRecord(it)
	rec.Dispatched, rec.Admitted = dispatched, dispatched
	if it.Waited {
		rec.Dispatched = it.Due
	}
	span := r.tel.StartRequest(ses.span, it.Row, it.Index, it.Intended)
	end := r.exchange(ctx, rec, ses.history, span.Traceparent())
	r.tel.InFlight(-1)
	r.live.left()
	// The scheduler may let the session's next turn go from here on. A row that was too short to send keeps it from
	// nothing, unless that needs its reply.
	ok := rec.Outcome == measure.Served || rec.Outcome == measure.Skipped && ses.history == nil
	r.sched.Done(it, end, ok)
	r.recorder.take(rec, span)
}

// exchange builds the row's request, sends it, and notes how it went. It returns the instant at which the exchange
// was over.
func (r *run) exchange(ctx context.Context, rec *measure.Record, history *prompt.History, traceparent string) time.Duration {
	p, err := r.builder.Build(rec.Index, rec.Row, history)
	switch {
	case err != nil:
		rec.Outcome, rec.Reason, rec.Message = measure.Failed, measure.FailUnsendable, err.Error()
		return r.clk.Now()
	case p.Skip:
		rec.Outcome, rec.Reason = measure.Skipped, measure.SkipTooShort
		return r.clk.Now()
	}
	rec.PromptTokens, rec.OutputTokensAsked = p.Tokens, p.OutputTokens
	rec.TooShort, rec.TailCut = p.TooShort, p.TailCut
	req := p.Request
	req.Header = r.headers(rec, traceparent)

	x := &rec.Exchange
	r.client.Do(ctx, &req, x)
	rec.Sent = true
	outcome(rec)
	if history != nil && rec.Outcome == measure.Served {
		history.Append(rec.Row, p, x.Reply, x.ToolCalls)
	}
	// Not x.End, the last byte's instant: a stream that stays open after it holds its slot and its session until the
	// client has let go.
	return r.clk.Now()
}

// headers are those of one request: its span's context, and its session, for engines and routers that keep a session
// in one place.
func (r *run) headers(rec *measure.Record, traceparent string) http.Header {
	h := make(http.Header, 3)
	if traceparent != "" {
		h.Set("Traceparent", traceparent)
	}
	h.Set("X-Request-Id", r.cfg.RunID+"-"+strconv.FormatInt(rec.Index, 10))
	if id := rec.Row.SessionID; id != "" {
		h.Set("X-Session-Id", headerSafe(id))
	}
	return h
}

// headerSafe keeps a session id from breaking a header: other characters than visible ASCII become "_".
func headerSafe(id string) string {
	b := []byte(id)
	for i, c := range b {
		if c <= ' ' || c >= 0x7f {
			b[i] = '_'
		}
	}
	return string(b[:min(len(b), 256)])
}

// outcome derives how the row ended from its exchange.
func outcome(rec *measure.Record) {
	err := rec.Exchange.Err
	switch {
	case err == nil:
		rec.Outcome = measure.Served
	case err.Class == send.ClassCancelled:
		rec.Outcome, rec.Reason, rec.Message = measure.Cancelled, string(err.Class), err.Message
	default:
		rec.Outcome, rec.Reason, rec.Message = measure.Failed, string(err.Class), err.Message
		if err.Class == send.ClassHTTP && err.Status != 0 { // error.type of a status is its number
			rec.Reason = strconv.Itoa(err.Status)
		}
	}
}

// skip disposes of an item that is not sent. It runs on the scheduler's goroutine.
func (r *run) skip(it *schedule.Item, why schedule.Reason, aborted bool) {
	rec := newRecord(it)
	rec.Outcome = measure.Skipped
	switch {
	case why == schedule.SessionFailed:
		rec.Reason = measure.SkipSession
	case why == schedule.SessionClosed:
		rec.Reason = measure.SkipSessionClosed
	case why == schedule.PastEnd:
		rec.Reason = measure.SkipDuration
	case aborted:
		rec.Reason = measure.SkipAborted
	default:
		rec.Reason = measure.SkipInterrupted
	}
	var span *telemetry.Session // of a session that has begun: a row that is skipped begins none
	if it.Session != nil {
		if ses, begun := it.Session.Data.(*session); begun {
			span = ses.span
		}
	}
	r.recorder.take(rec, r.tel.StartRequest(span, it.Row, it.Index, it.Intended))
}
