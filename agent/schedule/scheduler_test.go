// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"errors"
	"io"
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/mooncake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rows is a Source over a slice; it returns fail at its end in place of io.EOF. ahead is the number of rows that it has read ahead when it
// is stopped; 0 = all.
type rows struct {
	items   []*Item
	next    int
	fail    error
	ahead   int
	stopped atomic.Bool
}

func (r *rows) Stop() { r.stopped.Store(true) }

func (r *rows) Next() (*Item, error) {
	if r.stopped.Load() && r.ahead > 0 {
		if r.ahead--; r.ahead == 0 {
			r.next, r.fail = len(r.items), nil
		}
	}
	if r.next == len(r.items) {
		if r.fail != nil {
			return nil, r.fail
		}
		return nil, io.EOF
	}
	r.next++
	return r.items[r.next-1], nil
}

// at returns an item with a timestamp, in a session if one is named.
func at(ms int, session string) *Item {
	return &Item{
		Row:   &mooncake.Row{Timestamp: mooncake.Some(float64(ms)), SessionID: session},
		Timed: true, Offset: time.Duration(ms) * time.Millisecond,
	}
}

// after returns a later turn with a delay and no timestamp. Its offset is that of its session's last row with a timestamp, as a source sets
// it.
func after(delay, offset int, session string) *Item {
	return &Item{
		Row:    &mooncake.Row{Delay: mooncake.Some(float64(delay)), SessionID: session},
		Offset: time.Duration(offset) * time.Millisecond,
	}
}

// event is an action of a run on an item, in milliseconds of virtual time.
type event struct {
	Row      int
	What     string // "prepared", "sent" or the reason why it was skipped
	At       int64  // instant
	Intended int64
	Turn     int
}

type simulation struct {
	cfg      Config
	duration func(*Item) time.Duration // of a request; nil = 10 ms
	first    time.Duration             // from sending a request to its first token; 0 = the first token is not reported
	fails    []int                     // rows whose request fails
	stopAt   time.Duration             // cancel then; 0 = never
	srcErr   error
}

// run runs the items in virtual time.
func (sim simulation) run(t *testing.T, items ...*Item) (events []event, stats Stats, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		clk := clock.New()
		w := NewSleeper(clk)
		defer w.Close()
		for i, it := range items {
			it.Index = int64(i)
		}
		var s *Scheduler
		note := func(it *Item, what string) {
			events = append(events, event{int(it.Index), what, clk.Now().Milliseconds(), it.Intended.Milliseconds(), it.Turn})
		}
		hooks := Hooks{
			Prepare: func(it *Item) { note(it, "prepared") },
			Fire: func(it *Item) {
				note(it, "sent")
				d := 10 * time.Millisecond
				if sim.duration != nil {
					d = sim.duration(it)
				}
				go func() {
					if sim.first > 0 {
						time.Sleep(sim.first)
						s.FirstToken(it, clk.Now())
						d -= sim.first
					}
					time.Sleep(d)
					s.Done(it, clk.Now(), !slices.Contains(sim.fails, int(it.Index)))
				}()
			},
			Skip: func(it *Item, why Reason) {
				note(it, [...]string{"session failed", "session closed", "past end", "stopped", "predecessor failed"}[why])
			},
		}
		s, err = New(sim.cfg, clk, w, hooks)
		if err != nil {
			return
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if sim.stopAt > 0 {
			time.AfterFunc(sim.stopAt, cancel)
		}
		stats, err = s.Run(ctx, &rows{items: items, fail: sim.srcErr})
	})
	return events, stats, err
}

