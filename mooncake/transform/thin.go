// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

// This file samples rows by the rule that Collectors sample requests by, so that a trace tells beforehand what a sample of its traffic will be.
// Scaling down chooses clusters so that the figures stay what they are, which needs all of them first; here each row is decided by itself.

import (
	"math"

	"github.com/moonloop/moonloop/mooncake"
)

// thinAhead is the number of rows that show the trunk of a source of which nobody has said it.
const thinAhead = 4096

// thin decides which rows of a source belong to a sample.
type thin struct {
	mooncake.Sampler
	by    mooncake.SampleOrder
	trunk *mooncake.Trunk
	block int // tokens per id
}

// newThin returns what decides about the rows of a source, and the reading of them: without a trunk, the first rows are read ahead of that.
func newThin(c *Config, s Source, number, block int, read func() (lineRead, error)) (*thin, func() (lineRead, error)) {
	// A block of one source has nothing to do with that of another one of the same number.
	t := &thin{Sampler: mooncake.Sampler{Rate: c.Sample, Seed: c.Seed + uint64(number)<<32}, by: c.SampleBy, trunk: s.Trunk, block: block} //nolint:gosec // not negative
	if t.trunk != nil {
		return t, read
	}
	var held []lineRead
	var end error // instead of another row
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

// keeps reports whether a row of a source belongs to the sample, by its ids and its session as they are there.
func (t *thin) keeps(row *mooncake.Row, index int64) bool {
	return t.Keeps(row.Group(t.trunk, t.by, t.block, uint64(index))) //nolint:gosec // not negative
}
