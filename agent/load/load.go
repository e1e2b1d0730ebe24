// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/moonloop/moonloop/internal/heap"
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
	// FileOrder ignores timestamps: rows go out in file order, in a closed loop unless there are Arrivals.
	FileOrder bool
	// Start and End choose the rows with first + Start ≤ timestamp ≤ first + End, in trace time; first is the
	// trace's first timestamp. A Start moves the schedule's zero to first + Start. End 0 = none.
	Start, End time.Duration
	// MaxRows ends the replay after this many rows in schedule order. 0 = no limit.
	MaxRows int64
	// Speedup divides offsets. 0 = 1.
	Speedup float64
	Spread  Spread
	// Arrivals are when rows go out in place of their timestamps, which then say no more than their order. Rows without
	// timestamps, and of FileOrder, go in file order.
	Arrivals Arrivals
	Seed     uint64 // of the spreading and the arrivals
	// Loop sends the trace more than once. It goes with no window.
	Loop Loop
	// Shard of Shards: rows of a session or of a graph go together, others with those that have the same first block below the trunk,
	// and rows that have none go by themselves. Each group goes to the shard that has the least; see [Parts]. Shards 0 = all.
	Shard, Shards int
	// Trunk is the trace's, as far as its sidecar names it; nil = as the look-ahead shows it.
	Trunk *mooncake.Trunk
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
	Timed        bool                 // rows are in the order of timestamps; else in file order
	Scheduled    bool                 // rows have instants, of timestamps or Options.Arrivals; else they go in a closed loop
	First        float64              // timestamp that offset 0 stands for, ms
	Last         float64              // greatest timestamp of the look-ahead, ms
	Grid         stats.Grid           // of the timestamps seen
	Sessions     mooncake.SessionMode // what rows of one session mean
	Evidence     string               // why; empty when there are no sessions of several rows
	LooksSeconds bool                 // the timestamps look like seconds although they are read as milliseconds
	Rows         int                  // rows that the look-ahead saw
	Whole        bool                 // it saw the whole trace
	Fingerprint  uint64               // of the rows that it saw: equal for equal traces
	Following    int                  // rows that it saw that wait for others, in graphs
	Generated    int                  // rows that it saw of which the prompts are to be made
	Broken       []mooncake.Violation // rules of the format that these rows break
	Models       []ModelRows          // models that its rows of the window name, by first appearance
}

// ModelRows counts the rows that name a model, payloads aside, which bring their own.
type ModelRows struct {
	Name string // empty: rows that name none
	Rows int
}

// Counts say what became of the rows that were read. Valid after the stream has ended.
type Counts struct {
	Read          int64 // rows in the trace, as far as it was read
	OutsideWindow int64
	PastLimit     int64 // behind MaxRows; reading stops there, so this counts those in the look-ahead only
	OtherShards   int64
	Parts         Parts // of shards; zero without
	Cut           bool  // the stream was stopped before it saw the trace's end: rows may be unread
	// Unawaited counts the names in wait_for that are no earlier row's request_id: nobody waits for them.
	Unawaited   int64
	Unpredicted int64 // rows whose cache hits could not be predicted within the bound
}

// Stream is a schedule.Source over a trace. A goroutine of its own reads the file, until Stop or Close; Next puts in order
// what has been read. So a file that falls silent holds up nothing that has been read from it.
type Stream struct {
	opt  Options
	info Info

	// Owned by the reading goroutine once Open has returned.
	in      Rows
	index   int64
	keys    sessionKeys
	graphs  graphRows
	looping looping

	rows  chan fileRow // closed by the reading goroutine
	quit  chan struct{}
	stop  func()
	close func() bool

	// Owned by the caller of Next.
	head      []entry // the look-ahead, before it is put in order
	headErr   error   // what ended the look-ahead
	fileEnded bool    // the reading goroutine has come to the file's end, or to an error
	predictor *stats.Predictor
	arrivals  *arrivals         // nil: by timestamps
	users     *users            // nil: rows go in the order of the trace
	fallback  string            // model of rows that name none
	sorted    *heap.Heap[entry] // by timestamp
	over      error             // what ended the sorting
	lastOut   float64           // key that left sorted last
	passed    int64             // rows up to MaxRows
	step      []entry           // rows of one timestamp, for SpreadEven
	spread    *heap.Heap[entry] // by offset, after spreading
	bound     float64           // no later row's offset is below
	spreadAll bool              // no row is left to spread
	division  *division         // nil: all rows are ours
	plan      *xxhash.Digest    // of the schedule so far
	planned   []byte            // what of a row goes into it

	mu     sync.Mutex
	counts Counts
}

