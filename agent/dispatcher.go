// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"time"

	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/mooncake"
)

var errAborted = errors.New("too many requests failed")

// dispatcher carries out what the scheduler decides: each row ends as one record and one span.
type dispatcher struct {
	*sender
	delta    bool // rows of a session are new turns
	tel      *telemetry.Pipeline
	recorder *recorder
	live     *Live
	saved    *savedPrompts
	sched    *schedule.Scheduler
	// prefillCap says that the schedule waits for first tokens.
	prefillCap bool
}

// conversation is what a session carries from turn to turn.
type conversation struct {
	span *telemetry.Session
	// history holds the turns so far where rows are new turns, else nil. Its turns are sent one after another,
	// so only one request uses it at a time.
	history *prompt.History
}

// replay runs the schedule to its end.
func (d *dispatcher) replay(ctx context.Context, p plan, zero time.Duration, rows *load.Stream, w schedule.Waiter) (stats schedule.Stats, err error) {
	dispatch, stopDispatch := context.WithCancelCause(ctx)
	defer stopDispatch(nil)
	requests, stopRequests := context.WithCancel(ctx)
	defer stopRequests()
	if p.schedule.Until > 0 {
		t := time.AfterFunc(zero-d.clk.Now()+p.schedule.Until+p.grace, stopRequests)
		defer t.Stop()
	}
	context.AfterFunc(dispatch, d.live.stop)
	p.schedule.Zero = zero
	d.sched, err = schedule.New(p.schedule, d.clk, w, schedule.Hooks{
		Prepare: func(it *schedule.Item) { d.prepare(requests, it) },
		Due:     func(*schedule.Item) { d.live.due() },
		Fire:    func(it *schedule.Item) { d.fire(requests, it) },
		Skip: func(it *schedule.Item, why schedule.Reason) {
			reason := skipReasons[why]
			if why == schedule.Stopped && errors.Is(context.Cause(dispatch), errAborted) {
				reason = measure.SkipAborted
			}
			d.skip(it, reason)
		},
	})
	if err != nil {
		return stats, err
	}
	d.recorder.start(func() {
		stopDispatch(errAborted)
		late := time.AfterFunc(p.grace, stopRequests)
		context.AfterFunc(requests, func() { late.Stop() }) // the run has ended before
	})
	defer d.recorder.stop()
	return d.sched.Run(dispatch, rows)
}

// prepare prepares an item's request, up to the first byte. It runs on the scheduler's goroutine.
func (d *dispatcher) prepare(ctx context.Context, it *schedule.Item) {
	p := &pending{gate: send.NewGate()}
	ctx, p.cancel = context.WithCancel(ctx)
	it.Data = p
	d.start(ctx, it, p)
}

// fire lets an item's request go. It runs on the scheduler's goroutine.
func (d *dispatcher) fire(ctx context.Context, it *schedule.Item) {
	d.live.sent(it.Offset)
	d.tel.InFlight(1)
	if p, prepared := it.Data.(*pending); prepared {
		p.gate.Open(d.clk.Now())
	} else {
		d.start(ctx, it, atOnce(d.clk.Now()))
	}
}

// start starts the goroutine of an item's request.
func (d *dispatcher) start(ctx context.Context, it *schedule.Item, p *pending) {
	c := d.conversation(it)
	if it.Row.WaitFor != nil { // a whole prompt: rows of a graph have no turn before them
		c.history = nil
	}
	if c.history != nil && it.Row.Kind() == mooncake.KindMessages && it.Row.MessageMode == "" {
		it.Row.MessageMode = "delta" // the session mode says so
	}
	if d.prefillCap {
		p.first = func(at time.Duration) { d.sched.FirstToken(it, at) }
	}
	p.engine = d.engines.pick(it.Row) // here, so that turns go round in the order of the schedule
	// The schedule is over when the last request is; its record may still be on the way.
	d.recorder.senders.Go(func() { d.request(ctx, it, c, p) })
}

// conversation returns the item's, with its root span and history, made at the first turn of its session.
func (d *dispatcher) conversation(it *schedule.Item) conversation {
	if it.Session == nil {
		return conversation{}
	}
	c, begun := it.Session.Data.(conversation)
	if !begun {
		c.span = d.tel.StartSession(telemetry.Opening{ID: it.Session.ID, Model: d.builder.Model(it.Row), Row: it.Index, At: it.Intended})
		if d.delta {
			c.history = new(prompt.History)
		}
		it.Session.Data = c
	}
	return c
}

// request carries one item to the engine and back.
func (d *dispatcher) request(ctx context.Context, it *schedule.Item, c conversation, p *pending) {
	defer p.cancel()
	rec := d.newRecord(it)
	rec.Server = p.engine.server
	span := d.tel.StartRequest(c.span, it.Row, it.Intended)
	end, body := d.exchange(ctx, rec, c.history, span.Traceparent(), p)
	d.engines.leave(p.engine)
	at, open := p.gate.Wait()
	if !open {
		rec = d.newRecord(it) // nothing of the attempt has happened
		rec.Outcome, rec.Reason = measure.Skipped, p.reason
		d.saved.add(rec, send.Body{})
		d.recorder.submit(rec, span)
		return
	}
	rec.Dispatched, rec.Admitted = at, at
	if it.Waited {
		rec.Dispatched = it.Due
	}
	d.tel.InFlight(-1)
	d.live.left()
	// The scheduler may let the session's next turn go from here on. A row that was too short to send, or whose reply nobody
	// waited for, keeps it from nothing, unless that needs its reply.
	given := rec.Outcome == measure.Skipped || rec.Outcome == measure.Disconnected
	ok := rec.Outcome == measure.Served || given && c.history == nil
	d.sched.Done(it, max(end, at), ok) // one that could not be built was over before it was due
	d.saved.add(rec, body)
	d.recorder.submit(rec, span)
}

// skip disposes of an item that is not sent. It runs on the scheduler's goroutine.
func (d *dispatcher) skip(it *schedule.Item, reason string) {
	if p, prepared := it.Data.(*pending); prepared {
		p.reason = reason
		p.cancel() // first: a dead gate on a kept connection looks like a dead connection, and would be tried again
		p.gate.Shut()
		return
	}
	d.replies.Skip(it.Index, it.Row)
	rec := d.newRecord(it)
	rec.Outcome, rec.Reason = measure.Skipped, reason
	d.saved.add(rec, send.Body{})
	var c conversation // of a session that has begun: a row that is skipped begins none
	if it.Session != nil {
		c, _ = it.Session.Data.(conversation)
	}
	d.recorder.submit(rec, d.tel.StartRequest(c.span, it.Row, it.Intended))
}

// skipReasons says in records why the scheduler skips.
var skipReasons = [...]string{
	schedule.SessionFailed: measure.SkipSession,
	schedule.SessionClosed: measure.SkipSessionClosed,
	schedule.PastEnd:       measure.SkipDuration,
	schedule.Stopped:       measure.SkipInterrupted,

	schedule.PredecessorFailed: measure.SkipGraph,
}

// newRecord is the record of an item that has been dispatched or skipped.
func (d *dispatcher) newRecord(it *schedule.Item) *measure.Record {
	return &measure.Record{
		Model: d.builder.Model(it.Row),
		Row:   it.Row, Index: it.Index, Turn: it.Turn, After: it.After,
		Offset: it.Offset, Spread: it.Spread, Intended: it.Intended, Scheduled: it.Scheduled,
		Prediction: it.Predicted, Prompts: it.Prompts, Predicted: it.Predicted.Whole, Finest: it.Predicted.Finest,
	}
}
