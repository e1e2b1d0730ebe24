// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

// This file repeats a trace when it has come to its end, at later times.

import (
	"errors"
	"strconv"
	"time"

	"github.com/moonloop/moonloop/internal/splitmix"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// Loop sends the trace more than once. The zero value sends it once.
//
// A pass begins when the duration of the trace and a mean gap (or, on a coarse grid, a step) have passed since the start of the pass
// before. So the mean rate stays the same, and timestamps stay on their grid. Sessions are new in each pass, because otherwise they would
// continue.
type Loop struct {
	Passes int           // number of passes; 0 = until For has passed
	For    time.Duration // rows that are due at this replay time or later are not sent; 0 = no limit
	// Fresh gives the blocks of each pass new ids, so that no pass hits the cache contents of an earlier one. Recorded texts are not
	// changed.
	Fresh bool
	// Again opens the trace again, for another pass.
	Again func() (Rows, error)
}

// Any reports whether there may be more than one pass.
func (l Loop) Any() bool { return l.Passes > 1 || l.For > 0 }

// looping is the state of the loop. The reading goroutine owns it.
type looping struct {
	pass   int            // from 0
	times  stats.Arrivals // of the first pass
	most   uint64         // greatest id of the first pass
	period float64        // of a pass, ms
	stride uint64         // added to the ids of a pass for the next one
}

// reopen begins the next pass, and reports whether there is one.
func (s *Stream) reopen() (bool, error) {
	l := &s.looping
	if s.opt.MaxRows > 0 && s.index >= s.opt.MaxRows && s.users == nil && s.opt.Start == 0 { // all rows of a later pass come after these
		return false, nil
	}
	if !s.opt.Loop.Any() || s.opt.Loop.Passes > 0 && l.pass+1 >= s.opt.Loop.Passes || s.index == 0 {
		return false, nil
	}
	if l.pass == 0 {
		if err := s.measurePass(); err != nil {
			return false, err
		}
	}
	in, err := s.opt.Loop.Again()
	if err != nil {
		return false, err
	}
	s.in = in
	l.pass++
	return true, nil
}

// measurePass computes by how much the passes after the first one differ from it.
func (s *Stream) measurePass() error {
	l, dense := &s.looping, uint64(1)<<40
	if l.stride = l.most + 1; l.most >= dense { // ids that are hashes: two passes then share ids only with the probability of equal hashes
		l.stride = splitmix.Golden
	}
	times := l.times.Stats() // in file order, they only separate the passes
	gap := times.GapMean
	if times.Grid.Coarse {
		gap = times.Grid.Quantum
	}
	if times.Span+gap <= 0 && s.arrivals == nil && s.info.Timed {
		return errors.New("loop: all rows have the same timestamp, so the length of a pass is unknown; give a request rate")
	}
	l.period = max(times.Span+gap, 0)
	return nil
}

// looped records a row of the first pass, or moves a row of a later pass to its time.
func (s *Stream) looped(r *mooncake.Row) {
	l := &s.looping
	if !s.opt.Loop.Any() {
		return
	}
	if l.pass == 0 {
		l.times.Add(r)
		for _, id := range r.HashIDs {
			l.most = max(l.most, id)
		}
		for _, ids := range r.HashRanges {
			l.most = max(l.most, ids.First+uint64(ids.Count)-1) //nolint:gosec // 1 or more
		}
		return
	}
	if r.Timestamp.Set {
		r.Timestamp.V += float64(l.pass) * l.period
	}
	suffix := "#" + strconv.Itoa(l.pass+1)
	if r.SessionID != "" {
		r.SessionID += suffix
	}
	if r.RequestID != "" {
		r.RequestID += suffix
	}
	for i := range r.WaitFor {
		r.WaitFor[i] += suffix
	}
	if !s.opt.Loop.Fresh {
		return
	}
	by := uint64(l.pass) * l.stride //nolint:gosec // wraps around
	for i := range r.HashIDs {
		r.HashIDs[i] += by
	}
	for i := range r.HashRanges {
		r.HashRanges[i].First += by
	}
}

// past reports whether a row is due at or after the end of the loop.
func (s *Stream) past(e entry) bool {
	limit := s.opt.Loop.For
	switch {
	case limit == 0:
		return false
	case s.arrivals != nil:
		return e.offset >= limit
	case s.info.Timed:
		return (e.key-s.info.First)/s.opt.Speedup*float64(time.Millisecond) >= float64(limit)
	}
	return false
}
