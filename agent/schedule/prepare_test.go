// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/agent/clock"
)

var errBroken = errors.New("broken")

// TestPrepare: an item is prepared once, shortly before it is due, if it waits for nothing but its time.
func TestPrepare(t *testing.T) {
	const ms = time.Millisecond
	slow := func(*Item) time.Duration { return 100 * ms }
	for _, tc := range []struct {
		name  string
		sim   simulation
		items []*Item
		want  []event
	}{
		{
			name:  "a whole burst is prepared before its first row is sent; a row that is due at once is not prepared",
			sim:   simulation{cfg: Config{Prepare: 8 * ms}},
			items: []*Item{at(0, ""), at(30, ""), at(30, "")},
			want: []event{
				{0, "sent", 0, 0, 0},
				{1, "prepared", 22, 30, 0},
				{2, "prepared", 22, 30, 0},
				{1, "sent", 30, 30, 0},
				{2, "sent", 30, 30, 0},
			},
		},
		{
			name:  "rows are prepared up to a quarter earlier if the schedule is awake",
			sim:   simulation{cfg: Config{Prepare: 8 * ms}},
			items: []*Item{at(20, ""), at(29, ""), at(30, ""), at(31, "")},
			want: []event{
				{0, "prepared", 12, 20, 0},
				{0, "sent", 20, 20, 0},
				{1, "prepared", 20, 29, 0},
				{2, "prepared", 20, 30, 0},
				{3, "prepared", 23, 31, 0},
				{1, "sent", 29, 29, 0},
				{2, "sent", 30, 30, 0},
				{3, "sent", 31, 31, 0},
			},
		},
		{
			name:  "a later turn is prepared if its instant is still ahead when the previous turn ends",
			sim:   simulation{cfg: Config{Prepare: 8 * ms}, duration: slow},
			items: []*Item{at(0, "a"), at(300, "a"), after(3, 300, "a"), at(350, "a")},
			want: []event{
				{0, "sent", 0, 0, 0},
				{1, "prepared", 292, 300, 1},
				{1, "sent", 300, 300, 1},
				{2, "prepared", 400, 403, 2},
				{2, "sent", 403, 403, 2},
				{3, "sent", 503, 503, 3},
			},
		},
		{
			name:  "the turns of an open session are prepared like other rows",
			sim:   simulation{cfg: Config{Prepare: 8 * ms, OpenSessions: true}, duration: slow},
			items: []*Item{at(20, "a"), at(30, "a")},
			want: []event{
				{0, "prepared", 12, 20, 0},
				{0, "sent", 20, 20, 0},
				{1, "prepared", 20, 30, 1},
				{1, "sent", 30, 30, 1},
			},
		},
		{
			name:  "rows past the end are not prepared, and are skipped at the end",
			sim:   simulation{cfg: Config{Prepare: 8 * ms, Until: 32 * ms}},
			items: []*Item{at(30, ""), at(33, ""), at(34, "a")},
			want: []event{
				{0, "prepared", 22, 30, 0},
				{0, "sent", 30, 30, 0},
				{1, "past end", 32, 33, 0},
				{2, "past end", 32, 34, 0},
			},
		},
		{
			name:  "stopped after some were prepared: these are skipped, once",
			sim:   simulation{cfg: Config{Prepare: 8 * ms}, stopAt: 25 * ms},
			items: []*Item{at(30, ""), at(31, "a"), at(60, "")},
			want: []event{
				{0, "prepared", 22, 30, 0},
				{1, "prepared", 22, 31, 0},
				{0, "stopped", 25, 30, 0},
				{1, "stopped", 25, 31, 0},
				{2, "stopped", 25, 60, 0},
			},
		},
		{
			name:  "the source breaks off: prepared rows are still sent",
			sim:   simulation{cfg: Config{Prepare: 8 * ms}, srcErr: errBroken},
			items: []*Item{at(5, ""), at(6, "")},
			want: []event{
				{0, "prepared", 0, 5, 0},
				{1, "prepared", 0, 6, 0},
				{0, "sent", 5, 5, 0},
				{1, "sent", 6, 6, 0},
			},
		},
		{
			name:  "nothing is prepared under a cap",
			sim:   simulation{cfg: Config{Prepare: 8 * ms, Slots: 2}},
			items: []*Item{at(30, "")},
			want:  []event{{0, "sent", 30, 30, 0}},
		},
		{
			name:  "nothing is prepared in a closed loop",
			sim:   simulation{cfg: Config{Prepare: 8 * ms, Slots: 1, ClosedLoop: true}},
			items: []*Item{at(30, ""), at(40, "")},
			want:  []event{{0, "sent", 0, 0, 0}, {1, "sent", 10, 10, 0}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			events, stats, err := tc.sim.run(t, tc.items...)
			if !errors.Is(err, tc.sim.srcErr) {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, events); d != "" {
				t.Errorf("events (-want +got):\n%s", d)
			}
			if n := stats.Fired + stats.Skipped; n != int64(len(tc.items)) {
				t.Errorf("%d items fired or skipped, want %d", n, len(tc.items))
			}
		})
	}
}

