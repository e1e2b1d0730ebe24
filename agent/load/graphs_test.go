// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/mooncake"
)

// step returns a row of a graph; a timestamp below 0 means none.
func step(t float64, id string, after ...string) string {
	stamp := ""
	if t >= 0 {
		stamp = fmt.Sprintf(`"timestamp": %v, `, t)
	}
	return fmt.Sprintf(`{%s"input_length": 600, "output_length": 1, "delay": 5, "request_id": %q, "wait_for": [%s]}`, stamp, id, `"`+strings.Join(after, `", "`)+`"`)
}

// root returns a row of a graph that waits for none.
func root(t float64, id string) string {
	return fmt.Sprintf(`{"timestamp": %v, "input_length": 600, "output_length": 1, "request_id": %q, "wait_for": []}`, t, id)
}

// TestGraphs: a row that waits for others is yielded with the latest of them, whatever its own timestamp or the trace's order. The first
// row of a graph waits for none. The list of rows to wait for is empty for a row of a graph, and nil for a row of no graph.
func TestGraphs(t *testing.T) {
	first := []int64{}
	type got struct {
		Index  int64
		After  []int64
		Offset time.Duration
		Timed  bool
	}
	for _, tc := range []struct {
		name    string
		opt     Options
		lines   []string
		want    []got
		missing int64
	}{
		{
			"rows that wait follow the latest row that they wait for, with or without a timestamp",
			Options{},
			[]string{root(100, "a"), root(140, "b"), step(-1, "c", "a"), at(150), step(900, "d", "c", "b")},
			[]got{{0, first, 0, true}, {2, []int64{0}, 0, false}, {1, first, 40 * ms, true}, {4, []int64{2, 1}, 40 * ms, false}, {3, nil, 50 * ms, true}},
			0,
		},
		{
			"a row that is read late is not out of order",
			Options{Lookahead: 2},
			[]string{root(0, "a"), at(10), at(20), at(30), step(1000, "b", "a"), at(1010)},
			[]got{{0, first, 0, true}, {1, nil, 10 * ms, true}, {2, nil, 20 * ms, true}, {4, []int64{0}, 20 * ms, false}, {3, nil, 30 * ms, true}, {5, nil, 1010 * ms, true}},
			0,
		},
		{
			"names that no row has, or only a later one, are counted; a row that waits for no other names is sent at its timestamp",
			Options{},
			[]string{root(0, "a"), step(10, "b", "x", "a"), step(20, "c", "d"), step(30, "d", "c")},
			[]got{{0, first, 0, true}, {1, []int64{0}, 0, false}, {2, first, 20 * ms, true}, {3, []int64{2}, 20 * ms, false}},
			2,
		},
		{
			"in an open loop, no row waits",
			Options{OpenSessions: true},
			[]string{root(0, "a"), step(10, "b", "a")},
			[]got{{0, nil, 0, true}, {1, nil, 10 * ms, true}},
			0,
		},
		{
			"a window has a graph whole or not at all",
			Options{Start: 50 * ms, End: 150 * ms},
			[]string{root(0, "a"), root(100, "b"), step(110, "c", "a"), root(120, "e"), step(900, "d", "b")},
			[]got{{1, first, 50 * ms, true}, {4, []int64{1}, 50 * ms, false}, {3, first, 70 * ms, true}},
			0,
		},
		{
			"passes have graphs of their own",
			Options{Loop: Loop{Passes: 2}},
			[]string{root(0, "a"), step(10, "b", "a")},
			[]got{{0, first, 0, true}, {1, []int64{0}, 0, false}, {2, first, 20 * ms, true}, {3, []int64{2}, 20 * ms, false}},
			0,
		},
		{
			"at a rate, only roots arrive",
			Options{Arrivals: Arrivals{Rate: 10, Pattern: Constant}},
			[]string{root(0, "a"), step(10, "b", "a"), root(20, "c")},
			[]got{{0, first, 0, true}, {1, []int64{0}, 0, false}, {2, first, 100 * ms, true}},
			0,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.opt.Loop.Any() {
				tc.opt.Loop.Again = func() (Rows, error) {
					return mooncake.NewReader(strings.NewReader(strings.Join(tc.lines, "\n")), mooncake.ReaderOptions{Name: "test"}), nil
				}
			}
			s, err := stream(t, tc.opt, tc.lines...)
			if err != nil {
				t.Fatal(err)
			}
			all, err := items(t, s)
			if err != nil {
				t.Fatal(err)
			}
			var rows []got
			for _, it := range all {
				rows = append(rows, got{it.Index, it.After, it.Offset, it.Timed})
			}
			if d := cmp.Diff(tc.want, rows); d != "" {
				t.Errorf("items (-want +got):\n%s", d)
			}
			if n := s.Counts().Unawaited; n != tc.missing {
				t.Errorf("%d names belong to no row, want %d", n, tc.missing)
			}
		})
	}
}

// TestGraphsRefused: rows that cannot form a graph are refused.
func TestGraphsRefused(t *testing.T) {
	for _, tc := range []struct {
		name  string
		opt   Options
		lines []string
		want  string
	}{
		{"a cycle, strictly", Options{Strict: true}, []string{root(0, "a"), step(1, "b", "c"), step(2, "c", "b")}, "test:2: wait_for: names a request that is not the request_id of an earlier row"},
		{"neither a timestamp nor a known row to wait for", Options{}, []string{root(0, "a"), step(-1, "b", "x")}, "test:2: timestamp: the row has none"},
	} {
		if _, err := stream(t, tc.opt, tc.lines...); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

// TestGraphShards: a graph is in one shard, and the shards together have all rows, or say why that is not possible.
func TestGraphShards(t *testing.T) {
	var lines []string
	for i := range 20 {
		a := fmt.Sprintf("a%d", i)
		lines = append(lines, root(float64(i), a), step(float64(i), "b"+a, a), step(float64(i), "c"+a, a), step(float64(i), "d"+a, "b"+a, "c"+a))
	}
	seen := map[int64]bool{}
	for shard := range 3 {
		s, err := stream(t, Options{Shard: shard, Shards: 3}, lines...)
		if err != nil {
			t.Fatal(err)
		}
		all, err := items(t, s)
		if err != nil {
			t.Fatal(err)
		}
		here := map[int64]*schedule.Item{}
		for _, it := range all {
			here[it.Index], seen[it.Index] = it, true
			for _, before := range it.After {
				if here[before] == nil {
					t.Errorf("shard %d: row %d waits for row %d, which is not in the shard", shard, it.Index, before)
				}
			}
		}
		if len(all) == 0 || len(all) == len(lines) {
			t.Errorf("shard %d has %d rows", shard, len(all))
		}
	}
	if len(seen) != len(lines) {
		t.Errorf("shards have %d of %d rows", len(seen), len(lines))
	}
	_, err := stream(t, Options{Shards: 2}, root(0, "a"), root(0, "b"), step(1, "c", "a", "b"))
	if err == nil || !strings.Contains(err.Error(), "names rows of two groups, which may be in two shards; give the rows of a graph one session_id") {
		t.Errorf("a graph of two shards: %v", err)
	}
}
