// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake"
)

// again returns a function that opens a trace, given as lines, once more. The function fails at the pass number failing, if that is not 0.
func again(failing int, lines ...string) func() (Rows, error) {
	passes := 1
	return func() (Rows, error) {
		if passes++; passes == failing {
			return nil, errors.New("the trace is gone")
		}
		return mooncake.NewReader(strings.NewReader(strings.Join(lines, "\n")), mooncake.ReaderOptions{Name: "test"}), nil
	}
}

// TestLimitEndsTheLoop: no pass is read after the one in which the limit is reached, so that what the run says of the rows that it has read is not
// about rows that it will never send.
func TestLimitEndsTheLoop(t *testing.T) {
	lines := []string{`{"timestamp": 10, "input_length": 600, "output_length": 1}`, `{"timestamp": 40, "input_length": 600, "output_length": 1}`}
	s, err := stream(t, Options{Loop: Loop{Passes: 1000, Again: again(4, lines...)}, MaxRows: 5}, lines...)
	if err != nil {
		t.Fatal(err)
	}
	all, err := items(t, s)
	if err != nil || len(all) != 5 || s.Counts().Read != 6 || s.Counts().PastLimit != 1 {
		t.Errorf("%d rows sent, %+v: %v", len(all), s.Counts(), err)
	}
}

