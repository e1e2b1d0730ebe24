// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

// This file samples rows by the rule with which Collectors sample requests, so that a trace shows in advance what a sample of its traffic
// will be. Scaling down chooses clusters that preserve the figures, and must read all rows before it chooses; here each row is decided by
// itself.

import (
	"math"

	"github.com/moonloop/moonloop/mooncake"
)

// thinAhead is the number of rows from which the trunk of a source is computed, if it is not given.
const thinAhead = 4096

// thin decides which rows of a source are in the sample.
type thin struct {
	mooncake.Sampler
	by    mooncake.SampleOrder
	trunk *mooncake.Trunk
	block int // tokens per id
}

// newThin returns the sampling of a source, and a function that reads its rows. If the source has no trunk, the first rows are read ahead
// to compute it.
func newThin(c *Config, s Source, number, block int, read func() (lineRead, error)) (*thin, func() (lineRead, error)) {
	// Equal ids of two sources stand for different blocks.
	t := &thin{Sampler: mooncake.Sampler{Rate: c.Sample, Seed: c.Seed + uint64(number)<<32}, by: c.SampleBy, trunk: s.Trunk, block: block} //nolint:gosec // not negative
	if t.trunk != nil {
		return t, read
	}
	var held []lineRead
	var end error // the error after the last row
	return t, func() (lineRead, error) {
		if t.trunk == nil {
			var ids [][]uint64
			for len(held) < thinAhead && end == nil {
				var r lineRead
				if r, end = read(); end == nil {
					held, ids = append(held, r), append(ids, r.Blocks(block))
				}
			}
			t.trunk = t.trunk.Of(ids, math.Inf(1))
		}
		switch {
		case len(held) > 0:
			r := held[0]
			held = held[1:]
			return r, nil
		case end != nil:
			return lineRead{}, end
		}
		return read()
	}
}

// keeps reports whether a row of a source is in the sample, by its ids and its session as in the source.
func (t *thin) keeps(row *mooncake.Row, index int64) bool {
	return t.Keeps(row.Group(t.trunk, t.by, t.block, uint64(index))) //nolint:gosec // not negative
}
