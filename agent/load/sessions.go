// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

// sessionKeys remembers the last key of each session.
type sessionKeys = recent[float64]

// recent remembers something by names in bounded memory: two generations of at most generation names each. A name that has not been
// asked for during a whole generation is forgotten.
type recent[T any] struct{ young, old map[string]T }

const generation = 1 << 16

func (s *recent[T]) get(id string) (v T, known bool) {
	if v, known = s.young[id]; known {
		return v, true
	}
	if v, known = s.old[id]; known {
		s.set(id, v)
	}
	return v, known
}

func (s *recent[T]) set(id string, v T) {
	if s.young == nil {
		s.young = make(map[string]T)
	}
	s.young[id] = v
	if len(s.young) >= generation {
		s.old, s.young = s.young, nil
	}
}
