// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import "github.com/moonloop/moonloop/mooncake/internal/ranges"

// Renumber replaces block ids by the canonical numbers 0, 1, 2, ... in the order in which the ids first appear: rows in file order, ids
// from left to right. The ids of ranges are numbered in the same way, separately. The zero value is ready to use.
//
// As long as the ids are canonical, as in the public traces, it needs no memory. From the first other id on, it remembers each new id
// (about 40 bytes each, without a limit). [RenumberRanges] documents the memory for ranges.
type Renumber struct {
	next  uint64            // numbers assigned so far
	base  uint64            // ids below it are their own numbers
	other map[uint64]uint64 // nil while canonical

	ranges RenumberRanges
}

func (r *Renumber) lookup(id uint64) (n uint64, known bool) {
	if id < r.base || r.other == nil && id < r.next {
		return id, true
	}
	n, known = r.other[id]
	return n, known
}

// add assigns a number to a new id.
func (r *Renumber) add(id uint64) uint64 {
	n := r.next
	if r.other == nil && id != n {
		r.base = n
		r.other = make(map[uint64]uint64)
	}
	if r.other != nil {
		r.other[id] = n
	}
	r.next++
	return n
}

// Row replaces the row's ids by their numbers, in place, and its ranges by new ones.
func (r *Renumber) Row(row *Row) {
	for i, id := range row.HashIDs {
		n, known := r.lookup(id)
		if !known {
			n = r.add(id)
		}
		row.HashIDs[i] = n
	}
	if row.HashRanges != nil {
		row.HashRanges = r.ranges.Ranges(make([]HashRange, 0, len(row.HashRanges)), row.HashRanges)
	}
}

// Len returns the number of distinct ids so far, without those of ranges.
func (r *Renumber) Len() uint64 { return r.next }

// Canonical reports whether all ids so far, apart from those of ranges, were equal to their numbers.
func (r *Renumber) Canonical() bool { return r.other == nil }

// RenumberRanges replaces the ids of ranges by the canonical numbers 0, 1, 2, ... in the order in which the ids first appear: rows in file
// order, ids from left to right. The zero value is ready to use.
//
// Ids can come from several domains with unrelated ids; all get numbers of one sequence. As long as all ids are canonical and come from one
// domain, it needs no memory. From the first other id on, it needs about 30 bytes, without a limit, for each range of new ids that does not
// continue where another one ended. Time and memory do not depend on the number of ids in a range. But a range is cut if its ids have
// numbers that are not consecutive, so after n ranges, one range may be cut into up to 2n + 1.
type RenumberRanges struct {
	next    uint64                 // numbers assigned so far
	home    uint64                 // the first domain; its ids below base are their own numbers
	base    uint64                 // not used while canonical
	domains map[uint64]*ranges.Map // nil while canonical
	last    *ranges.Map            // the domain of the last call
	lastOf  uint64
}

// Ranges appends to dst the numbers of the ids in src, in as few ranges as possible, and returns the extended slice. No range may have a
// count below 1, or ids beyond 2^64-1 ([Row.Validate]).
func (r *RenumberRanges) Ranges(dst, src []HashRange) []HashRange { return r.Domain(0, dst, src) }

// Domain is Ranges for ids of a domain: ids of two domains are never the same.
func (r *RenumberRanges) Domain(domain uint64, dst, src []HashRange) []HashRange {
	if r.next == 0 && r.domains == nil {
		r.home = domain
	}
	begin := len(dst)
	for _, h := range src {
		for h.Count > 0 {
			to, count := r.number(domain, h)
			if n := len(dst); n > begin && dst[n-1].First+uint64(dst[n-1].Count) == to { //nolint:gosec // above 0
				dst[n-1].Count += count
			} else {
				dst = append(dst, HashRange{First: to, Count: count})
			}
			h.First += uint64(count) //nolint:gosec // above 0
			h.Count -= count
		}
	}
	return dst
}

// number returns the number of the first id of a range, and how many of its ids, from the first on, have consecutive numbers. New ids get
// numbers.
func (r *RenumberRanges) number(domain uint64, h HashRange) (to uint64, count int64) {
	canonical := r.domains == nil && domain == r.home
	known := r.base
	if canonical {
		known = r.next
	}
	switch {
	case domain == r.home && h.First < known:
		return h.First, min(h.Count, ranges.CountTo(h.First, known-1))
	case canonical && h.First == r.next:
		r.next += uint64(h.Count) //nolint:gosec // above 0
		return h.First, h.Count
	}
	if r.domains == nil { // ids are no longer equal to their numbers
		r.base, r.domains = r.next, make(map[uint64]*ranges.Map)
	}
	m := r.of(domain)
	to, count, is := m.Find(h.First)
	count = min(count, h.Count)
	if !is {
		to = r.next
		m.Insert(h.First, count, to)
		r.next += uint64(count) //nolint:gosec // above 0
	}
	return to, count
}

// of returns the map of a domain.
func (r *RenumberRanges) of(domain uint64) *ranges.Map {
	if r.last == nil || r.lastOf != domain {
		if r.domains[domain] == nil {
			r.domains[domain] = new(ranges.Map)
		}
		r.last, r.lastOf = r.domains[domain], domain
	}
	return r.last
}

// Len returns the number of distinct ids so far.
func (r *RenumberRanges) Len() uint64 { return r.next }

// kept returns the number of ranges that are remembered.
func (r *RenumberRanges) kept() int {
	n := 0
	for _, m := range r.domains {
		n += m.Len()
	}
	return n
}
