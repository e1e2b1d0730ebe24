// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/internal/heap"
)

// Scheduler runs one schedule, once.
//
// An item has one way to the wire. It is admitted from the source: into its session, where it waits until the turn before
// has ended. Then its intended instant is known, and it is delayed until that, and prepared meanwhile. Then it is ready, and
// queues with the others that are. dispatch empties that queue, as far as slots and the end of the schedule allow, and is the
// only place that fires.
type Scheduler struct {
	cfg   Config
	clk   clock.Clock
	wait  Waiter
	hooks Hooks
	begin time.Duration // instant before which nothing was due
	end   time.Duration // instant after which nothing is sent

	// Owned by Run.
	feed     chan sourced
	head     *Item // next item of the source, nil when there is none yet, or none any more
	eof      bool
	broken   error // the source's; see failed
	prepared int   // items that are prepared and wait for their instant
	stalled  bool
	delayed  *heap.Heap[*Item] // items whose instant is known and has not come
	ready    fifo              // due; of a cap, waiting for a slot
	slots                      // of the cap
	prefill  slots             // of that on requests without a first token
	sessions sessionTable
	graph    graph
	inFlight int
	held     int // items in delayed, ready, the sessions' pending lists, and those that wait in graphs
	stats    Stats

	// idle is set while a completion, or the source, can move the schedule on before the instant that it waits for.
	idle atomic.Bool

	mu   sync.Mutex
	done []completion
}

// completion is the end of a fired item's request, or of its prefill alone.
type completion struct {
	item *Item
	at   time.Duration
	ok   bool
	only bool // the prefill
}

// sourced is what the source's Next returned.
type sourced struct {
	item *Item
	err  error
}

// New returns a scheduler that has not started. The waiter stays the caller's.
func New(cfg Config, clk clock.Clock, w Waiter, hooks Hooks) (*Scheduler, error) {
	if cfg.ClosedLoop && cfg.Slots < 1 {
		return nil, errors.New("schedule: a closed loop needs at least one slot")
	}
	cfg.Speedup = cmp.Or(cfg.Speedup, 1)
	if !(cfg.Speedup > 0) { // NaN too
		return nil, fmt.Errorf("schedule: speed-up %v is not above 0", cfg.Speedup)
	}
	if cfg.Slots > 0 || cfg.PrefillSlots > 0 || hooks.Prepare == nil {
		cfg.Prepare = 0
	}
	cfg.MaxHeld, cfg.MaxSessions, cfg.MaxEnded = cmp.Or(cfg.MaxHeld, 1<<16), cmp.Or(cfg.MaxSessions, 1<<14), cmp.Or(cfg.MaxEnded, 1<<18)
	s := &Scheduler{
		cfg: cfg, clk: clk, wait: w, hooks: hooks, begin: cfg.Zero, end: math.MaxInt64,
		feed: make(chan sourced, 64), slots: newSlots(cfg.Zero, cfg.Slots, cfg.SlotsOver),
		prefill: newSlots(cfg.Zero, cfg.PrefillSlots, cfg.PrefillSlotsOver), sessions: newSessionTable(),
		graph:   graph{rows: make(map[int64]*vertex), waiting: make(map[*Item]struct{})},
		delayed: heap.New((*Item).before),
	}
	if cfg.Until > 0 {
		s.end = cfg.Zero + cfg.Until
	}
	return s, nil
}

// Done reports that a fired item's request has ended, served (ok) or not. Call it once per fired item, from any
// goroutine, after the last use of the item by that goroutine.
func (s *Scheduler) Done(it *Item, at time.Duration, ok bool) {
	s.report(completion{item: it, at: at, ok: ok})
	// An open loop without a cap has nothing to do until its next row is due, so let it sleep.
	if it.Session != nil || it.Row.WaitFor != nil || s.cfg.Slots > 0 || s.cfg.PrefillSlots > 0 || s.idle.Load() {
		s.wait.Wake()
	}
}

// FirstToken reports that the first token of a fired item's reply has come, which frees its prefill slot; without it, Done does. It
// may be called from any goroutine, before Done.
func (s *Scheduler) FirstToken(it *Item, at time.Duration) {
	s.report(completion{item: it, at: at, only: true})
	s.wait.Wake()
}

func (s *Scheduler) report(c completion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = append(s.done, c)
}

// mayGo reports whether the caps let a request go.
func (s *Scheduler) mayGo() bool {
	return (s.cfg.Slots == 0 || s.slotFree()) && (s.cfg.PrefillSlots == 0 || s.prefill.slotFree())
}

// nextOpening returns when a slot opens that nobody has had yet, of the caps that let no request go.
func (s *Scheduler) nextOpening() time.Duration {
	at := Forever
	if s.cfg.Slots > 0 && !s.slotFree() {
		at = s.slots.nextOpening()
	}
	if s.cfg.PrefillSlots > 0 && !s.prefill.slotFree() {
		at = min(at, s.prefill.nextOpening())
	}
	return at
}

