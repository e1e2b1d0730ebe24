// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// horizon is the longest replay time that a schedule can hold: 100 years.
const horizon = 100 * 365 * 24 * time.Hour

// ErrNoRows is the error of a trace that has come to its end without a row.
var ErrNoRows = errors.New("the trace has no rows: name another one")

// DefaultLookahead is the number of rows that are read before the first is sent.
const DefaultLookahead = 4096

// Rows is the trace, in file order. Read returns io.EOF at the end; the row is the caller's.
type Rows interface {
	Read() (*mooncake.Row, error)
	Line() int64 // line of the row last read, from 1
	// Refuse refuses the row last read. It returns the error that ends the replay, or nil where the row has been taken
	// care of: it is then none of the trace's rows, and has no index.
	Refuse(fault *mooncake.RowError) error
}

// Options choose what is loaded. The zero value loads everything as it stands.
type Options struct {
	BlockSize int // tokens per block id; 0 = mooncake.BlockSize
	// FineBlockSize is the number of tokens per id of hash_ranges; 0 = unknown, and no row has any.
	FineBlockSize int
	Lookahead     int // 0 = DefaultLookahead
	// Unit is the length of one timestamp unit: time.Millisecond when 0.
	Unit time.Duration
	// FileOrder ignores timestamps: rows go out in file order, in a closed loop.
	FileOrder bool
	// Start and End choose the rows with first + Start ≤ timestamp ≤ first + End, in trace time; first is the
	// trace's first timestamp. A Start moves the schedule's zero to first + Start. End 0 = none.
	Start, End time.Duration
	// MaxRows ends the replay after so many rows in schedule order. 0 = no limit.
	MaxRows int64
	// Speedup divides offsets. 0 = 1.
	Speedup float64
	Spread  Spread
	Seed    uint64 // of the spreading
	// Shard of Shards: rows of a session go together, others by index. Shards 0 = all.
	Shard, Shards int
	// Sessions is what rows of one session mean, where the user or the sidecar says so.
	Sessions mooncake.SessionMode
	// OpenSessions sends every row by its own timestamp, whatever its session.
	OpenSessions bool
	// OneModel sends every row to one model, whatever model it names: their prompts then share one cache. Else each model has
	// a cache of its own; see [Stream.DefaultModel].
	OneModel bool
	// Strict makes an error of what is otherwise read kindly.
	Strict bool
	// Replies is called for each row that has replies, in file order, as it is read, with its index. May be nil. It is called on
	// a goroutine of the stream's, and for the rows of the look-ahead before Open returns.
	Replies func(index int64, replies []mooncake.Reply)
}

// Info is what the look-ahead found and decided.
type Info struct {
	Timed        bool                 // the schedule follows timestamps; else file order
	First        float64              // timestamp that offset 0 stands for, ms
	Last         float64              // greatest timestamp of the look-ahead, ms
	Grid         stats.Grid           // of the timestamps seen
	Sessions     mooncake.SessionMode // what rows of one session mean
	Evidence     string               // why; empty when there are no sessions of several rows
	LooksSeconds bool                 // the timestamps look like seconds although the unit is milliseconds
	Rows         int                  // rows that the look-ahead saw
	Whole        bool                 // it saw the whole trace
	Fingerprint  uint64               // of the rows that it saw: equal for equal traces
	Broken       []mooncake.Violation // rules of the format that these rows break
	Models       []ModelRows          // models that its rows of the window name, by first appearance
}

// ModelRows counts the rows that name a model, payloads aside, which bring their own.
type ModelRows struct {
	Name string // empty: rows that name none
	Rows int
}

// maxModels bounds the models that the look-ahead tells apart.
const maxModels = 1024

// Counts say what became of the rows that were read. Valid after the stream has ended.
type Counts struct {
	Read          int64 // rows in the trace, as far as it was read
	OutsideWindow int64
	PastLimit     int64 // behind MaxRows; reading stops there, so this counts those in the look-ahead only
	OtherShards   int64
	Cut           bool  // the stream was stopped before it saw the trace's end: rows may be unread
	Unpredicted   int64 // rows whose cache hits could not be predicted within the bound
}

