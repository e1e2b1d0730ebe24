// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/moonloop/moonloop/mooncake"
)

// Rows is an open trace, in file order. [mooncake.Reader] and [mooncake.Trace] are Rows.
type Rows interface {
	Read() (*mooncake.Row, error)
	Line() int64
	BlockSize() int
	FineBlockSize() int
}

// Source is a trace to read. Open is called once.
type Source struct {
	Name string // for messages
	Open func() (Rows, error)
	// Waits is true if reading may wait for a writer, as with a pipe. Rows of such a source are read when they are needed; those of other
	// sources are read ahead.
	Waits bool
	// Trunk is the trunk of the trace from its sidecar; nil = computed from its first rows. Sampling needs it.
	Trunk *mooncake.Trunk
}

// item is a row in the stream.
type item struct {
	*mooncake.Row
	key    float64 // its time for sorting, in ms; 0 in a trace without times
	source int     // index of its source
	index  int64   // of the row in its source
	seq    int     // of the row among those that the filters left
	copy   int     // 0: the row itself
	again  uint32  // how often its conversation was drawn before
	root   int     // tree that its trunk is in
	own    int     // tree that its other blocks are in; 0 where those of two trees differ anyway
	trunk  int     // leading blocks that it shares with other copies, and with rows that were moved to another tree
	timed  bool    // the trace has timestamps
	thin   bool    // it is not in the sample
	// session identifies the row's session in the state of steps; 0 = none.
	session uint64
}

// step returns the next row, or io.EOF.
type step func() (*item, error)

// setTime changes the time of a row.
func (it *item) setTime(ms float64) {
	it.key = ms
	if it.Timestamp.Set {
		it.Timestamp.V = ms
	}
}

// input reads one source.
type input struct {
	Source
	rows   Rows // only its block sizes may be used while it is read ahead
	read   func() (lineRead, error)
	stop   func()
	line   int64 // of the row read last
	number int
	index  int64
	timed  bool               // the first row has a timestamp
	last   map[uint64]float64 // time of the last row of a session
	before float64            // time of the row before
	thin   *thin              // nil: no row is removed
	order  string             // the step that needs rows in order of time, or ""
	slab   []item             // unused items
}

// slabItems is the number of items that are allocated at once.
const slabItems = 32

// slab allocates items with their rows.
type slab []struct {
	item
	row mooncake.Row
}

// item returns a new item, with a row that is zero.
func (s *slab) item() *item {
	if len(*s) == 0 {
		*s = make(slab, slabItems)
	}
	one := &(*s)[0]
	*s = (*s)[1:]
	one.Row = &one.row
	return &one.item
}

func openInput(c *Config, s Source, number int, order string) (*input, error) {
	rows, err := s.Open()
	if err != nil {
		return nil, err
	}
	in := &input{Source: s, rows: rows, number: number, last: map[uint64]float64{}, before: math.Inf(-1), order: order, stop: func() {}}
	in.read = func() (lineRead, error) { return readLine(rows) }
	if !s.Waits {
		a := readAhead(in.read, func(r lineRead) int { return sizeOf(r.Row) })
		in.read, in.stop = a.next, a.stop
	}
	if changes(c.Sample) {
		in.thin, in.read = newThin(c, s, number, rows.BlockSize(), in.read)
	}
	return in, nil
}

func (in *input) next() (*item, error) {
	read, err := in.read()
	if err != nil {
		return nil, err
	}
	row := read.Row
	in.line = read.line
	if len(in.slab) == 0 {
		in.slab = make([]item, slabItems)
	}
	it := &in.slab[0]
	in.slab = in.slab[1:]
	it.Row, it.source, it.index = row, in.number, in.index
	if in.index == 0 {
		in.timed = row.Timestamp.Set
	}
	it.thin = in.thin != nil && !in.thin.keeps(row, in.index)
	in.index++
	it.timed = in.timed
	if in.number > 0 { // sessions of two traces are different, even if they have the same name
		suffix := "~" + strconv.Itoa(in.number+1)
		row.SessionID, row.RequestID = renamed(row.SessionID, suffix), renamed(row.RequestID, suffix)
		row.WaitFor = renamedAll(row.WaitFor, suffix)
	}
	it.session = sessionOf(row)
	if row.InputLength.Set && row.HashIDs != nil {
		row.HashIDs = row.Blocks(in.rows.BlockSize()) // surplus ids have no effect
	}
	last, turn := 0., false
	if it.session != 0 {
		last, turn = in.last[it.session]
	}
	switch {
	case row.Timestamp.Set && in.timed:
		it.key = row.Timestamp.V
	case row.Timestamp.Set:
		return nil, in.refuse("timestamp", "the row has one although the first row of the trace has none", "give all rows one, or none")
	case in.timed && turn:
		it.key = last
	case in.timed:
		return nil, in.refuse("timestamp", "the row has none although the first row of the trace has one, and no row of its session before it has one", "give it one")
	}
	if in.timed && it.session != 0 {
		in.last[it.session] = it.key
	}
	switch {
	case in.order == "" || it.key >= in.before:
	case row.Timestamp.Set:
		return nil, in.refuse("timestamp", "is earlier than the row before, and "+in.order+" needs rows in order of time", "sort the trace by timestamp")
	default:
		it.key = in.before // a turn without a time stays at its position in the file
	}
	in.before = it.key
	return it, nil
}

