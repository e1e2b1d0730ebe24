// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package heap has three data structures that return elements in order: the repository's priority queue ([Heap]), which, unlike that of
// container/heap, is typed and needs no five methods from each user; a queue for what is nearly sorted ([Presorted]); and a [Tournament],
// which merges sorted sources faster than a queue does.
package heap

// Heap is a binary heap: access to the first element is immediate, and each change takes time proportional to the logarithm of the number
// of elements. Equal elements are in any order.
type Heap[T any] struct {
	before func(a, b T) bool
	list   []T
}

// New returns an empty heap. before reports whether an element comes before another one.
func New[T any](before func(a, b T) bool) *Heap[T] { return &Heap[T]{before: before} }

// Len returns the number of elements.
func (h *Heap[T]) Len() int { return len(h.list) }

// First returns the first element, which must exist. After changing its order, call [Heap.FixFirst].
func (h *Heap[T]) First() *T { return &h.list[0] }

// All returns the elements in any order. The slice belongs to the heap.
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

// Pop removes the first element, which must exist, and returns it.
func (h *Heap[T]) Pop() T {
	first, last := h.list[0], len(h.list)-1
	h.list[0] = h.list[last]
	clear(h.list[last:]) // so that its references can be collected
	h.list = h.list[:last]
	h.FixFirst()
	return first
}

// FixFirst restores the order after the first element has changed.
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
