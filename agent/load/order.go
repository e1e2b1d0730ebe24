// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

// This file sorts the rows that have been read into the order in which they are sent, step by step: see the package comment.

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
	"github.com/moonloop/moonloop/mooncake/transform"
)

// entry is a row between two steps.
type entry struct {
	*mooncake.Row
	key     float64 // trace milliseconds
	index   int64
	line    int64
	turn    bool // a later turn of its session
	outside bool // it is outside the window
	again   bool // it is of a later pass of a loop
	shard   int
	// The rows that it waits for, by index, and their group. The entry has the position of the latest of them.
	after []int64
	of    uint64

	offset time.Duration // from the arrival process
	placed bool          // the arrival process has set offset

	predicted stats.Prediction
	prompts   int64   // what predicted.Finest would be if no reply were carried
	spread    float64 // the part of key that spreading added
}

// Next returns the next item of this shard by offset, or io.EOF. One goroutine at a time may call it.
func (s *Stream) Next() (*schedule.Item, error) {
	for {
		e, err := s.spreadOut()
		if err != nil {
			s.tallied()
			return nil, err
		}
		it := &schedule.Item{Row: e.Row, Index: e.index, After: e.after, Predicted: e.predicted, Prompts: e.prompts}
		if it.After == nil && e.WaitFor != nil && !s.opt.OpenSessions {
			it.After = []int64{} // a row of a graph that waits for no row
		}
		switch {
		case s.arrivals != nil:
			it.Offset, it.Timed = e.offset, e.placed
		case s.info.Timed:
			scale := float64(time.Millisecond) / s.opt.Speedup
			it.Timed = e.Timestamp.Set && e.after == nil
			if err := s.beyond(e); err != nil {
				return nil, err
			}
			it.Offset = time.Duration(math.Round((e.key - s.info.First) * scale))
			it.Spread = time.Duration(math.Round(e.spread * scale))
		}
		if s.division != nil {
			if s.tally(&e, it.Offset); e.shard != s.opt.Shard {
				continue
			}
		}
		return it, nil
	}
}

// beyond returns an error for a row after the end of the longest schedule.
func (s *Stream) beyond(e entry) error {
	if (e.key-s.info.First)/s.opt.Speedup <= clock.Millis(horizon) {
		return nil
	}
	return fmt.Errorf("line %d: timestamp %s ms is more than 100 years of replay time after the first row's; correct the row, or set the unit with --time-unit if it is not ms", e.line, number(e.key))
}

// spreadOut returns the next row by offset.
func (s *Stream) spreadOut() (entry, error) {
	if !s.info.Timed || s.opt.Spread == SpreadNone {
		return s.limited()
	}
	for !s.spreadAll && (s.spread.Len() == 0 || s.spread.First().key >= s.bound) {
		e, err := s.limited()
		switch {
		case errors.Is(err, io.EOF):
			s.spreadAll = true
			s.spreadStep()
		case err != nil:
			return entry{}, err
		case s.opt.Spread == SpreadUniform: // turns move together; otherwise a later one could overtake
			s.bound = e.key
			s.shift(e, transform.Place(s.opt.Seed, e.group()))
		default:
			if len(s.step) > 0 && s.step[0].key != e.key {
				s.spreadStep()
			}
			s.bound = e.key
			s.step = append(s.step, e)
		}
	}
	if s.spread.Len() == 0 {
		return entry{}, io.EOF
	}
	return s.spread.Pop(), nil
}

// spreadStep spreads the rows of one timestamp evenly.
func (s *Stream) spreadStep() {
	rows := 0 // rows that are sent at their timestamps
	for _, e := range s.step {
		if e.after == nil {
			rows++
		}
	}
	j := 0
	for _, e := range s.step {
		s.shift(e, float64(j)/float64(max(rows, 1)))
		if e.after == nil {
			j++
		}
	}
	s.step = s.step[:0]
}

// shift moves a row by a part of its tick.
func (s *Stream) shift(e entry, part float64) {
	e.spread = s.info.Grid.Quantum * part
	e.key += e.spread
	s.spread.Push(e)
}

