// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/moonloop/moonloop/agent/carry"
	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/internal/splitmix"
	"github.com/moonloop/moonloop/mooncake"
)

// sender sends a row to the engine: it builds the request, sends it, and records the result.
type sender struct {
	clk     clock.Clock
	runID   string
	engines *engines
	session string // the header with a row's session id
	builder *prompt.Builder
	replies *carry.Store // nil: no live reply is carried
	cache   *predictor
	// disconnect says what share of the requests is closed on purpose, and when. The seed determines which rows these are.
	disconnect Disconnect
	seed       uint64
}

// hangsUp reports whether a row's request is closed on purpose. The rows are the same in every shard, and in every run with the same seed.
// A warm-up's request is never closed.
func (s *sender) hangsUp(index int64) bool {
	const stream = 0x68616e67757073 // "hangups": makes it independent of everything else that uses the seed
	return index >= 0 && splitmix.Uniform(splitmix.Next(splitmix.Next(s.seed^stream)+uint64(index))) < s.disconnect.Share
}

// pending is a request before its scheduled time. The scheduler opens its gate, or shuts it.
type pending struct {
	gate   send.Gate
	req    send.Request
	engine *backend            // its destination
	first  func(time.Duration) // called at the first token; may be nil
	busy   *atomic.Int64       // of send.Request; nil if rows wait for the request's end
	reason string              // why it is skipped, set before the gate is shut
	err    error               // why it cannot be built
}

// atOnce returns a request that is sent as soon as it is ready, and whose time counts from the given one.
func atOnce(at time.Duration) *pending {
	p := new(pending)
	p.gate.Open(at)
	return p
}

// exchange builds the row's request, sends it, and records the result. It returns the time at which the exchange was over, and the body
// that was sent, or the zero body.
func (s *sender) exchange(ctx context.Context, rec *measure.Record, history *prompt.History, traceparent string, p *pending) (over time.Duration, sent send.Body) {
	built, keep, err := s.build(rec, history)
	err = cmp.Or(p.err, err)
	if keep {
		defer s.keepReply(rec)
	}
	s.cache.predict(rec)
	switch {
	case err != nil && ctx.Err() != nil:
		if rec.Outcome = measure.Cancelled; errors.Is(context.Cause(ctx), errCutOff) {
			rec.Reason = measure.CancelEnd
		}
		return s.clk.Now(), sent
	case err != nil:
		rec.Outcome, rec.Reason, rec.Message = measure.Failed, measure.FailUnsendable, err.Error()
		return s.clk.Now(), sent
	case built.Skip:
		rec.Outcome, rec.Reason = measure.Skipped, measure.SkipTooShort
		return s.clk.Now(), sent
	}
	rec.PromptTokens, rec.OutputTokensAsked, rec.Priority = built.Tokens, built.OutputTokens, built.Priority
	rec.TooShort, rec.TailCut, rec.Stream = built.TooShort, built.TailCut, built.Request.Stream
	rec.Model, rec.Assumed = built.Model, built.Assumed
	p.req = built.Request
	req := &p.req
	req.Header = s.headers(rec, traceparent)
	req.Gate, req.First, req.Session, req.Busy = &p.gate, p.first, rec.Row.SessionID, p.busy
	if s.hangsUp(rec.Index) {
		req.HangUp = max(s.disconnect.After, time.Nanosecond)
	}

	x := &rec.Exchange
	p.engine.client.Do(ctx, req, x)
	at, opened := p.gate.Wait()
	if !opened {
		return s.clk.Now(), sent
	}
	if x.Err != nil && x.End < at { // before it was due: nothing had been sent, and what failed then may succeed now
		p.engine.client.Do(ctx, req, x)
	}
	rec.Sent = true
	setOutcome(rec)
	if history != nil && rec.Outcome == measure.Served {
		history.Append(rec.Row, built, x.Reply, x.ToolCalls)
	}
	// Not x.End, the time of the last byte: a stream that stays open after it occupies its slot and its session until the client has closed
	// it.
	return s.clk.Now(), req.Body
}

