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

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/internal/ranges"
	"github.com/moonloop/moonloop/mooncake/internal/words"
)

// CompareOptions configures [Compare]. The zero value is usable.
type CompareOptions struct {
	// Tolerance is the difference, in milliseconds, up to which two timestamps of a row count as equal. It should be one unit of the
	// clock's last digit; 0 = 1 microsecond.
	Tolerance float64
	// MaxIDs is the maximum number of block ids of one trace that are remembered; 0 = [mooncake.DefaultMaxIDs]. The blocks of later rows
	// are not compared.
	MaxIDs int
}

// Comparison describes how two traces differ, row by row in file order. Unlike [mooncake.Digests], it is defined for any two traces: it
// also compares rows without block ids, and timestamps with digits below a millisecond. It does not compare sessions, models and delays.
type Comparison struct {
	// Rows are the numbers of rows. No other figure includes rows beyond the end of the shorter trace.
	Rows [2]int64 `json:"rows"`
	// Lengths counts the rows that differ in input or output length.
	Lengths Difference `json:"lengths"`
	// Blocks counts the rows that share different blocks with themselves or with earlier rows, have a different number of blocks, or have
	// block ids in one trace only. The values of ids do not matter.
	Blocks Difference `json:"blocks"`
	// Ranges counts the rows whose hash_ranges share different finer blocks, in the same sense. Replies counts those with different
	// replies.
	Ranges  Difference `json:"ranges,omitzero"`
	Replies Difference `json:"replies,omitzero"`
	// Timestamps counts the rows whose timestamps, relative to the first row that has one, differ by more than the tolerance, and the rows
	// that have one in one trace only.
	Timestamps Difference `json:"timestamps"`
	// Apart is the largest difference of a row's timestamps, relative as above, in milliseconds. Timed is the number of rows that have one
	// in both traces.
	Apart float64 `json:"apart_ms"`
	Timed int64   `json:"timed_rows"`
	// Unknown is the number of rows without block ids in both traces: what they share is unknown.
	Unknown int64 `json:"rows_without_ids"`
	// Unchecked is the number of rows whose blocks were not compared, because there are more ids than can be remembered.
	Unchecked int64 `json:"unchecked_rows"`
}

// Difference counts the rows that differ in one respect. The zero value means none.
type Difference struct {
	Count int64 `json:"count"`
	// Row is the index of the first such row, from 0; Lines are the numbers of its lines in the two traces, from 1.
	Row   int64    `json:"row"`
	Lines [2]int64 `json:"lines"`
}

func (d *Difference) add(row int64, lines [2]int64) {
	if d.Count++; d.Count == 1 {
		d.Row, d.Lines = row, lines
	}
}

// Same reports whether the traces are the same workload: the same number of rows, with the same lengths and the same shared blocks at the
// same times, and all of this was compared.
func (c *Comparison) Same() bool {
	return c.Rows[0] == c.Rows[1] && c.Lengths.Count+c.Blocks.Count+c.Ranges.Count+c.Replies.Count+c.Timestamps.Count+c.Unchecked == 0
}

