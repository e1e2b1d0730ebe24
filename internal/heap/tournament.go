// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package heap

import "math"

// Tournament merges sources of elements that are in order. A tree of losers (D. Knuth, The Art of Computer Programming, volume 3, 5.4.1)
// plays one match for each level of the tree, a heap two. Each match has the first bits of both elements at hand, so most matches call
// nothing and read no other memory. With hundreds of sources, a merge spends most of its time here.
type Tournament[S any] struct {
	sources []S
	head    func(S) (first uint64, ok bool)
	before  func(a, b S) bool
	losers  []entrant // of the match at each place of a binary tree; the first is the winner of all
}

// entrant is a source in a match.
type entrant struct {
	head   uint64
	source int32
	over   bool // it has no element left
}

// NewTournament returns the tournament of sources. head returns the first bits of a source's element, which sort like the element, or false
// if it has none left. before reports whether the element of one source comes before that of another one, if their first bits are equal.
func NewTournament[S any](sources []S, head func(S) (first uint64, ok bool), before func(a, b S) bool) *Tournament[S] {
	n := len(sources)
	t := &Tournament[S]{sources: sources, head: head, before: before, losers: make([]entrant, n)}
	winners := make([]entrant, 2*n) // of the match at each place; the leaves are the sources
	for i := range sources {
		winners[n+i] = t.entrant(int32(i))
	}
	for at := n - 1; at > 0; at-- {
		winner, loser := winners[2*at], winners[2*at+1]
		if t.less(loser, winner) {
			winner, loser = loser, winner
		}
		winners[at], t.losers[at] = winner, loser
	}
	if n > 0 {
		t.losers[0] = winners[1]
	}
	return t
}

// First returns the source with the first element of all. ok is false if no source has an element left. After the source has gone on to its
// next element, call [Tournament.FixFirst].
func (t *Tournament[S]) First() (first S, ok bool) {
	if len(t.sources) == 0 || t.losers[0].over {
		return first, false
	}
	return t.sources[t.losers[0].source], true
}

// FixFirst restores the order after the first source has gone on, or has ended.
func (t *Tournament[S]) FixFirst() {
	source := t.losers[0].source
	at := t.entrant(source)
	for place := (len(t.sources) + int(source)) / 2; place > 0; place /= 2 {
		if loser := t.losers[place]; t.less(loser, at) {
			t.losers[place], at = at, loser
		}
	}
	t.losers[0] = at
}

func (t *Tournament[S]) entrant(source int32) entrant {
	head, ok := t.head(t.sources[source])
	if !ok {
		head = math.MaxUint64
	}
	return entrant{head, source, !ok}
}

func (t *Tournament[S]) less(a, b entrant) bool {
	switch {
	case a.head != b.head:
		return a.head < b.head
	case a.over || b.over:
		return b.over && !a.over
	}
	return t.before(t.sources[a.source], t.sources[b.source])
}
