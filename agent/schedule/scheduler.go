// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// Item is one row on its way through the schedule. The source fills the first group of fields; the scheduler
// fills the second before it fires or skips the item.
type Item struct {
	Row       *mooncake.Row
	Index     int64            // row index in the trace
	Timed     bool             // Offset comes from a timestamp
	Offset    time.Duration    // intended instant in replay time, from the schedule's zero
	Spread    time.Duration    // the part of Offset that spreading added
	Predicted stats.Prediction // of its cached tokens; -1 where none can be made
	Prompts   int64            // Predicted.Finest where no reply is carried

	Session   *Session      // the row's session; nil without one, and for rows that never reached theirs
	Turn      int           // turn of its session, from 0
	Intended  time.Duration // on the run's clock
	Scheduled bool          // Intended comes from a timestamp or a delay, not from a free slot
	Due       time.Duration // instant at which its turn had come; clock.Never until then
	Waited    bool          // the cap held it back between Due and its dispatch

	// Data is the hooks' own.
	Data any

	prepared bool          // Hooks.Prepare has had it
	wake     time.Duration // instant at which it is to be prepared, or, if it is, offered
}

// Source yields items by rising offset, items of one session in the order in which they are to be sent. Next is
// called on a goroutine of its own; it returns io.EOF at the end, and any other error ends the schedule.
//
// Stop says that nothing will be sent any more: Next then yields the items that the source has read already, each of
// which is skipped, and returns io.EOF without reading on. It may be called at any time, from any goroutine, more than once.
type Source interface {
	Next() (*Item, error)
	Stop()
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
	// Carry says that a turn needs what the turn before left behind: a session that has been closed to make room
	// takes no further turns.
	Carry bool
	// Speedup divides delays. 0 means 1.
	Speedup float64
	// Until is the replay time after which nothing is sent; 0 = none.
	Until time.Duration
	// Prepare is how long before its intended instant an item is handed to Hooks.Prepare, or up to a quarter more, where
	// that spares a wake-up, or less, where the instant is known later. 0 = not at all. Without effect where a slot decides
	// when an item goes.
	Prepare time.Duration
	// MaxHeld bounds the rows that are held back (for their session or for a slot) at any time, and
	// MaxSessions the sessions that are remembered. At the first bound the schedule reads no further until a row
	// is let go, and counts a stall; at the second the session that has been idle longest is closed.
	// 0 means 65,536 and 16,384.
	MaxHeld, MaxSessions int
}

// Hooks are the scheduler's ways out. All are called on the scheduler's goroutine: whatever they take, the schedule
// is late by.
type Hooks struct {
	// Prepare does what can be done of an item's request before it is due, in a goroutine of its own. Fire or Skip
	// follows. May be nil.
	Prepare func(*Item)
	// Fire lets the item's request go, and starts it where it was not prepared, in a goroutine of its own, which ends in
	// exactly one call of Done.
	Fire func(*Item)
	// Skip disposes of an item that will not be sent.
	Skip func(*Item, Reason)
}

// Reason says why an item was skipped.
type Reason uint8

// The reasons to skip.
const (
	SessionFailed Reason = iota // an earlier turn of the session was not served
	SessionClosed               // its session was closed to make room, and with it what the turn needs
	PastEnd                     // its turn lies past Config.Until
	Stopped                     // the schedule was cancelled first
)

// Stats is what a finished schedule counted.
type Stats struct {
	Fired, Skipped  int64
	Stalls          int64 // times that MaxHeld stopped the reading
	SessionsEvicted int64 // sessions closed because of MaxSessions
}

