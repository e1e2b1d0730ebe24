// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

// This file computes figures of the rows between two steps, so that the sidecar can describe what each step did.

import (
	"errors"
	"fmt"
	"math"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/internal/words"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// Figures describe a trace before or after a step.
type Figures = mooncake.TraceFigures

// meter computes figures.
type meter struct {
	clock                stats.Arrivals
	rows, in, out        int64
	withIn, withOut      int64
	blocks, hits, cached int64
}

func newClock() *stats.Arrivals { return new(stats.Arrivals) }

// add adds a row that has this many new ids.
func (m *meter) add(row *mooncake.Row, added, block int) {
	m.rows++
	m.clock.Add(row)
	if row.OutputLength.Set {
		m.out += row.OutputLength.V
		m.withOut++
	}
	if !row.InputLength.Set {
		return
	}
	m.in += row.InputLength.V
	m.withIn++
	hits := int64(len(row.HashIDs) - added)
	m.blocks += int64(len(row.HashIDs))
	m.hits += hits
	m.cached += min(hits*int64(block), row.InputLength.V)
}

func (m *meter) figures() *Figures {
	quotient := func(a, b int64) float64 {
		if b == 0 {
			return 0
		}
		return float64(a) / float64(b)
	}
	f := &Figures{
		Rows: m.rows, Input: quotient(m.in, m.withIn), Output: quotient(m.out, m.withOut),
		BlockHits: quotient(m.hits, m.blocks), TokenHits: quotient(m.cached, m.in),
	}
	setTimes(f, &m.clock)
	return f
}

// setTimes sets the figures that depend only on times.
func setTimes(f *Figures, clock *stats.Arrivals) {
	times := clock.Stats()
	f.Span, f.Rate, f.GapCV, f.RandomCV = times.Span, times.Rate, times.GapCV, 1
	if times.Grid.Coarse && times.Span > 0 {
		// Poisson arrivals on a clock with n of them per tick: a tick has some with probability p = 1-exp(-n), the gaps between such ticks
		// are geometric, and all other gaps are 0. The second moment over the square of the mean is n(2-p)/p.
		n := float64(f.Rows) * times.Grid.Quantum / times.Span
		p := -math.Expm1(-n)
		f.RandomCV = math.Sqrt(n*(2-p)/p - 1)
	}
}

// stage is a step of a stream, and its description in the sidecar.
type stage struct {
	name       string
	parameters map[string]any
	effect     func(before, after *Figures) string
	joins      bool   // the sources are its input
	passed     int64  // rows of the output
	note       string // why it may keep no row
	// add adds a row of the output, and out computes the figures of these rows from those of the input rows. The last stage uses neither,
	// because its output is measured anyway.
	add func(*item)
	out func(before *Figures) *Figures
}

// change is the set of figures that a stage changes, and that must therefore be computed again.
type change int

const (
	noFigure    change = iota // neither rows, times, lengths nor ids
	times                     // only times
	everyFigure               // all figures
)

// stage adds a step after the existing ones.
func (s *Stream) stage(name string, parameters map[string]any, what change, effect func(before, after *Figures) string) *stage {
	st := &stage{name: name, parameters: parameters, effect: effect}
	s.stages = append(s.stages, st)
	switch what {
	case noFigure:
		st.add, st.out = func(*item) {}, func(before *Figures) *Figures { return before }
	case times:
		clock := newClock()
		st.add = func(it *item) { clock.Add(it.Row) }
		st.out = func(before *Figures) *Figures {
			f := *before
			setTimes(&f, clock)
			return &f
		}
	case everyFigure:
		b, block := new(border), s.block
		st.add = func(it *item) { b.add(it, block) }
		st.out = func(*Figures) *Figures { return b.meter.figures() }
	}
	return st
}

// passed adds a row that a stage has returned.
func (s *Stream) passed(st *stage, it *item) {
	st.passed++
	if s.indexing || st != s.stages[len(s.stages)-1] { // more stages come after an index
		st.add(it)
	}
}

// then measures the rows that a stage returns, as they pass.
func (s *Stream) then(rows step, st *stage) step {
	return func() (*item, error) {
		it, err := rows()
		if err == nil {
			s.passed(st, it)
		}
		return it, err
	}
}

// noRow returns the error of a result without a row: it names the step that left none.
func (s *Stream) noRow() error {
	left := s.before.rows
	if left == 0 {
		return errors.New("no row is left: the trace has none")
	}
	for _, st := range s.stages {
		switch {
		case st.joins:
		case st.passed == 0:
			return fmt.Errorf("no row is left: step %q kept none of %s%s; change this step, or leave it out", st.name, words.Plural(left, "row"), st.note)
		default:
			left = st.passed
		}
	}
	return errors.New("no row is left") // unreachable: a step passes what the next one takes
}

// border measures rows whose ids are not numbered yet.
type border struct {
	meter meter
	ids   numbered
}

func (b *border) add(it *item, block int) {
	trunk, own := it.domains()
	added := b.ids.count(trunk, it.HashIDs[:it.trunk])
	b.meter.add(it.Row, added+b.ids.count(own, it.HashIDs[it.trunk:]), block)
}

// transformations describes what each step did.
func (s *Stream) transformations(before, after *Figures) (list []mooncake.Transformation) {
	for i, st := range s.stages {
		t := mooncake.Transformation{Name: st.name, Parameters: st.parameters, Before: before, After: after}
		if i < len(s.stages)-1 {
			t.After = st.out(before)
		}
		if t.Effect = st.effect(t.Before, t.After); st.joins {
			t.Before = nil
			for i := range s.sources {
				t.Sources = append(t.Sources, *s.sources[i].figures())
			}
		}
		list, before = append(list, t), t.After
	}
	return list
}
