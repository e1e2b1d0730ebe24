// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

// This file has the queues of the schedule: of items that wait for their scheduled time, and of items that wait for a slot or for the turn
// before.

// before reports whether an item comes before another one: by time, then by row.
func (it *Item) before(other *Item) bool {
	return it.wake < other.wake || it.wake == other.wake && it.Index < other.Index
}

// fifo is a queue of items.
type fifo []*Item

func (q *fifo) push(it *Item) { *q = append(*q, it) }

func (q *fifo) pop() *Item {
	old := *q
	it := old[0]
	old[0] = nil
	if len(old) == 1 { // reuse the memory
		*q = old[:0]
	} else {
		*q = old[1:]
	}
	return it
}
