// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

import "cmp"

// sessionKeys remembers, for each session, the time that gave its last row a place in the order.
type sessionKeys = recent[string, float64]

// recent is a map of bounded size: two generations with a maximum number of names each. A name that was not looked up during a whole
// generation is forgotten.
type recent[K comparable, T any] struct {
	young, old map[K]T
	most       int // maximum number of names in a generation; 0 = 65,536 (const generation)
}

const generation = 1 << 16

func (s *recent[K, T]) get(id K) (v T, known bool) {
	if v, known = s.young[id]; known {
		return v, true
	}
	if v, known = s.old[id]; known {
		s.set(id, v)
	}
	return v, known
}

func (s *recent[K, T]) set(id K, v T) {
	if s.young == nil {
		s.young = make(map[K]T)
	}
	s.young[id] = v
	if len(s.young) >= cmp.Or(s.most, generation) {
		s.old, s.young = s.young, nil
	}
}