func TestSchedule(t *testing.T) {
	slow := func(*Item) time.Duration { return 100 * time.Millisecond }
	for _, tc := range []struct {
		name  string
		sim   simulation
		items []*Item
		want  []event
	}{
		{
			name:  "open loop: a burst and a gap, whatever the requests take",
			sim:   simulation{duration: slow},
			items: []*Item{at(0, ""), at(0, ""), at(30, "")},
			want:  []event{{0, "sent", 0, 0, 0}, {1, "sent", 0, 0, 0}, {2, "sent", 30, 30, 0}},
		},
		{
			name:  "a later start of the schedule moves everything",
			sim:   simulation{cfg: Config{Zero: 7 * time.Millisecond}},
			items: []*Item{at(0, ""), at(5, "")},
			want:  []event{{0, "sent", 7, 7, 0}, {1, "sent", 12, 12, 0}},
		},
		{
			name:  "a turn fires at the later of its timestamp and the end of the turn before",
			sim:   simulation{duration: slow},
			items: []*Item{at(0, "a"), at(50, "a"), at(300, "a")},
			want:  []event{{0, "sent", 0, 0, 0}, {1, "sent", 100, 100, 1}, {2, "sent", 300, 300, 2}},
		},
		{
			name:  "a delay counts from the end of the turn before and is divided by the speed-up",
			sim:   simulation{cfg: Config{Speedup: 2}, duration: slow},
			items: []*Item{at(0, "a"), after(40, 0, "a"), after(0, 0, "a")},
			want:  []event{{0, "sent", 0, 0, 0}, {1, "sent", 120, 120, 1}, {2, "sent", 220, 220, 2}},
		},
		{
			name: "a timestamp beats a delay on the same row",
			items: []*Item{at(0, "a"), {
				Row:   &mooncake.Row{Timestamp: mooncake.Some(50.0), Delay: mooncake.Some(500.0), SessionID: "a"},
				Timed: true, Offset: 50 * time.Millisecond,
			}},
			want: []event{{0, "sent", 0, 0, 0}, {1, "sent", 50, 50, 1}},
		},
		{
			name:  "a failed turn ends its session, held and later turns alike, and no other",
			sim:   simulation{duration: slow, fails: []int{0}},
			items: []*Item{at(0, "a"), at(10, "a"), at(20, "b"), at(200, "a"), at(210, "b")},
			want: []event{
				{0, "sent", 0, 0, 0},
				{2, "sent", 20, 20, 0},
				{1, "session failed", 100, 10, 1},
				{3, "session failed", 200, 200, 2},
				{4, "sent", 210, 210, 1},
			},
		},
		{
			name:  "open sessions: every row at its own instant, failures or not",
			sim:   simulation{cfg: Config{OpenSessions: true}, duration: slow, fails: []int{0}},
			items: []*Item{at(0, "a"), at(10, "a"), at(200, "a")},
			want:  []event{{0, "sent", 0, 0, 0}, {1, "sent", 10, 10, 1}, {2, "sent", 200, 200, 2}},
		},
		{
			name:  "a cap holds rows back in order, and their intended instant stays",
			sim:   simulation{cfg: Config{Slots: 1}, duration: slow},
			items: []*Item{at(0, ""), at(10, ""), at(20, "")},
			want:  []event{{0, "sent", 0, 0, 0}, {1, "sent", 100, 10, 0}, {2, "sent", 200, 20, 0}},
		},
		{
			name:  "closed loop: source order, intended when a slot became free",
			sim:   simulation{cfg: Config{ClosedLoop: true, Slots: 2}, duration: func(it *Item) time.Duration { return time.Duration(it.Index+1) * 10 * time.Millisecond }},
			items: []*Item{at(0, ""), at(0, ""), at(500, ""), at(0, "")},
			want:  []event{{0, "sent", 0, 0, 0}, {1, "sent", 0, 0, 0}, {2, "sent", 10, 10, 0}, {3, "sent", 20, 20, 0}},
		},
		{
			name:  "closed loop: a turn waits for the one before while other rows pass",
			sim:   simulation{cfg: Config{ClosedLoop: true, Slots: 2}, duration: slow},
			items: []*Item{at(0, "a"), at(0, "a"), at(0, "b")},
			want:  []event{{0, "sent", 0, 0, 0}, {2, "sent", 0, 0, 0}, {1, "sent", 100, 100, 1}},
		},
		{
			name:  "closed loop: a turn still waits for its delay",
			sim:   simulation{cfg: Config{ClosedLoop: true, Slots: 1}},
			items: []*Item{at(0, "a"), after(50, 0, "a"), at(0, "b")},
			want:  []event{{0, "sent", 0, 0, 0}, {2, "sent", 10, 10, 0}, {1, "sent", 60, 60, 1}},
		},
		{
			name:  "rows past the end are skipped at once; the one at the end is sent",
			sim:   simulation{cfg: Config{Until: 20 * time.Millisecond}},
			items: []*Item{at(0, ""), at(20, ""), at(21, ""), at(1000000, "")},
			want:  []event{{0, "sent", 0, 0, 0}, {1, "sent", 20, 20, 0}, {2, "past end", 20, 21, 0}, {3, "past end", 20, 1000000, 0}},
		},
		{
			name:  "a turn whose predecessor ends past the end is skipped, and so are all after it",
			sim:   simulation{cfg: Config{Until: 50 * time.Millisecond}, duration: slow},
			items: []*Item{at(0, "a"), at(10, "a"), at(20, "a")},
			want:  []event{{0, "sent", 0, 0, 0}, {1, "past end", 100, 100, 1}, {2, "past end", 100, 100, 2}},
		},
		{
			name:  "rows past the end have their turns, and close no session",
			sim:   simulation{cfg: Config{Until: 20 * time.Millisecond, MaxSessions: 1}},
			items: []*Item{at(0, "a"), at(21, "b"), at(22, "c"), at(23, "a"), at(24, "b")},
			want: []event{
				{0, "sent", 0, 0, 0},
				{1, "past end", 20, 21, 0},
				{2, "past end", 20, 22, 0},
				{3, "past end", 20, 23, 1},
				{4, "past end", 20, 24, 1},
			},
		},
		{
			name:  "closed loop: it ends at a time, whatever the timestamps are",
			sim:   simulation{cfg: Config{ClosedLoop: true, Slots: 1, Until: 15 * time.Millisecond}},
			items: []*Item{at(0, ""), at(0, ""), at(0, ""), at(0, "")},
			want:  []event{{0, "sent", 0, 0, 0}, {1, "sent", 10, 10, 0}, {2, "past end", 20, 20, 0}, {3, "past end", 20, 20, 0}},
		},
		{
			name:  "cancelled: held and unread rows are skipped, with their turns, and requests in flight end",
			sim:   simulation{duration: slow, stopAt: 50 * time.Millisecond, cfg: Config{Slots: 2}},
			items: []*Item{at(0, "a"), at(10, "a"), at(20, ""), at(30, ""), at(60, ""), at(70, "a"), at(80, "b"), at(90, "a"), at(90, "b")},
			want: []event{
				{0, "sent", 0, 0, 0},
				{2, "sent", 20, 20, 0},
				{1, "stopped", 50, 10, 1},
				{3, "stopped", 50, 30, 0},
				{4, "stopped", 50, 60, 0},
				{5, "stopped", 50, 70, 2},
				{6, "stopped", 50, 80, 0},
				{7, "stopped", 50, 90, 3},
				{8, "stopped", 50, 90, 1},
			},
		},
		{
			name:  "no more than MaxHeld rows are held back: reading stops, later rows are late",
			sim:   simulation{cfg: Config{MaxHeld: 1}, duration: slow},
			items: []*Item{at(0, "a"), at(10, "a"), at(20, ""), at(30, "")},
			want: []event{
				{0, "sent", 0, 0, 0},
				{1, "sent", 100, 100, 1},
				{2, "sent", 100, 20, 0},
				{3, "sent", 100, 30, 0},
			},
		},
		{
			name:  "the session that is idle longest makes room; a busy one never does",
			sim:   simulation{cfg: Config{MaxSessions: 2}, duration: func(it *Item) time.Duration { return map[int64]time.Duration{0: time.Second}[it.Index] + 1 }},
			items: []*Item{at(0, "busy"), at(10, "b"), at(20, "c"), at(30, "d"), at(1100, "busy"), at(1101, "b")},
			want: []event{
				{0, "sent", 0, 0, 0},
				{1, "sent", 10, 10, 0},
				{2, "sent", 20, 20, 0},
				{3, "sent", 30, 30, 0},
				{4, "sent", 1100, 1100, 1},
				{5, "sent", 1101, 1101, 0},
			},
		},
		{
			name:  "closed loop: a turn is intended for the time at which its slot became free, however long ago the turn before ended",
			sim:   simulation{cfg: Config{ClosedLoop: true, Slots: 1}, duration: slow},
			items: []*Item{at(0, "a"), at(0, "b"), at(0, "c"), at(0, "a")},
			want:  []event{{0, "sent", 0, 0, 0}, {1, "sent", 100, 100, 0}, {2, "sent", 200, 200, 0}, {3, "sent", 300, 300, 1}},
		},
		{
			name:  "under a cap nothing is sent past the end",
			sim:   simulation{cfg: Config{Slots: 1, Until: 50 * time.Millisecond}, duration: slow},
			items: []*Item{at(0, ""), at(10, ""), at(20, "")},
			want:  []event{{0, "sent", 0, 0, 0}, {1, "past end", 100, 10, 0}, {2, "past end", 100, 20, 0}},
		},
		{
			name:  "under a cap a session's next turn waits behind the rows that were due before it",
			sim:   simulation{cfg: Config{Slots: 1}, duration: slow},
			items: []*Item{at(0, "a"), at(1, ""), at(2, "a"), at(3, "a")},
			want:  []event{{0, "sent", 0, 0, 0}, {1, "sent", 100, 1, 0}, {2, "sent", 200, 100, 1}, {3, "sent", 300, 300, 2}},
		},
		{
			name:  "rows past the end are not skipped before the turns that are due before it",
			sim:   simulation{cfg: Config{Until: 200 * time.Millisecond}, duration: slow},
			items: []*Item{at(0, "a"), after(50, 0, "a"), at(201, "")},
			want:  []event{{0, "sent", 0, 0, 0}, {1, "sent", 150, 150, 1}, {2, "past end", 200, 201, 0}},
		},
		{
			name:  "turns that need carried replies are not sent after their session was closed",
			sim:   simulation{cfg: Config{MaxSessions: 1, Carry: true}},
			items: []*Item{at(0, "a"), at(50, "b"), at(100, "a"), at(150, "a")},
			want:  []event{{0, "sent", 0, 0, 0}, {1, "sent", 50, 50, 0}, {2, "session closed", 100, 100, 1}, {3, "session closed", 150, 150, 2}},
		},
		{name: "an empty trace ends at once"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, stats, err := tc.sim.run(t, tc.items...)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("events (-want +got):\n%s", d)
			}
			if n := stats.Fired + stats.Skipped; n != int64(len(tc.items)) {
				t.Errorf("fired %d + skipped %d, want %d in all", stats.Fired, stats.Skipped, len(tc.items))
			}
		})
	}
}

