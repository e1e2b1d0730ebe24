// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The collector's pace during a run. A collection costs milliseconds at the wrong moment, so the heap may grow before
// the next one: by gcHeadroom, which is up to gcMost per cent of a small heap, and gcLeast per cent of a large one, which
// would otherwise take several times its size.
const (
	gcHeadroom = 64 << 20 // bytes
	gcMost     = 400
	gcLeast    = 100
	gcEvery    = time.Second
)

// paceGC sets the collector's pace until the returned function is called, which restores the one before. A GOGC that
// the user has set is left alone.
func paceGC() (restore func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	pace := gcMost
	before := debug.SetGCPercent(pace)
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(gcEvery)
		defer tick.Stop()
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			metrics.Read(live)
			// To set it stops the world for a moment: not for a trifle.
			if next := gcPace(live[0].Value.Uint64()); next < pace*9/10 || next > pace*11/10 {
				pace = next
				debug.SetGCPercent(pace)
			}
		}
	}()
	return func() {
		close(quit)
		<-gone
		debug.SetGCPercent(before)
	}
}

// gcPace returns the per cent by which a heap with so many live bytes may grow.
func gcPace(live uint64) int {
	if live == 0 {
		return gcMost
	}
	return int(min(gcMost, max(gcLeast, 100*gcHeadroom/live)))
}
