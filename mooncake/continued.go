// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"fmt"
	"slices"

	"github.com/moonloop/moonloop/mooncake/internal/words"
)

// A turn of a conversation shares the ranges and the replies of the turn before, and adds a few. Written in full, they would make each turn longer
// than the one before. So a row that continues another one is written with what it adds, and read with all.

// Readers remember as much as writers refer to, and writers no more than readers remember.
const (
	// maxContinued is how many rows further up a row may be that another one continues.
	maxContinued = 1 << 14
	// maxRemembered bounds the ranges and replies that are remembered of all those rows: 24 MiB, and in memory that is used again as much.
	maxRemembered = 1 << 20
)

// prefix is what a row can continue: the ranges and the replies of another one.
type prefix struct {
	ranges  []HashRange
	replies []Reply
}

// recent remembers the prefixes of the last rows of a file, from the first one on that has ranges. Their memory is used again.
type recent struct {
	rows  []prefix // a ring, by index in the file; without ranges where there are none
	lost  []bool   // of which nothing is known
	first int64    // index of the first row that is not forgotten
	next  int64    // behind that of the last one
	size  int      // ranges and replies of all
}

// add remembers the row of an index, which is above that of the row before.
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

// lose notes that nothing is known of the row of an index.
func (r *recent) lose(index int64) { r.lost[r.room(index)] = true }

// room makes room for the row of an index, and for those before it that nobody has added.
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
		*of = prefix{} // the memory of long ones
	}
}

// of returns the prefix of the row of an index. known is false where the row is forgotten, was never there, or has no ranges.
func (r *recent) of(index int64) (of prefix, known bool) {
	if index < r.first || index >= r.next {
		return prefix{}, false
	}
	of = r.rows[index%maxContinued]
	return of, len(of.ranges) > 0
}

// leastSaved is how many ranges and replies a row must share with another one to be written as one that continues it.
const leastSaved = 3

// without returns what a row with an index adds to the row that its last reply is to, and how many ids it has from that one; 0 where it is written in
// full.
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
		if rest[0].Count > count {                                      // it goes on behind what is shared
			rest = slices.Clone(rest)
			rest[0], end = HashRange{First: end, Count: rest[0].Count - count}, 0
			break
		}
		if rest = rest[1:]; before.ranges[same-1].Count > count {
			break
		}
	}
	if len(rest) == 0 || same+n-1 < leastSaved || rest[0].First == end { // a reader would make one range of two
		return prefix{}, 0
	}
	return prefix{rest, row.Replies[n-1:]}, ids
}

// complete gives a row what it has from the row that it continues, of which it has this many ids. ok is false where that row could not be
// used.
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
		return false, bad(fmt.Sprintf("continues a row that has no hash_ranges, or that is forgotten: of %d rows up to %d ranges and replies are remembered",
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