// row carries what is computed from all rows along with each.
type row struct {
	*mooncake.Row
	predicted stats.Prediction
	prompts   int64   // its Finest without replies
	spread    float64 // trace milliseconds
}

// Stream is a schedule.Source over a trace. A goroutine of its own reads the file, until Stop or Close; Next puts in order
// what has been read. So a file that falls silent holds up nothing that has been read from it.
type Stream struct {
	opt  Options
	info Info

	shapes []*mooncake.Row

	// Owned by the reading goroutine once Open has returned.
	in    Rows
	index int64
	keys  sessionKeys

	// Owned by the caller of Next.
	head      []entry // the look-ahead, before it is put in order
	headErr   error   // what ended the look-ahead
	fileEnded bool    // the reading goroutine has come to the file's end, or to an error
	order     orderer // by timestamp
	over      error   // what ended the reading
	lastOut   float64 // key that left order last
	anyOut    bool
	step      []entry // rows of one timestamp, for SpreadEven
	placed    orderer // by offset, after spreading
	bound     float64 // no later row's offset is below
	ended     bool
	passed    int64
	predictor *stats.Predictor
	perMilli  float64 // trace units → ms

	defaultModel string // of rows that name none

	rows     chan fileRow // closed by feed
	quit     chan struct{}
	stopped  chan struct{}
	stopOnce sync.Once

	closeOnce sync.Once
	closed    bool // the reading has ended

	mu     sync.Mutex
	counts Counts
}

// fileRow is what the reading goroutine has read: a row that has a place in time, or what ended the reading.
type fileRow struct {
	entry
	turn bool // a later turn of its session
	err  error
}

// Open reads the look-ahead, decides, and starts to read on. Errors of the look-ahead's rows are returned here.
func Open(in Rows, opt Options) (*Stream, error) {
	if opt.BlockSize == 0 {
		opt.BlockSize = mooncake.BlockSize
	}
	if opt.Lookahead <= 0 {
		opt.Lookahead = DefaultLookahead
	}
	if opt.Speedup == 0 {
		opt.Speedup = 1
	}
	if opt.Unit == 0 {
		opt.Unit = time.Millisecond
	}
	switch {
	case opt.Speedup < 0 || math.IsNaN(opt.Speedup) || math.IsInf(opt.Speedup, 0):
		return nil, fmt.Errorf("speed-up %v: want a number above 0", opt.Speedup)
	case opt.Shards < 0 || opt.Shards > 0 && (opt.Shard < 0 || opt.Shard >= opt.Shards):
		return nil, fmt.Errorf("shard %d of %d: want 0 to %d", opt.Shard, opt.Shards, opt.Shards-1)
	case opt.End != 0 && opt.End < opt.Start:
		return nil, fmt.Errorf("window: its end %v lies before its start %v", opt.End, opt.Start)
	case opt.Spread != SpreadNone && opt.FileOrder:
		return nil, errors.New("spread: a closed loop has no timestamps to spread")
	}
	s := &Stream{
		opt: opt, in: in,
		predictor: stats.NewPredictor(stats.PredictorOptions{BlockSize: opt.BlockSize, FineBlockSize: opt.FineBlockSize}),
		perMilli:  float64(opt.Unit) / float64(time.Millisecond),
		rows:      make(chan fileRow, 256),
		quit:      make(chan struct{}),
		stopped:   make(chan struct{}),
	}
	if err := s.probe(); err != nil {
		return nil, err
	}
	go s.feed()
	return s, nil
}

// DefaultModel says which model the rows ask for that name none. It must be called before Next, if at all.
func (s *Stream) DefaultModel(name string) { s.defaultModel = name }

// Unit returns the length of one timestamp unit.
func (s *Stream) Unit() time.Duration { return s.opt.Unit }

// Info returns what the look-ahead decided.
func (s *Stream) Info() Info { return s.info }

// Ahead calls yield for the rows of the look-ahead that this shard is to send, with the line of each. It must be called before
// Next, and the rows must not be changed.
func (s *Stream) Ahead(yield func(line int64, row *mooncake.Row) bool) {
	n := int64(0)
	for _, e := range s.head {
		if s.outside(e) {
			continue
		}
		if n++; s.opt.MaxRows > 0 && n > s.opt.MaxRows || s.mine(e) && !yield(e.line, e.row.Row) {
			return
		}
	}
}

