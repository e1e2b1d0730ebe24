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
// An item passes these stages. It is admitted from the source to its session, where it waits until the turn before has ended. After that
// its scheduled time is known, and it is delayed until that time, and prepared meanwhile. At that time it is ready, and queued with the
// others that are ready. dispatch empties that queue, as far as slots and the end of the schedule allow, and is the only function that
// fires.
type Scheduler struct {
	cfg   Config
	clk   clock.Clock
	wait  Waiter
	hooks Hooks
	begin time.Duration // time before which nothing was due
	end   time.Duration // time after which nothing is sent

	// Owned by Run.
	feed     chan sourced
	head     *Item // next item of the source, nil if the source has not yielded it yet or has ended
	eof      bool
	broken   error // the source's error; see failed
	prepared int   // items that are prepared and wait for their time
	stalled  bool
	delayed  *heap.Heap[*Item] // items whose time is known, in the future
	ready    fifo              // due; with a cap, waiting for a slot
	slots                      // for requests in flight
	prefill  slots             // for requests without a first token
	sessions sessionTable
	graph    graph
	inFlight int
	held     int // items in delayed, ready, the sessions' pending lists, and those that wait in graphs
	stats    Stats
	pace     pace

	// idle is set while a completion, or the source, can advance the schedule before the time for which it waits.
	idle atomic.Bool

	mu    sync.Mutex
	done  []completion
	taken []completion // the completions processed last, whose array is used again; owned by Run
}

// completion is the end of a fired item's request, or only of its prefill.
type completion struct {
	item *Item
	at   time.Duration
	ok   bool
	only bool // only the prefill has ended, not the request
}

// sourced is the result of the source's Next.
type sourced struct {
	item *Item
	err  error
}

// New returns a scheduler that has not started. The caller owns the waiter.
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

// Done reports that a fired item's request has ended, served (ok) or not. Call it once per fired item, from any goroutine, after the last
// use of the item by that goroutine.
func (s *Scheduler) Done(it *Item, at time.Duration, ok bool) {
	s.report(completion{item: it, at: at, ok: ok})
	// An open loop without a cap has nothing to do until its next row is due, so do not wake it.
	if it.Session != nil || it.Row.WaitFor != nil || s.cfg.Slots > 0 || s.cfg.PrefillSlots > 0 || s.idle.Load() {
		s.wait.Wake()
	}
}

// FirstToken reports that the first token of a fired item's reply has come, which frees its prefill slot. If it is not called, Done frees
// the slot. It may be called from any goroutine, before Done.
func (s *Scheduler) FirstToken(it *Item, at time.Duration) {
	s.report(completion{item: it, at: at, only: true})
	s.wait.Wake()
}

func (s *Scheduler) report(c completion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = append(s.done, c)
}

// mayGo reports whether the caps allow another request.
func (s *Scheduler) mayGo() bool {
	return (s.cfg.Slots == 0 || s.slotFree()) && (s.cfg.PrefillSlots == 0 || s.prefill.slotFree())
}

// nextOpening returns when the next slot opens in a cap that has no free slot, or Forever.
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

// couldGo returns since when the caps of a closed loop have allowed a request. It may be called only while they allow one.
func (s *Scheduler) couldGo() time.Duration {
	at := max(s.freeSince(), s.begin)
	if s.cfg.PrefillSlots > 0 {
		at = max(at, s.prefill.freeSince())
	}
	return at
}

// Run passes every item of the source to Fire or Skip and returns when all fired items are done. When ctx has ended, or after Config.Until,
// it stops the source, and skips the items that were read and not fired, as Stopped or PastEnd; it still waits for the fired ones. If the
// source fails, Run returns its error, and no more rows are read. A call of the source's Next may still be running when Run returns; Run
// does not end it.
func (s *Scheduler) Run(ctx context.Context, src Source) (Stats, error) {
	defer context.AfterFunc(ctx, func() {
		src.Stop()
		s.wait.Wake()
	})()
	quit := make(chan struct{})
	defer close(quit)
	go s.pull(src, quit)
	for {
		if ctx.Err() != nil || s.failed() != nil { // before complete, which would start the next turns
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
		case then == opens: // dispatch handles this
		case then == admits:
			it := s.head
			s.head = nil
			if s.pastEnd(it) { // and so are those after it
				src.Stop()
			}
			s.admit(it)
		default:
			s.held--
			s.delay(s.delayed.Pop())
		}
	}
}

// failed returns the error with which the source ends the schedule, once the prepared rows before it have been sent.
func (s *Scheduler) failed() error {
	if s.prepared > 0 {
		return nil
	}
	return s.broken
}

// sleep waits until a time, and returns true then, or until something may have changed, and returns false then.
func (s *Scheduler) sleep(until time.Duration) bool {
	wanted := s.head == nil && !s.eof && !s.stalled // the source's next item could be admitted
	if wanted || until == Forever {
		s.idle.Store(true)
		defer s.idle.Store(false)
		// An event before idle was set woke nobody, so check for it.
		s.mu.Lock()
		completed := len(s.done) > 0
		s.mu.Unlock()
		if completed || wanted && len(s.feed) > 0 {
			return false
		}
	}
	if wanted || until == Forever || s.cfg.Slots > 0 || s.cfg.PrefillSlots > 0 || !s.pace.fast() {
		return s.wait.Wait(until, nil)
	}
	return s.wait.Wait(until, s.hooks.Calm)
}

// pull reads the source for the scheduler, so that a silent source blocks only itself.
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

// read makes sure that head is the source's next item, if there is one and not too much is held.
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

// move is an action of the schedule at some time.
type move uint8

const (
	takesUp move = iota // take up the first delayed item
	admits              // admit head
	opens               // open a slot for which something waits
)

// next returns the next action, and its time. At Forever, only a completion or the source can change anything.
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
	if s.cfg.ClosedLoop { // when a slot is free; there is no point in admitting it earlier
		if blocked {
			return at, then
		}
		due = s.couldGo()
	}
	if due > s.end { // items after the end are skipped at the end
		due = s.end
	} else if now := s.clk.Now(); s.cfg.Prepare > 0 && due > now {
		due -= s.cfg.Prepare
		if due-s.cfg.Prepare/4 <= now { // at a high rate, this avoids a wake-up
			due = min(due, now)
		}
	}
	if due < at || due == at && s.cfg.Prepare == 0 { // preparing comes first
		return due, admits
	}
	return at, then
}
