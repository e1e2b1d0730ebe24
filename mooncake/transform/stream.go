// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

// Stream is a trace that is made of others.
type Stream struct {
	c           Config
	source      *joined
	rows        step
	in          numbered
	fineIn      mooncake.RenumberRanges
	finish      finisher
	block, fine int

	before, after meter
	left          map[string]int64 // rows that the filters left out, by reason
	x             *index
	spool         *spool
	sizes         *sizes
	turns         *turns
	cut           float64
	ended         bool
}

// Open opens the sources, reads them where all rows must be known before the first one is made, and decides. The sources stay open; closing them is their owner's, who
// closes the stream before.
func Open(c Config, sources ...Source) (*Stream, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	s := &Stream{c: c, left: map[string]int64{}}
	if err := s.open(sources); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close ends the reading of the sources, and removes what was kept of them. Closing twice has no effect.
func (s *Stream) Close() {
	if s.source != nil {
		s.source.stop()
	}
	if s.spool != nil {
		s.spool.close()
	}
}

// open puts the steps together.
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
	s.finish.moved = c.Scale != 0 || c.filters() || c.Spread != SpreadNone || c.Join == JoinMerge
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
	}
	if c.Roots > 1 {
		in := rows
		rows = func() (*item, error) {
			it, err := in()
			if err == nil {
				it.root = rootOf(c, s.x, it)
			}
			return it, err
		}
	}
	if changes(c.InputScale) || changes(c.PrefixScale) || changes(c.OutputScale) {
		s.sizes = &sizes{c: c, x: s.x, block: s.block, fine: s.fine}
		if changes(c.PrefixScale) && s.fine == 0 && s.x.plain && !changes(c.Scale) && c.Roots <= 1 {
			s.sizes.plain = newTree(s.x, s.block)
		}
		rows = s.sizes.rows(rows)
	}
	if c.BlockSize != 0 && c.BlockSize != s.block {
		b, err := newBlocks(c.BlockSize, s.block, s.fine)
		if err != nil {
			return err
		}
		if b.ranges {
			s.fine = s.block
		}
		s.block = c.BlockSize
		rows = b.rows(rows)
	}
	if c.MaxGap > 0 {
		rows = gaps(c.MaxGap, rows, &s.cut)
	}
	if c.Spread != SpreadNone {
		rows = spread(c, rows)
	}
	if c.Turns != TurnsAsTimed || c.MaxDelay > 0 {
		s.turns = &turns{c: c, last: map[string]turn{}}
		rows = s.turns.rows(rows)
	}
	if len(c.ToModels) > 0 {
		rows = named(c.ToModels, rows)
	}
	if changes(c.TimeScale) {
		rows = timed(c.TimeScale, rows)
	}
	s.rows = rows
	if s.spool != nil {
		return s.spool.again(keep)
	}
	return nil
}

// begin opens the sources and puts the steps together that come before all others.
func (s *Stream) begin(sources []Source) error {
	var err error
	if s.source, err = openJoined(&s.c, sources); err != nil {
		return err
	}
	s.block, s.fine = s.source.block, s.source.fine
	in := s.source.rows(&s.c)
	measured := func() (*item, error) {
		it, err := in()
		if err != nil {
			return nil, err
		}
		s.in.row(uint64(it.source), it.HashIDs) //nolint:gosec // never negative
		if it.HashRanges != nil && (len(sources) > 1 || s.c.InputScale != 0 || s.c.PrefixScale != 0) {
			it.HashRanges = s.fineIn.Domain(uint64(it.source), nil, it.HashRanges) //nolint:gosec // likewise
		}
		s.before.add(it.Row, s.in.added, s.source.block)
		return it, nil
	}
	s.rows = selected(&s.c, measured, s.left)
	return nil
}

// index reads the sources to their end, and keeps their rows for a second pass.
func (s *Stream) index() error {
	var err error
	if s.spool, err = newSpool(s.c.TempDir); err != nil {
		return err
	}
	s.x = newIndex(s.block)
	var names numbered // of the rows that are left
	sessions := sessionsOf{}
	at := map[int]map[int64]int{} // rows that replies may be to
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
		if err := s.spool.put(it); err != nil { // with the ids that the sources have
			return err
		}
		names.row(0, it.HashIDs)
		s.x.add(it, names.added)
		if it.SessionID != "" {
			if last, known := sessions.before(it.SessionID, it.seq); known {
				s.x.link(last, it.seq)
			}
		}
		if s.fine > 0 || len(it.Replies) > 0 {
			if at[it.source] == nil {
				at[it.source] = map[int64]int{}
			}
			at[it.source][it.index] = it.seq
			if n := len(it.Replies); n > 0 { // those before are to rows of the same cluster
				if target, known := at[it.source][it.index-it.Replies[n-1].Back]; known {
					s.x.link(target, it.seq)
				}
			}
		}
	}
	s.rows = s.spool.next
	s.x.plain = names.names.Len() == 0
	if changes(s.c.PrefixScale) {
		s.x.share()
	}
	if share := s.c.Scale; changes(share) || s.c.Roots > 1 {
		s.x.divide(trunkLimit(len(s.x.key), max(share, 0)+boolToOne(share == 0)))
	}
	return nil
}