// Shapes returns copies of up to n of the first rows, without their ids and sessions: requests of the trace's size
// that share nothing with it. There is at least one.
func (s *Stream) Shapes(n int) []*mooncake.Row { return s.shapes[:min(n, len(s.shapes))] }

// Counts returns what has been counted so far.
func (s *Stream) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Stop ends the reading: from then on Next returns the rows that have been read, and then io.EOF, however much the trace
// still has, and however silent it is.
func (s *Stream) Stop() { s.stopOnce.Do(func() { close(s.stopped) }) }

// Close stops the reading and reports whether it has ended. It has not when the trace is a pipe that is silent and
// open: then the goroutine that reads from it ends with the pipe, which must not be closed before. Only the first call waits; each
// returns what that found.
func (s *Stream) Close() (ended bool) {
	s.closeOnce.Do(func() {
		close(s.quit)
		late := time.NewTimer(time.Second)
		defer late.Stop()
		for open := true; open; {
			select {
			case _, open = <-s.rows:
			case <-late.C:
				return
			}
		}
		s.closed = true
	})
	return s.closed
}

// feed reads the file behind the look-ahead until it ends or fails, or the stream is stopped or closed.
func (s *Stream) feed() {
	defer close(s.rows)
	for err := s.headErr; err == nil; {
		select {
		case <-s.stopped:
			return
		case <-s.quit:
			return
		default:
		}
		var f fileRow
		f.entry, f.turn, f.err = s.readFile()
		err = f.err
		select {
		case s.rows <- f:
		case <-s.stopped: // nobody has seen the row: it was not reached
			return
		case <-s.quit:
			return
		}
	}
}

// receive returns the next row behind the look-ahead. Once the stream is stopped that is one which has been read already.
func (s *Stream) receive() (f fileRow, err error) {
	open := false
	select {
	case f, open = <-s.rows:
	case <-s.stopped:
		select {
		case f, open = <-s.rows:
		default:
		}
	}
	switch {
	case !open && s.fileEnded:
		return f, io.EOF
	case !open:
		s.count(func(c *Counts) { c.Cut = true })
		return f, io.EOF
	case f.err != nil:
		s.fileEnded = true
		return f, f.err
	}
	s.count(func(c *Counts) { c.Read++ })
	return f, nil
}

// Next returns the next item of this shard by offset, or io.EOF. One goroutine at a time may call it.
func (s *Stream) Next() (*schedule.Item, error) {
	for {
		e, err := s.place()
		if err != nil {
			return nil, err
		}
		if !s.mine(e) {
			s.count(func(c *Counts) { c.OtherShards++ })
			continue
		}
		it := &schedule.Item{Row: e.row.Row, Index: e.index, Predicted: e.row.predicted, Prompts: e.row.prompts}
		if s.info.Timed {
			scale := float64(time.Millisecond) / s.opt.Speedup
			it.Timed = e.row.Timestamp.Set
			if err := s.beyond(e); err != nil {
				return nil, err
			}
			it.Offset = time.Duration(math.Round((e.key - s.info.First) * scale))
			it.Spread = time.Duration(math.Round(e.row.spread * scale))
		}
		return it, nil
	}
}

// beyond is the error of a row that the schedule cannot hold.
func (s *Stream) beyond(e entry) error {
	if (e.key-s.info.First)/s.opt.Speedup <= millis(horizon) {
		return nil
	}
	return fmt.Errorf("line %d: timestamp %s ms is more than 100 years of replay time after the first row's; correct the row, or say the unit with --time-unit if it is not ms", e.line, number(e.key))
}

// mine reports whether a row belongs to this shard.
func (s *Stream) mine(e entry) bool {
	if s.opt.Shards < 2 {
		return true
	}
	n := uint64(s.opt.Shards)
	h := uint64(e.index) //nolint:gosec // an index is never negative
	if id := e.row.SessionID; id != "" {
		h = xxhash.Sum64String(id)
	}
	return h%n == uint64(s.opt.Shard) //nolint:gosec // checked in Open
}

