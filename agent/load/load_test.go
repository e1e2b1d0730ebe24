// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/mooncake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

// stream opens a trace given as JSON lines.
func stream(t *testing.T, opt Options, lines ...string) (*Stream, error) {
	t.Helper()
	r := mooncake.NewReader(strings.NewReader(strings.Join(lines, "\n")), mooncake.ReaderOptions{Name: "test"})
	s, err := Open(r, opt)
	if err == nil {
		t.Cleanup(func() { s.Close() })
	}
	return s, err
}

// items reads a stream to its end.
func items(t *testing.T, s *Stream) ([]*schedule.Item, error) {
	t.Helper()
	var all []*schedule.Item
	for {
		it, err := s.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, it)
	}
}

// at returns a row with this timestamp and without ids.
func at(t float64) string {
	return fmt.Sprintf(`{"timestamp": %v, "input_length": 600, "output_length": 1}`, t)
}

func turn(t float64, session string) string {
	return fmt.Sprintf(`{"timestamp": %v, "input_length": 600, "output_length": 1, "session_id": %q}`, t, session)
}

func delayed(d float64, session string) string {
	return fmt.Sprintf(`{"delay": %v, "input_length": 600, "output_length": 1, "session_id": %q}`, d, session)
}

func TestOrderAndOffsets(t *testing.T) {
	type got struct {
		Index  int64
		Offset time.Duration
		Timed  bool
	}
	for _, tc := range []struct {
		name  string
		opt   Options
		lines []string
		want  []got
	}{
		{
			name:  "the first timestamp is the schedule's zero, for epoch times, too; fractions of a millisecond stay",
			lines: []string{at(1700000000000), at(1700000000000.25), at(1700000001000)},
			want:  []got{{0, 0, true}, {1, 250 * time.Microsecond, true}, {2, time.Second, true}},
		},
		{
			name: "speed-up divides", opt: Options{Speedup: 4},
			lines: []string{at(100), at(102)},
			want:  []got{{0, 0, true}, {1, 500 * time.Microsecond, true}},
		},
		{
			name:  "rows out of order within the look-ahead are sorted, ties by row",
			lines: []string{at(5), at(3), at(3), at(4)},
			want:  []got{{1, 0, true}, {2, 0, true}, {3, 1 * ms, true}, {0, 2 * ms, true}},
		},
		{
			name: "a session keeps its file order against its timestamps", opt: Options{Sessions: mooncake.SessionFull},
			lines: []string{turn(5, "a"), turn(3, "a"), at(4)},
			want:  []got{{2, 0, true}, {0, 1 * ms, true}, {1, 1 * ms, true}},
		},
		{
			name: "open loop: by timestamp, session or not", opt: Options{OpenSessions: true, Sessions: mooncake.SessionFull},
			lines: []string{turn(5, "a"), turn(3, "a"), at(4)},
			want:  []got{{1, 0, true}, {2, 1 * ms, true}, {0, 2 * ms, true}},
		},
		{
			name: "a delayed turn comes at its session's last timestamp, without one of its own", opt: Options{Sessions: mooncake.SessionFull},
			lines: []string{turn(0, "a"), delayed(50, "a"), at(10)},
			want:  []got{{0, 0, true}, {1, 0, false}, {2, 10 * ms, true}},
		},
		{
			name: "window: inclusive, in trace time after the first row; a start moves the zero", opt: Options{Start: 10 * ms, End: 20 * ms},
			lines: []string{at(100), at(109), at(110), at(120), at(121)},
			want:  []got{{2, 0, true}, {3, 10 * ms, true}},
		},
		{
			name: "window with an end alone keeps the zero", opt: Options{End: 10 * ms},
			lines: []string{at(100), at(110), at(111)},
			want:  []got{{0, 0, true}, {1, 10 * ms, true}},
		},
		{
			name: "max rows counts in schedule order", opt: Options{MaxRows: 2},
			lines: []string{at(5), at(3), at(4)},
			want:  []got{{1, 0, true}, {2, 1 * ms, true}},
		},
		{
			name: "file order when asked for", opt: Options{FileOrder: true},
			lines: []string{at(5), at(3)},
			want:  []got{{0, 0, false}, {1, 0, false}},
		},
		{
			name:  "file order without timestamps",
			lines: []string{`{"input_length": 5}`, `{"text_input": "x"}`},
			want:  []got{{0, 0, false}, {1, 0, false}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := stream(t, tc.opt, tc.lines...)
			if err != nil {
				t.Fatal(err)
			}
			all, err := items(t, s)
			if err != nil {
				t.Fatal(err)
			}
			var g []got
			for _, it := range all {
				g = append(g, got{it.Index, it.Offset, it.Timed})
			}
			if d := cmp.Diff(tc.want, g); d != "" {
				t.Errorf("items (-want +got):\n%s", d)
			}
			c := s.Counts()
			if c.Read != int64(len(tc.lines)) || c.Read != int64(len(g))+c.OutsideWindow+c.PastLimit {
				t.Errorf("rows do not add up: %+v, %d items of %d lines", c, len(g), len(tc.lines))
			}
		})
	}
}

