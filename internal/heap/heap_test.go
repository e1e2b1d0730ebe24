// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package heap

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestHeap: whatever is pushed, popped and changed, the least is first.
func TestHeap(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		h := New(func(a, b int) bool { return a < b })
		var want []int
		for range 200 {
			switch x := rng.IntN(50); {
			case len(want) == 0 || rng.IntN(3) > 0:
				h.Push(x)
				want = append(want, x)
			case rng.IntN(2) == 0:
				if got := h.Pop(); got != want[0] {
					t.Fatalf("seed %d: popped %d, want %d", seed, got, want[0])
				}
				want = want[1:]
			default:
				*h.First() = x
				h.FixFirst()
				want[0] = x
			}
			slices.Sort(want)
			if h.Len() != len(want) || len(want) > 0 && *h.First() != want[0] {
				t.Fatalf("seed %d: %d elements, want %d, the first of them %d", seed, h.Len(), len(want), want[0])
			}
			if all := slices.Sorted(slices.Values(h.All())); !slices.Equal(all, want) {
				t.Fatalf("seed %d: %v, want %v", seed, all, want)
			}
		}
	}
}

// Whatever is pushed and popped, in order or not, the least is first.
func TestPresorted(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 2))
		p := NewPresorted(func(a, b int) bool { return a < b })
		var want []int
		for i := range 400 {
			if len(want) == 0 || rng.IntN(400) > i {
				x := i
				if rng.IntN(10) < int(seed%10) { // the seeds differ in how much is out of order
					x = rng.IntN(400)
				}
				p.Push(x)
				want = append(want, x)
			} else {
				if got := p.Pop(); got != want[0] {
					t.Fatalf("seed %d: popped %d, want %d", seed, got, want[0])
				}
				want = want[1:]
			}
			slices.Sort(want)
			if all := slices.Sorted(p.All()); p.Len() != len(want) || !slices.Equal(all, want) {
				t.Fatalf("seed %d: %d elements, %v, want %v", seed, p.Len(), all, want)
			}
		}
	}
}

// TestPopLetsGo: a popped item can be garbage-collected.
func TestPopLetsGo(t *testing.T) {
	h := New(func(a, b *int) bool { return *a < *b })
	h.Push(new(1))
	h.Pop()
	if rest := h.list[:1]; rest[0] != nil {
		t.Error("the heap refers to an element that it has returned")
	}
	p := NewPresorted(func(a, b *int) bool { return *a < *b })
	p.Push(new(1))
	p.Pop()
	if p.ring[0] != nil {
		t.Error("the ring refers to an element that it has returned")
	}
}

// list is a source of a tournament.
type list []uint64

func (l *list) first() (uint64, bool) {
	if len(*l) == 0 {
		return 0, false
	}
	return (*l)[0] | 0xff, true
}

func (l *list) before(o *list) bool { return (*l)[0] < (*o)[0] }

// TestTournament: lists in order, of any number and length, become one, also where their first bits are equal or the greatest there are.
func TestTournament(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var lists []*list
		var want []uint64
		for range rng.IntN(20) {
			l := make(list, rng.IntN(30))
			for i := range l {
				if l[i] = uint64(rng.IntN(2000)); rng.IntN(5) == 0 {
					l[i] = math.MaxUint64 - l[i]
				}
			}
			want = append(want, l...)
			slices.Sort(l)
			lists = append(lists, &l)
		}
		slices.Sort(want)
		var got []uint64
		merged := NewTournament(lists, (*list).first, (*list).before)
		for l, ok := merged.First(); ok; l, ok = merged.First() {
			got = append(got, (*l)[0])
			*l = (*l)[1:]
			merged.FixFirst()
		}
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: %d elements %v, want %d: %v", seed, len(got), got, len(want), want)
		}
	}
}
