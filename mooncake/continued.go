// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"fmt"
	"slices"

	"github.com/moonloop/moonloop/mooncake/internal/words"
)

// A turn of a conversation has the ranges and the replies of the turn before, and adds a few. Written in full, each turn would be longer
// than the one before. So a row that continues another row is written with its additions only, and read with all ranges and replies.

// A writer continues only rows that readers still remember: both use the same limits.
const (
	// maxContinued is the maximum distance, in rows, between a row and the earlier row that it continues.
	maxContinued = 1 << 14
	// maxRemembered is the maximum number of ranges and replies that are remembered of all those rows: 24 MiB, and as much again in memory
	// that is reused.
	maxRemembered = 1 << 20
)

// prefix is the part of a row that a later row can continue: its ranges and replies.
type prefix struct {
	ranges  []HashRange
	replies []Reply
}

// recent remembers the prefixes of the last rows of a file, beginning with the first row that has ranges. It reuses the memory of prefixes
// that it forgets.
type recent struct {
	rows  []prefix // a ring, by index in the file; empty for rows without ranges
	lost  []bool   // whether the prefix of a row is unknown
	first int64    // index of the first row that is remembered
	next  int64    // index after the last one
	size  int      // number of ranges and replies of all rows
}

// add remembers the row at an index, which is higher than that of the row before.
func (r *recent) add(index int64, row *Row) {
	if r.rows == nil && row.HashRanges == nil {
		return // as in most traces
	}
	at := r.room(index)
	of := &r.rows[at]
	of.ranges, of.replies = append(of.ranges[:0], row.HashRanges...), append(of.replies[:0], row.Replies...)
	r.size += len(of.ranges) + len(of.replies)
	for r.first < r.next && r.size > maxRemembered {
		r.forget()
	}
}

// lose records that the prefix of the row at an index is unknown.
func (r *recent) lose(index int64) { r.lost[r.room(index)] = true }

// room makes room for the row at an index, and for rows before it that were not added.
func (r *recent) room(index int64) int64 {
	if r.rows == nil {
		r.first, r.next = index, index
	}
	for ; r.next <= index; r.next++ {
		if r.next-r.first == maxContinued {
			r.forget()
		}
		at := r.next % maxContinued
		for int64(len(r.rows)) <= at {
			r.rows, r.lost = append(r.rows, prefix{}), append(r.lost, false)
		}
		r.rows[at].ranges, r.rows[at].replies, r.lost[at] = r.rows[at].ranges[:0], r.rows[at].replies[:0], false
	}
	return index % maxContinued
}

// forget forgets the first row.
func (r *recent) forget() {
	of := &r.rows[r.first%maxContinued]
	r.size -= len(of.ranges) + len(of.replies)
	if r.first++; cap(of.ranges)+cap(of.replies) > maxRemembered/maxContinued {
		*of = prefix{} // frees the memory of a long prefix
	}
}

// of returns the prefix of the row at an index. known is false if the row is forgotten, was never added, or has no ranges.
func (r *recent) of(index int64) (of prefix, known bool) {
	if index < r.first || index >= r.next {
		return prefix{}, false
	}
	of = r.rows[index%maxContinued]
	return of, len(of.ranges) > 0
}

// leastSaved is the minimum number of ranges and replies that a row must share with another one to be written as its continuation.
const leastSaved = 3

// without returns what the row at an index adds to the row that its last reply answers, and how many ids it has from that row; 0 if the row
// must be written in full.
func (r *recent) without(row *Row, index int64) (added prefix, ids int64) {
	n := len(row.Replies)
	if n == 0 || row.HashRanges == nil {
		return prefix{}, 0
	}
	last := row.Replies[n-1]
	before, known := r.of(index - last.Back)
	if !known || len(before.replies) != n-1 {
		return prefix{}, 0
	}
	for i, reply := range before.replies {
		if reply.Back += last.Back; reply != row.Replies[i] {
			return prefix{}, 0
		}
	}
	rest, same, end := row.HashRanges, 0, uint64(0)
	for same < len(before.ranges) && len(rest) > 0 && rest[0].First == before.ranges[same].First {
		count := min(rest[0].Count, before.ranges[same].Count)
		same, ids, end = same+1, ids+count, rest[0].First+uint64(count) //nolint:gosec // above 0
		if rest[0].Count > count {                                      // the range extends beyond the shared ids
			rest = slices.Clone(rest)
			rest[0], end = HashRange{First: end, Count: rest[0].Count - count}, 0
			break
		}
		if rest = rest[1:]; before.ranges[same-1].Count > count {
			break
		}
	}
	if len(rest) == 0 || same+n-1 < leastSaved || rest[0].First == end { // a reader would merge the two into one range
		return prefix{}, 0
	}
	return prefix{rest, row.Replies[n-1:]}, ids
}

// complete adds to a row the ranges and replies of the row that it continues; ids is the number of ids that it has from that row. ok is
// false if that row could not be used.
func (r *recent) complete(row *Row, index, ids int64, refused *refusals) (ok bool, fault *RowError) {
	back := row.Replies[0].Back
	of := index - back
	before, known := r.of(of)
	bad := func(rule, advice string) *RowError {
		return &RowError{Field: "continues", Value: words.Plural(back, "row") + " back", Rule: rule, Advice: advice}
	}
	switch {
	case of < 0:
		return false, bad(fmt.Sprintf("continues no row: this one is row %d of the trace", index+1),
			"rows may have been cut off the beginning of the trace: take the whole trace")
	case !known && (refused.has(of) || of >= r.first && of < r.next && r.lost[of%maxContinued]):
		r.lose(index)
		return false, nil
	case !known:
		return false, bad(fmt.Sprintf("continues a row that has no hash_ranges, or that is forgotten: only the last %d rows are remembered, with at most %d ranges and replies",
			maxContinued, maxRemembered), "write the row in full")
	}
	var ranges []HashRange
	left := ids
	for _, h := range before.ranges {
		if left == 0 {
			break
		}
		h.Count = min(h.Count, left)
		left -= h.Count
		ranges = append(ranges, h)
	}
	if left > 0 {
		return false, bad(fmt.Sprintf("has %d ids of that row, which has %d", ids, ids-left), "write the row in full")
	}
	if last := &ranges[len(ranges)-1]; last.First+uint64(last.Count) == row.HashRanges[0].First { //nolint:gosec // above 0
		last.Count += row.HashRanges[0].Count
		row.HashRanges = row.HashRanges[1:]
	}
	row.HashRanges = append(ranges, row.HashRanges...)
	replies := slices.Grow(slices.Clone(before.replies), len(row.Replies))
	for i := range replies {
		replies[i].Back += back
	}
	row.Replies = append(replies, row.Replies...)
	if fault := faultRanges(row); fault != nil {
		return false, fault
	}
	return true, faultReplies(row)
}
