// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

// sessionKeys remembers the last key of each session in bounded memory: two generations of at most
// generation sessions each. A session that has not been asked for during a whole generation is forgotten.
type sessionKeys struct{ young, old map[string]float64 }

const generation = 1 << 16

func (s *sessionKeys) get(id string) (key float64, known bool) {
	if key, known = s.young[id]; known {
		return key, true
	}
	if key, known = s.old[id]; known {
		s.set(id, key)
	}
	return key, known
}

func (s *sessionKeys) set(id string, key float64) {
	if s.young == nil {
		s.young = make(map[string]float64)
	}
	s.young[id] = key
	if len(s.young) >= generation {
		s.old, s.young = s.young, nil
	}
}