// build makes a row's request, with the live replies in its prompt, and reports whether its own reply must be stored.
func (s *sender) build(rec *measure.Record, history *prompt.History) (p prompt.Prompt, keep bool, err error) {
	row := rec.Row
	invented := func(why string) []string { return slices.Repeat([]string{why}, len(row.Replies)) }
	switch {
	case rec.Index < 0 || history != nil: // a warm-up, or a session whose history has its replies
		p, err = s.builder.Build(rec.Index, row, history)
		return p, false, err
	case s.replies == nil:
		p, err = s.builder.Build(rec.Index, row, nil)
		if len(row.Replies) > 0 && row.Kind() == mooncake.KindLength {
			rec.Replies = invented(carry.Off)
			for _, reply := range row.Replies {
				rec.Invented += reply.Tokens
			}
		}
		return p, false, err
	}
	live := prompt.Live{Keep: s.replies.Begin(rec.Index, row)}
	if row.Kind() == mooncake.KindLength {
		live.Replies, rec.Replies = s.replies.Resolve(rec.Index, row)
	}
	p, err = s.builder.BuildLive(rec.Index, row, live)
	switch {
	case p.NoRoom:
		rec.Replies = invented(carry.NoRoom)
	case p.Carried+p.Invented == 0: // an extra replaced the prompt, or there is no request
		rec.Replies = nil
	}
	rec.Carried, rec.Invented = p.Carried, p.Invented
	return p, live.Keep, err
}

// keepReply stores the result of a row for the rows that need its reply.
func (s *sender) keepReply(rec *measure.Record) {
	x := &rec.Exchange
	s.replies.End(rec.Index, carry.Ended{
		Served: rec.Sent && rec.Outcome == measure.Served,
		Model:  rec.Model, Text: x.Reply, Tokens: x.ReplyTokens, Count: x.Usage.Completion,
	})
}

// headers returns the headers of one request: its span's context, its id, and its session, for engines and routers that keep a session on
// one instance.
func (s *sender) headers(rec *measure.Record, traceparent string) []send.Field {
	if traceparent == "" {
		traceparent = unrecorded(s.runID, rec.Index)
	}
	h := append(make([]send.Field, 0, 3),
		send.Field{Name: "Traceparent", Value: traceparent},
		send.Field{Name: "X-Request-Id", Value: s.runID + "-" + strconv.FormatInt(rec.Index, 10)})
	if id := rec.Row.SessionID; id != "" {
		h = append(h, send.Field{Name: http.CanonicalHeaderKey(s.session), Value: headerSafe(id)})
	}
	return h
}

// unrecorded returns the trace context of a request outside the run's traces: one that prepares the run, a warm-up, or one of a run without
// telemetry. Its flags say "not sampled", so that gateways and engines do not record a span of it either, which a capture would mistake for
// production. The context has W3C's form, https://www.w3.org/TR/trace-context/#traceparent-header.
func unrecorded(run string, index int64) string {
	b := make([]byte, 0, 96)
	sum := sha256.Sum256(strconv.AppendInt(append(append(b, run...), '-'), index, 10))
	b = hex.AppendEncode(append(b, "00-"...), sum[:16])
	b = hex.AppendEncode(append(b, '-'), sum[16:24])
	return string(append(b, "-00"...))
}

// headerSafe makes a session id safe for a header: characters other than visible ASCII become "_".
func headerSafe(id string) string {
	b := []byte(id)
	for i, c := range b {
		if c <= ' ' || c >= 0x7f {
			b[i] = '_'
		}
	}
	return string(b[:min(len(b), 256)])
}

// setOutcome derives the row's outcome from its exchange.
func setOutcome(rec *measure.Record) {
	err := rec.Exchange.Err
	if err == nil {
		rec.Outcome = measure.Served
		return
	}
	rec.Outcome, rec.Reason, rec.Message = measure.Failed, string(err.Class), err.Message
	switch {
	case err.Class == send.ClassDisconnected:
		rec.Outcome, rec.Reason, rec.Message = measure.Disconnected, "", ""
	case err.Class == send.ClassCancelled:
		rec.Outcome = measure.Cancelled
		if errors.Is(err, errCutOff) {
			rec.Reason = measure.CancelEnd
		}
	case err.Class == send.ClassHTTP && err.Status != 0: // error.type of a status is its number
		rec.Reason = strconv.Itoa(err.Status)
	}
}
