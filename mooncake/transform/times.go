// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"cmp"
	"errors"
	"io"
	"math"
	"slices"
	"time"

	"github.com/moonloop/moonloop/internal/heap"
	"github.com/moonloop/moonloop/internal/splitmix"
	"github.com/moonloop/moonloop/mooncake"
)

// place is a row that waits for its position in the order of time. Rows of one time keep their order, and copies come after their
// originals.
type place struct {
	key   float64
	order uint64
	it    *item
}

func placeOf(it *item) place { return place{it.key, it.order(), it} }

func (p place) before(o place) bool { return p.key < o.key || p.key == o.key && p.order < o.order }

// order returns a number that orders rows of the same time: by their position in the trace, then by copy.
func (it *item) order() uint64 {
	return uint64(it.seq)<<16 | uint64(it.copy) //nolint:gosec // never negative; copies are fewer than MaxScale
}

// overlay adds copies of the trace to its rows.
type overlay struct {
	x           *index
	seed        uint64
	shift       float64   // maximum, in ms
	whole       int       // copies with all rows, including the original
	part        []bool    // rows of one more, partial copy; nil = none
	ticks       []float64 // of a coarse clock, ascending
	from, to    int       // the range of ticks on which copies of the current row can be
	begin, end  []float64 // of the cluster that a row represents
	trunk       []uint32  // number of leading blocks of each row that belong to the trunk
	first, last float64
}

// newOverlay decides what happens to each row.
func newOverlay(c *Config, x *index) (*overlay, error) {
	o := &overlay{x: x, seed: c.Seed, shift: millis(cmp.Or(c.Shift, DefaultShift)), whole: int(c.Scale)}
	if rest := c.Scale - math.Trunc(c.Scale); rest > 1e-9 {
		o.part = x.sample(rest, c.Seed)
	}
	if c.Scale < 1 {
		return o, nil
	}
	if !x.timed {
		return nil, errors.New("scale: the trace has no timestamps, and copies are overlaid by time; --append puts the trace after itself")
	}
	if n := len(x.key); n > 0 {
		o.first, o.last = x.key[0], x.key[n-1]
	}
	o.begin, o.end, o.trunk = make([]float64, len(x.key)), make([]float64, len(x.key)), x.trunks()
	for i := range x.key {
		c := x.cluster[i]
		if int(c) == i {
			o.begin[c] = x.key[i]
		}
		o.end[c] = x.key[i]
	}
	if x.clock.Stats().Grid.Coarse {
		o.ticks = slices.Compact(slices.Clone(x.key))
	}
	return o, nil
}

// timeOfCopy returns the time of a row's copy. The rows of a cluster move together and stay within the trace's time.
func (o *overlay) timeOfCopy(it *item) float64 {
	c := o.x.cluster[it.seq]
	random := splitmix.Uniform(splitmix.Next(splitmix.Next(o.seed^uint64(c)) + uint64(it.copy))) //nolint:gosec // bits
	low, high := max(-o.shift, o.first-o.begin[c]), min(o.shift, o.last-o.end[c])
	at := it.key + low + random*(high-low)
	if o.ticks == nil {
		return tidy(at)
	}
	for ; o.from < len(o.ticks) && o.ticks[o.from] < it.key-o.shift; o.from++ { // rows arrive in order of time
	}
	for ; o.to < len(o.ticks) && o.ticks[o.to] <= it.key+o.shift; o.to++ {
	}
	i, _ := slices.BinarySearch(o.ticks[o.from:o.to], at)
	i += o.from
	switch {
	case i == len(o.ticks):
		i--
	case i > 0 && at-o.ticks[i-1] < o.ticks[i]-at:
		i--
	}
	return o.ticks[i]
}