// TestLoop: each pass sends the trace again, at later times and in new sessions.
func TestLoop(t *testing.T) {
	row := func(rest string) string { return `{"input_length": 600, "output_length": 1, ` + rest + `}` }
	blocks := []string{row(`"timestamp": 10, "hash_ids": [5, 7]`), row(`"timestamp": 40, "hash_ids": [5, 6]`)}
	const big = uint64(1) << 50
	for _, tc := range []struct {
		name  string
		opt   Options
		lines []string
		want  []string
	}{
		{
			name: "a pass lasts as long as the trace and a mean gap", opt: Options{Loop: Loop{Passes: 3}}, lines: blocks,
			want: []string{"0 0s [5 7]", "1 30ms [5 6]", "2 60ms [5 7]", "3 90ms [5 6]", "4 120ms [5 7]", "5 150ms [5 6]"},
		},
		{
			name: "fresh ids", opt: Options{Loop: Loop{Passes: 3, Fresh: true}}, lines: blocks,
			want: []string{"0 0s [5 7]", "1 30ms [5 6]", "2 60ms [13 15]", "3 90ms [13 14]", "4 120ms [21 23]", "5 150ms [21 22]"},
		},
		{
			name: "fresh ids where ids are hashes", opt: Options{Loop: Loop{Passes: 2, Fresh: true}}, lines: []string{row(fmt.Sprintf(`"timestamp": 0, "hash_ids": [%d, 1]`, big)), row(`"timestamp": 9, "hash_ids": [2]`)},
			want: []string{fmt.Sprintf("0 0s [%d 1]", big), "1 9ms [2]", fmt.Sprintf("2 18ms [%d %d]", big+0x9e3779b97f4a7c15, uint64(0x9e3779b97f4a7c16)), fmt.Sprintf("3 27ms [%d]", uint64(0x9e3779b97f4a7c17))},
		},
		{
			name: "until no more rows are due, at the speed of the replay", opt: Options{Loop: Loop{For: 60 * ms}, Speedup: 2}, lines: blocks,
			want: []string{"0 0s [5 7]", "1 15ms [5 6]", "2 30ms [5 7]", "3 45ms [5 6]"},
		},
		{
			name: "at a rate", opt: Options{Loop: Loop{For: 250 * ms}, Arrivals: Arrivals{Rate: 10, Pattern: Constant}}, lines: blocks,
			want: []string{"0 0s [5 7]", "1 100ms [5 6]", "2 200ms [5 7]"},
		},
		{
			name: "in file order", opt: Options{Loop: Loop{Passes: 2}, FileOrder: true}, lines: blocks,
			want: []string{"0 0s [5 7]", "1 0s [5 6]", "2 0s [5 7]", "3 0s [5 6]"},
		},
		{
			name: "a limit counts all passes", opt: Options{Loop: Loop{Passes: 3}, MaxRows: 3}, lines: blocks,
			want: []string{"0 0s [5 7]", "1 30ms [5 6]", "2 60ms [5 7]"},
		},
		{
			name: "each pass has sessions of its own", opt: Options{Loop: Loop{Passes: 2}, Sessions: mooncake.SessionFull}, lines: []string{turn(0, "a"), delayed(5, "a"), turn(8, "b")},
			want: []string{"0 0s [] a", "1 0s [] a", "2 8ms [] b", "3 16ms [] a#2", "4 16ms [] a#2", "5 24ms [] b#2"},
		},
	} {
		tc.opt.Loop.Again = again(0, tc.lines...)
		s, err := stream(t, tc.opt, tc.lines...)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		all, err := items(t, s)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		var got []string
		for _, it := range all {
			line := fmt.Sprint(it.Index, " ", it.Offset, " ", it.Row.HashIDs)
			if it.Row.SessionID != "" {
				line += " " + it.Row.SessionID
			}
			got = append(got, line)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

// TestLoopStaysOnTheGrid: with a coarse clock, the second pass begins one step after the last row of the first.
func TestLoopStaysOnTheGrid(t *testing.T) {
	var lines []string
	for i := range 40 {
		lines = append(lines, at(3000*float64(i/4)))
	}
	s, err := stream(t, Options{Loop: Loop{Passes: 2, Again: again(0, lines...)}}, lines...)
	if err != nil {
		t.Fatal(err)
	}
	if grid := s.Info().Grid; !grid.Coarse || grid.Quantum != 3000 {
		t.Errorf("%+v", grid)
	}
	all, err := items(t, s)
	if err != nil || len(all) != 80 {
		t.Fatal(len(all), err)
	}
	for i, it := range all {
		if want := time.Duration(i/4) * 3 * time.Second; it.Offset != want {
			t.Fatalf("row %d at %v, want %v", i, it.Offset, want)
		}
	}
}

// TestFreshPassesFindNothing: with fresh ids, each pass is predicted to have as many cached tokens as the first one.
func TestFreshPassesFindNothing(t *testing.T) {
	lines := make([]string, 50)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"timestamp": %d, "input_length": 1536, "output_length": 1, "hash_ids": [0, %d, %d]}`, i, 1+i%5, 10+i)
	}
	cached := func(fresh bool) (passes [3]int64) {
		s, err := stream(t, Options{Loop: Loop{Passes: 3, Fresh: fresh, Again: again(0, lines...)}}, lines...)
		if err != nil {
			t.Fatal(err)
		}
		all, err := items(t, s)
		if err != nil || len(all) != 150 {
			t.Fatal(len(all), err)
		}
		for i, it := range all {
			passes[i/50] += it.Predicted.Whole
		}
		return passes
	}
	if c := cached(true); c[0] == 0 || c[1] != c[0] || c[2] != c[0] {
		t.Errorf("fresh passes are predicted to have %v cached", c)
	}
	if c := cached(false); c[1] <= c[0] || c[2] != c[1] {
		t.Errorf("warm passes are predicted to have %v cached", c)
	}
}

func TestLoopRefused(t *testing.T) {
	for _, tc := range []struct {
		opt  Options
		want string
	}{
		{Options{Loop: Loop{Passes: 2}, Start: time.Second}, "cannot be looped"},
		{Options{Loop: Loop{For: time.Second}, Arrivals: Arrivals{Rate: math.Inf(1)}}, "a duration never ends"},
		{Options{Loop: Loop{Passes: 2}}, "all rows have the same timestamp"},
		{Options{Loop: Loop{Passes: 2, Again: again(2)}, FileOrder: true}, "the trace is gone"},
	} {
		s, err := stream(t, tc.opt, at(5), at(5))
		if err == nil {
			_, err = items(t, s)
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.opt, err, tc.want)
		}
	}
}

// TestPassesInFileOrderAreApart: if timestamps only define the order, those of a pass are after those of the pass before, so that the rows
// are no less ordered than the trace.
func TestPassesInFileOrderAreApart(t *testing.T) {
	lines := []string{`{"timestamp": 10, "input_length": 600, "output_length": 1}`, `{"timestamp": 40, "input_length": 600, "output_length": 1}`}
	s, err := stream(t, Options{FileOrder: true, Loop: Loop{Passes: 3, Again: again(0, lines...)}}, lines...)
	if err != nil {
		t.Fatal(err)
	}
	all, err := items(t, s)
	var at []float64
	for _, it := range all {
		at = append(at, it.Row.Timestamp.V)
	}
	if diff := cmp.Diff([]float64{10, 40, 70, 100, 130, 160}, at); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	same := `{"timestamp": 10, "input_length": 600, "output_length": 1}`
	if s, err = stream(t, Options{FileOrder: true, Loop: Loop{Passes: 2, Again: again(0, same)}}, same); err != nil {
		t.Fatal(err)
	}
	if all, err = items(t, s); len(all) != 2 || err != nil {
		t.Errorf("%d rows of one timestamp, %v", len(all), err)
	}
}
