// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package heap

import "iter"

// Presorted is a priority queue for elements that mostly come in order. Those are in a ring, where none ever moves; only the others are in
// a heap.
type Presorted[T any] struct {
	before func(a, b T) bool
	ring   []T // its length is a power of two, or 0
	first  int // position in the ring
	n      int // elements in the ring
	late   *Heap[T]
}

// NewPresorted returns an empty queue. before reports whether an element comes before another one.
func NewPresorted[T any](before func(a, b T) bool) *Presorted[T] {
	return &Presorted[T]{before: before, late: New(before)}
}

// Len returns the number of elements.
func (p *Presorted[T]) Len() int { return p.n + p.late.Len() }

// All calls yield with each element, in any order.
func (p *Presorted[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for i := range p.n {
			if !yield(*p.at(i)) {
				return
			}
		}
		for _, x := range p.late.All() {
			if !yield(x) {
				return
			}
		}
	}
}

// at returns element i of the ring.
func (p *Presorted[T]) at(i int) *T { return &p.ring[(p.first+i)&(len(p.ring)-1)] }

// Push adds an element.
func (p *Presorted[T]) Push(x T) {
	if p.n > 0 && p.before(x, *p.at(p.n - 1)) {
		p.late.Push(x)
		return
	}
	if p.n == len(p.ring) {
		ring := make([]T, max(16, 2*p.n))
		for i := range p.n {
			ring[i] = *p.at(i)
		}
		p.ring, p.first = ring, 0
	}
	p.n++
	*p.at(p.n - 1) = x
}

// Pop removes the first element, which must exist, and returns it.
func (p *Presorted[T]) Pop() (first T) {
	if p.n == 0 || p.late.Len() > 0 && p.before(*p.late.First(), *p.at(0)) {
		return p.late.Pop()
	}
	var none T // so that its references can be collected
	first, *p.at(0) = *p.at(0), none
	p.first, p.n = (p.first+1)&(len(p.ring)-1), p.n-1
	return first
}
