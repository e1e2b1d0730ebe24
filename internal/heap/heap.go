// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package heap is the one priority queue of the repository: container/heap with types, and without the five methods that
// each user of it has to write.
package heap

// Heap is a binary heap: the first of its elements is there at once, each change takes the logarithm of their number.
// Elements that are equal come in any order.
type Heap[T any] struct {
	before func(a, b T) bool
	list   []T
}

// New returns an empty heap. Of two elements before says whether the one comes first.
func New[T any](before func(a, b T) bool) *Heap[T] { return &Heap[T]{before: before} }

// Len returns the number of elements.
func (h *Heap[T]) Len() int { return len(h.list) }

// First returns the first element, which must be there. After a change of its order [Heap.FixFirst] is due.
func (h *Heap[T]) First() *T { return &h.list[0] }

// All returns the elements in no order. The slice is the heap's own.
func (h *Heap[T]) All() []T { return h.list }

// Push adds an element.
func (h *Heap[T]) Push(x T) {
	h.list = append(h.list, x)
	for at := len(h.list) - 1; at > 0; {
		parent := (at - 1) / 2
		if !h.before(h.list[at], h.list[parent]) {
			return
		}
		h.list[at], h.list[parent] = h.list[parent], h.list[at]
		at = parent
	}
}

// Pop removes the first element, which must be there, and returns it.
func (h *Heap[T]) Pop() T {
	first, last := h.list[0], len(h.list)-1
	h.list[0] = h.list[last]
	clear(h.list[last:]) // what it refers to can go
	h.list = h.list[:last]
	h.FixFirst()
	return first
}

// FixFirst restores the order after the first element was changed.
func (h *Heap[T]) FixFirst() {
	for at := 0; ; {
		least := at
		for child := 2*at + 1; child <= 2*at+2 && child < len(h.list); child++ {
			if h.before(h.list[child], h.list[least]) {
				least = child
			}
		}
		if least == at {
			return
		}
		h.list[at], h.list[least] = h.list[least], h.list[at]
		at = least
	}
}
