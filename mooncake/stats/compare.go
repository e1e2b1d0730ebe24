// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/internal/ranges"
)

// CompareOptions says how traces are compared. The zero value is usable.
type CompareOptions struct {
	// Tolerance is how far apart the timestamps of a row may be and still count as the same, in milliseconds. It is that of
	// a clock's last digit; 0 is 1 microsecond.
	Tolerance float64
	// Units are the units of timestamps of the two traces; 0 is the millisecond.
	Units [2]time.Duration
	// MaxIDs bounds the block ids of one trace that are remembered; 0 is [mooncake.DefaultMaxIDs]. The blocks of rows beyond
	// are not compared.
	MaxIDs int
}

// Comparison is how two traces differ, row by row in file order. Unlike [mooncake.Digests] it is defined for any two traces: rows without
// block ids, and timestamps with digits below a millisecond, are compared like others. Sessions, models and delays are
// not.
type Comparison struct {
	// Rows are the numbers of rows. Rows beyond the end of the shorter trace are in nothing else of this.
	Rows [2]int64 `json:"rows"`
	// Lengths are the rows that have another input or output length.
	Lengths Difference `json:"lengths"`
	// Blocks are the rows that share other blocks with themselves or with the rows before them, have another number of blocks, or
	// have block ids in one trace only. What ids are called does not count.
	Blocks Difference `json:"blocks"`
	// Ranges are the rows of which hash_ranges share other finer blocks, likewise, and Replies those with other replies.
	Ranges  Difference `json:"ranges,omitzero"`
	Replies Difference `json:"replies,omitzero"`
	// Timestamps are the rows whose timestamps, relative to the first row that has one, are further apart than
	// tolerated, and those that have one in one trace only.
	Timestamps Difference `json:"timestamps"`
	// Apart is the largest difference of the timestamps of a row, relative as above, in milliseconds; Timed is the number of
	// rows that have one in both traces.
	Apart float64 `json:"apart_ms"`
	Timed int64   `json:"timed_rows"`
	// Unknown is the number of rows without block ids in both traces: nothing says what they share.
	Unknown int64 `json:"rows_without_ids"`
	// Unchecked is the number of rows whose blocks were not compared, because there are more ids than can be remembered.
	Unchecked int64 `json:"unchecked_rows"`
}

// Difference counts the rows that differ in one way. Its zero value is none.
type Difference struct {
	Count int64 `json:"count"`
	// Row is the first of them, from 0, and Lines are the lines of the two traces on which it stands, from 1.
	Row   int64    `json:"row"`
	Lines [2]int64 `json:"lines"`
}

func (d *Difference) add(row int64, lines [2]int64) {
	if d.Count++; d.Count == 1 {
		d.Row, d.Lines = row, lines
	}
}

// Same reports whether the traces are the same workload: as many rows, with the same lengths and the same sharing of
// blocks at the same times, all of which was compared.
func (c *Comparison) Same() bool {
	return c.Rows[0] == c.Rows[1] && c.Lengths.Count+c.Blocks.Count+c.Ranges.Count+c.Replies.Count+c.Timestamps.Count+c.Unchecked == 0
}

// String says in one sentence whether the traces are the same workload, and if not where they begin to differ.
func (c *Comparison) String() string {
	var parts []string
	if c.Rows[0] != c.Rows[1] {
		parts = append(parts, fmt.Sprintf("%d and %s", c.Rows[0], plural(c.Rows[1], "row")))
	}
	for _, d := range []struct {
		what string
		Difference
	}{{"lengths", c.Lengths}, {"blocks", c.Blocks}, {"ranges", c.Ranges}, {"replies", c.Replies}, {"timestamps", c.Timestamps}} {
		if d.Count > 0 {
			parts = append(parts, fmt.Sprintf("other %s in %s, first on lines %d and %d", d.what, plural(d.Count, "row"), d.Lines[0], d.Lines[1]))
		}
	}
	text := "the same workload: "
	if len(parts) > 0 {
		text = "not the same workload: "
	} else {
		parts = append(parts, plural(c.Rows[0], "row")+" with the same lengths and shared blocks")
	}
	if c.Timed > 0 {
		parts = append(parts, fmt.Sprintf("timestamps at most %.3g ms apart", c.Apart))
	}
	if c.Unknown > 0 {
		parts = append(parts, plural(c.Unknown, "row")+" without block ids in both")
	}
	if c.Unchecked > 0 {
		parts = append(parts, "the blocks of "+plural(c.Unchecked, "row")+" not compared, because there are too many ids")
	}
	return text + strings.Join(parts, "; ")
}

