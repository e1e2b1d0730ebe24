// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package ranges

import (
	"math/rand/v2"
	"testing"
)

// TestMapJoins: ranges that continue one another, in ids and numbers, become one, in any order.
func TestMapJoins(t *testing.T) {
	var m Map
	m.Insert(10, 5, 110)
	m.Insert(20, 5, 120)
	m.Insert(15, 5, 115)
	m.Insert(5, 5, 105)
	if m.Len() != 1 || len(m.chunks[0]) != 1 || m.chunks[0][0] != (interval{5, 24, 105}) {
		t.Errorf("%d ranges: %v", m.Len(), m.chunks)
	}
}

// TestMapFinds: ids have the numbers that they were given, in any order, and other ids have none. There are enough ids for every shortcut
// of the search.
func TestMapFinds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var m Map
	given := make([]uint64, 100_000) // by id, from 1; 0: none
	next := uint64(0)
	for round := range 60_000 {
		id := uint64(random.IntN(len(given)))
		if round%2 == 0 { // mostly in order, as in traces
			id = min(uint64(round+random.IntN(2000)), uint64(len(given)-1))
		}
		to, count, known := m.Find(id)
		if known != (given[id] > 0) || known && to != given[id]-1 {
			t.Fatalf("id %d has number %d, %v; want %d", id, to, known, given[id]-1)
		}
		for i := range min(count, int64(len(given))-int64(id)) {
			switch number := given[id+uint64(i)]; {
			case !known && number > 0, known && number != given[id]+uint64(i):
				t.Fatalf("Find returned a count of %d for id %d; it is wrong at offset %d", count, id, i)
			}
		}
		if known {
			continue
		}
		n := min(count, 1+random.Int64N(6), int64(len(given))-int64(id))
		m.Insert(id, n, next)
		for i := range n {
			next++
			given[id+uint64(i)] = next
		}
	}
	if m.Len() < manyRanges || m.found == nil || m.near == nil {
		t.Errorf("%d ranges: not every shortcut was taken", m.Len())
	}
}
