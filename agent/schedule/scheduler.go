// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/mooncake"
)

// Item is one row on its way through the schedule. The source fills the first group of fields; the scheduler
// fills the second before it fires or skips the item.
type Item struct {
	Row       *mooncake.Row
	Index     int64         // row index in the trace
	Timed     bool          // Offset comes from a timestamp
	Offset    time.Duration // intended instant in replay time, from the schedule's zero
	Spread    time.Duration // the part of Offset that spreading added
	Predicted int64         // see measure.Record

	Turn      int           // turn of its session, from 0
	Intended  time.Duration // on the run's clock
	Scheduled bool          // Intended comes from a timestamp or a delay, not from a free slot
	Due       time.Duration // instant at which the scheduler took it up; clock.Never until then
	Waited    bool          // the cap held it back between Due and its dispatch

	session *session
}

// Source yields items by rising offset, items of one session in the order in which they are to be sent.
// Next returns io.EOF at the end; any other error ends the schedule.
type Source interface {
	Next() (*Item, error)
}

// Config says how a schedule runs. The zero value is an open loop without a cap.
type Config struct {
	// Zero is the run-clock instant of offset 0.
	Zero time.Duration
	// Slots is the number of requests that may be under way at once; 0 = no cap. A closed loop needs one.
	Slots int
	// ClosedLoop sends in the source's order as slots become free and ignores offsets.
	ClosedLoop bool
	// OpenSessions ignores the order of turns: each row of a session is sent at its own offset, whatever became
	// of the turn before.
	OpenSessions bool
	// Speedup divides delays. 0 means 1.
	Speedup float64
	// Until is the offset past which rows are skipped; 0 = none.
	Until time.Duration
	// MaxHeld bounds the rows that are held back (for their session or for a slot) at any time, and
	// MaxSessions the idle sessions that are remembered. At the first bound the schedule reads no
	// further until a row is let go, and counts a stall; at the second the session that has been idle longest
	// is closed. 0 means 4,096 and 16,384.
	MaxHeld, MaxSessions int
}

// Hooks are the scheduler's ways out. All are called on the scheduler's goroutine and must not block.
type Hooks struct {
	// Fire starts the item's request, in a goroutine of its own, which ends in exactly one call of Done.
	Fire func(*Item)
	// Skip disposes of an item that will not be sent.
	Skip func(*Item, Reason)
	// EndSession says that no further turn of the session will be sent; at is the end of its last one.
	// May be nil.
	EndSession func(id string, at time.Duration)
}

// Reason says why an item was skipped.
type Reason uint8

// The reasons to skip.
const (
	SessionFailed Reason = iota // an earlier turn of the session was not served
	PastEnd                     // its offset lies past Config.Until
	Stopped                     // the schedule was cancelled first
)

// Stats is what a finished schedule counted.
type Stats struct {
	Fired, Skipped  int64
	Stalls          int64 // times that MaxHeld stopped the reading
	SessionsEvicted int64 // sessions closed because of MaxSessions
}

// Scheduler runs one schedule, once.
type Scheduler struct {
	cfg   Config
	clk   clock.Clock
	wait  Waiter
	hooks Hooks

	// Owned by Run.
	head     *Item // next item of the source, nil when not read or at its end
	eof      bool
	stalled  bool
	turns    dueHeap // later turns whose instant is known
	ready    fifo    // due, waiting for a slot
	sessions sessionTable
	inFlight int
	held     int // items in turns, ready and the sessions' pending lists
	freedAt  time.Duration
	stats    Stats

	// blocked is set while only a completion can move the schedule on.
	blocked atomic.Bool
	mu      sync.Mutex
	done    []completion
}

type completion struct {
	item *Item
	at   time.Duration
	ok   bool
}

// New returns a scheduler that has not started. The waiter stays the caller's.
func New(cfg Config, clk clock.Clock, w Waiter, hooks Hooks) (*Scheduler, error) {
	if cfg.ClosedLoop && cfg.Slots < 1 {
		return nil, errors.New("schedule: a closed loop needs at least one slot")
	}
	if cfg.Speedup == 0 {
		cfg.Speedup = 1
	}
	if cfg.Speedup < 0 || cfg.Speedup != cfg.Speedup {
		return nil, fmt.Errorf("schedule: speed-up %v is not above 0", cfg.Speedup)
	}
	if cfg.MaxHeld == 0 {
		cfg.MaxHeld = 4096
	}
	if cfg.MaxSessions == 0 {
		cfg.MaxSessions = 1 << 14
	}
	return &Scheduler{cfg: cfg, clk: clk, wait: w, hooks: hooks, freedAt: cfg.Zero}, nil
}