// limited returns the next row by timestamp, up to MaxRows.
func (s *Stream) limited() (entry, error) {
	if s.opt.MaxRows > 0 && s.passed >= s.opt.MaxRows {
		past := int64(len(s.head))
		for e := range s.sorted.All() {
			if !e.outside {
				past++
			}
		}
		if s.users != nil {
			past += int64(s.users.held)
		}
		s.count(func(c *Counts) { c.PastLimit = past })
		return entry{}, io.EOF
	}
	next := s.inWindow
	if s.users != nil {
		next = s.nextTurn
	}
	e, err := next()
	if err != nil {
		return e, err
	}
	s.passed++
	if s.arrivals != nil && s.users == nil {
		err = s.arrive(&e)
	}
	if err == nil && s.past(e) {
		s.Stop()
		return entry{}, io.EOF
	}
	return e, err
}

// inWindow returns the next row of the window, by timestamp or in file order.
func (s *Stream) inWindow() (entry, error) {
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

// earliest returns the next row by timestamp, inside or outside the window. Rows outside it are part of the look-ahead; otherwise the last
// rows of the window would wait until the whole trace has been read.
func (s *Stream) earliest() (entry, error) {
	for s.sorted.Len() < s.opt.Lookahead && s.over == nil {
		e, err := s.read()
		switch {
		case err != nil:
			s.over = err
		case e.after != nil: // it is sent when the rows that it waits for have ended; these may have been read long before
			e.key = max(e.key, s.lastOut)
			s.sorted.Push(e)
		case e.key < s.lastOut && !e.outside:
			s.over = fmt.Errorf(
				"line %d: timestamp %s ms comes more than %d rows after %s ms: the trace is not in time order; sort it by timestamp, or raise --lookahead",
				e.line, number(e.key), s.opt.Lookahead, number(s.lastOut))
		default:
			s.sorted.Push(e)
		}
	}
	// A bad row ends the replay only after the rows before it have been sent.
	if s.sorted.Len() == 0 {
		return entry{}, s.over
	}
	e := s.sorted.Pop()
	if !e.outside {
		s.lastOut = e.key
	}
	return e, nil
}

// read returns the next row in file order, first those of the look-ahead, and records whether it is outside the window, or else how much of
// its prompt a cache will have.
func (s *Stream) read() (e entry, err error) {
	ahead := len(s.head) > 0
	switch {
	case ahead:
		e = s.head[0]
		s.head[0] = entry{}
		if s.head = s.head[1:]; len(s.head) == 0 {
			s.head = nil // its array has 600 kB
		}
	case s.headErr != nil:
		return entry{}, s.headErr
	default:
		if e, err = s.receive(); err != nil {
			return entry{}, err
		}
	}
	if e.outside = s.outside(e); e.outside {
		s.predictor.Skip()
		return e, nil
	}
	s.predict(&e)
	if !ahead && e.turn && s.info.Sessions == mooncake.SessionNone && !s.opt.OpenSessions {
		return entry{}, fmt.Errorf("line %d: the first session of more than one row begins after the look-ahead of %d rows; say what its rows hold with --session-mode=full or --session-mode=delta", e.line, s.info.Rows)
	}
	return e, nil
}

// outside reports whether a row is outside the window, which begins at info.First.
func (s *Stream) outside(e entry) bool {
	if !s.info.Timed || s.opt.Start == 0 && s.opt.End == 0 {
		return false
	}
	return e.key < s.info.First || s.opt.End != 0 && e.key > s.info.First+clock.Millis(s.opt.End-s.opt.Start)
}

// predict records the prompt tokens that an infinite cache would have served.
func (s *Stream) predict(e *entry) {
	e.predicted = stats.Prediction{Whole: -1, Finest: -1}
	if e.Kind() != mooncake.KindLength || e.HashIDs == nil ||
		e.SessionID != "" && s.info.Sessions == mooncake.SessionDelta { // its ids do not cover the whole prompt
		s.predictor.Skip()
		return
	}
	r, model := e.Row, cmp.Or(e.Model, s.fallback)
	if s.opt.OneModel {
		model = ""
	}
	if model != r.Model {
		asked := *r
		asked.Model = model
		r = &asked
	}
	if n, ok := s.predictor.Predict(r); ok {
		e.predicted, e.prompts = n, s.predictor.WithoutReplies()
		return
	}
	s.count(func(c *Counts) { c.Unpredicted++ })
}

// before reports whether a row comes before another one: by key, and equal keys by index.
func (e entry) before(o entry) bool { return e.key < o.key || e.key == o.key && e.index < o.index }
