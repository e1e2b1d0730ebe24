// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

// Renumber gives block ids the canonical numbers 0, 1, 2, ... in the order in which the ids first appear: rows in file
// order, ids from left to right. The zero value is ready to use.
//
// As long as the ids come canonical, as those of the public traces do, it needs no memory. From the first other id on it
// remembers each new id (some 40 bytes each, without bound).
type Renumber struct {
	next  uint64            // numbers given so far
	base  uint64            // ids below it are their own numbers
	other map[uint64]uint64 // nil while canonical
}

// ID returns the number of an id, and whether the id is new.
func (r *Renumber) ID(id uint64) (n uint64, first bool) {
	n, known := r.lookup(id)
	if !known {
		n = r.add(id)
	}
	return n, !known
}

func (r *Renumber) lookup(id uint64) (n uint64, known bool) {
	if id < r.base || r.other == nil && id < r.next {
		return id, true
	}
	n, known = r.other[id]
	return n, known
}

// add gives a new id its number.
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

// Row replaces the row's ids by their numbers, in place.
func (r *Renumber) Row(row *Row) {
	for i, id := range row.HashIDs {
		row.HashIDs[i], _ = r.ID(id)
	}
}

// Len returns the number of distinct ids so far.
func (r *Renumber) Len() uint64 { return r.next }

// Canonical reports whether all ids so far were their own numbers.
func (r *Renumber) Canonical() bool { return r.other == nil }
