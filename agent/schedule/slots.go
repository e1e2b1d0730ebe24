// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"math/bits"
	"slices"
	"time"
)

// maxFree is the maximum number of free slots with known times. With more free slots, no row waits for one, so these times do not matter.
const maxFree = 1 << 16

// slots are the slots of a cap.
type slots struct {
	zero   time.Duration   // the start of the schedule
	unused int             // number of free slots that count as free since zero
	free   []time.Duration // times at which the other free slots became free, earliest first

	// The slots of a rising cap open one by one, at equal intervals, the first one at zero, the last one at zero + over.
	count, opened int
	over          time.Duration
}

// newSlots returns the slots of a cap, which open one by one within a time. If over is 0, they are all open at once.
func newSlots(zero time.Duration, count int, over time.Duration) slots {
	s := slots{zero: zero, count: count, over: over}
	if over <= 0 || count < 2 {
		s.unused, s.opened = count, count
	}
	return s
}

// allOpen reports whether all slots are open.
func (s *slots) allOpen() bool { return s.opened == s.count }

// open opens the slots that are due.
func (s *slots) open(now time.Duration) {
	if s.allOpen() || now < s.zero {
		return
	}
	due := s.count
	if since := now - s.zero; since < s.over {
		hi, lo := bits.Mul64(uint64(since), uint64(s.count-1)) //nolint:gosec // neither is below 0
		steps, _ := bits.Div64(hi, lo, uint64(s.over))         //nolint:gosec // since < over, so that it is below count - 1
		due = int(steps) + 1                                   //nolint:gosec // as above
	}
	if many := due - s.opened - maxFree; many > 0 { // see freeSlot
		s.unused += many
		s.opened += many
	}
	for ; s.opened < due; s.opened++ {
		s.freeSlot(s.opens(s.opened))
	}
}

// opens returns the time at which a slot, numbered from 0, opens: the first time at which open counts it.
func (s *slots) opens(slot int) time.Duration {
	hi, lo := bits.Mul64(uint64(s.over), uint64(slot))      //nolint:gosec // neither is below 0
	lo, carry := bits.Add64(lo, uint64(s.count-2), 0)       //nolint:gosec // there are two at least
	after, _ := bits.Div64(hi+carry, lo, uint64(s.count-1)) //nolint:gosec // as above
	return s.zero + time.Duration(after)                    //nolint:gosec // at most over
}

// nextOpening returns when the next slot opens; Forever if all are open.
func (s *slots) nextOpening() time.Duration {
	if s.allOpen() {
		return Forever
	}
	return s.opens(s.opened)
}

// slotFree reports whether a slot is free.
func (s *slots) slotFree() bool { return s.unused > 0 || len(s.free) > 0 }

// freeSince returns the time since which the slot that acquireSlot would occupy has been free. There must be a free slot.
func (s *slots) freeSince() time.Duration {
	if s.unused > 0 {
		return s.zero
	}
	return s.free[0]
}

// acquireSlot occupies the slot that has been free longest.
func (s *slots) acquireSlot() {
	if s.unused > 0 {
		s.unused--
	} else {
		s.free = s.free[1:]
	}
}

// freeSlot adds a slot that became free at a time.
func (s *slots) freeSlot(at time.Duration) {
	i, _ := slices.BinarySearch(s.free, at+1) // after equal ones, of which there may be many
	s.free = slices.Insert(s.free, i, at)
	if len(s.free) > maxFree {
		s.free = s.free[1:]
		s.unused++
	}
}