func TestErrors(t *testing.T) {
	many := make([]string, 0, 20)
	for i := range 20 {
		many = append(many, at(float64(100+i)))
	}
	for _, tc := range []struct {
		name  string
		opt   Options
		lines []string
		want  string // in the error of Open, or of the first bad row
	}{
		{"empty", Options{}, nil, "no rows"},
		{"broken within the look-ahead", Options{}, []string{at(1), "{"}, "test:2"},
		{"a row out of order by more than the look-ahead", Options{Lookahead: 4}, append(slices.Clone(many), at(1)), "line 21: timestamp 1 ms comes more than 4 rows after 11"},
		{"a single row without a timestamp", Options{}, []string{at(1), `{"input_length": 5}`}, "test:2: timestamp: the row has none"},
		{"a first turn without a timestamp", Options{}, []string{at(1), delayed(5, "a")}, "test:2: timestamp: the first turn"},
		{"no timestamps, strict", Options{Strict: true}, []string{`{"input_length": 5}`}, "--no-fixed-schedule"},
		{"sessions whose rows do not show what they mean", Options{}, []string{turn(0, "a"), turn(1, "a")}, "--session-mode"},
		{"delta sessions in an open loop", Options{Sessions: mooncake.SessionDelta, OpenSessions: true}, []string{turn(0, "a"), turn(1, "a")}, "open loop"},
		{"sessions after the look-ahead", Options{Lookahead: 2}, []string{at(0), at(1), turn(2, "a"), turn(3, "a")}, "line 4: the first session"},
		{"spread without a grid", Options{Spread: SpreadEven}, []string{at(0), at(1), at(7)}, "not multiples of a coarse step"},
		{"spread without timestamps", Options{Spread: SpreadEven}, []string{`{"input_length": 5}`}, "no timestamps"},
		{"spread in a closed loop", Options{Spread: SpreadEven, FileOrder: true}, []string{at(0)}, "closed loop"},
		{"window without timestamps", Options{Start: ms}, []string{`{"input_length": 5}`}, "no timestamps"},
		{"window that cuts delta sessions", Options{Sessions: mooncake.SessionDelta, Start: ms}, []string{turn(0, "a"), turn(1, "a")}, "later turns as first ones"},
		{"a timestamp no clock reaches", Options{}, []string{at(1e12), at(5e12)}, "line 2: timestamp 5000000000000 ms is more than 100 years"},
		{"a speed-up that stretches a timestamp beyond any clock", Options{Speedup: 1e-300}, []string{at(0), at(1)}, "more than 100 years"},
		{"a delay that never ends", Options{Sessions: mooncake.SessionFull}, []string{turn(0, "a"), delayed(1e14, "a")}, "test:2: delay: 100000000000000: is more than 100 years"},
		{"window reversed", Options{Start: 2 * ms, End: ms}, []string{at(0)}, "before its start"},
		{"speed-up below 0", Options{Speedup: -1}, []string{at(0)}, "speed-up"},
		{"speed-up not a number", Options{Speedup: math.NaN()}, []string{at(0)}, "speed-up"},
		{"shard out of range", Options{Shard: 2, Shards: 2}, []string{at(0)}, "shard 2 of 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := stream(t, tc.opt, tc.lines...)
			if err == nil {
				_, err = items(t, s)
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error = %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestRowsBeforeABadOneGoOut(t *testing.T) {
	for name, bad := range map[string]string{"broken": "not JSON", "out of order": at(0)} {
		s, err := stream(t, Options{Lookahead: 2}, at(10), at(11), at(12), at(13), at(14), bad)
		if err != nil {
			t.Fatal(err)
		}
		all, err := items(t, s)
		if err == nil || len(all) != 5 {
			t.Errorf("%s: %d items and error %v, want all 5 good rows and then the error", name, len(all), err)
		}
	}
}

// silent is a pipe with some rows, to which then nobody writes and which nobody closes.
type silent struct {
	rows *mooncake.Reader
	quit chan struct{}
}

func (s *silent) Line() int64                       { return s.rows.Line() }
func (s *silent) Refuse(f *mooncake.RowError) error { return s.rows.Refuse(f) }
func (s *silent) Read() (*mooncake.Row, error) {
	r, err := s.rows.Read()
	if errors.Is(err, io.EOF) {
		<-s.quit
	}
	return r, err
}

// TestStopGivesUpASilentTrace: if the replay is stopped while the trace is silent, each row that was read is still yielded.
func TestStopGivesUpASilentTrace(t *testing.T) {
	const rows = 60
	pipe := &silent{mooncake.NewReader(strings.NewReader(strings.Join(grid(rows/3, 3), "\n")), mooncake.ReaderOptions{}), make(chan struct{})}
	s, err := Open(pipe, Options{Lookahead: 8})
	if err != nil {
		t.Fatal(err)
	}
	for len(s.rows) < rows-8 { // the other rows have been read; the reader waits for more
		time.Sleep(time.Millisecond)
	}
	s.Stop()
	all, err := items(t, s)
	if c := s.Counts(); err != nil || len(all) != rows || c.Read != rows || !c.Cut {
		t.Errorf("%d items, error %v, counts %+v; want all %d rows that are there and then the end", len(all), err, c, rows)
	}
	if s.Close() {
		t.Error("Close claims that a blocked reader has ended")
	}
	close(pipe.quit)
}

// endless is a trace without an end.
type endless struct{ n int64 }

func (e *endless) Line() int64                       { return e.n }
func (e *endless) Refuse(f *mooncake.RowError) error { return f }
func (e *endless) Read() (*mooncake.Row, error) {
	e.n++
	return &mooncake.Row{Timestamp: mooncake.Some(float64(e.n)), InputLength: mooncake.Some[int64](600)}, nil
}

// TestStopEndsTheReading stops a trace that has no end: the rows that were read are yielded, each once, and no others.
func TestStopEndsTheReading(t *testing.T) {
	const lookahead = 100
	src := &endless{}
	s, err := Open(src, Options{Lookahead: lookahead})
	if err != nil {
		t.Fatal(err)
	}
	last := int64(-1)
	next := func() error {
		it, err := s.Next()
		if err == nil && it.Index != last+1 {
			t.Fatalf("row %d comes after row %d", it.Index, last)
		}
		last++
		return err
	}
	for range 1000 {
		if err := next(); err != nil {
			t.Fatal(err)
		}
	}
	s.Stop()
	after := 0
	for ; ; after++ {
		if err = next(); err != nil {
			break
		}
		if after > 10_000 {
			t.Fatal("a stopped stream reads on")
		}
	}
	if c := s.Counts(); !errors.Is(err, io.EOF) || after < lookahead-1 || c.Read != last || !c.Cut {
		t.Errorf("%d rows after the stop, the last is %d, error %v, counts %+v", after, last, err, c)
	}
	if !s.Close() {
		t.Error("the reading has not ended")
	}
	if most := last + int64(cap(s.rows)) + 1; src.n > most {
		t.Errorf("%d rows were read from the file, %d came out", src.n, last)
	}
}

func TestSpreadUniformKeepsTurnsInOrder(t *testing.T) {
	var lines []string
	for i := range 400 {
		for range 2 {
			lines = append(lines, turn(float64(3000*(i/10)), fmt.Sprint("s", i)))
		}
	}
	s, err := stream(t, Options{Spread: SpreadUniform, Sessions: mooncake.SessionFull}, lines...)
	if err != nil {
		t.Fatal(err)
	}
	all, err := items(t, s)
	if err != nil {
		t.Fatal(err)
	}
	last := make(map[string]int64)
	for _, it := range all {
		if before, seen := last[it.Row.SessionID]; seen && it.Index < before {
			t.Fatalf("row %d of session %s comes after row %d", it.Index, it.Row.SessionID, before)
		}
		last[it.Row.SessionID] = it.Index
	}
}

// grid returns a trace with a number of timestamps (steps) that are 3 s apart, and k rows at each.
func grid(steps, k int) []string {
	var lines []string
	for i := range steps {
		for range k {
			lines = append(lines, at(float64(3000*i)))
		}
	}
	return lines
}

func TestSpreadEven(t *testing.T) {
	s, err := stream(t, Options{Spread: SpreadEven, Speedup: 2}, grid(4, 3)...)
	if err != nil {
		t.Fatal(err)
	}
	all, err := items(t, s)
	if err != nil {
		t.Fatal(err)
	}
	for i, it := range all {
		// 3 rows in a step of 1.5 s of replay time: 0.5 s apart, in file order.
		if want := time.Duration(i) * 500 * ms; it.Offset != want || it.Index != int64(i) {
			t.Errorf("item %d: row %d at %v, want row %d at %v", i, it.Index, it.Offset, i, want)
		}
		if want := time.Duration(i%3) * 500 * ms; it.Spread != want {
			t.Errorf("item %d: spread %v, want %v", i, it.Spread, want)
		}
	}
}

func TestSpreadUniform(t *testing.T) {
	const steps, k = 50, 20
	open := func(seed uint64, shard, shards int) []*schedule.Item {
		s, err := stream(t, Options{Spread: SpreadUniform, Seed: seed, Shard: shard, Shards: shards, Lookahead: 64}, grid(steps, k)...)
		if err != nil {
			t.Fatal(err)
		}
		all, err := items(t, s)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	all := open(1, 0, 0)
	if len(all) != steps*k {
		t.Fatalf("%d items, want %d", len(all), steps*k)
	}
	offset := make(map[int64]time.Duration)
	var sum time.Duration
	for i, it := range all {
		if i > 0 && it.Offset < all[i-1].Offset {
			t.Fatalf("item %d is sent before item %d", i, i-1)
		}
		step := time.Duration(it.Index/k) * 3 * time.Second
		if it.Offset-it.Spread != step || it.Spread < 0 || it.Spread >= 3*time.Second {
			t.Fatalf("row %d: offset %v, spread %v, step %v", it.Index, it.Offset, it.Spread, step)
		}
		offset[it.Index] = it.Offset
		sum += it.Spread
	}
	if mean := sum / (steps * k); mean < 1350*ms || mean > 1650*ms { // 1.5 s ± 5 standard errors
		t.Errorf("mean spread %v, want about 1.5 s", mean)
	}
	// The shards agree with the whole schedule, and cover it.
	var n int
	for shard := range 3 {
		for _, it := range open(1, shard, 3) {
			n++
			if it.Offset != offset[it.Index] {
				t.Fatalf("row %d: shard says %v, the whole %v", it.Index, it.Offset, offset[it.Index])
			}
		}
	}
	if n != steps*k {
		t.Errorf("the shards have %d rows, want %d", n, steps*k)
	}
	if other := open(2, 0, 0); other[1].Offset == all[1].Offset && other[2].Offset == all[2].Offset {
		t.Error("another seed spreads the same way")
	}
}

func TestShardsKeepSessionsWholeAndPredictionsAlike(t *testing.T) {
	var lines []string
	for i := range 200 {
		lines = append(lines, fmt.Sprintf(`{"timestamp": %d, "input_length": 1024, "output_length": 1, "hash_ids": [%d, %d], "session_id": "s%d"}`, i, i%10, 10+i, i%7))
	}
	predicted := make(map[int64]int64)
	home := make(map[string]int)
	total := 0
	for shard := -1; shard < 4; shard++ {
		opt := Options{Shard: shard, Shards: 4, Sessions: mooncake.SessionFull}
		if shard < 0 {
			opt.Shard, opt.Shards = 0, 0
		}
		s, err := stream(t, opt, lines...)
		if err != nil {
			t.Fatal(err)
		}
		all, err := items(t, s)
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range all {
			if shard < 0 {
				predicted[it.Index] = it.Predicted.Whole
				continue
			}
			total++
			if it.Predicted.Whole != predicted[it.Index] {
				t.Errorf("row %d: prediction %d in its shard, %d in the whole", it.Index, it.Predicted.Whole, predicted[it.Index])
			}
			if where, known := home[it.Row.SessionID]; known && where != shard {
				t.Errorf("session %s is in shards %d and %d", it.Row.SessionID, where, shard)
			}
			home[it.Row.SessionID] = shard
		}
	}
	if total != 200 {
		t.Errorf("the shards have %d rows, want 200", total)
	}
	// Row 10 shares its first block with row 0; its second is new.
	if predicted[0] != 0 || predicted[10] != 512 {
		t.Errorf("predictions %d and %d, want 0 and 512", predicted[0], predicted[10])
	}
}

func TestInfo(t *testing.T) {
	s, err := stream(t, Options{}, grid(10, 3)...)
	if err != nil {
		t.Fatal(err)
	}
	info := s.Info()
	if !info.Timed || !info.Whole || info.Rows != 30 || !info.Grid.Coarse || info.Grid.Quantum != 3000 || info.LooksSeconds {
		t.Errorf("info = %+v", info)
	}
	var fast []string
	for i := range 100 {
		fast = append(fast, at(float64(i)/10))
	}
	if s, err = stream(t, Options{}, fast...); err != nil || !s.Info().LooksSeconds {
		t.Errorf("100 rows in 10 ms: %v, %+v", err, s.Info())
	}
}

func TestShapesShareNothing(t *testing.T) {
	s, err := stream(t, Options{}, `{"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [1, 2], "session_id": "a"}`)
	if err != nil {
		t.Fatal(err)
	}
	shapes := s.Shapes(5)
	if len(shapes) != 1 || shapes[0].HashIDs != nil || shapes[0].SessionID != "" || shapes[0].InputLength.V != 600 {
		t.Errorf("shapes = %+v", shapes)
	}
	if all, _ := items(t, s); all[0].Row.HashIDs == nil {
		t.Error("the row itself lost its ids")
	}
	if s, err = stream(t, Options{}, `{"text_input": "`+strings.Repeat("secret ", 100)+`"}`); err != nil {
		t.Fatal(err)
	}
	if shape := s.Shapes(1)[0]; shape.Kind() != mooncake.KindLength || shape.InputLength.V != 175 {
		t.Errorf("a text's shape = %+v", shape)
	}
}

func TestCloseEarly(t *testing.T) {
	s, err := Open(mooncake.NewReader(strings.NewReader(strings.Join(grid(500, 3), "\n")), mooncake.ReaderOptions{}), Options{Lookahead: 8})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Next(); err != nil {
		t.Fatal(err)
	}
	s.Close() // the reader's goroutine must end although nobody continues reading
}

func TestSessionKeysAreBounded(t *testing.T) {
	var k sessionKeys
	for i := range 5 * generation {
		k.set(fmt.Sprint(i), float64(i))
	}
	if n := len(k.young) + len(k.old); n > 2*generation {
		t.Errorf("%d sessions kept, bound is %d", n, 2*generation)
	}
	if v, known := k.get(fmt.Sprint(5*generation - 1)); !known || v != 5*generation-1 {
		t.Error("the newest session is gone")
	}
}

// TestRefusedRowsDoNotCount: the stream is that of the trace without the rows that the reader or the schedule refuses.
func TestRefusedRowsDoNotCount(t *testing.T) {
	bad := []string{
		"not a row",           // the reader refuses it
		`{"input_length": 6}`, // a lone row without a timestamp
		`{"input_length": 6, "delay": 3, "session_id": "a"}`, // a session that begins without a timestamp
		`{"timestamp": 9, "delay": 1e14, "input_length": 6}`, // a delay that never ends
	}
	for _, lookahead := range []int{2, 100} { // after the look-ahead and within it
		lines := append([]string{bad[0], at(0), turn(1, "b")}, bad...)
		lines = append(lines, at(2), bad[0], delayed(1, "b"))
		kept := []string{at(0), turn(1, "b"), at(2), delayed(1, "b")}
		opt := Options{Lookahead: lookahead, Sessions: mooncake.SessionFull}
		var refused []int64
		s, err := Open(mooncake.NewReader(strings.NewReader(strings.Join(lines, "\n")), mooncake.ReaderOptions{
			Reject: func(r mooncake.Rejected) error { refused = append(refused, r.Fault.Line); return nil },
		}), opt)
		if err != nil {
			t.Fatal(err)
		}
		got, err := items(t, s)
		if err != nil {
			t.Fatal(err)
		}
		if !s.Close() {
			t.Error("the reading has not ended")
		}
		alone, err := stream(t, opt, kept...)
		if err != nil {
			t.Fatal(err)
		}
		want, err := items(t, alone)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(schedule.Item{})); diff != "" {
			t.Errorf("look-ahead %d (-the good rows alone +what is left of all):\n%s", lookahead, diff)
		}
		if diff := cmp.Diff([]int64{1, 4, 5, 6, 7, 9}, refused); diff != "" {
			t.Errorf("look-ahead %d, refused lines (-want +got):\n%s", lookahead, diff)
		}
		if n := s.Counts().Read; n != int64(len(kept)) {
			t.Errorf("look-ahead %d: %d rows counted, want %d", lookahead, n, len(kept))
		}
	}
}
