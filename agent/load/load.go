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

// horizon is the maximum replay time of a schedule: 100 years.
const horizon = 100 * 365 * 24 * time.Hour

// ErrNoRows is the error for a trace without rows.
var ErrNoRows = errors.New("the trace has no rows: name another one")

// DefaultLookahead is the number of rows that are read before the first one is sent.
const DefaultLookahead = 4096

// Rows is a trace in file order. Read returns io.EOF at the end; the caller owns the row.
type Rows interface {
	Read() (*mooncake.Row, error)
	Line() int64 // line of the row last read, from 1
	// Refuse refuses the row read last. It returns the error that ends the replay. If the row has been handled, it returns nil: then the
	// row does not count as one of the trace's rows, and has no index.
	Refuse(fault *mooncake.RowError) error
}

// Options configures a [Stream]. The zero value loads all rows unchanged.
type Options struct {
	BlockSize int // tokens per block id; 0 = mooncake.BlockSize
	// FineBlockSize is the number of tokens per id of hash_ranges; 0 = unknown, and no row may have any.
	FineBlockSize int
	Lookahead     int // 0 = DefaultLookahead
	// FileOrder ignores timestamps: rows are sent in file order, in a closed loop unless there are Arrivals.
	FileOrder bool
	// Start and End select the rows with first + Start ≤ timestamp ≤ first + End, in trace time; first is the trace's first timestamp. A
	// Start moves the start of the schedule to first + Start. End 0 = none.
	Start, End time.Duration
	// MaxRows ends the replay after this many rows in schedule order. 0 = no limit.
	MaxRows int64
	// Speedup divides offsets. 0 = 1.
	Speedup float64
	Spread  Spread
	// Arrivals replaces the timestamps, which then only set the order. Rows without timestamps, or with FileOrder, keep the file order.
	Arrivals Arrivals
	Seed     uint64 // of the spreading and the arrivals
	// Loop sends the trace more than once. It cannot be combined with Start or End.
	Loop Loop
	// Shard is the index of this shard, below Shards, the number of shards. Rows of a session or of a graph stay together. Other rows stay
	// with those that have the same first block below the trunk; a row without such a block is a group by itself. Each group goes to the shard
	// with the least work so far; see [Parts]. Shards 0 = all rows are sent.
	Shard, Shards int
	// Trunk is the trace's trunk from its sidecar; nil = computed from the look-ahead.
	Trunk *mooncake.Trunk
	// Sessions is the meaning of a session's rows, if the user or the sidecar states it.
	Sessions mooncake.SessionMode
	// OpenSessions sends every row by its own timestamp, whatever its session.
	OpenSessions bool
	// OneModel sends every row to one model, whatever model it names; then all prompts share one cache. Else each model has its own cache;
	// see [Stream.DefaultModel].
	OneModel bool
	// Strict turns flaws that are otherwise tolerated into errors.
	Strict bool
	// Replies is called for each row that has replies, in file order, as it is read, with its index. May be nil. It is called on a
	// goroutine of the stream, for the rows of the look-ahead before Open returns.
	Replies func(index int64, replies []mooncake.Reply)
}

// Info is the result of the look-ahead.
type Info struct {
	Timed        bool                 // rows are sorted by timestamps; else in file order
	Scheduled    bool                 // rows have scheduled times, from timestamps or Options.Arrivals; else they are sent in a closed loop
	First        float64              // timestamp of offset 0, ms
	Last         float64              // greatest timestamp of the look-ahead, ms
	Grid         stats.Grid           // of the timestamps seen
	Sessions     mooncake.SessionMode // meaning of a session's rows
	Evidence     string               // reason for Sessions; empty if no session has several rows
	LooksSeconds bool                 // the timestamps look like seconds, but are read as milliseconds
	Rows         int                  // rows in the look-ahead
	Whole        bool                 // the look-ahead has the whole trace
	Fingerprint  uint64               // hash of these rows: equal for equal traces
	Following    int                  // number of these rows that wait for others, in graphs
	Generated    int                  // number of these rows whose prompts are generated
	Pictured     int                  // number of these rows with images
	Sessioned    int                  // number of these rows with a session
	Unsized      int                  // number of these rows without an output length, payloads left out
	Replying     int                  // number of these rows with replies of earlier rows
	Broken       []mooncake.Violation // rules of the format that these rows break
	Models       []ModelRows          // models of these rows, as far as they are in the window, by first appearance
}

