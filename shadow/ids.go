// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package shadow

// Compile numbers ids by their first appearance in its input, so the ids of two windows are unrelated. But each window is compiled together
// with those before it, whose requests are known by their spans. If an id of a new row also occurs in an earlier row, the new row gets the
// permanent id that the earlier row has at the same position. This is correct because an id identifies all tokens before it, too.

import (
	"slices"
	"sort"

	"github.com/moonloop/moonloop/mooncake"
)

// numbering assigns permanent numbers to the ids of one block size. The zero numbering is usable.
type numbering struct {
	next  uint64                                    // number of the next id that is new
	known map[mooncake.SpanRef][]mooncake.HashRange // of the rows of the history

	compiled uint64 // the next new id in the current compilation
	owned    []stretch
}

// stretch is a range of consecutive ids of a compilation, with the row in which they first occur and their position in its prompt.
type stretch struct {
	mooncake.HashRange
	row mooncake.SpanRef
	at  int64 // number of ids before them in that row
}

// begin begins a compilation.
func (n *numbering) begin() { n.compiled, n.owned = 0, n.owned[:0] }

// translate returns the new ranges of a row, given its ranges in the compilation. Rows must be passed in the order of the compilation.
func (n *numbering) translate(row mooncake.SpanRef, ranges []mooncake.HashRange) []mooncake.HashRange {
	given, before := n.known[row]
	at, same := int64(0), true // same: all ids so far are the owner's at the same position
	for _, r := range ranges {
		for r.Count > 0 {
			part := r
			if r.First >= n.compiled { // no earlier row has it
				n.owned = append(n.owned, stretch{part, row, at})
				n.compiled = r.First + uint64(r.Count)
				if !before {
					given = extend(given, mooncake.HashRange{First: n.next, Count: part.Count})
					n.next += uint64(part.Count) //nolint:gosec // above 0
				}
			} else {
				i := sort.Search(len(n.owned), func(i int) bool { return n.owned[i].First > r.First }) - 1
				s := n.owned[i]
				skip := int64(r.First - s.First) //nolint:gosec // within the stretch
				part.Count = min(r.Count, s.Count-skip)
				if !before {
					theirs := n.known[s.row]
					from := s.at + skip
					if same = same && from == at && slices.Equal(slice(theirs, 0, at), given) && length(theirs) >= at+part.Count; same {
						for _, t := range slice(theirs, at, part.Count) {
							given = extend(given, t)
						}
					} else { // s.row got its ids in an earlier compilation, in which it shared less, or more, with other rows
						given = extend(given, mooncake.HashRange{First: n.next, Count: part.Count})
						n.next += uint64(part.Count) //nolint:gosec // above 0
					}
				}
			}
			at += part.Count
			r.First, r.Count = r.First+uint64(part.Count), r.Count-part.Count //nolint:gosec // above 0
		}
	}
	n.remember(row, given)
	return given
}

// remember stores the ranges that a row was given.
func (n *numbering) remember(row mooncake.SpanRef, given []mooncake.HashRange) {
	if n.known == nil {
		n.known = map[mooncake.SpanRef][]mooncake.HashRange{}
	}
	n.known[row] = given
}

// extend appends a range, or extends the last one with it.
func extend(ranges []mooncake.HashRange, r mooncake.HashRange) []mooncake.HashRange {
	if last := len(ranges) - 1; last >= 0 && ranges[last].First+uint64(ranges[last].Count) == r.First { //nolint:gosec // above 0
		ranges[last].Count += r.Count
		return ranges
	}
	return append(ranges, r)
}

// slice returns ids of ranges from a position on: the given number, or as many as there are.
func slice(ranges []mooncake.HashRange, at, count int64) (part []mooncake.HashRange) {
	for _, r := range ranges {
		if skip := min(at, r.Count); skip > 0 {
			at -= skip
			r.First, r.Count = r.First+uint64(skip), r.Count-skip
		}
		if r.Count = min(r.Count, count); r.Count > 0 {
			part, count = append(part, r), count-r.Count
		}
	}
	return part
}

// length returns the number of ids of ranges.
func length(ranges []mooncake.HashRange) (n int64) {
	for _, r := range ranges {
		n += r.Count
	}
	return n
}

// rangesOf converts ids to ranges, and idsOf ranges to ids.
func rangesOf(ids []uint64) (ranges []mooncake.HashRange) {
	for _, id := range ids {
		ranges = extend(ranges, mooncake.HashRange{First: id, Count: 1})
	}
	return ranges
}

func idsOf(ranges []mooncake.HashRange) []uint64 {
	ids := make([]uint64, 0, length(ranges))
	for _, r := range ranges {
		for i := range r.Count {
			ids = append(ids, r.First+uint64(i))
		}
	}
	return ids
}
