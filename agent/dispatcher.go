// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/mooncake"
)

var (
	errAborted = errors.New("too many requests failed")
	errCutOff  = errors.New("the run ended") // why requests still in flight after the grace are stopped
)

// dispatcher carries out the decisions of the scheduler. Each row ends as one record and one span.
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
	branches   branches
	workers    workers
	busy       atomic.Int64 // requests that need the processor, see send.Request.Busy

	dispatch, requests context.Context //nolint:containedctx // of the schedule, which outlasts the call that makes it
	stopDispatch       context.CancelCauseFunc
	stopRequests       context.CancelCauseFunc
}

// conversation is the state that a session passes from turn to turn.
type conversation struct {
	begun bool // in this part of the run
	span  *telemetry.Session
	// history has the turns so far if rows are new turns, else nil. Turns are sent one after another, so only one request uses it at a
	// time.
	history *prompt.History
}

// newSchedule makes the schedule. Its start is not known yet. It ends with ctx; close releases its resources.
func (d *dispatcher) newSchedule(ctx context.Context, p plan, w schedule.Waiter) (err error) {
	d.dispatch, d.stopDispatch = context.WithCancelCause(ctx)
	d.requests, d.stopRequests = context.WithCancelCause(ctx)
	d.builder.Until(d.requests.Done())
	d.sched, err = schedule.New(p.schedule, d.clk, w, schedule.Hooks{
		Prepare: d.prepare,
		Due:     func(*schedule.Item) { d.live.due() },
		Calm:    func() bool { return d.busy.Load() == 0 },
		Fire:    d.fire,
		Skip: func(it *schedule.Item, why schedule.Reason) {
			reason := skipReasons[why]
			if why == schedule.Stopped && errors.Is(context.Cause(d.dispatch), errAborted) {
				reason = measure.SkipAborted
			}
			d.skip(it, reason)
		},
	})
	return err
}

// close releases what newSchedule acquired.
func (d *dispatcher) close() {
	d.stopDispatch(nil)
	d.stopRequests(nil)
	d.workers.stop()
}

// begin makes the schedule and decides when it starts. For a resumed run, it returns the rows that are left.
func (d *dispatcher) begin(ctx context.Context, p plan, src schedule.Source, w schedule.Waiter, before *past, said *notices) (zero time.Duration, rows schedule.Source, err error) {
	if err = d.newSchedule(ctx, p, w); err != nil {
		return 0, nil, err
	}
	if rows, err = before.forward(ctx, d, src); err != nil {
		return 0, nil, err
	}
	begin, err := p.zero(d.clk)
	if err != nil {
		return 0, nil, err
	}
	zero = begin - before.cut()
	d.recorder.shift = before.shift(zero)
	d.sched.TakeUp(zero, begin)
	return zero, rows, before.begin(d.clk, d.recorder.journal, zero, begin, said)
}

// replay runs the schedule to its end.
func (d *dispatcher) replay(p plan, zero time.Duration, rows schedule.Source, before *past) (schedule.Stats, error) {
	cutOff := func() { d.stopRequests(errCutOff) }
	if p.schedule.Until > 0 {
		t := time.AfterFunc(zero-d.clk.Now()+p.schedule.Until+p.grace, cutOff)
		defer t.Stop()
	}
	context.AfterFunc(d.dispatch, d.live.stop)
	d.recorder.start(func() {
		d.stopDispatch(errAborted)
		late := time.AfterFunc(p.grace, cutOff)
		context.AfterFunc(d.requests, func() { late.Stop() }) // unless the run ends before that
	})
	defer d.recorder.stop()
	before.submitBroken(d)
	return d.sched.Run(d.dispatch, rows)
}

// prepare prepares an item's request, up to the first byte. It runs on the scheduler's goroutine.
func (d *dispatcher) prepare(it *schedule.Item) {
	p := new(pending)
	it.Data = p
	d.start(it, p)
}

// fire sends an item's request. It runs on the scheduler's goroutine.
func (d *dispatcher) fire(it *schedule.Item) {
	d.live.sent(it.Offset)
	d.tel.InFlight(1)
	if p, prepared := it.Data.(*pending); prepared {
		now := d.clk.Now()
		d.recorder.journal.Due(now)
		p.gate.Open(now)
	} else {
		d.start(it, atOnce(d.clk.Now()))
	}
}

