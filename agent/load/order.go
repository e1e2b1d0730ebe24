// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

import "container/heap"

// orderer is a queue that lets entries out by rising key, equal keys in the order of their indices.
type orderer struct{ h entryHeap }

// entry is a row between two steps.
type entry struct {
	row   row
	key   float64 // trace milliseconds
	index int64
	line  int64

	outside bool // the window leaves it out
}

func (o *orderer) len() int        { return len(o.h) }
func (o *orderer) push(e entry)    { heap.Push(&o.h, e) }
func (o *orderer) pop() entry      { return heap.Pop(&o.h).(entry) }
func (o *orderer) lowest() float64 { return o.h[0].key }

// inside counts the rows that the window has.
func (o *orderer) inside() (n int) {
	for i := range o.h {
		if !o.h[i].outside {
			n++
		}
	}
	return n
}

type entryHeap []entry

func (h entryHeap) Len() int { return len(h) }
func (h entryHeap) Less(i, j int) bool {
	if h[i].key != h[j].key {
		return h[i].key < h[j].key
	}
	return h[i].index < h[j].index
}
func (h entryHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *entryHeap) Push(x any)   { *h = append(*h, x.(entry)) }
func (h *entryHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = entry{}
	*h = old[:len(old)-1]
	return e
}
