// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import "sync/atomic"

// maxIdle is the maximum number of goroutines that wait for a request: enough for a burst, with a few hundred KiB of stacks.
const maxIdle = 32

// workers are the goroutines of requests. A goroutine that has ended its request takes another request: a new goroutine would have to grow
// its stack three times on its way to the socket, which is a thirtieth of what a short request costs. The zero value is ready; start and stop
// must not be called concurrently.
type workers struct {
	next    chan func()
	waiting atomic.Int32
}

// start calls f on a goroutine that waits, or on a new one.
func (w *workers) start(f func()) {
	if w.next == nil {
		w.next = make(chan func())
	}
	select {
	case w.next <- f:
	default:
		go w.work(w.next, f)
	}
}

func (w *workers) work(next <-chan func(), f func()) {
	for ok := true; ok; {
		f()
		if w.waiting.Add(1) > maxIdle {
			w.waiting.Add(-1)
			return
		}
		f, ok = <-next
		w.waiting.Add(-1)
	}
}

// stop ends the goroutines that wait, and the others after their requests.
func (w *workers) stop() {
	if w.next != nil {
		close(w.next)
		w.next = nil
	}
}
