// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package timeslice

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// shortest is the shortest slice that the kernel grants; it raises shorter ones to this.
const shortest = 100 * time.Microsecond

// shorten sets the slice of each thread. A thread that starts meanwhile inherits the slice of the thread that starts it, which may not be set
// yet, so the threads are listed again until there is no new one.
func shorten() {
	done := make(map[int]bool)
	for again := true; again; {
		again = false
		for _, id := range threads() {
			if !done[id] {
				done[id], again = true, true
				set(id)
			}
		}
	}
}

// set sets the slice of a thread of the normal scheduling class, and leaves its other attributes as they are. A thread that has ended, and a
// sandbox that refuses the call, make no difference to the others.
func set(thread int) {
	attr, err := unix.SchedGetAttr(thread, 0)
	if err != nil || attr.Policy != unix.SCHED_NORMAL {
		return
	}
	attr.Runtime, attr.Deadline, attr.Period = uint64(shortest), 0, 0
	_ = unix.SchedSetAttr(thread, attr, 0)
}

// threads returns the ids of the threads of this process.
func threads() []int {
	entries, _ := os.ReadDir("/proc/self/task") // without /proc, the slices stay as they are
	ids := make([]int, 0, len(entries))
	for _, e := range entries {
		if id, err := strconv.Atoi(e.Name()); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}
