// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
)

// This file shows which rows changed: a slower prefill affects rows with much prefill, a worse scheduler those at the end of a burst, and a
// lost prefix cache the later turns.

// Moved is how the rows of a class changed between A and B.
type Moved struct {
	By    string // uncached tokens, input tokens, place in a burst, turn
	Class string
	Rows  int // served in both runs of a pair, in the median pair
	// Decision is about the median of the rows' own ratios, one value for each pair of runs, with P corrected by [Holm] for the number of
	// classes. It needs about ten rounds to find anything.
	Decision
}

// burstGap ends a burst, in ms of the replay. Rows that are sent less than this apart are processed by an engine at the same time.
const burstGap = 100

// class is a part of the rows. Classes are ordered as in the table.
type class struct {
	by   int
	part int
}

// dimensions are the properties by which rows are divided: a row is in the part whose first value is the greatest that it reaches.
var dimensions = []struct {
	name  string
	first []int64
}{
	{"uncached tokens", []int64{0, 256, 1024, 4096, 16384}},
	{"input tokens", []int64{0, 256, 1024, 4096, 16384, 65536}},
	{"place in a burst", []int64{1, 2, 4, 8, 16}},
	{"turn", []int64{0, 1, 4, 16}},
}

func (c class) text() string {
	first := dimensions[c.by].first
	switch from := first[c.part]; {
	case c.part == len(first)-1:
		return fmt.Sprintf("%d and more", from)
	case first[c.part+1] == from+1:
		return strconv.FormatInt(from, 10)
	default:
		return fmt.Sprintf("%d to %d", from, first[c.part+1]-1)
	}
}

// classes calls add with each class of each row, in the order in which the rows should have been sent in A.
func classes(both [][2]row, add func(class, [2]row)) {
	order := slices.Clone(both)
	slices.SortStableFunc(order, func(x, y [2]row) int {
		switch a, b := x[0].intended, y[0].intended; {
		case a < b:
			return -1
		case a > b:
			return 1
		}
		return 0
	})
	place, before := int64(0), math.Inf(-1)
	for _, pair := range order {
		r := &pair[0]
		if place++; !(r.intended-before < burstGap) {
			place = 1
		}
		before = r.intended
		for by, value := range []int64{r.uncached, r.input, place, int64(r.turn)} {
			part, found := slices.BinarySearch(dimensions[by].first, value)
			if !found {
				part--
			}
			add(class{by, max(part, 0)}, pair)
		}
	}
}

// addRows adds the results of the pairs' rows: which changed, and, if there are too few pairs, what each pair shows by itself.
func (c *Comparison) addRows(left, right []*Run, primary Metric) error {
	figure := primary.Figure
	if math.IsNaN((&row{}).value(figure)) {
		figure = "time_to_first_token"
	}
	type values struct {
		ratios []float64 // one for each pair
		rows   []float64
	}
	moved := map[class]*values{}
	for i := range left {
		both, err := bothRows(left[i], right[i])
		if err != nil {
			return err
		}
		one := map[class][]float64{}
		classes(both, func(in class, pair [2]row) {
			if a, b := pair[0].value(figure), pair[1].value(figure); a > 0 && b > 0 {
				one[in] = append(one[in], b/a)
			}
		})
		for in, ratios := range one {
			if moved[in] == nil {
				moved[in] = &values{}
			}
			moved[in].ratios, moved[in].rows = append(moved[in].ratios, median(ratios)), append(moved[in].rows, float64(len(ratios)))
		}
		if len(left) < MinPairs {
			if w, ok := within(left[i], right[i], both, primary); ok {
				c.Within = append(c.Within, w)
			}
		}
	}
	var ps []float64
	keys := slices.SortedFunc(maps.Keys(moved), func(x, y class) int { return (x.by-y.by)*1000 + x.part - y.part })
	for _, in := range keys {
		v := moved[in]
		ones := slices.Repeat([]float64{1}, len(v.ratios))
		d, err := Decide(ones, v.ratios, c.Minimum, 0)
		if err != nil {
			return err
		}
		c.Moved = append(c.Moved, Moved{dimensions[in.by].name, in.text(), int(median(v.rows)), d})
		ps = append(ps, d.P)
	}
	corrected, err := Holm(ps)
	if err != nil {
		return err
	}
	for i := range c.Moved {
		m := &c.Moved[i]
		if m.P = corrected[i]; m.P > level && (m.Answer == Slower || m.Answer == Faster) {
			m.Answer = CannotTell
		}
	}
	return nil
}
