// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"slices"
	"time"
)

// maxFree bounds the instants that are kept of free slots. With more than that, nobody waits for a slot, and since when one
// has been free decides nothing.
const maxFree = 1 << 16

// slots are those of a cap that are free.
type slots struct {
	zero   time.Duration   // the schedule's
	unused int             // count as free since zero
	free   []time.Duration // instants at which the others became free, earliest first
}

// slotFree reports whether a slot is free.
func (s *slots) slotFree() bool { return s.unused > 0 || len(s.free) > 0 }

// freeSince returns since when the next free slot has been free.
func (s *slots) freeSince() time.Duration {
	if s.unused > 0 {
		return s.zero
	}
	return s.free[0]
}

// acquireSlot takes the slot that has been free for longest.
func (s *slots) acquireSlot() {
	if s.unused > 0 {
		s.unused--
	} else {
		s.free = s.free[1:]
	}
}

// freeSlot frees a slot.
func (s *slots) freeSlot(at time.Duration) {
	i, _ := slices.BinarySearch(s.free, at)
	s.free = slices.Insert(s.free, i, at)
	if len(s.free) > maxFree {
		s.free = s.free[1:]
		s.unused++
	}
}
