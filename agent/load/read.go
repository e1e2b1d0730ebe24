// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

// This file reads the trace in file order; after the look-ahead it does so on a separate goroutine.

import (
	"cmp"
	"errors"
	"io"
	"math"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/mooncake"
)

// fileRow is a row with its time, or the error that ended the reading.
type fileRow struct {
	entry
	err error
}

// feed reads the file after the look-ahead until it ends or fails, or until the stream is stopped.
func (s *Stream) feed() {
	defer close(s.rows)
	for err := s.headErr; err == nil; {
		select {
		case <-s.quit:
			return
		default:
		}
		var f fileRow
		f.entry, f.err = s.readFile()
		err = f.err
		select {
		case s.rows <- f:
		case <-s.quit: // the row counts as not reached
			return
		}
	}
}

// counted counts the entry as read.
func (e *entry) counted(c *Counts) {
	c.Read++
	if !e.again {
		c.FirstPass++
	}
}

// drain stops the reading, and waits for its end, at most a second. It reports whether the reading has ended.
func (s *Stream) drain() (ended bool) {
	s.stop()
	late := time.After(time.Second)
	for {
		select {
		case _, open := <-s.rows:
			if !open {
				return true
			}
		case <-late:
			return false
		}
	}
}

// receive returns the next row after the look-ahead. After Stop, it returns only rows that have been read already.
func (s *Stream) receive() (entry, error) {
	var f fileRow
	open := false
	select {
	case f, open = <-s.rows:
	case <-s.quit:
		select {
		case f, open = <-s.rows:
		default:
		}
	}
	switch {
	case !open && s.fileEnded:
		return entry{}, io.EOF
	case !open:
		s.count(func(c *Counts) { c.Cut = true })
		return entry{}, io.EOF
	case f.err != nil:
		s.fileEnded = true
		return entry{}, f.err
	}
	s.count(f.counted)
	if s.division != nil {
		s.division.assign(&f.entry)
	}
	return f.entry, nil
}

// readFile returns the next row, with its time.
func (s *Stream) readFile() (entry, error) {
	for {
		r, err := s.in.Read()
		if errors.Is(err, io.EOF) {
			more, failed := s.reopen()
			if more {
				continue
			}
			err = cmp.Or(failed, err)
		}
		if err != nil {
			return entry{}, err
		}
		if s.index == 0 {
			s.info.Timed = r.Timestamp.Set && !s.opt.FileOrder
		}
		s.looped(r)
		e := entry{Row: r, index: s.index, again: s.looping.pass > 0}
		fault := s.setTime(&e)
		if fault == nil && r.Delay.V/s.opt.Speedup > clock.Millis(horizon) {
			fault = &mooncake.RowError{
				Field: "delay", Value: number(r.Delay.V), Rule: "is more than 100 years of replay time",
				Advice: "delays are milliseconds; correct the row",
			}
		}
		if fault != nil {
			if err := s.in.Refuse(fault); err != nil {
				return entry{}, err
			}
			continue
		}
		if r.SessionID != "" {
			s.keys.set(r.SessionID, e.key)
		}
		s.graphs.add(&e)
		if len(r.Replies) > 0 && s.opt.Replies != nil {
			s.opt.Replies(s.index, r.Replies)
		}
		s.index++
		e.line = s.in.Line()
		return e, nil
	}
}

// setTime sets the time of a row. A row with wait_for gets the time of the latest row that it waits for.
func (s *Stream) setTime(e *entry) (fault *mooncake.RowError) {
	if e.WaitFor == nil || s.opt.OpenSessions {
		e.key, e.turn, fault = s.keyOf(e.Row)
		return fault
	}
	if fault = s.follow(e); fault == nil && e.after == nil { // a root, even if earlier rows of its session have not ended
		root := *e.Row
		root.SessionID = ""
		e.key, _, fault = s.keyOf(&root)
	}
	return fault
}

// keyOf returns the time of a row: its timestamp, or, for a later turn, at least that of the previous turn. It reports whether the row is a
// later turn of its session, or why it has no time.
func (s *Stream) keyOf(r *mooncake.Row) (key float64, turn bool, fault *mooncake.RowError) {
	last := math.Inf(-1)
	if r.SessionID != "" {
		if key, known := s.keys.get(r.SessionID); known {
			last, turn = key, true
		}
	}
	rule := "the row has none although the first row of the trace has one"
	switch {
	case !s.info.Timed:
		return 0, turn, nil
	case r.Timestamp.Set && s.opt.OpenSessions:
		return r.Timestamp.V, turn, nil
	case r.Timestamp.Set:
		return max(r.Timestamp.V, last), turn, nil
	case turn:
		return last, turn, nil
	case r.SessionID != "":
		rule = "the first turn of its session has none, so the schedule cannot place it"
	}
	const advice = "give it one, or replay in file order with --no-fixed-schedule"
	return 0, false, &mooncake.RowError{Field: "timestamp", Rule: rule, Advice: advice}
}