// Scheduler runs one schedule, once.
//
// An item has one way to the wire. From the source it is entered: into its session, where it waits until the turn
// before has ended. Then it is placed: its intended instant is known, and it waits for that, and is prepared meanwhile.
// Then it is offered: it stands in the queue of those that are ready. release lets the queue out, as far as slots and
// the end of the schedule allow, and is the only place that fires.
type Scheduler struct {
	cfg   Config
	clk   clock.Clock
	wait  Waiter
	hooks Hooks

	// Owned by Run.
	feed     chan feeding
	head     *Item // next item of the source, nil when there is none yet, or none any more
	eof      bool
	broken   error // the source's; see failed
	begun    int   // items that are prepared and wait for their instant
	stalled  bool
	placed   dueHeap         // items whose instant is known and has not come
	ready    fifo            // due; of a cap, waiting for a slot
	unused   int             // free slots that count as free since zero; 0 without a cap
	free     []time.Duration // instants at which the other free slots became free, earliest first
	sessions sessionTable
	inFlight int
	held     int // items in placed, ready and the sessions' pending lists
	stats    Stats

	// idle is set while only a completion, or the source, can move the schedule on; hungry, while the source can move
	// it on before what it waits for.
	idle, hungry atomic.Bool

	mu   sync.Mutex
	done []completion
}

type completion struct {
	item *Item
	at   time.Duration
	ok   bool
}

type feeding struct {
	item *Item
	err  error
}

// New returns a scheduler that has not started. The waiter stays the caller's.
func New(cfg Config, clk clock.Clock, w Waiter, hooks Hooks) (*Scheduler, error) {
	if cfg.ClosedLoop && cfg.Slots < 1 {
		return nil, errors.New("schedule: a closed loop needs at least one slot")
	}
	if cfg.Speedup == 0 {
		cfg.Speedup = 1
	}
	if !(cfg.Speedup > 0) { // NaN too
		return nil, fmt.Errorf("schedule: speed-up %v is not above 0", cfg.Speedup)
	}
	if cfg.Slots > 0 || hooks.Prepare == nil {
		cfg.Prepare = 0
	}
	if cfg.MaxHeld == 0 {
		cfg.MaxHeld = 1 << 16
	}
	if cfg.MaxSessions == 0 {
		cfg.MaxSessions = 1 << 14
	}
	return &Scheduler{cfg: cfg, clk: clk, wait: w, hooks: hooks, feed: make(chan feeding, 64), unused: cfg.Slots}, nil
}

// Done reports that a fired item's request has ended, served (ok) or not. Call it once per fired item, from any
// goroutine, after the last use of the item by that goroutine.
func (s *Scheduler) Done(it *Item, at time.Duration, ok bool) {
	s.mu.Lock()
	s.done = append(s.done, completion{it, at, ok})
	s.mu.Unlock()
	// An open loop without a cap has nothing to do until its next row is due, so let it sleep.
	if it.Session != nil || s.cfg.Slots > 0 || s.idle.Load() {
		s.wait.Wake()
	}
}

// Run takes every item of the source to Fire or Skip and returns when all that were fired are done. After ctx
// has ended, or Config.Until, the source is stopped, and what it had read and is not yet fired is skipped, as Stopped or
// PastEnd; Run still waits for the fired ones. An error is the source's: then the rows behind it stay unread. The source
// may still be in a Next when Run returns; only its own end ends that.
func (s *Scheduler) Run(ctx context.Context, src Source) (Stats, error) {
	defer context.AfterFunc(ctx, func() {
		src.Stop()
		s.wait.Wake()
	})()
	quit := make(chan struct{})
	defer close(quit)
	go s.pull(src, quit)
	for {
		if ctx.Err() != nil || s.failed() != nil { // before settle, which would let the next turns go
			s.skipHeld()
		}
		s.settle()
		s.release()
		s.read(ctx)
		if s.failed() != nil && s.held > 0 {
			continue
		}
		at, from := s.next()
		switch {
		case from == nowhere && s.eof && s.inFlight == 0 && s.held == 0:
			return s.stats, s.failed()
		case from == nowhere:
			s.block()
		case !s.sleep(at): // something has happened
		case from == source:
			if s.pastEnd(s.head) { // and so are those behind it
				src.Stop()
			}
			s.admit(s.take(source))
		default:
			s.await(s.take(waiting))
		}
	}
}

