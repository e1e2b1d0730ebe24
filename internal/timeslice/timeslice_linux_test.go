// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package timeslice

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// All threads get short slices, also those that start later.
func TestShorten(t *testing.T) {
	if attr, err := unix.SchedGetAttr(0, 0); err != nil || attr.Runtime == 0 || attr.Policy != unix.SCHED_NORMAL {
		t.Skipf("this kernel has no slices that a program can set, or this test does not run in the normal class: %+v, %v", attr, err)
	}
	Shorten()
	all := slices(t)
	later, end := make(chan int), make(chan struct{})
	defer close(end)
	go func() { // on a thread of its own
		runtime.LockOSThread()
		later <- unix.Gettid()
		<-end
	}()
	if id := <-later; slices(t)[id] != uint64(shortest) {
		t.Errorf("thread %d, which started later: a slice of %d ns, want %d", id, slices(t)[id], shortest)
	}
	for id, slice := range all {
		if slice != uint64(shortest) {
			t.Errorf("thread %d: a slice of %d ns, want %d", id, slice, shortest)
		}
	}
}

// slices returns the slice of each thread in ns, keyed by thread.
func slices(t *testing.T) map[int]uint64 {
	t.Helper()
	all := make(map[int]uint64)
	for _, id := range threads() {
		if attr, err := unix.SchedGetAttr(id, 0); err == nil {
			all[id] = attr.Runtime
		}
	}
	return all
}
