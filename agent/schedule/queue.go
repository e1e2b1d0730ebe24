// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

// This file holds the queues of the schedule: items that wait for their instant, and items that wait for each other.

// before reports whether an item is to be taken up before another one: by instant, at the same one by row.
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
	if len(old) == 1 { // the room is used again
		*q = old[:0]
	} else {
		*q = old[1:]
	}
	return it
}