// Done reports that a fired item's request has ended, served (ok) or not. Call it once per fired item, from any
// goroutine, after the last use of the item by that goroutine.
func (s *Scheduler) Done(it *Item, at time.Duration, ok bool) {
	s.mu.Lock()
	s.done = append(s.done, completion{it, at, ok})
	s.mu.Unlock()
	// An open loop without a cap has nothing to do until its next row is due, so let it sleep.
	if it.session != nil || s.cfg.Slots > 0 || s.blocked.Load() {
		s.wait.Wake()
	}
}

// Run takes every item of the source to Fire or Skip and returns when all that were fired are done. After ctx
// has ended, everything not yet fired is skipped as Stopped, rows not yet read included; Run still waits for the
// fired ones. An error is the source's: then the rows behind it stay unread.
func (s *Scheduler) Run(ctx context.Context, src Source) (Stats, error) {
	stop := context.AfterFunc(ctx, s.wait.Wake)
	defer stop()
	defer func() { s.sessions.closeAll(s.endSession) }()
	for {
		s.settle()
		if ctx.Err() != nil {
			s.skipHeld()
		}
		s.release()
		if err := s.read(ctx, src); err != nil {
			s.skipHeld()
			for s.inFlight > 0 {
				s.block()
			}
			return s.stats, err
		}
		at, from := s.next()
		switch {
		case from == nowhere && s.eof && s.inFlight == 0 && s.held == 0:
			return s.stats, nil
		case from == nowhere:
			s.block()
		case s.wait.Wait(at):
			s.admit(s.take(from))
		}
	}
}

// block waits until a completion has been taken in, or the run has been cancelled.
func (s *Scheduler) block() {
	s.blocked.Store(true)
	defer s.blocked.Store(false)
	// A completion reported before blocked was set woke nobody; it is in the list.
	if before := s.inFlight; s.settle() == before {
		s.wait.Wait(Forever)
		s.settle()
	}
}

// read makes sure that head holds the source's next item that is to be sent, unless too much is held back.
func (s *Scheduler) read(ctx context.Context, src Source) error {
	for s.head == nil && !s.eof {
		if s.held >= s.cfg.MaxHeld {
			if !s.stalled {
				s.stats.Stalls++
			}
			s.stalled = true
			return nil
		}
		s.stalled = false
		it, err := src.Next()
		switch {
		case errors.Is(err, io.EOF):
			s.eof = true
		case err != nil:
			return err
		default:
			it.Due = clock.Never
			it.Intended, it.Scheduled = s.cfg.Zero+it.Offset, !s.cfg.ClosedLoop
			switch {
			case ctx.Err() != nil:
				s.skip(it, Stopped)
			case s.pastEnd(it.Offset) && !s.cfg.ClosedLoop:
				s.skip(it, PastEnd)
			default:
				s.head = it
			}
		}
	}
	if s.head != nil && ctx.Err() != nil {
		s.skip(s.take(source), Stopped)
		return s.read(ctx, src)
	}
	return nil
}

func (s *Scheduler) pastEnd(offset time.Duration) bool {
	return s.cfg.Until > 0 && offset > s.cfg.Until
}

// origin says where the next item comes from.
type origin uint8

const (
	nowhere  origin = iota // only a completion can change anything
	source                 // head
	aSession               // turns
)

// next returns the instant of the next thing to take up, and where it is.
func (s *Scheduler) next() (time.Duration, origin) {
	at, from := Forever, nowhere
	if len(s.turns) > 0 {
		at, from = s.turns[0].Intended, aSession
	}
	if s.head == nil {
		return at, from
	}
	due := s.cfg.Zero + s.head.Offset
	if s.cfg.ClosedLoop { // as soon as a slot is free; until then there is no point in taking it up
		if !s.slotFree() {
			return at, from
		}
		due = s.freedAt
	}
	if due <= at {
		at, from = due, source
	}
	return at, from
}

// take removes the item that next spoke of.
func (s *Scheduler) take(from origin) *Item {
	if from == aSession {
		s.held--
		return heap.Pop(&s.turns).(*Item)
	}
	it := s.head
	s.head = nil
	return it
}

// admit takes up an item whose instant has come.
func (s *Scheduler) admit(it *Item) {
	if it.session == nil { // straight from the source
		if s.cfg.ClosedLoop {
			it.Intended = s.freedAt
		}
		if s.pastEnd(it.Intended - s.cfg.Zero) {
			s.skip(it, PastEnd)
			return
		}
		if it.Row.SessionID != "" && !s.enter(it) {
			return
		}
	}
	it.Due = s.clk.Now()
	if s.slotFree() {
		s.fire(it)
		return
	}
	it.Waited = true
	s.held++
	s.ready.push(it)
}

// enter puts an item into its session and reports whether it may go now.
func (s *Scheduler) enter(it *Item) bool {
	ses := s.sessions.get(it.Row.SessionID, s.cfg.MaxSessions, func(old *session) {
		s.stats.SessionsEvicted++
		s.endSession(old)
	})
	it.session = ses
	it.Turn = ses.turns
	ses.turns++
	switch {
	case s.cfg.OpenSessions:
		ses.busy++
		return true
	case ses.failed:
		s.skip(it, SessionFailed)
	case ses.busy > 0:
		s.held++
		ses.pending.push(it)
		return false
	default:
		ses.busy++
		if it.Turn == 0 || s.follow(it, ses) {
			return true
		}
	}
	s.sessions.touch(ses)
	return false
}