// TestPreparedOrder: rows are sent in the order of their instants and of the trace, even if the machine delayed the schedule, or there
// were too many to prepare them all.
func TestPreparedOrder(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct {
		name   string
		hiccup time.Duration // of the scheduler's goroutine while it prepares row 100
	}{
		{"never late", 0},
		{"late for some rows", 9 * ms},
		{"late for all rows", 30 * ms},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var items []*Item
				for i := range 300 { // more than the channel from the source holds
					items = append(items, at(20+i/200, []string{"", "a", ""}[i%3]))
					items[i].Index = int64(i)
				}
				clk := clock.New()
				w := NewSleeper(clk)
				defer w.Close()
				var s *Scheduler
				var fired []int64
				prepared := 0
				s, err := New(Config{Prepare: 8 * ms, OpenSessions: true}, clk, w, Hooks{
					Prepare: func(it *Item) {
						if prepared++; it.Index == 100 {
							time.Sleep(tc.hiccup)
						}
					},
					Fire: func(it *Item) {
						if it.Intended > clk.Now() {
							t.Errorf("row %d was sent %v early", it.Index, it.Intended-clk.Now())
						}
						fired = append(fired, it.Index)
						go s.Done(it, clk.Now(), true)
					},
					Skip: func(it *Item, _ Reason) { t.Errorf("row %d was skipped", it.Index) },
				})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Run(t.Context(), &rows{items: items}); err != nil {
					t.Fatal(err)
				}
				if !slices.IsSorted(fired) || len(fired) != len(items) {
					t.Errorf("%d rows were sent, in this order: %v", len(fired), fired)
				}
				if tc.hiccup == 0 && prepared != len(items) {
					t.Errorf("%d of %d rows were prepared", prepared, len(items))
				}
			})
		})
	}
}

// slowSource yields each row after the first only after a while, as a live capture does.
type slowSource struct {
	rows
	gap time.Duration
}

func (s *slowSource) Next() (*Item, error) {
	if s.next > 0 && s.next < len(s.items) {
		time.Sleep(s.gap)
	}
	return s.rows.Next()
}

// TestSlowSource: a row that arrives while the schedule waits for a later one is sent at its own instant.
func TestSlowSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clk := clock.New()
		w := NewSleeper(clk)
		defer w.Close()
		var s *Scheduler
		var fired []event
		s, err := New(Config{}, clk, w, Hooks{
			Fire: func(it *Item) {
				fired = append(fired, event{Row: int(it.Index), At: clk.Now().Milliseconds()})
				go s.Done(it, clk.Now(), true)
			},
			Skip: func(*Item, Reason) {},
		})
		if err != nil {
			t.Fatal(err)
		}
		// A turn that waits for a minute, and a row that the source yields after 100 ms.
		items := []*Item{at(0, "a"), after(60_000, 0, "a"), at(300, "")}
		for i, it := range items {
			it.Index = int64(i)
		}
		if _, err := s.Run(t.Context(), &slowSource{rows: rows{items: items, fail: io.EOF}, gap: 50 * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
		want := []event{{Row: 0}, {Row: 2, At: 300}, {Row: 1, At: 60_000}}
		if d := cmp.Diff(want, fired); d != "" {
			t.Errorf("fired (-want +got):\n%s", d)
		}
	})
}
