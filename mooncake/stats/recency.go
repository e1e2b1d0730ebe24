// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import "math"

// recency keeps ids in the order of their last touch, and counts how many were touched after a given one. Each touch uses a new slot; a
// Fenwick tree counts the used slots. When the slots run out, the used ones are moved together.
type recency struct {
	capacity int
	slot     map[uint64]int
	ids      []uint64 // by slot
	used     []bool   // by slot
	tree     []int32  // Fenwick tree over used; 1-based
	next     int      // the slot after the last used one
	oldest   int      // no slot below it is used
}

func newRecency(capacity int) *recency {
	r := &recency{capacity: capacity, slot: make(map[uint64]int)}
	r.resize(1024)
	return r
}

// rank returns the number of ids that were touched after id, or [math.MaxInt] for an unknown id.
func (r *recency) rank(id uint64) int {
	at, ok := r.slot[id]
	if !ok {
		return math.MaxInt
	}
	older := 0 // ids up to and including this one
	for i := at + 1; i > 0; i &= i - 1 {
		older += int(r.tree[i])
	}
	return len(r.slot) - older
}

// touch makes id the most recent one.
func (r *recency) touch(id uint64) {
	if at, ok := r.slot[id]; ok {
		r.mark(at, false)
		delete(r.slot, id)
	}
	if r.next == len(r.ids) {
		r.compact()
	}
	r.ids[r.next] = id
	r.slot[id] = r.next
	r.mark(r.next, true)
	r.next++
}

// evict removes the oldest ids beyond the capacity.
func (r *recency) evict() {
	for len(r.slot) > r.capacity {
		for !r.used[r.oldest] {
			r.oldest++
		}
		delete(r.slot, r.ids[r.oldest])
		r.mark(r.oldest, false)
	}
}

func (r *recency) mark(at int, used bool) {
	r.used[at] = used
	var delta int32 = 1
	if !used {
		delta = -1
	}
	for i := at + 1; i < len(r.tree); i += i & -i {
		r.tree[i] += delta
	}
}

// compact moves the used slots to the front, and doubles the room.
func (r *recency) compact() {
	live := make([]uint64, 0, len(r.slot))
	for at := r.oldest; at < r.next; at++ {
		if r.used[at] {
			live = append(live, r.ids[at])
		}
	}
	r.resize(max(1024, 2*len(live)))
	for i, id := range live {
		r.ids[i] = id
		r.slot[id] = i
		r.mark(i, true)
	}
	r.next, r.oldest = len(live), 0
}

func (r *recency) resize(slots int) {
	r.ids, r.used, r.tree = make([]uint64, slots), make([]bool, slots), make([]int32, slots+1)
}