// failed returns the error by which the source ends the schedule, once the rows before it that are prepared have gone.
func (s *Scheduler) failed() error {
	if s.begun > 0 {
		return nil
	}
	return s.broken
}

// sleep waits until an instant, or until something may have changed.
func (s *Scheduler) sleep(until time.Duration) bool {
	if s.wanted() {
		s.hungry.Store(true)
		defer s.hungry.Store(false)
		if len(s.feed) > 0 { // it came before hungry was set, and woke nobody
			return false
		}
	}
	return s.wait.Wait(until)
}

// wanted reports whether the source's next item could be taken in.
func (s *Scheduler) wanted() bool { return s.head == nil && !s.eof && !s.stalled }

// pull feeds the scheduler, so that a source which has fallen silent holds up nothing but itself.
func (s *Scheduler) pull(src Source, quit <-chan struct{}) {
	for {
		it, err := src.Next()
		select {
		case s.feed <- feeding{it, err}:
		case <-quit:
			return
		}
		if s.idle.Load() || s.hungry.Load() {
			s.wait.Wake()
		}
		if err != nil {
			return
		}
	}
}

// block waits until a completion, the source, or a cancellation may have changed something.
func (s *Scheduler) block() {
	s.idle.Store(true)
	defer s.idle.Store(false)
	// What came before idle was set woke nobody, but it is there.
	s.mu.Lock()
	quiet := len(s.done) == 0
	s.mu.Unlock()
	if quiet && (!s.wanted() || len(s.feed) == 0) {
		s.wait.Wait(Forever)
	}
}

// read makes sure that head holds the source's next item, if there is one and not too much is held back.
func (s *Scheduler) read(ctx context.Context) {
	for s.head == nil && !s.eof {
		if s.held >= s.cfg.MaxHeld {
			if !s.stalled {
				s.stats.Stalls++
			}
			s.stalled = true
			return
		}
		s.stalled = false
		var f feeding
		select {
		case f = <-s.feed:
		default:
			return
		}
		switch {
		case errors.Is(f.err, io.EOF):
			s.eof = true
		case f.err != nil:
			s.eof, s.broken = true, f.err
		default:
			f.item.Due = clock.Never
			f.item.Intended, f.item.Scheduled = s.cfg.Zero+f.item.Offset, true
			if s.cfg.ClosedLoop {
				f.item.Intended, f.item.Scheduled = s.cfg.Zero, false
			}
			s.head = f.item
			if ctx.Err() != nil {
				s.skip(s.take(source), Stopped)
			}
		}
	}
	if s.head != nil && ctx.Err() != nil {
		s.skip(s.take(source), Stopped)
	}
}

// origin says where the next item comes from.
type origin uint8

const (
	nowhere origin = iota // only a completion or the source can change anything
	source                // head
	waiting               // placed
)

// next returns the instant of the next thing to take up, and where it is.
func (s *Scheduler) next() (time.Duration, origin) {
	at, from := Forever, nowhere
	if len(s.placed) > 0 {
		at, from = s.placed[0].wake, waiting
	}
	if s.head == nil {
		return at, from
	}
	due := s.cfg.Zero + s.head.Offset
	if s.cfg.ClosedLoop { // as soon as a slot is free; until then there is no point in taking it up
		if !s.slotFree() {
			return at, from
		}
		due = s.freeSince()
	}
	if s.cfg.Until > 0 && due > s.cfg.Zero+s.cfg.Until {
		due = s.cfg.Zero + s.cfg.Until // what lies past the end is skipped at the end, not before and not after
	} else if now := s.clk.Now(); s.cfg.Prepare > 0 && due > now {
		due -= s.cfg.Prepare
		if due-s.cfg.Prepare/4 <= now { // at a high rate nothing has to wake up for it
			due = min(due, now)
		}
	}
	if due < at || due == at && s.cfg.Prepare == 0 { // what is prepared comes first
		at, from = due, source
	}
	return at, from
}