// Compare reads two traces to their ends and says how they differ. It takes the readers' block sizes; traces of two sizes share
// blocks in the same way only where the ids say so. A row that a reader refuses ends the comparison with its error. It
// takes some 100 bytes for each distinct block id of a trace.
func Compare(ctx context.Context, a, b *mooncake.Reader, opt CompareOptions) (*Comparison, error) {
	if opt.Tolerance <= 0 {
		opt.Tolerance = 1e-3
	}
	if opt.MaxIDs <= 0 {
		opt.MaxIDs = mooncake.DefaultMaxIDs
	}
	c := &comparer{opt: opt}
	for i, r := range []*mooncake.Reader{a, b} {
		c.sides[i].reader = r
		c.sides[i].unit = 1
		if u := opt.Units[i]; u > 0 {
			c.sides[i].unit = float64(u) / float64(time.Millisecond)
		}
	}
	for n := 0; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		for i := range c.sides {
			if err := c.sides[i].next(&c.out.Rows[i]); err != nil {
				return nil, err
			}
		}
		one, two := &c.sides[0], &c.sides[1]
		switch {
		case one.row == nil && two.row == nil:
			return &c.out, nil
		case one.row != nil && two.row != nil:
			c.compare(int64(n))
		}
	}
}

// comparer is one call of Compare.
type comparer struct {
	opt   CompareOptions
	out   Comparison
	sides [2]side
}

// side is one of the traces.
type side struct {
	reader *mooncake.Reader
	row    *mooncake.Row // nil after the last one
	unit   float64
	first  mooncake.Opt[float64] // timestamp, in the trace's unit
	ids    mooncake.Renumber
	other  []uint64   // for each id's number: that of the id of the other trace which stands for the same block, +1
	ranges ranges.Map // for ids of ranges: those of the other trace which stand for the same blocks
}

func (s *side) next(rows *int64) (err error) {
	s.row, err = s.reader.Read()
	if errors.Is(err, io.EOF) {
		s.row = nil
		return nil
	}
	if err != nil {
		return err
	}
	*rows++
	if !s.first.Set {
		s.first = s.row.Timestamp
	}
	return nil
}

func (c *comparer) compare(n int64) {
	one, two := &c.sides[0], &c.sides[1]
	lines := [2]int64{one.reader.Line(), two.reader.Line()}
	if one.row.InputLength != two.row.InputLength || one.row.OutputLength != two.row.OutputLength {
		c.out.Lengths.add(n, lines)
	}
	switch a, b := one.row.Timestamp, two.row.Timestamp; {
	case a.Set && b.Set:
		c.out.Timed++
		apart := math.Abs((a.V-one.first.V)*one.unit - (b.V-two.first.V)*two.unit)
		c.out.Apart = max(c.out.Apart, apart)
		if apart > c.opt.Tolerance {
			c.out.Timestamps.add(n, lines)
		}
	case a.Set != b.Set:
		c.out.Timestamps.add(n, lines)
	}
	ids, others := one.row.Blocks(one.reader.BlockSize()), two.row.Blocks(two.reader.BlockSize())
	switch {
	case ids == nil && others == nil:
		c.out.Unknown++
	case max(one.ids.Len(), two.ids.Len()) > uint64(c.opt.MaxIDs): //nolint:gosec // above 0
		c.out.Unchecked++
	case !c.match(ids, others):
		c.out.Blocks.add(n, lines)
	}
	switch a, b := one.row.HashRanges, two.row.HashRanges; {
	case a == nil && b == nil:
	case max(one.ranges.Len(), two.ranges.Len()) > c.opt.MaxIDs:
		c.out.Unchecked++
	case !c.matchRanges(a, b):
		c.out.Ranges.add(n, lines)
	}
	if !slices.Equal(one.row.Replies, two.row.Replies) {
		c.out.Replies.add(n, lines)
	}
}

// matchRanges is match for the ids of ranges.
func (c *comparer) matchRanges(a, b []mooncake.HashRange) bool {
	one, two := &c.sides[0], &c.sides[1]
	same := true
	var left, right mooncake.HashRange // what is left of the ranges at hand
	for {
		if left.Count == 0 && len(a) > 0 {
			left, a = a[0], a[1:]
		}
		if right.Count == 0 && len(b) > 0 {
			right, b = b[0], b[1:]
		}
		if left.Count == 0 || right.Count == 0 {
			return same && left.Count == right.Count
		}
		to, n, known := one.ranges.Find(left.First)
		_, m, taken := two.ranges.Find(right.First)
		n = min(n, m, left.Count, right.Count)
		switch {
		case !known && !taken:
			one.ranges.Insert(left.First, n, right.First)
			two.ranges.Insert(right.First, n, left.First)
		case !known || to != right.First:
			same = false
		}
		left.First, left.Count = left.First+uint64(n), left.Count-n     //nolint:gosec // above 0
		right.First, right.Count = right.First+uint64(n), right.Count-n //nolint:gosec // likewise
	}
}

// match pairs the ids of a row and reports whether all pairs agree with those of the rows before. A pair that does not is
// not kept, so that one row that differs does not make all after it differ.
func (c *comparer) match(ids, others []uint64) bool {
	one, two := &c.sides[0], &c.sides[1]
	same := len(ids) == len(others) && (ids == nil) == (others == nil)
	for i := range min(len(ids), len(others)) {
		a, b := one.number(ids[i]), two.number(others[i])
		switch {
		case one.other[a] == 0 && two.other[b] == 0:
			one.other[a], two.other[b] = b+1, a+1
		case one.other[a] != b+1:
			same = false
		}
	}
	return same
}

// number returns the number of an id, and makes room for what it is paired with.
func (s *side) number(id uint64) uint64 {
	n, first := s.ids.ID(id)
	if first {
		s.other = append(s.other, 0)
	}
	return n
}