// up adds copies.
func (o *overlay) up(in step) step {
	var own []*item                   // waiting originals, in order
	waiting := heap.New(place.before) // copies
	var copied slab
	bound, over := math.Inf(-1), false
	margin := o.shift
	if n := len(o.ticks); n > 1 {
		for i := range n - 1 {
			margin = max(margin, o.shift+o.ticks[i+1]-o.ticks[i])
		}
	}
	first := func() (p place, isCopy bool) { // the first of all; an infinite time if there is none
		p = place{key: math.Inf(1), order: math.MaxUint64}
		if len(own) > 0 {
			p = placeOf(own[0])
		}
		if waiting.Len() > 0 && waiting.First().before(p) {
			return *waiting.First(), true
		}
		return p, false
	}
	return func() (*item, error) {
		next, isCopy := first()
		for ; !over && next.key >= bound; next, isCopy = first() {
			it, err := in()
			switch {
			case errors.Is(err, io.EOF):
				over = true
				continue
			case err != nil:
				return nil, err
			}
			bound = it.key - margin
			copies := o.whole
			if o.part != nil && o.part[it.seq] {
				copies++
			}
			trunk := int(o.trunk[it.seq])
			for k := 1; k < copies; k++ {
				c := copied.clone(it)
				c.copy, c.trunk = k, trunk
				c.setTime(o.timeOfCopy(c))
				waiting.Push(placeOf(c))
			}
			own = append(own, it)
		}
		switch {
		case next.it == nil:
			return nil, io.EOF
		case isCopy:
			waiting.Pop()
		default:
			own = own[1:]
		}
		return next.it, nil
	}
}

// clone returns a copy of a row without the identifiers of production's request.
func (s *slab) clone(it *item) *item {
	out := s.item()
	row := out.Row
	*out, *row = *it, *it.Row
	out.Row = row
	row.HashIDs, row.HashRanges, row.Replies = slices.Clone(row.HashIDs), slices.Clone(row.HashRanges), slices.Clone(row.Replies)
	row.OTel, row.Observed = mooncake.SpanRef{}, mooncake.Observed{}
	return out
}

// spread spreads the rows of each tick of a coarse clock, and reports the length of the tick.
func spread(c *Config, in step, length *float64) step {
	const lookahead = 4096
	var head []*item
	var ended error
	waiting, bound, quantum := heap.New(place.before), math.Inf(-1), 0.
	var tick []*item // the rows of one timestamp, for SpreadEven
	move := func(it *item, part float64) {
		it.setTime(tidy(it.key + quantum*part))
		waiting.Push(placeOf(it))
	}
	even := func() {
		for j, it := range tick {
			move(it, float64(j)/float64(len(tick)))
		}
		tick = tick[:0]
	}
	next := func() (*item, error) {
		if len(head) > 0 {
			it := head[0]
			head = head[1:]
			return it, nil
		}
		if ended != nil {
			return nil, ended
		}
		return in()
	}
	begin := func() error {
		grid := newClock()
		for len(head) < lookahead && ended == nil {
			it, err := in()
			if ended = err; err == nil {
				head = append(head, it)
				grid.Add(it.Row)
			}
		}
		found := grid.Stats().Grid
		if quantum = found.Quantum; !found.Coarse {
			return errors.New("spread: the timestamps are not multiples of a coarse step, so there is nothing to spread")
		}
		*length = quantum
		return nil
	}
	return func() (*item, error) {
		if quantum == 0 {
			if err := begin(); err != nil {
				return nil, err
			}
		}
		for waiting.Len() == 0 || waiting.First().key >= bound {
			it, err := next()
			switch {
			case errors.Is(err, io.EOF):
				bound = math.Inf(1)
				even()
				if waiting.Len() == 0 {
					return nil, io.EOF
				}
			case err != nil:
				return nil, err
			case c.Spread == SpreadUniform: // turns move together; otherwise a later one could overtake
				bound = it.key
				move(it, Place(c.Seed, it.group()))
			default:
				if len(tick) > 0 && tick[0].key != it.key {
					even()
				}
				bound = it.key
				tick = append(tick, it)
			}
		}
		return waiting.Pop().it, nil
	}
}

// gaps shortens gaps between consecutive rows.
func gaps(most time.Duration, in step, cut *float64) step {
	before, begun := 0., false
	return func() (*item, error) {
		it, err := in()
		if err != nil {
			return nil, err
		}
		at := it.key
		if gap := at - before; begun && gap > millis(most) {
			*cut += gap - millis(most)
		}
		before, begun = at, true
		it.setTime(tidy(at - *cut))
		return it, nil
	}
}

// timed multiplies times.
func timed(factor float64, in step) step {
	first, begun := 0., false
	return func() (*item, error) {
		it, err := in()
		if err != nil {
			return nil, err
		}
		if !begun {
			first, begun = it.key, true
		}
		it.setTime(tidy(first + (it.key-first)*factor))
		if it.Delay.Set {
			it.Delay.V = tidy(it.Delay.V * factor)
		}
		if it.ToolWait.Set {
			it.ToolWait.V = tidy(it.ToolWait.V * factor)
		}
		return it, nil
	}
}