func TestScheduleStallIsCounted(t *testing.T) {
	_, stats, _ := simulation{
		cfg: Config{MaxHeld: 1}, duration: func(*Item) time.Duration { return time.Second },
	}.run(t, at(0, "a"), at(1, "a"), at(2, ""))
	if stats.Stalls != 1 {
		t.Errorf("stalls = %d, want 1", stats.Stalls)
	}
}

func TestScheduleSourceError(t *testing.T) {
	broken := errors.New("row 3: not JSON")
	got, _, err := simulation{srcErr: broken, duration: func(*Item) time.Duration { return time.Second }}.
		run(t, at(0, "a"), at(5, "a"), at(6, ""))
	if !errors.Is(err, broken) {
		t.Errorf("error = %v, want the source's", err)
	}
	// Reading stops as soon as the row before the bad one has been sent. Requests in flight have ended (the bubble would hang otherwise),
	// and the held turn is accounted for.
	want := []event{{0, "sent", 0, 0, 0}, {2, "sent", 6, 6, 0}, {1, "stopped", 6, 5, 1}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
}

// TestNothingIsAllocatedByACap: a cap costs only what runs under it, however large it is.
func TestNothingIsAllocatedByACap(t *testing.T) {
	for _, loop := range []bool{false, true} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		events, stats, err := simulation{cfg: Config{Slots: math.MaxInt, ClosedLoop: loop}}.run(t, at(0, ""), at(1, ""), at(2, ""))
		runtime.ReadMemStats(&after)
		if err != nil || stats.Fired != 3 {
			t.Errorf("closed loop %t: %+v, error %v, %+v", loop, stats, err, events)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
			t.Errorf("closed loop %t: %d bytes were allocated for three rows", loop, n)
		}
	}
}