// boolToOne is 1 for true.
func boolToOne(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func itoa(n int) string { return strconv.Itoa(n) }

// BlockSize returns the tokens per hash id of the rows that come out.
func (s *Stream) BlockSize() int { return s.block }

// FineBlockSize returns the tokens per id of their hash_ranges, 0 where they have none.
func (s *Stream) FineBlockSize() int { return s.fine }

// Next returns the next row, which is the caller's, or io.EOF.
func (s *Stream) Next() (*mooncake.Row, error) {
	it, err := s.rows()
	if err != nil {
		if errors.Is(err, io.EOF) && !s.ended {
			s.ended = true
			if s.finish.rows == 0 {
				return nil, errors.New("no row is left: the window and the filters keep none of the trace, or it has none; give wider ones")
			}
		}
		return nil, err
	}
	added := s.finish.row(it, s.block, s.fine)
	s.after.add(it.Row, added, s.block)
	return it.Row, nil
}

// Report is what a stream did, once it has ended.
type Report struct {
	Before Figures                   `json:"before"`
	After  Figures                   `json:"after"`
	Steps  []mooncake.Transformation `json:"steps"`
}

// Report says what was done so far.
func (s *Stream) Report() Report {
	r := Report{Before: s.before.figures(), After: s.after.figures()}
	c := &s.c
	add := func(done bool, name string, parameters map[string]any, effect string, args ...any) {
		if done {
			r.Steps = append(r.Steps, mooncake.Transformation{Name: name, Parameters: parameters, Effect: fmt.Sprintf(effect, args...)})
		}
	}
	kept := s.before.rows
	add(c.Join != JoinNone && len(s.source.inputs) > 1, string(c.Join), map[string]any{"traces": len(s.source.inputs)}, "%d traces became one of %d rows; their ids are apart", len(s.source.inputs), kept)
	for _, f := range []struct {
		name, why  string
		done       bool
		parameters map[string]any
	}{
		{"window", "outside the window", c.Start != 0 || c.End != 0, map[string]any{"start_ms": millis(c.Start), "end_ms": millis(c.End)}},
		{"only-model", "of another model", len(c.Models) > 0, map[string]any{"models": c.Models}},
		{"only-class", "of another class", len(c.Classes) > 0, map[string]any{"classes": c.Classes}},
		{"session", "of another session", len(c.Sessions) > 0, map[string]any{"sessions": len(c.Sessions)}},
		{"input length", "of another input length", c.MinInput+c.MaxInput > 0, map[string]any{"min": c.MinInput, "max": c.MaxInput}},
		{"output length", "of another output length", c.MinOutput+c.MaxOutput > 0, map[string]any{"min": c.MinOutput, "max": c.MaxOutput}},
		{"context", "of a longer context", c.MaxContext > 0, map[string]any{"max": c.MaxContext}},
		{"conversations", "of later conversations", c.Conversations > 0, map[string]any{"first": c.Conversations}},
	} {
		n := s.left[f.why]
		add(f.done, f.name, f.parameters, "%d rows → %d: %d %s", kept, kept-n, n, f.why)
		kept -= n
	}
	add(c.First > 0, "first", map[string]any{"rows": c.First}, "the first %d of these rows", c.First)
	if changes(c.Scale) {
		add(true, "scale", map[string]any{"factor": c.Scale, "seed": c.Seed, "shift_ms": millis(c.Shift)},
			"%d rows → %d; hits of an infinite cache %.2f %% → %.2f %% of the tokens", len(s.x.key), s.after.rows, 100*r.Before.TokenHits, 100*r.After.TokenHits)
	}
	add(c.Roots > 1, "roots", map[string]any{"roots": c.Roots, "seed": c.Seed}, "clusters are in %d prefix trees that share nothing", c.Roots)
	if s.sizes != nil {
		add(true, "lengths", map[string]any{"input": c.InputScale, "prefix": c.PrefixScale, "output": c.OutputScale},
			"mean input %.1f → %.1f tokens, mean output %.1f → %.1f; %d replies left out, %d rows bring their own text and are as they were",
			r.Before.Input, r.After.Input, r.Before.Output, r.After.Output, s.sizes.replies, s.sizes.skipped)
	}
	add(c.BlockSize != 0 && c.BlockSize != s.source.block, "block-size", map[string]any{"from": s.source.block, "to": c.BlockSize}, "blocks of %d tokens → %d", s.source.block, c.BlockSize)
	add(c.MaxGap > 0, "max-gap", map[string]any{"ms": millis(c.MaxGap)}, "%s of idle time taken out", time.Duration(s.cut*float64(time.Millisecond)))
	add(c.Spread != SpreadNone, "spread", map[string]any{"how": c.Spread.String(), "seed": c.Seed}, "gap CV %.3f → %.3f", r.Before.GapCV, r.After.GapCV)
	if t := s.turns; t != nil {
		add(true, "turn-delay", map[string]any{"from": string(c.Turns), "max_ms": millis(c.MaxDelay)},
			"%d turns follow the one before by a delay, %d of them without that its end is known; %d delays made shorter, by %s", t.made, t.unknown, t.capped, time.Duration(t.cut*float64(time.Millisecond)))
	}
	add(len(c.ToModels) > 0, "to-model", map[string]any{"models": c.ToModels}, "models are called by these names, in order of appearance in each conversation")
	add(changes(c.TimeScale), "time-scale", map[string]any{"factor": c.TimeScale}, "%.4g times as fast: span %.0f ms → %.0f ms", 1/max(c.TimeScale, MinScale), r.Before.Span, r.After.Span)
	if n := s.finish.replies; n > 0 {
		add(true, "replies", nil, "%d replies left out: the rows that they are to are not there", n)
	}
	if s.x != nil && c.Scale > 1 && s.x.verbal > 0 {
		add(true, "text", nil, "%d rows bring their own text: copies of them share all of it", s.x.verbal)
	}
	add(true, "figures", map[string]any{"before": r.Before, "after": r.After}, "before and after all of this")
	return r
}