// Open reads the look-ahead, decides, and starts to read on. Errors of the look-ahead's rows are returned here.
func Open(in Rows, opt Options) (*Stream, error) {
	opt.BlockSize = cmp.Or(opt.BlockSize, mooncake.BlockSize)
	opt.Lookahead = cmp.Or(max(0, opt.Lookahead), DefaultLookahead)
	opt.Speedup = cmp.Or(opt.Speedup, 1)
	switch {
	case opt.Speedup < 0 || math.IsNaN(opt.Speedup) || math.IsInf(opt.Speedup, 0):
		return nil, fmt.Errorf("speed-up %v: want a number above 0", opt.Speedup)
	case opt.Shards < 0 || opt.Shards > 0 && (opt.Shard < 0 || opt.Shard >= opt.Shards):
		return nil, fmt.Errorf("shard %d of %d: want 0 to %d", opt.Shard, opt.Shards, opt.Shards-1)
	case opt.End != 0 && opt.End < opt.Start:
		return nil, fmt.Errorf("window: its end %v lies before its start %v", opt.End, opt.Start)
	case opt.Loop.Any() && (opt.Start != 0 || opt.End != 0):
		return nil, errors.New("loop: a part of the trace (start, end) cannot be looped; cut it out of the trace with moonloop transform, and loop that")
	case opt.Loop.For > 0 && opt.Arrivals.AtOnce():
		return nil, errors.New("loop: with all rows at once, a duration never ends; give a number of passes")
	case opt.Spread != SpreadNone && opt.Arrivals.Any():
		return nil, errors.New("spread: a request rate has no timestamps to spread")
	case opt.Spread != SpreadNone && opt.FileOrder:
		return nil, errors.New("spread: a closed loop has no timestamps to spread")
	}
	if err := opt.Arrivals.Validate(); err != nil {
		return nil, err
	}
	s := &Stream{
		opt: opt, in: in, lastOut: math.Inf(-1), sorted: byKey(), spread: byKey(),
		predictor: stats.NewPredictor(stats.PredictorOptions{BlockSize: opt.BlockSize, FineBlockSize: opt.FineBlockSize}),
		rows:      make(chan fileRow, 256), quit: make(chan struct{}),
	}
	if opt.Arrivals.Any() {
		s.arrivals = newArrivals(opt.Arrivals, opt.Seed)
		if opt.Arrivals.Users > 0 {
			s.users, s.opt.Lookahead = newUsers(opt.Arrivals.Users), max(opt.Lookahead, usersLookahead)
		}
	}
	s.stop = sync.OnceFunc(func() { close(s.quit) })
	s.close = sync.OnceValue(s.drain)
	if err := s.probe(); err != nil {
		return nil, err
	}
	go s.feed()
	return s, nil
}

// DefaultModel says which model the rows ask for that name none. It must be called before Next, if at all.
func (s *Stream) DefaultModel(name string) { s.fallback = name }

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
		if n++; s.opt.MaxRows > 0 && n > s.opt.MaxRows || (s.division == nil || e.shard == s.opt.Shard) && !yield(e.line, e.Row) {
			return
		}
	}
}

// Counts returns what has been counted so far.
func (s *Stream) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

func (s *Stream) count(f func(*Counts)) {
	s.mu.Lock()
	f(&s.counts)
	s.mu.Unlock()
}

// Stop ends the reading: from then on Next returns the rows that have been read, and then io.EOF, however much the trace
// still has, and however silent it is.
func (s *Stream) Stop() { s.stop() }

// Close stops the reading and reports whether it has ended. It has not when the trace is a pipe that is silent and
// open: then the goroutine that reads from it ends with the pipe, which must not be closed before. Only the first call waits; each
// returns what that found.
func (s *Stream) Close() (ended bool) { return s.close() }

// number prints a timestamp without an exponent.
func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