// ModelRows counts the rows of a model, except rows with payloads, which name their own model.
type ModelRows struct {
	Name string // empty: rows without a model
	Rows int
}

// Counts counts the rows by what happened to them. Valid after the stream has ended.
type Counts struct {
	Read          int64 // rows in the trace, as far as it was read; of a loop, in all passes
	FirstPass     int64 // those of Read that are in the first pass of a loop; all of Read if there is no loop
	OutsideWindow int64
	PastLimit     int64 // after MaxRows; reading stops there, so this counts only rows of the look-ahead
	OtherShards   int64
	Parts         Parts // of shards; zero if there are none
	Cut           bool  // the stream was stopped before the trace's end: some rows may be unread
	// Unawaited counts the names in wait_for that are not the request_id of an earlier row; no row waits for them.
	Unawaited   int64
	Unpredicted int64 // rows whose cache hits could not be predicted within the limit
}

// Stream is a schedule.Source over a trace. A separate goroutine reads the file, until Stop or Close; Next sorts what has been read. So a
// file that becomes silent does not delay rows that have been read from it.
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
	head      []entry // the look-ahead, before it is sorted
	headErr   error   // the error that ended the look-ahead
	fileEnded bool    // the reading goroutine has reached the file's end, or an error
	predictor *stats.Predictor
	arrivals  *arrivals              // nil: by timestamps
	users     *users                 // nil: rows are sent in the order of the trace
	fallback  string                 // model of rows without one
	sorted    *heap.Presorted[entry] // by timestamp
	over      error                  // the error that ended the sorting
	lastOut   float64                // key of the last entry taken from sorted
	passed    int64                  // rows up to MaxRows
	step      []entry                // rows of one timestamp, for SpreadEven
	spread    *heap.Heap[entry]      // by offset, after spreading
	bound     float64                // no later row has a smaller offset
	spreadAll bool                   // all rows have been spread
	division  *division              // nil: all rows are ours
	plan      *xxhash.Digest         // of the schedule so far
	planned   []byte                 // the part of a row that goes into plan

	mu     sync.Mutex
	counts Counts
}

// Open reads the look-ahead, decides how the trace is replayed, and starts to read the rest. It returns errors in the look-ahead's rows.
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
		return nil, fmt.Errorf("window: its end %v is before its start %v", opt.End, opt.Start)
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
		opt: opt, in: in, lastOut: math.Inf(-1), sorted: heap.NewPresorted(entry.before), spread: heap.New(entry.before),
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

// DefaultModel sets the model of rows without one. It must be called before Next, if at all.
func (s *Stream) DefaultModel(name string) { s.fallback = name }

// Info returns the result of the look-ahead.
func (s *Stream) Info() Info { return s.info }

// Ahead calls yield for the rows of the look-ahead that this shard will send, with the line of each. It must be called before Next, and the
// rows must not be changed.
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

// Counts returns the counts so far.
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

// Stop ends the reading: from then on, Next returns the rows that have been read, and then io.EOF, even if the trace has more rows or is
// silent.
func (s *Stream) Stop() { s.stop() }

// Close stops the reading and reports whether it has ended. If the trace is a silent, open pipe, it has not: then the goroutine that reads
// from it ends with the pipe, which must not be closed earlier. Only the first call waits; later calls return its result.
func (s *Stream) Close() (ended bool) { return s.close() }

// number formats a timestamp without an exponent.
func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