// sessionOf returns a number for a row's session, 0 if it has none.
func sessionOf(row *mooncake.Row) uint64 {
	if row.SessionID == "" {
		return 0
	}
	return max(xxhash.Sum64String(row.SessionID), 1)
}

// renamed adds a suffix to a name, if there is one.
func renamed(name, suffix string) string {
	if name == "" {
		return ""
	}
	return name + suffix
}

// renamedAll returns renamed names, in new memory.
func renamedAll(names []string, suffix string) []string {
	if names == nil {
		return nil
	}
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = renamed(name, suffix)
	}
	return all
}

// refuse returns an error about the row read last.
func (in *input) refuse(field, rule, advice string) error {
	return &mooncake.RowError{File: in.Name, Line: in.line, Field: field, Rule: rule, Advice: advice}
}

// joined reads all sources as one trace.
type joined struct {
	inputs      []*input
	block, fine int
}

// openJoined opens sources. The caller must stop them, also after an error.
func openJoined(c *Config, sources []Source) (*joined, error) {
	j := new(joined)
	if len(sources) == 0 {
		return j, errors.New("no trace is given: name one")
	}
	if len(sources) > 1 && c.Join == JoinNone {
		return j, fmt.Errorf("%d traces are given, but not how to combine them: append puts one after the other, merge overlays them in time", len(sources))
	}
	for i, s := range sources {
		in, err := openInput(c, s, i, c.ordered(len(sources)))
		if err != nil {
			return j, err
		}
		j.inputs = append(j.inputs, in)
		block, fine := in.rows.BlockSize(), in.rows.FineBlockSize()
		switch {
		case i == 0:
			j.block, j.fine = block, fine
		case block != j.block:
			return j, fmt.Errorf("%s has blocks of %d tokens, and %s has blocks of %d: first transform one of them, so that both have blocks of one size", s.Name, block, sources[0].Name, j.block)
		case fine != 0 && j.fine != 0 && fine != j.fine:
			return j, fmt.Errorf("%s has fine blocks of %d tokens, %s of %d: they cannot be in one trace", s.Name, fine, sources[0].Name, j.fine)
		default:
			j.fine = max(j.fine, fine)
		}
	}
	return j, nil
}

// stop ends the reading of all sources.
func (j *joined) stop() {
	for _, in := range j.inputs {
		in.stop()
	}
}

func (j *joined) rows(c *Config) step {
	switch {
	case len(j.inputs) == 1:
		return j.inputs[0].next
	case c.Join == JoinAppend:
		return j.appended()
	}
	return j.merged()
}

// appended returns the sources one after the other. A source begins one gap after the last row of the source before: the last gap in that
// source, so that a coarse clock continues to tick.
func (j *joined) appended() step {
	at, gap, last, shift := 0, 0., 0., 0.
	first := true
	return func() (*item, error) {
		for at < len(j.inputs) {
			it, err := j.inputs[at].next()
			if errors.Is(err, io.EOF) {
				at, first = at+1, true
				continue
			}
			if err != nil {
				return nil, err
			}
			if err := j.sameTiming(at); err != nil {
				return nil, err
			}
			switch {
			case !first:
			case at == 0:
				last = it.key
			default:
				shift = last + gap - it.key
			}
			if first = false; at > 0 {
				it.setTime(it.key + shift)
			}
			if it.key > last {
				gap, last = it.key-last, it.key
			}
			return it, nil
		}
		return nil, io.EOF
	}
}

// sameTiming returns an error if one of the first and this trace has timestamps and the other has none.
func (j *joined) sameTiming(at int) error {
	if in := j.inputs[at]; in.timed != j.inputs[0].timed {
		return in.refuse("timestamp", "one of the traces has timestamps, and another one has none", "join traces of one kind")
	}
	return nil
}

// merged returns the sources in order of time; their first rows coincide.
func (j *joined) merged() step {
	heads := make([]*item, len(j.inputs))
	shift := make([]float64, len(j.inputs))
	read := func(i int) error {
		it, err := j.inputs[i].next()
		if errors.Is(err, io.EOF) {
			heads[i] = nil
			return nil
		}
		if err != nil {
			return err
		}
		if it.index == 0 && i > 0 && heads[0] != nil {
			shift[i] = heads[0].key - it.key
		}
		if i > 0 {
			it.setTime(it.key + shift[i])
		}
		heads[i] = it
		return j.sameTiming(i)
	}
	begun := false
	return func() (*item, error) {
		for i := range heads {
			if begun {
				break
			}
			if err := read(i); err != nil {
				return nil, err
			}
		}
		begun = true
		least := -1
		for i, it := range heads {
			if it != nil && (least < 0 || it.key < heads[least].key) {
				least = i
			}
		}
		if least < 0 {
			return nil, io.EOF
		}
		it := heads[least]
		return it, read(least)
	}
}

// conversation returns the session that a session belongs to, such as that of an agent's caller: "a/b" belongs to "a". A slash at the
// beginning belongs to the name, because a session has one.
func conversation(session string) string {
	if at := strings.IndexByte(session, '/'); at > 0 {
		return session[:at]
	}
	return session
}