// take removes the item that next spoke of.
func (s *Scheduler) take(from origin) *Item {
	if from == waiting {
		s.held--
		return heap.Pop(&s.placed).(*Item)
	}
	it := s.head
	s.head = nil
	return it
}

// admit takes up the source's head, whose turn, as far as it is known, has come.
func (s *Scheduler) admit(it *Item) {
	if s.cfg.ClosedLoop && s.slotFree() { // a closed loop wants a row to go when its slot became free
		it.Intended = max(it.Intended, s.freeSince())
	}
	switch {
	case s.pastEnd(it):
		s.skip(it, PastEnd)
	case it.Row.SessionID == "":
		s.await(it)
	default:
		s.enter(it)
	}
}

// pastEnd reports whether an item may not go any more. One that is held up by nothing goes although the instant has
// passed by a moment.
func (s *Scheduler) pastEnd(it *Item) bool {
	if s.cfg.Until == 0 {
		return false
	}
	end := s.cfg.Zero + s.cfg.Until
	if s.cfg.ClosedLoop || it.Waited {
		return s.clk.Now() > end
	}
	return it.Intended > end
}

// enter puts a row into its session, where it waits for the turn before it.
func (s *Scheduler) enter(it *Item) {
	ses, known := s.sessions.get(it.Row.SessionID, s.cfg.MaxSessions, func(old *Session) {
		s.stats.SessionsEvicted++
		if s.cfg.Carry { // nobody else asks
			s.sessions.remember(old)
		}
	})
	it.Session = ses
	it.Turn = ses.turns
	ses.turns++
	switch {
	case s.cfg.OpenSessions:
		ses.busy++
		s.await(it)
		return
	case !known && s.cfg.Carry && s.sessions.wasClosed(ses.ID):
		ses.gone = SessionClosed
		ses.failed = true
		s.skip(it, ses.gone)
	case ses.failed:
		s.skip(it, ses.gone)
	case ses.busy > 0:
		s.held++
		ses.pending.push(it)
		return
	default:
		ses.busy++
		s.place(it)
	}
	s.sessions.touch(ses)
}

// place sets the intended instant of a turn whose predecessor has ended, and waits for it.
func (s *Scheduler) place(it *Item) {
	ses := it.Session
	if it.Turn > 0 {
		due := ses.end
		switch {
		case it.Row.Delay.Set && (!it.Timed || s.cfg.ClosedLoop):
			due += time.Duration(it.Row.Delay.V / s.cfg.Speedup * float64(time.Millisecond))
		case it.Timed && !s.cfg.ClosedLoop:
			due = max(due, s.cfg.Zero+it.Offset)
		}
		it.Intended = due
	}
	switch {
	case s.pastEnd(it):
		ses.busy--
		s.skip(it, PastEnd)
	default:
		s.await(it)
	}
}

// await lets a placed item wait for its instant, prepared as soon as that is near, and offers it then.
func (s *Scheduler) await(it *Item) {
	now := s.clk.Now()
	it.wake = it.Intended
	if it.Intended <= now && (len(s.placed) == 0 || !s.placed[0].before(it)) {
		s.offer(it)
		return
	}
	switch {
	case s.cfg.Prepare == 0 || it.prepared || it.Intended <= now || s.broken != nil:
	case it.Intended-s.cfg.Prepare-s.cfg.Prepare/4 <= now:
		it.prepared = true
		s.begun++
		s.hooks.Prepare(it)
	default:
		it.wake -= s.cfg.Prepare
	}
	s.held++
	heap.Push(&s.placed, it)
}

// offer queues an item that may go as soon as there is a slot.
func (s *Scheduler) offer(it *Item) {
	it.Due = s.clk.Now()
	s.held++
	s.ready.push(it)
	s.release()
	if s.ready.len() > 0 { // the last of the queue is in it as long as anybody is
		it.Waited = true
	}
}

