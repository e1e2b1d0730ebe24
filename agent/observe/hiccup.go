// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"sort"
	"sync"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/schedule"
)

const (
	// tick is the meter's period: short compared with the lateness that matters, long compared with the cost of a wake-up.
	tick = 2 * time.Millisecond
	// HiccupFloor is the lateness at which a tick begins to count as a hiccup. Smaller values are the ordinary cost of a wake-up on a busy
	// machine.
	HiccupFloor = time.Millisecond
	// maxHiccups is the maximum number of hiccups that Excused remembers: 1 MiB. Beyond it, the older half is dropped.
	maxHiccups = 1 << 16
)

// meter sleeps a tick at a time and records how late it wakes. The zero meter has recorded no hiccup.
type meter struct {
	mu      sync.Mutex
	spans   []hiccup // by time, disjoint
	count   int64
	total   time.Duration
	longest time.Duration
}

// hiccup is a time in which no goroutine of this process that waits for a timer could run.
type hiccup struct {
	from, to time.Duration
	through  time.Duration // sum of the lengths of this hiccup and of all before it
}

// run ticks until the waiter is woken.
func (m *meter) run(clk clock.Clock, w schedule.Waiter) {
	for {
		asleep := clk.Now()
		due := asleep + tick
		if !w.Wait(due, nil) {
			return
		}
		if late := clk.Now() - due; late >= HiccupFloor {
			// The hiccup began somewhere in the tick; nothing is known to have run since the meter fell asleep.
			m.add(asleep, due+late, late)
		}
	}
}

// add records a hiccup, which is later than those before.
func (m *meter) add(from, to, late time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := hiccup{from, to, to - from}
	if n := len(m.spans); n > 0 {
		h.through += m.spans[n-1].through
	}
	if len(m.spans) == maxHiccups {
		n := copy(m.spans, m.spans[maxHiccups/2:])
		m.spans = m.spans[:n]
	}
	m.spans = append(m.spans, h)
	m.count++
	m.total += late
	m.longest = max(m.longest, late)
}

func (m *meter) sum() (count int64, total, longest time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count, m.total, m.longest
}

// excused returns the overlap of the time from a to b with hiccups. Its work hardly grows with their number: it is called for each
// request, also on a machine that is held up all the time.
func (m *meter) excused(a, b time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := sort.Search(len(m.spans), func(i int) bool { return m.spans[i].to > a })
	end := sort.Search(len(m.spans), func(i int) bool { return m.spans[i].from >= b })
	if first >= end {
		return 0
	}
	from, to := m.spans[first], m.spans[end-1]
	whole := to.through - from.through + from.to - from.from
	return max(0, whole-max(0, a-from.from)-max(0, to.to-b))
}
