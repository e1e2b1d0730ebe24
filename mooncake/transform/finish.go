// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/moonloop/moonloop/internal/splitmix"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// Figures describe a trace before or after.
type Figures struct {
	Rows int64 `json:"rows"`
	// Span is from the first to the last timestamp, in ms; Rate in rows per second.
	Span float64 `json:"span_ms"`
	Rate float64 `json:"rate_per_second"`
	// GapCV is the coefficient of variation of the gaps between neighbours in time, RandomCV that of random (Poisson) arrivals
	// at the same rate, by the same clock.
	GapCV    float64 `json:"gap_cv"`
	RandomCV float64 `json:"gap_cv_of_random_arrivals"`
	Input    float64 `json:"input_length_mean"`
	Output   float64 `json:"output_length_mean"`
	// BlockHits and TokenHits are the shares of the blocks and the prompt tokens that an infinite cache has.
	BlockHits float64 `json:"infinite_cache_block_hits"`
	TokenHits float64 `json:"infinite_cache_token_hits"`
}

// meter computes figures.
type meter struct {
	clock                stats.Arrivals
	rows, in, out        int64
	withIn, withOut      int64
	blocks, hits, cached int64
}

func newClock() *stats.Arrivals { return new(stats.Arrivals) }

// add takes a row with so many ids that no row before had.
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

func (m *meter) figures() Figures {
	quotient := func(a, b int64) float64 {
		if b == 0 {
			return 0
		}
		return float64(a) / float64(b)
	}
	times := m.clock.Stats()
	f := Figures{
		Rows: m.rows, Span: times.Span, Rate: times.Rate, GapCV: times.GapCV, Input: quotient(m.in, m.withIn), Output: quotient(m.out, m.withOut),
		BlockHits: quotient(m.hits, m.blocks), TokenHits: quotient(m.cached, m.in), RandomCV: 1,
	}
	if times.Grid.Coarse && times.Span > 0 {
		// Poisson arrivals on a clock with n of them per tick: a tick has some with probability p = 1-exp(-n), the gaps between such ticks
		// are geometric, and all other gaps are 0. The second moment over the square of the mean is n(2-p)/p.
		n := float64(m.rows) * times.Grid.Quantum / times.Span
		p := -math.Expm1(-n)
		f.RandomCV = math.Sqrt(n*(2-p)/p - 1)
	}
	return f
}

// group is what stays together when rows are placed at random: a session, else the row alone.
func (it *item) group() uint64 {
	if it.SessionID != "" {
		return xxhash.Sum64String(it.SessionID)
	}
	return uint64(it.seq)<<16 | uint64(it.copy) //nolint:gosec // never negative
}

// finisher makes rows of a trace of the rows that come out of the steps: their ids are canonical, their replies point to where the rows
// are now.
type finisher struct {
	ids     numbered
	fine    mooncake.RenumberRanges
	ranges  []mooncake.HashRange
	moved   bool // rows may be fewer, more or in another order
	at      map[[2]int][]uint32
	rows    int64
	replies int64 // that were left out, since the rows that they are to are not there
}

// rootOf returns the tree of a cluster.
func rootOf(c *Config, x *index, it *item) int {
	return int(splitmix.Next(splitmix.Next(c.Seed+uint64(x.cluster[it.seq]))+uint64(it.copy)) % uint64(c.Roots)) //nolint:gosec // bits
}

func (f *finisher) row(it *item, block, fine int) (added int) {
	trunk, own := uint64(it.root), uint64(it.copy)<<32|uint64(it.root) //nolint:gosec // never negative
	f.ids.row(trunk, it.HashIDs[:it.trunk])
	added = f.ids.added
	f.ids.row(own, it.HashIDs[it.trunk:])
	added += f.ids.added
	if it.HashRanges != nil {
		border := int64(mooncake.BlockCount(min(int64(it.trunk)*int64(block), it.InputLength.V), fine))
		f.ranges = f.ranges[:0]
		var head, tail []mooncake.HashRange
		for _, r := range it.HashRanges {
			n := min(r.Count, border)
			if border -= n; n > 0 {
				head = append(head, mooncake.HashRange{First: r.First, Count: n})
			}
			if n < r.Count {
				tail = append(tail, mooncake.HashRange{First: r.First + uint64(n), Count: r.Count - n}) //nolint:gosec // above 0
			}
		}
		out := f.fine.Domain(trunk, make([]mooncake.HashRange, 0, len(it.HashRanges)), head)
		it.HashRanges = joinRanges(out, f.fine.Domain(own, f.ranges, tail))
	}
	if f.moved {
		f.link(it)
	}
	if it.copy > 0 {
		suffix := "~copy" + itoa(it.copy)
		it.SessionID, it.RequestID = renamed(it.SessionID, suffix), renamed(it.RequestID, suffix)
		it.WaitFor = renamedAll(it.WaitFor, suffix)
	}
	f.rows++
	return added
}

// joinRanges appends ranges, of which the first may go on where the last one ends.
func joinRanges(dst, more []mooncake.HashRange) []mooncake.HashRange {
	if n := len(dst); n > 0 && len(more) > 0 && dst[n-1].First+uint64(dst[n-1].Count) == more[0].First { //nolint:gosec // above 0
		dst[n-1].Count += more[0].Count
		more = more[1:]
	}
	return append(dst, more...)
}

// link remembers where a row is, and points its replies to where their rows are.
func (f *finisher) link(it *item) {
	if f.at == nil {
		f.at = map[[2]int][]uint32{}
	}
	key := [2]int{it.source, it.copy}
	at := f.at[key]
	kept := it.Replies[:0]
	for _, r := range it.Replies {
		target := it.index - r.Back
		if target < 0 || target >= int64(len(at)) || at[target] == 0 {
			f.replies++
			continue
		}
		r.Back = f.rows + 1 - int64(at[target])
		kept = append(kept, r)
	}
	if it.Replies = kept; len(kept) == 0 {
		it.Replies = nil
	}
	if n := int(it.index) + 1 - len(at); n > 0 {
		at = slices.Grow(at, n)[:it.index+1]
		clear(at[len(at)-n:])
	}
	at[it.index] = uint32(f.rows + 1) //nolint:gosec // wraps at 2^32 rows, which are more than are indexed
	f.at[key] = at
}
