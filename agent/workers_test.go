// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"testing/synctest"
	"time"
)

// Requests that come one after another share a goroutine, concurrent ones have one each, and stop leaves none.
func TestWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which fails if a goroutine is left
		var w workers
		done, open := 0, make(chan struct{})
		for range 3 {
			w.start(func() { done++ })
			synctest.Wait()
		}
		if idle := w.waiting.Load(); done != 3 || idle != 1 {
			t.Errorf("%d of 3 requests in turn, by %d goroutines", done, idle)
		}
		for range 2 * maxIdle {
			w.start(func() { <-open })
		}
		synctest.Wait()
		if idle := w.waiting.Load(); idle != 0 {
			t.Errorf("%d goroutines wait while requests do", idle)
		}
		close(open)
		synctest.Wait()
		if idle := w.waiting.Load(); idle != maxIdle {
			t.Errorf("%d goroutines wait afterwards, want %d", idle, maxIdle)
		}
		w.start(func() { time.Sleep(time.Hour) })
		w.stop()
		time.Sleep(2 * time.Hour)
	})
	new(workers).stop()
}