// release fires what is ready, as far as there are slots.
func (s *Scheduler) release() {
	for s.ready.len() > 0 && (s.cfg.Slots == 0 || s.slotFree()) {
		s.held--
		it := s.ready.pop()
		if it.Waited && s.pastEnd(it) {
			s.skip(it, PastEnd)
			if it.Session != nil {
				s.leave(it.Session, completion{it, it.Session.end, true})
			}
			continue
		}
		if s.cfg.Slots > 0 {
			if s.cfg.ClosedLoop { // see admit
				it.Intended = max(it.Intended, s.freeSince())
			}
			s.takeSlot()
		}
		s.forget(it)
		s.inFlight++
		s.stats.Fired++
		s.hooks.Fire(it)
	}
}

// maxFree bounds the instants that are kept of free slots. With more than that, nobody waits for a slot, and since when one
// has been free decides nothing.
const maxFree = 1 << 16

// slotFree reports whether a slot of the cap is free.
func (s *Scheduler) slotFree() bool { return s.unused > 0 || len(s.free) > 0 }

// freeSince returns since when the next free slot has been free.
func (s *Scheduler) freeSince() time.Duration {
	if s.unused > 0 {
		return s.cfg.Zero
	}
	return s.free[0]
}

// takeSlot takes the slot that has been free for longest.
func (s *Scheduler) takeSlot() {
	if s.unused > 0 {
		s.unused--
		return
	}
	s.free = s.free[1:]
}

// giveSlot frees a slot.
func (s *Scheduler) giveSlot(at time.Duration) {
	i, _ := slices.BinarySearch(s.free, at)
	s.free = slices.Insert(s.free, i, at)
	if len(s.free) > maxFree {
		s.free = s.free[1:]
		s.unused++
	}
}

// settle takes in the completions that have been reported.
func (s *Scheduler) settle() {
	s.mu.Lock()
	done := s.done
	s.done = nil
	s.mu.Unlock()
	for _, c := range done {
		s.inFlight--
		if s.cfg.Slots > 0 {
			s.giveSlot(c.at)
		}
		if c.item.Session != nil {
			s.leave(c.item.Session, c)
		}
	}
}

// leave ends a turn and lets the session's next one follow.
func (s *Scheduler) leave(ses *Session, c completion) {
	ses.busy--
	ses.end = max(ses.end, c.at)
	if !c.ok && !s.cfg.OpenSessions {
		ses.failed, ses.gone = true, SessionFailed
	}
	for ses.busy == 0 && ses.pending.len() > 0 {
		it := ses.pending.pop()
		s.held--
		if ses.failed {
			s.skip(it, ses.gone)
			continue
		}
		ses.busy++
		s.place(it)
	}
	s.sessions.touch(ses)
}

// forget notes that a prepared item's fate is known.
func (s *Scheduler) forget(it *Item) {
	if it.prepared {
		s.begun--
	}
}

func (s *Scheduler) skip(it *Item, why Reason) {
	s.forget(it)
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
	s.sessions.each(func(ses *Session) {
		for ses.pending.len() > 0 {
			drop(ses.pending.pop())
		}
	})
	underWay := func(it *Item) {
		if it.Session != nil {
			it.Session.busy--
		}
		drop(it)
	}
	for len(s.placed) > 0 {
		underWay(heap.Pop(&s.placed).(*Item))
	}
	for s.ready.len() > 0 {
		underWay(s.ready.pop())
	}
}

// before reports whether an item is to be taken up before another one: by instant, at the same one by row.
func (it *Item) before(other *Item) bool {
	return it.wake < other.wake || it.wake == other.wake && it.Index < other.Index
}

// dueHeap has the item that is to be taken up first at its top.
type dueHeap []*Item

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].before(h[j]) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(*Item)) }
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
