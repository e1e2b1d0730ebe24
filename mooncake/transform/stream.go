// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strconv"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/moonloop/moonloop/mooncake"
)

// Stream is a transformed trace.
type Stream struct {
	c           Config
	source      *joined
	rows        step
	in          numbered
	fineIn      mooncake.RenumberRanges
	ranges      []mooncake.HashRange // reused memory
	finish      finisher
	block, fine int

	before, after meter
	sources       []meter // one for each source, if there are several
	stages        []*stage
	indexing      bool
	x             *index
	spool         *spool
	drawing       *drawing
	tick          float64 // of the clock whose rows were spread, ms
	ended         bool
	closed        atomic.Bool
}

// Open opens the sources, and reads them first if a step needs all rows. The caller owns the sources and closes them, after the stream.
func Open(c Config, sources ...Source) (*Stream, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &Stream{c: c}
	if err := s.open(sources); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close ends the reading of the sources, and removes temporary files. Afterwards Next returns no further row. Closing twice has no effect.
func (s *Stream) Close() {
	s.closed.Store(true)
	if s.source != nil {
		s.source.stop()
	}
	if s.spool != nil {
		s.spool.close()
	}
	if s.drawing != nil {
		s.drawing.spool.close()
	}
}

// open builds the chain of steps.
func (s *Stream) open(sources []Source) error {
	c := &s.c
	if err := s.begin(sources); err != nil {
		return err
	}
	if c.twoPasses() {
		if err := s.index(); err != nil {
			return err
		}
	}
	s.finish.moved = c.Draw != DrawNone || c.Scale != 0 || c.filters() || c.Spread != SpreadNone || c.Join == JoinMerge
	rows, keep := s.rows, []bool(nil)
	if changes(c.Scale) {
		o, err := newOverlay(c, s.x)
		if err != nil {
			return err
		}
		if c.Scale < 1 {
			keep = o.part
		} else {
			rows = o.up(rows)
		}
		note := ""
		if o.part != nil {
			note = s.x.tooLarge(c.Scale - math.Trunc(c.Scale))
		}
		st := s.stage("scale", map[string]any{"factor": c.Scale, "seed": c.Seed, "shift_ms": millis(c.Shift)}, everyFigure, func(before, after *Figures) string {
			return fmt.Sprintf("%d rows → %d%s; hits of an infinite cache %.2f %% → %.2f %% of the tokens", before.Rows, after.Rows, note, 100*before.TokenHits, 100*after.TokenHits)
		})
		st.note = note
		rows = s.then(rows, st)
	}
	if c.Roots > 1 {
		rows = s.then(plant(c, s.x, s.fine > 0, rows), s.stage("roots", map[string]any{"roots": c.Roots, "seed": c.Seed}, everyFigure, said("clusters are in %d prefix trees that share nothing", c.Roots)))
	}
	if changes(c.InputScale) || changes(c.PrefixScale) || changes(c.OutputScale) {
		z := &sizes{c: c, x: s.x, block: s.block, fine: s.fine}
		rows = s.then(z.rows(rows), s.stage("lengths", map[string]any{"input": c.InputScale, "prefix": c.PrefixScale, "output": c.OutputScale}, everyFigure, func(before, after *Figures) string {
			return fmt.Sprintf("mean input %.1f → %.1f tokens, mean output %.1f → %.1f; %d replies are no longer marked, %d rows have their own text and are unchanged",
				before.Input, after.Input, before.Output, after.Output, z.replies, z.skipped)
		}))
	}
	if c.BlockSize != 0 && c.BlockSize != s.block {
		b, err := newBlocks(c.BlockSize, s.block, s.fine)
		if err != nil {
			return err
		}
		if b.ranges {
			s.fine = s.block
		}
		was := s.block
		s.block = c.BlockSize
		rows = s.then(b.rows(rows), s.stage("block-size", map[string]any{"from": was, "to": c.BlockSize}, everyFigure, said("blocks of %d tokens → %d", was, c.BlockSize)))
	}
	s.rows = s.inTime(rows)
	if s.spool != nil {
		return s.spool.again(keep)
	}
	return nil
}

// inTime adds the steps that change when rows are sent, and which models they request.
func (s *Stream) inTime(rows step) step {
	c := &s.c
	if c.MaxGap > 0 {
		cut := new(float64)
		rows = s.then(gaps(c.MaxGap, rows, cut), s.stage("max-gap", map[string]any{"ms": millis(c.MaxGap)}, times, func(_, _ *Figures) string {
			return fmt.Sprintf("%s of idle time removed", mooncake.Duration(*cut))
		}))
	}
	if c.Spread != SpreadNone {
		rows = s.then(spread(c, rows, &s.tick), s.stage("spread", map[string]any{"how": c.Spread.String(), "seed": c.Seed}, everyFigure, func(before, after *Figures) string {
			return fmt.Sprintf("gap CV %.3f → %.3f", before.GapCV, after.GapCV)
		}))
	}
	if c.Turns != TurnsAsTimed || c.MaxDelay > 0 {
		t := &turns{c: c, last: map[talker]turn{}}
		rows = s.then(t.rows(rows), s.stage("turn-delay", map[string]any{"from": string(c.Turns), "max_ms": millis(c.MaxDelay)}, times, func(_, _ *Figures) string {
			return fmt.Sprintf("%d turns follow the previous turn after a delay, %d of them without a known end of the previous turn; %d delays shortened, by %s", t.made, t.unknown, t.capped, mooncake.Duration(t.cut))
		}))
	}
	if len(c.ToModels) > 0 {
		rows = s.then(named(c.ToModels, rows), s.stage("to-model", map[string]any{"models": c.ToModels}, noFigure, said("models are called by these names, in order of appearance in each conversation")))
	}
	if changes(c.TimeScale) {
		rows = s.then(timed(c.TimeScale, rows), s.stage("time-scale", map[string]any{"factor": c.TimeScale}, times, func(before, after *Figures) string {
			return fmt.Sprintf("%.4g times as fast: span %.0f ms → %.0f ms", 1/max(c.TimeScale, MinScale), before.Span, after.Span)
		}))
	}
	return rows
}

// said returns the effect of a step that is known in advance.
func said(format string, args ...any) func(before, after *Figures) string {
	return func(_, _ *Figures) string { return fmt.Sprintf(format, args...) }
}

// begin opens the sources and builds the chain of steps that come before all others.
func (s *Stream) begin(sources []Source) error {
	var err error
	if s.source, err = openJoined(&s.c, sources); err != nil {
		return err
	}
	s.block, s.fine = s.source.block, s.source.fine
	in := s.source.rows(&s.c)
	if len(sources) > 1 {
		s.sources = make([]meter, len(sources))
		s.stage(string(s.c.Join), map[string]any{"traces": len(sources)}, noFigure, func(_, after *Figures) string {
			return fmt.Sprintf("%d traces became one of %d rows; their ids are separate", len(sources), s.before.rows)
		}).joins = true
	}
	measured := func() (*item, error) {
		it, err := in()
		if err != nil {
			return nil, err
		}
		s.in.row(uint64(it.source), it.HashIDs) //nolint:gosec // never negative
		if it.HashRanges != nil && (len(sources) > 1 || s.c.InputScale != 0 || s.c.PrefixScale != 0) {
			s.ranges = s.fineIn.Domain(uint64(it.source), s.ranges[:0], it.HashRanges) //nolint:gosec // likewise
			it.HashRanges = append(it.HashRanges[:0], s.ranges...)
		}
		s.before.add(it.Row, s.in.added, s.source.block)
		if s.sources != nil {
			s.sources[it.source].add(it.Row, s.in.added, s.source.block)
		}
		return it, nil
	}
	s.rows = s.selected(measured)
	if how := s.c.Draw; how != DrawNone {
		s.rows = s.then(s.drawn(s.rows), s.stage("draw", map[string]any{"how": string(how), "seed": s.c.Seed}, everyFigure, func(before, after *Figures) string {
			return fmt.Sprintf("%d conversations in another order, %d rows → %d; hits of an infinite cache %.2f %% → %.2f %% of the tokens",
				len(s.drawing.talks), before.Rows, after.Rows, 100*before.TokenHits, 100*after.TokenHits)
		}))
	}
	return nil
}

// index reads the sources to their end, and stores their rows for a second pass.
func (s *Stream) index() error {
	var err error
	if s.spool, err = newSpool(s.c.TempDir); err != nil {
		return err
	}
	s.x = newIndex(s.block)
	s.x.scaled, s.x.copied = changes(s.c.Scale), s.c.Scale > 1
	var names numbered            // of the rows that are left
	sessions := map[uint64]int{}  // the last row of each
	requests := map[uint64]int{}  // rows that others may wait for, by their request ids
	at := map[int]map[int64]int{} // rows that replies may answer
	s.indexing = true
	defer func() { s.indexing = false }()
	for {
		it, err := s.rows()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if it.seq >= maxIndexed {
			return fmt.Errorf("scale, roots and prefix-scale: more than %d rows cannot be indexed; transform the trace in parts", uint32(maxIndexed))
		}
		if err := s.spool.append(it); err != nil { // with the ids of the sources
			return err
		}
		names.row(0, it.HashIDs)
		s.x.add(it, names.added, names.len())
		if it.session != 0 {
			if last, known := sessions[it.session]; known {
				s.x.link(last, it.seq)
			}
			sessions[it.session] = it.seq
		}
		for _, id := range it.WaitFor {
			if before, known := requests[xxhash.Sum64String(id)]; known {
				s.x.link(before, it.seq)
			}
		}
		if it.RequestID != "" {
			requests[xxhash.Sum64String(it.RequestID)] = it.seq
		}
		if s.fine > 0 || len(it.Replies) > 0 {
			if at[it.source] == nil {
				at[it.source] = map[int64]int{}
			}
			at[it.source][it.index] = it.seq
			if n := len(it.Replies); n > 0 { // earlier replies answer rows of the same cluster
				if target, known := at[it.source][it.index-it.Replies[n-1].Back]; known {
					s.x.link(target, it.seq)
				}
			}
		}
	}
	if s.x.rows.n == 0 {
		return s.noRow() // else a later step would blame its absent timestamps
	}
	s.rows = s.spool.next
	if changes(s.c.PrefixScale) {
		s.x.share()
	}
	if share := s.c.Scale; changes(share) || s.c.Roots > 1 {
		s.x.divide(trunkLimit(s.x.rows.n, max(share, 0)+boolToOne(share == 0)))
	} else {
		s.x.onlyShared()
	}
	return nil
}

// boolToOne returns 1 for true, else 0.
func boolToOne(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func itoa(n int) string { return strconv.Itoa(n) }

// BlockSize returns the number of tokens per hash id of the resulting rows.
func (s *Stream) BlockSize() int { return s.block }

// FineBlockSize returns the number of tokens per id of hash_ranges of the resulting rows, 0 if they have none.
func (s *Stream) FineBlockSize() int { return s.fine }

// Next returns the next row, or io.EOF; after Close, [fs.ErrClosed], unless the rows had ended before. The caller owns the row.
func (s *Stream) Next() (*mooncake.Row, error) {
	if s.closed.Load() && !s.ended { // steps and batches may hold further rows
		return nil, fmt.Errorf("the stream of rows was closed before its end: %w", fs.ErrClosed)
	}
	it, err := s.rows()
	if err != nil {
		if errors.Is(err, io.EOF) && !s.ended {
			s.ended = true
			if s.finish.rows == 0 {
				return nil, s.noRow()
			}
		}
		return nil, err
	}
	added := s.finish.row(it, s.block, s.fine)
	s.after.add(it.Row, added, s.block)
	return it.Row, nil
}

// Jitter returns the maximum random change of times in the result, in ms. It is known after the stream has ended. before is that of the
// sources.
func (s *Stream) Jitter(before float64) float64 {
	if s.c.Scale > 1 {
		before += millis(cmp.Or(s.c.Shift, DefaultShift))
	}
	if s.c.Spread == SpreadUniform {
		before += s.tick
	}
	if changes(s.c.TimeScale) {
		before *= s.c.TimeScale
	}
	return before
}

// Report describes what a stream did. It is complete after the stream has ended.
type Report struct {
	Before Figures                   `json:"before"`
	After  Figures                   `json:"after"`
	Steps  []mooncake.Transformation `json:"steps"`
}

// Report returns what was done so far.
func (s *Stream) Report() Report {
	before, after := s.before.figures(), s.after.figures()
	r := Report{*before, *after, s.transformations(before, after)}
	if n := s.finish.replies; n > 0 {
		r.Steps = append(r.Steps, mooncake.Transformation{Name: "replies", Effect: fmt.Sprintf("%d replies left out: they answer rows that are not in the trace", n)})
	}
	if s.x != nil && s.c.Scale > 1 && s.x.verbal > 0 {
		r.Steps = append(r.Steps, mooncake.Transformation{Name: "text", Effect: fmt.Sprintf("%d rows have their own text: copies of them share all of it", s.x.verbal)})
	}
	return r
}