// TestFreeSlotsAreBounded: the number of remembered instants of free slots is bounded, and no slot is lost.
func TestFreeSlotsAreBounded(t *testing.T) {
	s, err := New(Config{Slots: 3 * maxFree}, clock.New(), nil, Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 * maxFree {
		s.acquireSlot()
	}
	if s.slotFree() {
		t.Fatal("a slot is free although all are occupied")
	}
	for i := range time.Duration(3 * maxFree) {
		s.freeSlot(i)
	}
	if len(s.free) > maxFree || len(s.free)+s.unused != 3*maxFree {
		t.Errorf("the instants of %d of %d free slots are remembered, want at most %d", len(s.free), len(s.free)+s.unused, maxFree)
	}
}

// TestEndStopsTheSource: rows after the end of the schedule that the source has not read stay unread; those that it has read are skipped.
func TestEndStopsTheSource(t *testing.T) {
	for name, cfg := range map[string]Config{
		"open loop":   {Until: 50 * time.Millisecond},
		"cap":         {Until: 50 * time.Millisecond, Slots: 1},
		"closed loop": {Until: 50 * time.Millisecond, Slots: 1, ClosedLoop: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			const n, ahead = 100_000, 20
			src := &rows{ahead: ahead}
			for i := range n {
				src.items = append(src.items, at(10*i, ""))
				src.items[i].Index = int64(i)
			}
			clk := clock.New()
			w := NewSleeper(clk)
			defer w.Close()
			var s *Scheduler
			s, err := New(cfg, clk, w, Hooks{
				Fire: func(it *Item) {
					go func() {
						time.Sleep(9 * time.Millisecond)
						s.Done(it, clk.Now(), true)
					}()
				},
				Skip: func(it *Item, why Reason) {
					if why != PastEnd {
						t.Errorf("%s: row %d: %v", name, it.Index, why)
					}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			stats, err := s.Run(t.Context(), src)
			if err != nil || stats.Fired != 6 || stats.Skipped < ahead || stats.Skipped > 1000 {
				t.Errorf("%s: %+v, error %v; want 6 rows sent, those that had been read skipped, and no others", name, stats, err)
			}
		})
	}
}

func TestNewRejects(t *testing.T) {
	for name, cfg := range map[string]Config{
		"closed loop without slots": {ClosedLoop: true},
		"negative speed-up":         {Speedup: -1},
	} {
		if _, err := New(cfg, clock.New(), nil, Hooks{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// silent is a source that yields one row, and then blocks until it is closed.
type silent struct {
	first *Item
	quit  chan struct{}
}

func (s *silent) Next() (*Item, error) {
	if it := s.first; it != nil {
		s.first = nil
		return it, nil
	}
	<-s.quit
	return nil, io.EOF
}

func (s *silent) Stop() {}

func TestScheduleSilentSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clk := clock.New()
		w := NewSleeper(clk)
		defer w.Close()
		src := &silent{first: at(0, "a"), quit: make(chan struct{})}
		ended := make(chan struct{})
		var s *Scheduler
		s, err := New(Config{}, clk, w, Hooks{
			Fire: func(it *Item) { go s.Done(it, clk.Now(), true) },
			Skip: func(*Item, Reason) { t.Error("nothing is to be skipped") },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			defer close(ended)
			if stats, err := s.Run(ctx, src); err != nil || stats.Fired != 1 {
				t.Errorf("fired %d, error %v", stats.Fired, err)
			}
		}()
		time.Sleep(time.Minute)
		select {
		case <-ended:
			t.Fatal("the schedule ended before its source")
		default:
		}
		cancel()
		close(src.quit) // what a cancelled run does with its source
		<-ended
	})
}

// TestPrefillSlots: a request holds a slot while it waits for its first token, and no longer.
func TestPrefillSlots(t *testing.T) {
	const whole, first = 100 * time.Millisecond, 30 * time.Millisecond
	lasts := func(*Item) time.Duration { return whole }
	for _, tc := range []struct {
		name string
		sim  simulation
		at   []int64 // when each row should be sent
		want []int64 // the instant for which it should be intended
	}{
		{"a cap on prefills", simulation{cfg: Config{PrefillSlots: 2}, first: first}, []int64{0, 0, 30, 30, 60}, []int64{0, 0, 0, 0, 0}},
		{"if no first token is reported, the whole request holds the slot", simulation{cfg: Config{PrefillSlots: 2}}, []int64{0, 0, 100, 100, 200}, []int64{0, 0, 0, 0, 0}},
		{"a cap on prefills and one on requests", simulation{cfg: Config{PrefillSlots: 2, Slots: 3}, first: first}, []int64{0, 0, 30, 100, 100}, []int64{0, 0, 0, 0, 0}},
		{"a closed loop", simulation{cfg: Config{PrefillSlots: 1, Slots: 3, ClosedLoop: true}, first: first}, []int64{0, 30, 60, 100, 130}, []int64{0, 30, 60, 100, 130}},
	} {
		tc.sim.duration = lasts
		events, stats, err := tc.sim.run(t, at(0, ""), at(0, ""), at(0, ""), at(0, ""), at(0, ""))
		if err != nil || stats.Fired != 5 {
			t.Errorf("%s: %+v, %v", tc.name, stats, err)
		}
		var sent, intended []int64
		for _, e := range events {
			sent, intended = append(sent, e.At), append(intended, e.Intended)
		}
		if !slices.Equal(sent, tc.at) || !slices.Equal(intended, tc.want) {
			t.Errorf("%s: sent at %v, intended at %v; want %v and %v", tc.name, sent, intended, tc.at, tc.want)
		}
	}
}

// TestRisingCaps: the slots of a cap open one by one, and a waiting request is sent when its slot opens.
func TestRisingCaps(t *testing.T) {
	const whole, first = 100 * time.Millisecond, 30 * time.Millisecond
	lasts := func(*Item) time.Duration { return whole }
	over := 60 * time.Millisecond
	for _, tc := range []struct {
		name string
		sim  simulation
		rows []int
		at   []int64 // when each row should be sent
		want []int64 // the instant for which it should be intended
	}{
		{"a closed loop", simulation{cfg: Config{Slots: 3, SlotsOver: over, ClosedLoop: true}}, make([]int, 7), []int64{0, 30, 60, 100, 130, 160, 200}, []int64{0, 30, 60, 100, 130, 160, 200}},
		{"a closed loop that starts later", simulation{cfg: Config{Zero: 7 * time.Millisecond, Slots: 3, SlotsOver: over, ClosedLoop: true}}, make([]int, 4), []int64{7, 37, 67, 107}, []int64{7, 37, 67, 107}},
		{"a burst under a cap", simulation{cfg: Config{Slots: 3, SlotsOver: over}}, make([]int, 4), []int64{0, 30, 60, 100}, make([]int64, 4)},
		{"a row that is due as its slot opens does not wait", simulation{cfg: Config{Slots: 3, SlotsOver: over}}, []int{0, 30, 40, 60}, []int64{0, 30, 60, 100}, []int64{0, 30, 40, 60}},
		{"one slot is available at once", simulation{cfg: Config{Slots: 1, SlotsOver: time.Hour}}, make([]int, 2), []int64{0, 100}, make([]int64, 2)},
		{"a cap on prefills", simulation{cfg: Config{PrefillSlots: 3, PrefillSlotsOver: 40 * time.Millisecond}, first: first}, make([]int, 6), []int64{0, 20, 30, 40, 50, 60}, make([]int64, 6)},
		{"a cap on prefills and one on requests", simulation{cfg: Config{Slots: 3, SlotsOver: over, PrefillSlots: 2, PrefillSlotsOver: 10 * time.Millisecond}, first: first}, make([]int, 4), []int64{0, 30, 60, 100}, make([]int64, 4)},
		{"past the end of the run", simulation{cfg: Config{Slots: 3, SlotsOver: time.Hour, Until: 150 * time.Millisecond}}, make([]int, 4), []int64{0, 100, 200, 200}, make([]int64, 4)},
		{"more slots than there are instants", simulation{cfg: Config{Slots: 1e9, SlotsOver: time.Millisecond, ClosedLoop: true}}, make([]int, 3), []int64{0, 0, 0}, []int64{0, 0, 0}},
	} {
		tc.sim.duration = lasts
		var items []*Item
		for _, ms := range tc.rows {
			items = append(items, at(ms, ""))
		}
		events, _, err := tc.sim.run(t, items...)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		var sent, intended []int64
		for _, e := range events {
			sent, intended = append(sent, e.At), append(intended, e.Intended)
		}
		if !slices.Equal(sent, tc.at) || !slices.Equal(intended, tc.want) {
			t.Errorf("%s: sent at %v, intended at %v; want %v and %v", tc.name, sent, intended, tc.at, tc.want)
		}
	}
}

// TestSlotsOpen: for any number of slots that open within any time, each is open from the nanosecond that nextOpening returns, not earlier,
// and at the end all are open.
func TestSlotsOpen(t *testing.T) {
	for _, tc := range []struct {
		count int
		over  time.Duration
	}{{2, 1}, {3, 100}, {7, 1000}, {1000, 7}, {10, math.MaxInt64 / 2}, {1 << 40, 100}, {math.MaxInt64, math.MaxInt64 / 2}, {1 << 20, time.Second}} {
		const zero = 5
		s := newSlots(zero, tc.count, tc.over)
		if s.open(zero - 1); s.slotFree() {
			t.Errorf("%+v: a slot is open before zero", tc)
		}
		for range 100 {
			next := s.nextOpening()
			if next == Forever {
				break
			}
			before := s.opened
			if s.open(next - 1); s.opened != before {
				t.Fatalf("%+v: slot %d is open a nanosecond before %v", tc, before, next)
			}
			if s.open(next); s.opened <= before {
				t.Fatalf("%+v: slot %d is not open at %v", tc, before, next)
			}
		}
		if s.open(zero + tc.over); s.opened != tc.count || s.unused+len(s.free) != tc.count || len(s.free) > maxFree || s.nextOpening() != Forever {
			t.Errorf("%+v: %d are open, %d since zero and %d since later", tc, s.opened, s.unused, len(s.free))
		}
	}
}
