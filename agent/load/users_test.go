// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake"
)

// TestUsers: each user sends the turns of a session at the user's own times, and, when the session has ended, those of the next one.
func TestUsers(t *testing.T) {
	lines := []string{turn(0, "a"), turn(1, "b"), turn(2, "c"), turn(3, "a"), at(4), delayed(5, "a"), turn(6, "c")}
	type got struct {
		Index  int64
		Offset int // ms
	}
	for _, tc := range []struct {
		name  string
		users int
		opt   Options
		want  []got
	}{
		{"one user", 1, Options{}, []got{{0, 0}, {3, 500}, {5, 1000}, {1, 1500}, {2, 2000}, {6, 2500}, {4, 3000}}},
		{"two users", 2, Options{}, []got{{0, 0}, {1, 500}, {3, 1000}, {2, 1500}, {5, 2000}, {6, 2500}, {4, 3000}}},
		{"three users", 3, Options{}, []got{{0, 0}, {1, 500}, {2, 1000}, {3, 1500}, {4, 2000}, {6, 2500}, {5, 3000}}},
		{"more users than sessions: the places of the others stay empty", 5, Options{}, []got{{0, 0}, {1, 500}, {2, 1000}, {4, 1500}, {3, 2500}, {6, 3500}, {5, 5000}}},
		{"a limit counts what is sent", 2, Options{MaxRows: 3}, []got{{0, 0}, {1, 500}, {3, 1000}}},
		{"a window is in the trace's time", 2, Options{Start: 3 * ms, End: 5 * ms}, []got{{3, 0}, {4, 500}, {5, 1000}}},
		{"file order", 2, Options{FileOrder: true}, []got{{0, 0}, {1, 500}, {3, 1000}, {2, 1500}, {5, 2000}, {6, 2500}, {4, 3000}}},
	} {
		tc.opt.Arrivals, tc.opt.Sessions = Arrivals{Rate: 2, Users: tc.users}, mooncake.SessionFull
		s, err := stream(t, tc.opt, lines...)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		all, err := items(t, s)
		var is []got
		for _, it := range all {
			if is = append(is, got{it.Index, int(it.Offset.Milliseconds())}); !it.Timed {
				t.Errorf("%s: row %d has no time of its own", tc.name, it.Index)
			}
		}
		if diff := cmp.Diff(tc.want, is); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", tc.name, err, diff)
		}
		if c := s.Counts(); tc.opt.MaxRows > 0 && c.PastLimit != int64(len(lines))-tc.opt.MaxRows {
			t.Errorf("%s: %+v", tc.name, c)
		}
	}
}

// TestUsersOfShards: the shards together make the schedule that one process makes, each has whole sessions, and users continue in the next
// pass of a loop.
func TestUsersOfShards(t *testing.T) {
	var lines []string
	for i := range 300 {
		lines = append(lines, turn(float64(i), fmt.Sprintf("s%d", i*7%90)))
	}
	offsets := func(opt Options) map[int64]time.Duration {
		opt.Arrivals, opt.Sessions = Arrivals{Rate: 50, Users: 8}, mooncake.SessionFull
		opt.Loop = Loop{Passes: 2, Again: again(0, lines...)}
		return offsetsOf(t, opt, lines...)
	}
	whole, parts := offsets(Options{}), make(map[int64]time.Duration)
	if len(whole) != 600 {
		t.Errorf("%d rows of two passes", len(whole))
	}
	for i := range 3 {
		maps.Copy(parts, offsets(Options{Shard: i, Shards: 3}))
	}
	if diff := cmp.Diff(whole, parts); diff != "" {
		t.Errorf("the shards' schedule is different (-whole +shards):\n%s", diff)
	}
}

func TestUsersRefused(t *testing.T) {
	opt := Options{Arrivals: Arrivals{Rate: 1000, Users: 2}, Sessions: mooncake.SessionFull}
	s, err := stream(t, opt, root(0, "r"), step(1, "x", "r"))
	if err != nil {
		t.Fatal(err)
	}
	if all, err := items(t, s); err == nil || len(all) != 0 || !strings.Contains(err.Error(), "line 1: the row is part of a graph") {
		t.Errorf("a graph: %d items, %v", len(all), err)
	}
	lines := []string{turn(0, "a")}
	for range usersLookahead + 10 {
		lines = append(lines, at(1))
	}
	if s, err = stream(t, opt, append(lines, turn(2, "a"))...); err != nil {
		t.Fatal(err)
	}
	if all, err := items(t, s); err == nil || len(all) != len(lines) || !strings.Contains(err.Error(), fmt.Sprintf("line %d: the row comes more than 65536 rows after the turn before it", len(lines)+1)) {
		t.Errorf("a late turn: %d items, %v", len(all), err)
	}
}
