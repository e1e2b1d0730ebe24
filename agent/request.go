// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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

// pending is a request on its way to its instant. The scheduler decides what becomes of it: it opens the gate, or shuts it.
type pending struct {
	gate   *send.Gate
	reason string             // why it is skipped, set before the gate is shut
	cancel context.CancelFunc // frees what the request has taken hold of
}

// atOnce is a request that goes as soon as it is ready, from an instant on.
func atOnce(at time.Duration) *pending {
	p := &pending{gate: send.NewGate(), cancel: func() {}}
	p.gate.Open(at)
	return p
}

// begin prepares an item's request, up to the first byte. It runs on the scheduler's goroutine.
func (r *run) begin(ctx context.Context, it *schedule.Item) {
	p := &pending{gate: send.NewGate()}
	ctx, p.cancel = context.WithCancel(ctx)
	it.Data = p
	r.start(ctx, it, p)
}

// fire lets an item's request go. It runs on the scheduler's goroutine.
func (r *run) fire(ctx context.Context, it *schedule.Item) {
	r.live.sent(it.Offset)
	r.tel.InFlight(1)
	if p, begun := it.Data.(*pending); begun {
		p.gate.Open(r.clk.Now())
	} else {
		r.start(ctx, it, atOnce(r.clk.Now()))
	}
}

// start starts the goroutine of an item's request.
func (r *run) start(ctx context.Context, it *schedule.Item, p *pending) {
	ses := r.session(it)
	if ses.history != nil && it.Row.Kind() == mooncake.KindMessages && it.Row.MessageMode == "" {
		it.Row.MessageMode = "delta" // the session mode says so
	}
	// The schedule is over when the last request is; its record may still be on the way.
	r.recorder.giving.Go(func() { r.request(ctx, it, ses, p) })
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

// request carries one item to the engine and back.
func (r *run) request(ctx context.Context, it *schedule.Item, ses *session, p *pending) {
	defer p.cancel()
	rec := r.newRecord(it)
	span := r.tel.StartRequest(ses.span, it.Row, it.Index, it.Intended)
	end := r.exchange(ctx, rec, ses.history, span.Traceparent(), p)
	at, let := p.gate.Wait()
	if !let {
		rec = r.newRecord(it) // nothing of the attempt has happened
		rec.Outcome, rec.Reason = measure.Skipped, p.reason
		r.recorder.take(rec, span)
		return
	}
	rec.Dispatched, rec.Admitted = at, at
	if it.Waited {
		rec.Dispatched = it.Due
	}
	r.tel.InFlight(-1)
	r.live.left()
	// The scheduler may let the session's next turn go from here on. A row that was too short to send keeps it from
	// nothing, unless that needs its reply.
	ok := rec.Outcome == measure.Served || rec.Outcome == measure.Skipped && ses.history == nil
	r.sched.Done(it, max(end, at), ok) // one that could not be built was over before it was due
	r.recorder.take(rec, span)
}

// exchange builds the row's request, sends it, and notes how it went. It returns the instant at which the exchange
// was over.
func (r *run) exchange(ctx context.Context, rec *measure.Record, history *prompt.History, traceparent string, p *pending) time.Duration {
	built, keep, err := r.buildRow(rec, history)
	if keep {
		defer func() { r.keepReply(rec) }()
	}
	r.predict(rec)
	switch {
	case err != nil:
		rec.Outcome, rec.Reason, rec.Message = measure.Failed, measure.FailUnsendable, err.Error()
		return r.clk.Now()
	case built.Skip:
		rec.Outcome, rec.Reason = measure.Skipped, measure.SkipTooShort
		return r.clk.Now()
	}
	rec.PromptTokens, rec.OutputTokensAsked = built.Tokens, built.OutputTokens
	rec.TooShort, rec.TailCut, rec.Stream = built.TooShort, built.TailCut, built.Request.Stream
	rec.Model, rec.Assumed = built.Model, built.Assumed
	req := built.Request
	req.Header = r.headers(rec, traceparent)
	req.Gate = p.gate

	x := &rec.Exchange
	r.client.Do(ctx, &req, x)
	at, let := p.gate.Wait()
	if !let {
		return r.clk.Now()
	}
	if x.Err != nil && x.End < at { // before it was due; nothing had been sent, and what failed then may go well now
		r.client.Do(ctx, &req, x)
	}
	rec.Sent = true
	outcome(rec)
	if history != nil && rec.Outcome == measure.Served {
		history.Append(rec.Row, built, x.Reply, x.ToolCalls)
	}
	// Not x.End, the last byte's instant: a stream that stays open after it holds its slot and its session until the
	// client has let go.
	return r.clk.Now()
}

// headers are those of one request: its span's context, and its session, for engines and routers that keep a session
// in one place.
func (r *run) headers(rec *measure.Record, traceparent string) http.Header {
	h := make(http.Header, 3)
	if traceparent == "" {
		traceparent = unrecorded(r.cfg.RunID, rec.Index)
	}
	h.Set("Traceparent", traceparent)
	h.Set("X-Request-Id", r.cfg.RunID+"-"+strconv.FormatInt(rec.Index, 10))
	if id := rec.Row.SessionID; id != "" {
		h.Set("X-Session-Id", headerSafe(id))
	}
	return h
}

// unrecorded is the trace context of a request that is in no trace of the run's: of calibration, of a warm-up, or of a run without
// telemetry. Its flags say "not sampled", so that gateways and engines record no span of it either: a capture beside them would
// take that for production. It is W3C's form, https://www.w3.org/TR/trace-context/#traceparent-header.
func unrecorded(run string, index int64) string {
	sum := sha256.Sum256(strconv.AppendInt([]byte(run+"-"), index, 10))
	b := hex.AppendEncode([]byte("00-"), sum[:16])
	b = hex.AppendEncode(append(b, '-'), sum[16:24])
	return string(append(b, "-00"...))
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
	reason := skipReason(why, aborted)
	if p, begun := it.Data.(*pending); begun {
		p.reason = reason
		p.cancel() // first: a dead gate on a kept connection looks like a dead connection, and would be tried again
		p.gate.Shut()
		return
	}
	r.carry.Skip(it.Index, it.Row)
	rec := r.newRecord(it)
	rec.Outcome, rec.Reason = measure.Skipped, reason
	var span *telemetry.Session // of a session that has begun: a row that is skipped begins none
	if it.Session != nil {
		if ses, begun := it.Session.Data.(*session); begun {
			span = ses.span
		}
	}
	r.recorder.take(rec, r.tel.StartRequest(span, it.Row, it.Index, it.Intended))
}

func skipReason(why schedule.Reason, aborted bool) string {
	switch {
	case why == schedule.SessionFailed:
		return measure.SkipSession
	case why == schedule.SessionClosed:
		return measure.SkipSessionClosed
	case why == schedule.PastEnd:
		return measure.SkipDuration
	case aborted:
		return measure.SkipAborted
	default:
		return measure.SkipInterrupted
	}
}