// start starts the goroutine of an item's request.
func (d *dispatcher) start(it *schedule.Item, p *pending) {
	c := d.conversation(it)
	if it.Row.WaitFor != nil { // no turn of its session precedes it, except for those that it waits for
		c.history, p.err = d.branches.begin(it)
	} else {
		asTurn(it.Row, c.history)
	}
	if d.prefillCap {
		p.first = func(at time.Duration) { d.sched.FirstToken(it, at) }
	}
	p.engine = d.engines.pick(it.Row) // here, so that round robin follows the order of the schedule
	// The schedule is over when the last request is; its record may be recorded later.
	d.recorder.senders.Add(1)
	if it.Session == nil && it.Row.WaitFor == nil && !d.engines.byLoad() { // else something depends on when its end is known
		p.busy = &d.busy
	}
	urgent := it.Intended-d.clk.Now() < 2*schedule.MaxUnread
	if urgent {
		d.busy.Add(1)
	}
	d.workers.start(func() {
		defer d.recorder.senders.Done()
		if !urgent { // there is time to prepare it
			d.busy.Add(1)
		}
		defer d.busy.Add(-1)
		d.request(it, c, p)
	})
}

// asTurn marks a row of messages as a new turn, if the session mode says so.
func asTurn(row *mooncake.Row, history *prompt.History) {
	if history != nil && row.Kind() == mooncake.KindMessages && row.MessageMode == "" {
		row.MessageMode = "delta"
	}
}

// conversation returns the item's conversation, with its root span and history, and creates it at the first turn of its session.
func (d *dispatcher) conversation(it *schedule.Item) conversation {
	c := conversationSoFar(it)
	if it.Session != nil && !c.begun {
		c.begun, c.span = true, d.tel.StartSession(telemetry.Opening{ID: it.Session.ID, Model: d.builder.Model(it.Row), Row: it.Index, At: it.Intended})
		if d.delta && c.history == nil {
			c.history = new(prompt.History)
		}
		it.Session.Data = c
	}
	return c
}

// conversationSoFar returns the conversation of an item's session; the zero conversation if none has begun.
func conversationSoFar(it *schedule.Item) (c conversation) {
	if it.Session != nil {
		c, _ = it.Session.Data.(conversation)
	}
	return c
}

// request sends one item to the engine and records the result.
func (d *dispatcher) request(it *schedule.Item, c conversation, p *pending) {
	rec := d.newRecord(it)
	rec.Server = p.engine.server
	span := d.tel.StartRequest(c.span, it.Row, it.Intended)
	d.recorder.journal.Sent(it.Index, max(d.clk.Now(), it.Intended), d.clk)
	end, body := d.exchange(d.requests, rec, c.history, span.Traceparent(), p)
	d.engines.release(p.engine, rec.Exchange.Err)
	at, open := p.gate.Wait()
	if !open {
		rec = d.newRecord(it) // the request was prepared, but nothing of it was sent
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
	d.live.landed()
	// From here on, the scheduler may send the session's next turn. A row that was too short to send, or that was
	// disconnected, does not prevent that, unless the next turn needs its reply.
	harmless := rec.Outcome == measure.Skipped || rec.Outcome == measure.Disconnected
	ok := rec.Outcome == measure.Served || harmless && c.history == nil
	if it.Row.WaitFor != nil && rec.Outcome == measure.Served {
		d.branches.end(it, c.history)
	}
	d.sched.Done(it, max(end, at), ok) // a request that could not be built may have failed before it was due
	d.saved.add(rec, body)
	d.recorder.submit(rec, span)
}

// skip records an item that is not sent. It runs on the scheduler's goroutine.
func (d *dispatcher) skip(it *schedule.Item, reason string) {
	if p, prepared := it.Data.(*pending); prepared {
		p.reason = reason
		p.gate.Shut()
		return
	}
	d.replies.Skip(it.Index, it.Row)
	rec := d.newRecord(it)
	rec.Outcome, rec.Reason = measure.Skipped, reason
	d.saved.add(rec, send.Body{})
	// A skipped row begins no conversation, and is then in a trace of its own.
	d.recorder.submit(rec, d.tel.StartRequest(conversationSoFar(it).span, it.Row, it.Intended))
}

// skipReasons are the reasons in records for the scheduler's skips.
var skipReasons = [...]string{
	schedule.SessionFailed: measure.SkipSession,
	schedule.SessionClosed: measure.SkipSessionClosed,
	schedule.PastEnd:       measure.SkipDuration,
	schedule.Stopped:       measure.SkipInterrupted,

	schedule.PredecessorFailed: measure.SkipGraph,
}

// records are records that the recorder is done with; the next requests use them again.
var records = sync.Pool{New: func() any { return new(measure.Record) }}

// newRecord returns the record of an item that has been dispatched or skipped. The recorder gives it back.
func (d *dispatcher) newRecord(it *schedule.Item) *measure.Record {
	rec := records.Get().(*measure.Record) // nothing else is in the pool
	*rec = measure.Record{
		Model: d.builder.Model(it.Row),
		Row:   it.Row, Index: it.Index, Turn: it.Turn, After: it.After,
		Offset: it.Offset, Spread: it.Spread, Intended: it.Intended, Scheduled: it.Scheduled,
		Prediction: it.Predicted, Prompts: it.Prompts, Predicted: it.Predicted.Whole, Finest: it.Predicted.Finest,
	}
	return rec
}
