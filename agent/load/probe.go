// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// maxProbedIDs is the maximum number of ids for checking the look-ahead's rows against the rules of the format; beyond it, the rules about
// ids are not checked.
const maxProbedIDs = 1 << 20

// maxShapes is the maximum number of rows whose lengths warm-up requests copy.
const maxShapes = 256

// maxModels is the maximum number of models that the look-ahead counts separately.
const maxModels = 1024

// probe reads the look-ahead and makes the decisions for the rest of the replay.
func (s *Stream) probe() error {
	detector := stats.NewSessionDetector(s.opt.BlockSize, 0)
	checker := mooncake.NewChecker(mooncake.CheckOptions{BlockSize: s.opt.BlockSize, FineBlockSize: s.opt.FineBlockSize, MaxIDs: maxProbedIDs})
	var arrivals stats.Arrivals
	fingerprint := xxhash.New()
	var text []byte
	for len(s.head) < s.opt.Lookahead && s.headErr == nil {
		e, err := s.readFile()
		if err != nil {
			s.headErr = err
			break
		}
		arrivals.Add(e.Row)
		text = append(mooncake.AppendRow(text[:0], e.Row), '\n')
		_, _ = fingerprint.Write(text) // never fails
		if e.WaitFor == nil {          // the position of graph rows in their session decides nothing
			detector.Add(e.Row)
		}
		checker.Add(e.Row, e.line)
		if e.Kind() == mooncake.KindLength {
			s.info.Generated++
		}
		if len(e.Images) > 0 {
			s.info.Pictured++
		}
		if e.SessionID != "" {
			s.info.Sessioned++
		}
		if !e.OutputLength.Set && e.Kind() != mooncake.KindPayload {
			s.info.Unsized++
		}
		if len(e.Replies) > 0 {
			s.info.Replying++
		}
		if e.after != nil {
			s.info.Following++
		}
		s.head = append(s.head, e)
		e.counted(&s.counts) // no other goroutine exists yet
	}
	s.info.Rows, s.info.Whole = len(s.head), errors.Is(s.headErr, io.EOF)
	s.info.Scheduled = s.info.Timed || s.arrivals != nil
	switch {
	case len(s.head) == 0 && s.info.Whole:
		return ErrNoRows
	case len(s.head) == 0 || s.headErr != nil && !s.info.Whole:
		return s.headErr // a trace with an error in the look-ahead is not sent at all
	case !s.info.Scheduled && !s.opt.FileOrder && s.opt.Strict:
		return errors.New("the trace's first row has no timestamp; replay it in file order with --no-fixed-schedule")
	case !s.info.Timed && s.opt.Spread != SpreadNone:
		return errors.New("spread: the trace has no timestamps")
	case !s.info.Timed && (s.opt.Start != 0 || s.opt.End != 0):
		return errors.New("window: the trace has no timestamps, or they are ignored")
	}
	s.info.Fingerprint = fingerprint.Sum64()
	if s.opt.Shards > 0 {
		s.division = newDivision(s.opt, s.head)
		for i := range s.head {
			s.division.assign(&s.head[i])
		}
	}
	s.info.Broken = checker.Violations()
	times := arrivals.Stats()
	s.info.Grid = times.Grid
	s.info.LooksSeconds = times.Seconds
	if s.opt.Spread != SpreadNone && !s.info.Grid.Coarse {
		return errors.New("spread: the timestamps are not multiples of a coarse step, so there is nothing to spread")
	}
	if s.info.Timed {
		s.info.First, s.info.Last = math.Inf(1), math.Inf(-1)
		for _, e := range s.head {
			s.info.First, s.info.Last = min(s.info.First, e.key), max(s.info.Last, e.key)
		}
		s.info.First += clock.Millis(s.opt.Start)
		for _, e := range s.head {
			if err := s.beyond(e); err != nil && s.arrivals == nil && s.opt.End == 0 && s.opt.MaxRows == 0 { // with a rate, the timestamp is not used; with an end or a limit, the row may be left out
				return err
			}
		}
	}
	s.countModels()
	return s.decideSessions(detector)
}

// countModels counts the rows in the window by model, except those with payloads.
func (s *Stream) countModels() {
	for _, e := range s.head {
		if s.outside(e) || e.Kind() == mooncake.KindPayload {
			continue
		}
		i := slices.IndexFunc(s.info.Models, func(m ModelRows) bool { return m.Name == e.Model })
		switch {
		case i >= 0:
			s.info.Models[i].Rows++
		case len(s.info.Models) < maxModels:
			s.info.Models = append(s.info.Models, ModelRows{Name: e.Model, Rows: 1})
		}
	}
}

// Shapes returns copies of up to n of the first rows, without their ids and sessions: requests with the trace's lengths that share nothing
// with it. There is at least one. It must be called before Next.
func (s *Stream) Shapes(n int) (shapes []*mooncake.Row) {
	for _, e := range s.head[:min(n, maxShapes, len(s.head))] {
		shape := &mooncake.Row{InputLength: e.InputLength, OutputLength: e.OutputLength, Model: e.Model, Images: e.Images}
		if !shape.InputLength.Set {
			const bytesPerToken = 4 // accurate enough for a warm-up
			size := len(e.TextInput.V) + len(e.Messages) + len(e.Tools) + len(e.Payload)
			shape.InputLength = mooncake.Some(max(16, int64(size/bytesPerToken)))
		}
		shapes = append(shapes, shape)
	}
	return shapes
}

// Trunk returns the block ids that are in more than the given share of the rows with ids, and the number of these rows. The rows are those
// of the look-ahead that all shards together will send. It must be called before Next.
func (s *Stream) Trunk(share float64) (trunk map[uint64]bool, rows int) {
	type use struct{ rows, last int }
	uses := make(map[uint64]use)
	for _, e := range s.head {
		if s.outside(e) || len(e.HashIDs) == 0 {
			continue
		}
		rows++
		for _, id := range e.HashIDs {
			if u := uses[id]; u.last != rows { // a row may have the id twice
				uses[id] = use{u.rows + 1, rows}
			}
		}
	}
	trunk = make(map[uint64]bool)
	for id, u := range uses {
		if float64(u.rows) > share*float64(rows) && u.rows > 1 {
			trunk[id] = true
		}
	}
	return trunk, rows
}

// decideSessions decides the meaning of a session's rows.
func (s *Stream) decideSessions(d *stats.SessionDetector) error {
	found, evidence := d.Mode()
	s.info.Sessions, s.info.Evidence = found, evidence
	switch given := s.opt.Sessions; {
	case given != mooncake.SessionUnknown:
		s.info.Sessions = given
		if found == mooncake.SessionUnknown { // the detector's text leaves open what is decided here
			s.info.Evidence = "--session-mode or the trace's metadata says so, the rows do not show it"
		}
	case found == mooncake.SessionUnknown:
		return fmt.Errorf("sessions: %s; say which with --session-mode=full (each row is the whole prompt) or --session-mode=delta (each row is a new turn)", evidence)
	}
	if s.info.Sessions == mooncake.SessionDelta && s.opt.Start > 0 {
		return errors.New("window: a start would cut into sessions whose rows are new turns, and send later turns as first ones")
	}
	if s.info.Sessions == mooncake.SessionDelta && s.opt.OpenSessions {
		return errors.New("sessions: rows that are new turns need the reply to the turn before and cannot be replayed open loop")
	}
	return nil
}