// String returns one sentence: whether the traces are the same workload, and if not, where they first differ.
func (c *Comparison) String() string {
	var parts []string
	add := func(some bool, format string, args ...any) {
		if some {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(c.Rows[0] != c.Rows[1], "%d and %s", c.Rows[0], words.Plural(c.Rows[1], "row"))
	differences := []Difference{c.Lengths, c.Blocks, c.Ranges, c.Replies, c.Timestamps}
	for i, what := range []string{"lengths", "blocks", "ranges", "replies", "timestamps"} {
		d := differences[i]
		add(d.Count > 0, "other %s in %s, first on lines %d and %d", what, words.Plural(d.Count, "row"), d.Lines[0], d.Lines[1])
	}
	text := "the same workload: "
	if len(parts) > 0 {
		text = "not " + text
	}
	add(len(parts) == 0, "%s with the same lengths and shared blocks", words.Plural(c.Rows[0], "row"))
	add(c.Timed > 0, "timestamps at most %.3g ms apart", c.Apart)
	add(c.Unknown > 0, "%s without block ids in both", words.Plural(c.Unknown, "row"))
	add(c.Unchecked > 0, "the blocks of %s not compared, because there are too many ids", words.Plural(c.Unchecked, "row"))
	return text + strings.Join(parts, "; ")
}

// Compare reads two traces to their ends and describes how they differ. It uses the readers' block sizes. If these differ, the ids are
// compared all the same. A row that a reader refuses ends the comparison with its error. Compare uses about 100 bytes for each distinct
// block id of a trace.
func Compare(ctx context.Context, a, b *mooncake.Reader, opt CompareOptions) (*Comparison, error) {
	if opt.Tolerance <= 0 {
		opt.Tolerance = 1e-3
	}
	if opt.MaxIDs <= 0 {
		opt.MaxIDs = mooncake.DefaultMaxIDs
	}
	c := &comparer{opt: opt, sides: [2]side{{reader: a}, {reader: b}}}
	for n := int64(0); ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		for i := range c.sides {
			if err := c.sides[i].next(&c.out.Rows[i]); err != nil {
				return nil, err
			}
		}
		switch one, two := c.sides[0].row, c.sides[1].row; {
		case one == nil && two == nil:
			return &c.out, nil
		case one != nil && two != nil:
			c.compare(n)
		}
	}
}

// comparer is one call of Compare.
type comparer struct {
	opt    CompareOptions
	out    Comparison
	sides  [2]side
	ids    pairs
	ranges pairs
}

// side is one of the traces.
type side struct {
	reader *mooncake.Reader
	row    *mooncake.Row         // nil after the last one
	first  mooncake.Opt[float64] // the first timestamp, in milliseconds
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
		apart := math.Abs((a.V - one.first.V) - (b.V - two.first.V))
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
	case c.ids.known > int64(c.opt.MaxIDs):
		c.out.Unchecked++
	case (ids == nil) != (others == nil) || !c.ids.match(collapse(ids), collapse(others)):
		c.out.Blocks.add(n, lines)
	}
	switch a, b := one.row.HashRanges, two.row.HashRanges; {
	case a == nil && b == nil:
	case max(c.ranges.to.Len(), c.ranges.from.Len()) > c.opt.MaxIDs:
		c.out.Unchecked++
	case !c.ranges.match(a, b):
		c.out.Ranges.add(n, lines)
	}
	if !slices.Equal(one.row.Replies, two.row.Replies) {
		c.out.Replies.add(n, lines)
	}
}

// collapse returns ids as the smallest number of ranges.
func collapse(ids []uint64) []mooncake.HashRange {
	var ranges []mooncake.HashRange
	for i, id := range ids {
		if n := len(ranges); i > 0 && id == ids[i-1]+1 {
			ranges[n-1].Count++
		} else {
			ranges = append(ranges, mooncake.HashRange{First: id, Count: 1})
		}
	}
	return ranges
}

// pairs maps the ids of two traces that stand for the same blocks.
type pairs struct {
	to, from ranges.Map
	known    int64
}

// match pairs the ids of a row and reports whether all pairs agree with those of earlier rows. A pair that does not agree is not stored, so
// that one different row does not make all later rows different.
func (p *pairs) match(a, b []mooncake.HashRange) bool {
	same := true
	var left, right mooncake.HashRange // the rest of the current ranges
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
		to, n, known := p.to.Find(left.First)
		_, m, taken := p.from.Find(right.First)
		n = min(n, m, left.Count, right.Count)
		switch {
		case !known && !taken:
			p.to.Insert(left.First, n, right.First)
			p.from.Insert(right.First, n, left.First)
			p.known += n
		case !known || to != right.First:
			same = false
		}
		left.First, left.Count = left.First+uint64(n), left.Count-n     //nolint:gosec // above 0
		right.First, right.Count = right.First+uint64(n), right.Count-n //nolint:gosec // likewise
	}
}