// place returns the next row by offset.
func (s *Stream) place() (entry, error) {
	if !s.info.Timed || s.opt.Spread == SpreadNone {
		return s.limited()
	}
	for !s.ended && (s.placed.len() == 0 || s.placed.lowest() >= s.bound) {
		e, err := s.limited()
		switch {
		case errors.Is(err, io.EOF):
			s.ended = true
			s.flushStep()
		case err != nil:
			return entry{}, err
		default:
			s.spread(e)
		}
	}
	if s.placed.len() == 0 {
		return entry{}, io.EOF
	}
	return s.placed.pop(), nil
}

// spread gives a row its place in its step.
func (s *Stream) spread(e entry) {
	if s.opt.Spread == SpreadUniform {
		s.bound = e.key
		place := uint64(e.index) //nolint:gosec // an index is never negative
		if id := e.row.SessionID; id != "" {
			// The turns of a session move together, or a later one would overtake.
			place = xxhash.Sum64String(id)
		}
		s.put(e, s.info.Grid.Quantum*fraction(s.opt.Seed, place))
		return
	}
	if len(s.step) > 0 && s.step[0].key != e.key {
		s.flushStep()
	}
	s.bound = e.key
	s.step = append(s.step, e)
}

func (s *Stream) flushStep() {
	for j, e := range s.step {
		s.put(e, s.info.Grid.Quantum*float64(j)/float64(len(s.step)))
	}
	s.step = s.step[:0]
}

func (s *Stream) put(e entry, by float64) {
	e.row.spread = by
	e.key += by
	s.placed.push(e)
}

// limited returns the next row by timestamp, up to MaxRows.
func (s *Stream) limited() (entry, error) {
	if s.opt.MaxRows > 0 && s.passed >= s.opt.MaxRows {
		s.count(func(c *Counts) { c.PastLimit = int64(s.order.inside() + len(s.head)) })
		return entry{}, io.EOF
	}
	e, err := s.timely()
	if err == nil {
		s.passed++
	}
	return e, err
}

// timely returns the next row by timestamp, or by file order.
func (s *Stream) timely() (entry, error) {
	if !s.info.Timed {
		return s.read()
	}
	for {
		e, err := s.earliest()
		if err != nil || !e.outside {
			return e, err
		}
		s.count(func(c *Counts) { c.OutsideWindow++ })
	}
}

// earliest returns the next row by timestamp, whether the window has it or not: rows outside of it take part in the look-ahead,
// or the last rows of the window would wait until the whole trace has been read.
func (s *Stream) earliest() (entry, error) {
	for s.order.len() < s.opt.Lookahead && s.over == nil {
		e, err := s.read()
		if err != nil {
			s.over = err
			break
		}
		if s.anyOut && e.key < s.lastOut && !e.outside {
			s.over = fmt.Errorf(
				"line %d: timestamp %s ms comes more than %d rows after %s ms: the trace is not in time order; sort it by timestamp, or raise --lookahead",
				e.line, number(e.key), s.opt.Lookahead, number(s.lastOut))
			break
		}
		s.order.push(e)
	}
	// A bad row ends the replay only when the rows before it have gone out.
	if s.order.len() == 0 {
		return entry{}, s.over
	}
	e := s.order.pop()
	if !e.outside {
		s.lastOut, s.anyOut = e.key, true
	}
	return e, nil
}

// read returns the next row in file order, from the look-ahead's store first.
func (s *Stream) read() (entry, error) {
	if len(s.head) > 0 {
		e := s.head[0]
		s.head[0] = entry{}
		s.head = s.head[1:]
		s.look(&e)
		return e, nil
	}
	if s.headErr != nil {
		return entry{}, s.headErr
	}
	f, err := s.receive()
	if err != nil {
		return entry{}, err
	}
	e := f.entry
	s.look(&e)
	if !e.outside && f.turn && s.info.Sessions == mooncake.SessionNone && !s.opt.OpenSessions {
		return entry{}, fmt.Errorf("line %d: the first session of more than one row begins behind the look-ahead of %d rows; say what its rows mean with --session-mode=full or --session-mode=delta", e.line, s.info.Rows)
	}
	return e, nil
}