// follow places a later turn after the end of the one before. It reports whether its instant has come;
// otherwise the turn now waits in turns, or has been skipped.
func (s *Scheduler) follow(it *Item, ses *session) bool {
	due := ses.end
	switch {
	case it.Row.Delay.Set && (!it.Timed || s.cfg.ClosedLoop):
		due += time.Duration(it.Row.Delay.V / s.cfg.Speedup * float64(time.Millisecond))
		it.Scheduled = true
	case it.Timed && !s.cfg.ClosedLoop:
		due = max(due, s.cfg.Zero+it.Offset)
		it.Scheduled = true
	}
	it.Intended = due
	switch {
	case s.pastEnd(due - s.cfg.Zero):
		ses.busy--
		s.skip(it, PastEnd)
		return false
	case due <= s.clk.Now():
		return true
	}
	s.held++
	heap.Push(&s.turns, it)
	return false
}

// settle takes in the completions that have been reported and returns the number of items under way.
func (s *Scheduler) settle() int {
	s.mu.Lock()
	done := s.done
	s.done = nil
	s.mu.Unlock()
	for _, c := range done {
		s.inFlight--
		s.freedAt = max(s.freedAt, c.at)
		if c.item.session != nil {
			s.leave(c.item.session, c)
		}
	}
	return s.inFlight
}

// leave ends a turn and lets the session's next one follow.
func (s *Scheduler) leave(ses *session, c completion) {
	ses.busy--
	ses.end = max(ses.end, c.at)
	if !c.ok && !s.cfg.OpenSessions {
		ses.failed = true
	}
	for ses.busy == 0 && ses.pending.len() > 0 {
		it := ses.pending.pop()
		s.held--
		if ses.failed {
			s.skip(it, SessionFailed)
			continue
		}
		ses.busy++
		if s.follow(it, ses) {
			s.admit(it)
		}
	}
	s.sessions.touch(ses)
}

// release lets held-back items through while there are slots.
func (s *Scheduler) release() {
	for s.ready.len() > 0 && s.slotFree() {
		s.held--
		s.fire(s.ready.pop())
	}
}

func (s *Scheduler) slotFree() bool { return s.cfg.Slots == 0 || s.inFlight < s.cfg.Slots }

func (s *Scheduler) fire(it *Item) {
	s.inFlight++
	s.stats.Fired++
	s.hooks.Fire(it)
}

func (s *Scheduler) skip(it *Item, why Reason) {
	s.stats.Skipped++
	s.hooks.Skip(it, why)
}

// skipHeld skips everything that waits for a turn or a slot.
func (s *Scheduler) skipHeld() {
	if s.held == 0 {
		return
	}
	drop := func(it *Item) {
		s.held--
		s.skip(it, Stopped)
	}
	s.sessions.each(func(ses *session) {
		for ses.pending.len() > 0 {
			drop(ses.pending.pop())
		}
	})
	underWay := func(it *Item) {
		if it.session != nil {
			it.session.busy--
		}
		drop(it)
	}
	for len(s.turns) > 0 {
		underWay(heap.Pop(&s.turns).(*Item))
	}
	for s.ready.len() > 0 {
		underWay(s.ready.pop())
	}
}

func (s *Scheduler) endSession(ses *session) {
	if s.hooks.EndSession != nil {
		s.hooks.EndSession(ses.id, ses.end)
	}
}

// dueHeap orders items by intended instant, equal ones by row.
type dueHeap []*Item

func (h dueHeap) Len() int { return len(h) }
func (h dueHeap) Less(i, j int) bool {
	if h[i].Intended != h[j].Intended {
		return h[i].Intended < h[j].Intended
	}
	return h[i].Index < h[j].Index
}
func (h dueHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)   { *h = append(*h, x.(*Item)) }
func (h *dueHeap) Pop() any {
	old := *h
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return it
}

// fifo is a queue of items.
type fifo struct {
	items []*Item
	first int
}

func (q *fifo) len() int      { return len(q.items) - q.first }
func (q *fifo) push(it *Item) { q.items = append(q.items, it) }
func (q *fifo) pop() *Item {
	it := q.items[q.first]
	q.items[q.first] = nil
	q.first++
	if q.first == len(q.items) {
		q.items, q.first = q.items[:0], 0
	} else if q.first > 64 && q.first > len(q.items)/2 { // keep a long-lived queue from growing at its tail
		n := copy(q.items, q.items[q.first:])
		clear(q.items[n:])
		q.items, q.first = q.items[:n], 0
	}
	return it
}