// couldGo returns since when the caps of a closed loop have let a request go, which they do.
func (s *Scheduler) couldGo() time.Duration {
	at := max(s.freeSince(), s.begin)
	if s.cfg.PrefillSlots > 0 {
		at = max(at, s.prefill.freeSince())
	}
	return at
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
		if ctx.Err() != nil || s.failed() != nil { // before complete, which would let the next turns go
			s.skipHeld()
		}
		s.complete()
		s.dispatch()
		s.read(ctx)
		if s.failed() != nil && s.held > 0 {
			continue
		}
		at, then := s.next()
		switch {
		case at == Forever && s.eof && s.inFlight == 0 && s.held == 0:
			return s.stats, s.failed()
		case !s.sleep(at): // something has happened
		case then == opens: // which dispatch sees
		case then == admits:
			it := s.head
			s.head = nil
			if s.pastEnd(it) { // and so are those behind it
				src.Stop()
			}
			s.admit(it)
		default:
			s.held--
			s.delay(s.delayed.Pop())
		}
	}
}

// failed returns the error by which the source ends the schedule, once the rows before it that are prepared have gone.
func (s *Scheduler) failed() error {
	if s.prepared > 0 {
		return nil
	}
	return s.broken
}

// sleep waits until an instant, or until something may have changed.
func (s *Scheduler) sleep(until time.Duration) bool {
	wanted := s.head == nil && !s.eof && !s.stalled // the source's next item could be admitted
	if wanted || until == Forever {
		s.idle.Store(true)
		defer s.idle.Store(false)
		// What came before idle was set woke nobody, but it is there.
		s.mu.Lock()
		completed := len(s.done) > 0
		s.mu.Unlock()
		if completed || wanted && len(s.feed) > 0 {
			return false
		}
	}
	return s.wait.Wait(until)
}

// pull feeds the scheduler, so that a source which has fallen silent holds up nothing but itself.
func (s *Scheduler) pull(src Source, quit <-chan struct{}) {
	for {
		it, err := src.Next()
		select {
		case s.feed <- sourced{it, err}:
		case <-quit:
			return
		}
		if s.idle.Load() {
			s.wait.Wake()
		}
		if err != nil {
			return
		}
	}
}

// read makes sure that head holds the source's next item, if there is one and not too much is held back.
func (s *Scheduler) read(ctx context.Context) {
	for {
		if s.head != nil && ctx.Err() != nil {
			s.skip(s.head, Stopped)
			s.head = nil
		}
		if s.head != nil || s.eof {
			return
		}
		stalled := s.held >= s.cfg.MaxHeld
		if stalled && !s.stalled {
			s.stats.Stalls++
		}
		if s.stalled = stalled; stalled {
			return
		}
		select {
		case f := <-s.feed:
			s.head, s.eof = f.item, f.err != nil
			if f.err != nil && !errors.Is(f.err, io.EOF) {
				s.broken = f.err
			}
		default:
			return
		}
		if it := s.head; it != nil {
			it.Due, it.Intended, it.Scheduled = clock.Never, s.cfg.Zero, !s.cfg.ClosedLoop
			if it.Scheduled {
				it.Intended += it.Offset
			}
			it.Intended = max(it.Intended, s.begin)
		}
	}
}

// move is a thing that the schedule does at an instant.
type move uint8

const (
	takesUp move = iota // the first delayed item
	admits              // head
	opens               // a slot, for which something waits
)

// next returns the next thing to do, and its instant. At Forever only a completion or the source can change anything.
func (s *Scheduler) next() (at time.Duration, then move) {
	at = Forever
	if s.delayed.Len() > 0 {
		at = (*s.delayed.First()).wake
	}
	blocked := s.cfg.ClosedLoop && !s.mayGo()
	if len(s.ready) > 0 || blocked && s.head != nil {
		if opening := s.nextOpening(); opening < at {
			at, then = opening, opens
		}
	}
	if s.head == nil {
		return at, then
	}
	due := s.cfg.Zero + s.head.Offset
	if s.cfg.ClosedLoop { // as soon as a slot is free; until then there is no point in admitting it
		if blocked {
			return at, then
		}
		due = s.couldGo()
	}
	if due > s.end { // what lies past the end is skipped at the end, not before and not after
		due = s.end
	} else if now := s.clk.Now(); s.cfg.Prepare > 0 && due > now {
		due -= s.cfg.Prepare
		if due-s.cfg.Prepare/4 <= now { // at a high rate nothing has to wake up for it
			due = min(due, now)
		}
	}
	if due < at || due == at && s.cfg.Prepare == 0 { // what is prepared comes first
		return due, admits
	}
	return at, then
}