// look notes whether the window leaves a row out, else what the cache will have of it.
func (s *Stream) look(e *entry) {
	if e.outside = s.outside(*e); e.outside {
		s.predictor.Skip()
		return
	}
	s.predict(e)
}

// readFile returns the next row that has a place in time, and whether it is a later turn of its session.
func (s *Stream) readFile() (e entry, turn bool, err error) {
	for {
		r, err := s.in.Read()
		if err != nil {
			return entry{}, false, err
		}
		if s.index == 0 {
			s.info.Timed = r.Timestamp.Set && !s.opt.FileOrder
		}
		key, turn, fault := s.keyOf(r)
		if fault == nil && r.Delay.V/s.opt.Speedup > millis(horizon) {
			fault = &mooncake.RowError{
				Field: "delay", Value: number(r.Delay.V), Rule: "is more than 100 years of replay time",
				Advice: "delays are milliseconds; correct the row",
			}
		}
		if fault != nil {
			if err := s.in.Refuse(fault); err != nil {
				return entry{}, false, err
			}
			continue
		}
		if r.SessionID != "" {
			s.keys.set(r.SessionID, key)
		}
		if len(r.Replies) > 0 && s.opt.Replies != nil {
			s.opt.Replies(s.index, r.Replies)
		}
		e := entry{row: row{Row: r}, key: key, index: s.index, line: s.in.Line()}
		s.index++
		return e, turn, nil
	}
}

// keyOf gives a row its place in time: its timestamp, for a later turn not before the turn before it. It reports whether
// the row is a later turn of its session, or why it has no place.
func (s *Stream) keyOf(r *mooncake.Row) (key float64, turn bool, fault *mooncake.RowError) {
	last := math.Inf(-1)
	if r.SessionID != "" {
		if last, turn = s.keys.get(r.SessionID); !turn {
			last = math.Inf(-1)
		}
	}
	switch {
	case !s.info.Timed:
	case r.Timestamp.Set && s.opt.OpenSessions:
		key = r.Timestamp.V * s.perMilli
	case r.Timestamp.Set:
		key = max(r.Timestamp.V*s.perMilli, last)
	case turn:
		key = last
	case r.SessionID != "":
		fault = &mooncake.RowError{
			Field: "timestamp", Rule: "the first turn of its session has none, so the schedule cannot place it",
			Advice: "give it one, or replay in file order with --no-fixed-schedule",
		}
	default:
		fault = &mooncake.RowError{
			Field: "timestamp", Rule: "the row has none although the first row of the trace has one",
			Advice: "give it one, or replay in file order with --no-fixed-schedule",
		}
	}
	return key, turn, fault
}

// outside reports whether the window leaves a row out.
func (s *Stream) outside(e entry) bool {
	if !s.info.Timed || s.opt.Start == 0 && s.opt.End == 0 {
		return false
	}
	// info.First is the window's start.
	from := s.info.First
	to := math.Inf(1)
	if s.opt.End != 0 {
		to = from + millis(s.opt.End-s.opt.Start)
	}
	return e.key < from || e.key > to
}

// predict notes the prompt tokens that an infinite cache would have served.
func (s *Stream) predict(e *entry) {
	e.row.predicted = stats.Prediction{Whole: -1, Finest: -1}
	if e.row.Kind() != mooncake.KindLength || e.row.HashIDs == nil ||
		e.row.SessionID != "" && s.info.Sessions == mooncake.SessionDelta { // its ids are not the whole prompt
		s.predictor.Skip()
		return
	}
	r := e.row.Row
	model := cmp.Or(r.Model, s.defaultModel)
	if s.opt.OneModel {
		model = ""
	}
	if model != r.Model {
		asked := *r
		asked.Model = model
		r = &asked
	}
	if n, ok := s.predictor.Predict(r); ok {
		e.row.predicted, e.row.prompts = n, s.predictor.WithoutReplies()
		return
	}
	s.count(func(c *Counts) { c.Unpredicted++ })
}

func (s *Stream) count(f func(*Counts)) {
	s.mu.Lock()
	f(&s.counts)
	s.mu.Unlock()
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// number prints a timestamp without an exponent.
func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
