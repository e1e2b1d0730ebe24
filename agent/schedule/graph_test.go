// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake"
)

// step returns an item of a graph. Its source yields it at an offset; it waits for others, then for its tools and a delay.
func step(offset int, tools, delay float64, after ...int64) *Item {
	row := &mooncake.Row{Delay: mooncake.Some(delay), ToolWait: mooncake.Some(tools), WaitFor: []string{}}
	return &Item{Row: row, After: after, Timed: after == nil, Offset: time.Duration(offset) * time.Millisecond}
}

// TestGraph: a row is sent when all rows that it waits for have ended, and its delay and its tool wait are over.
func TestGraph(t *testing.T) {
	// The requests of even rows take 100 ms, those of odd rows 30 ms.
	took := func(it *Item) time.Duration {
		return []time.Duration{100 * time.Millisecond, 30 * time.Millisecond}[it.Index%2]
	}
	in := func(session string, it *Item) *Item {
		it.Row.SessionID = session
		return it
	}
	for _, tc := range []struct {
		name  string
		sim   simulation
		items []*Item
		want  []event
	}{
		{
			name:  "two branches and their join; a delay and a tool wait add up",
			items: []*Item{step(0, 0, 0), step(0, 20, 5, 0), step(0, 0, 10, 0), step(0, 0, 0, 1, 2)},
			want:  []event{{0, "sent", 0, 0, 0}, {2, "sent", 110, 110, 0}, {1, "sent", 125, 125, 0}, {3, "sent", 210, 210, 0}},
		},
		{
			name:  "the speed-up divides both waits",
			sim:   simulation{cfg: Config{Speedup: 2}},
			items: []*Item{step(0, 0, 0), step(0, 20, 10, 0)},
			want:  []event{{0, "sent", 0, 0, 0}, {1, "sent", 115, 115, 0}},
		},
		{
			name: "a root is sent at its offset, and other rows at theirs, whatever the session",
			items: []*Item{
				in("s", step(0, 0, 0)), in("s", step(0, 0, 0, 0)), in("s", step(10, 0, 0)), at(20, ""), in("s", step(50, 0, 0)),
			},
			want: []event{{0, "sent", 0, 0, 0}, {2, "sent", 10, 10, 2}, {3, "sent", 20, 20, 0}, {4, "sent", 50, 50, 3}, {1, "sent", 100, 100, 1}},
		},
		{
			name:  "a turn of a session without a graph waits for its rows in graphs",
			items: []*Item{in("s", step(0, 0, 0)), in("s", step(0, 0, 0, 0)), at(10, "s")},
			want:  []event{{0, "sent", 0, 0, 0}, {1, "sent", 100, 100, 1}, {2, "sent", 130, 130, 2}},
		},
		{
			name:  "all rows that wait for a failed row, directly or not, are skipped, and no others",
			sim:   simulation{fails: []int{1}},
			items: []*Item{step(0, 0, 0), step(0, 0, 0, 0), step(0, 0, 0, 0), step(0, 0, 0, 1, 2), step(0, 0, 0, 3), at(500, "")},
			want: []event{
				{0, "sent", 0, 0, 0},
				{1, "sent", 100, 100, 0},
				{2, "sent", 100, 100, 0},
				{3, "predecessor failed", 200, 200, 0},
				{4, "predecessor failed", 200, 200, 0},
				{5, "sent", 500, 500, 0},
			},
		},
		{
			name:  "a row that waits for one that never came is sent at its offset; a wait for one that has ended counts, too",
			items: []*Item{step(0, 0, 0), step(10, 0, 0, 99), step(300, 0, 7, 0)},
			want:  []event{{0, "sent", 0, 0, 0}, {1, "sent", 10, 10, 0}, {2, "sent", 300, 107, 0}},
		},
		{
			name:  "a row due past the end is skipped, and so are the rows that wait for it",
			sim:   simulation{cfg: Config{Until: 120 * time.Millisecond}},
			items: []*Item{step(0, 0, 0), step(0, 0, 0, 0), step(0, 50, 0, 0), step(0, 0, 0, 1), step(0, 0, 0, 2)},
			want: []event{
				{0, "sent", 0, 0, 0},
				{1, "sent", 100, 100, 0},
				{2, "past end", 100, 150, 0},
				{4, "past end", 100, 100, 0},
				{3, "past end", 130, 130, 0},
			},
		},
		{
			name:  "stopped while rows wait",
			sim:   simulation{stopAt: 50 * time.Millisecond},
			items: []*Item{step(0, 0, 0), step(0, 0, 0, 0), in("s", step(0, 0, 0, 1))},
			want:  []event{{0, "sent", 0, 0, 0}, {1, "stopped", 50, 0, 0}, {2, "stopped", 50, 0, 0}},
		},
		{
			name:  "under a cap, in the order in which they may be sent",
			sim:   simulation{cfg: Config{Slots: 1}},
			items: []*Item{step(0, 0, 0), step(0, 0, 0, 0), step(0, 0, 0, 0), at(5, "")},
			want:  []event{{0, "sent", 0, 0, 0}, {3, "sent", 100, 5, 0}, {1, "sent", 130, 100, 0}, {2, "sent", 160, 100, 0}},
		},
		{
			name:  "in a closed loop",
			sim:   simulation{cfg: Config{Slots: 2, ClosedLoop: true}},
			items: []*Item{step(0, 0, 0), step(0, 0, 0, 0), step(0, 0, 0), step(0, 40, 0, 1)},
			want:  []event{{0, "sent", 0, 0, 0}, {2, "sent", 0, 0, 0}, {1, "sent", 100, 100, 0}, {3, "sent", 170, 170, 0}},
		},
		{
			name:  "an open loop follows the offsets",
			sim:   simulation{cfg: Config{OpenSessions: true}},
			items: []*Item{step(0, 0, 0), step(10, 0, 0, 0)},
			want:  []event{{0, "sent", 0, 0, 0}, {1, "sent", 10, 10, 0}},
		},
		{
			name:  "rows that ended long ago are forgotten, and no row waits for them",
			sim:   simulation{cfg: Config{MaxEnded: 1}},
			items: []*Item{step(0, 0, 0), step(0, 0, 0), step(200, 0, 500, 1), step(210, 0, 500, 0)},
			want:  []event{{0, "sent", 0, 0, 0}, {1, "sent", 0, 0, 0}, {2, "sent", 200, 200, 0}, {3, "sent", 600, 600, 0}},
		},
		{
			name:  "at MaxHeld, reading stops, and the graph still continues",
			sim:   simulation{cfg: Config{MaxHeld: 1}},
			items: []*Item{step(0, 0, 0), step(0, 0, 0, 0), step(0, 0, 0, 1), at(10, "")},
			want:  []event{{0, "sent", 0, 0, 0}, {1, "sent", 100, 100, 0}, {2, "sent", 130, 130, 0}, {3, "sent", 130, 10, 0}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.sim.duration = took
			got, stats, err := tc.sim.run(t, tc.items...)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("events (-want +got):\n%s", d)
			}
			if n := stats.Fired + stats.Skipped; n != int64(len(tc.items)) {
				t.Errorf("%d rows fired or skipped, want %d", n, len(tc.items))
			}
		})
	}
}

// TestLongGraph: a chain that is skipped costs no stack, and every row ends once.
func TestLongGraph(t *testing.T) {
	items := []*Item{step(0, 0, 0)}
	for i := range int64(50_000) {
		items = append(items, step(0, 0, 0, i))
	}
	events, _, err := simulation{fails: []int{0}}.run(t, items...)
	if err != nil || len(events) != len(items) {
		t.Fatalf("%d events of %d rows, %v", len(events), len(items), err)
	}
	if last := events[len(events)-1]; last.What != "predecessor failed" {
		t.Errorf("the last row: %+v", last)
	}
}
