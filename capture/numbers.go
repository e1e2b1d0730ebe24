// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import "github.com/moonloop/moonloop/capture/journal"

// numbers gives ids the numbers 0, 1, 2, ... by first appearance. An id is (domain, 64 bits).
type numbers struct {
	next    uint64
	domains map[journal.Domain]*domain
}

// domain holds the numbers of the ids of one domain: of those that came as 0, 1, 2, ..., like those of a replay, in 8 bytes
// each, and of all from the first other one on in some 40.
type domain struct {
	inOrder []uint64
	other   map[uint64]uint64
}

// renumber replaces the ids of a domain by their numbers, in place.
func (n *numbers) renumber(dom journal.Domain, ids []uint64) {
	d := n.domains[dom]
	if d == nil {
		if n.domains == nil {
			n.domains = map[journal.Domain]*domain{}
		}
		d = &domain{}
		n.domains[dom] = d
	}
	for i, id := range ids {
		ids[i] = d.number(id, &n.next)
	}
}

// number returns the number of an id, which is the next one if the id is new.
func (d *domain) number(id uint64, next *uint64) uint64 {
	if id < uint64(len(d.inOrder)) {
		return d.inOrder[id]
	}
	if d.other == nil && id == uint64(len(d.inOrder)) {
		d.inOrder = append(d.inOrder, *next)
		*next++
		return *next - 1
	}
	number, known := d.other[id]
	if !known {
		if d.other == nil {
			d.other = map[uint64]uint64{}
		}
		number = *next
		d.other[id] = number
		*next++
	}
	return number
}

// fresh appends numbers of ids that never come again.
func (n *numbers) fresh(ids []uint64, count int) []uint64 {
	for range count {
		ids = append(ids, n.next)
		n.next++
	}
	return ids
}
