// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import "github.com/moonloop/moonloop/mooncake"

// numbers gives ids the numbers 0, 1, 2, ... by first appearance. An id is (domain, 64 bits).
type numbers struct {
	next    uint64
	domains map[uint64]*domain
}

// domain holds the numbers of the ids of one domain. Where its ids come canonical, as those of replays do, an id takes
// 8 bytes, else some 40 more.
type domain struct {
	local  mooncake.Renumber
	global []uint64 // by local number
}

// structural is the domain of ids by structure; the others are of 32 bits.
const structural = 1 << 32

// renumber replaces the ids of a domain by their numbers, in place.
func (n *numbers) renumber(dom uint64, ids []uint64) {
	d := n.domains[dom]
	if d == nil {
		if n.domains == nil {
			n.domains = map[uint64]*domain{}
		}
		d = &domain{}
		n.domains[dom] = d
	}
	for i, id := range ids {
		local, first := d.local.ID(id)
		if first {
			d.global = append(d.global, n.next)
			n.next++
		}
		ids[i] = d.global[local]
	}
}

// fresh appends numbers of ids that never come again.
func (n *numbers) fresh(ids []uint64, count int) []uint64 {
	for range count {
		ids = append(ids, n.next)
		n.next++
	}
	return ids
}
