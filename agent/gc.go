// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The collector's pace during a run. A collection costs milliseconds at the wrong moment, and memory is what is paid for
// fewer of them: the heap may grow by what the run allocates in a second, so that there is about one in a second, but by
// gcLeastRoom at least and gcMostRoom at most, and in any case by gcLeast per cent of what lives, or the collector of a large
// heap would never rest.
const (
	gcLeastRoom = 20 << 20 // bytes
	gcMostRoom  = 64 << 20
	gcLeast     = 25 // per cent
	gcMost      = 400
	gcEvery     = time.Second
)

// paceGC sets the collector's pace until the returned function is called, which restores the one before. A GOGC that
// the user has set is left alone.
func paceGC() (restore func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	pace := 0
	var allocated uint64
	adjust := func() (before int) {
		s := []metrics.Sample{
			{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}, {Name: "/gc/heap/allocs:bytes"},
		}
		metrics.Read(s)
		all := s[3].Value.Uint64()
		next := gcPace(s[0].Value.Uint64()+s[1].Value.Uint64()+s[2].Value.Uint64(), all-allocated)
		allocated = all
		// To set it stops the world for a moment: not for a trifle.
		if next < pace*9/10 || next > pace*11/10 {
			pace = next
			return debug.SetGCPercent(pace)
		}
		return pace
	}
	before := adjust()
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(gcEvery)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				adjust()
			}
		}
	}()
	return func() {
		close(quit)
		<-gone
		debug.SetGCPercent(before)
	}
}

// gcPace returns the per cent by which the heap may grow before it is collected. live is what the per cent are of (live
// heap, stacks and globals), allocated what the last second has allocated, both in bytes.
func gcPace(live, allocated uint64) int {
	room := min(gcMostRoom, max(gcLeastRoom, allocated))
	return int(min(gcMost, max(gcLeast, 100*room/max(1, live))))
}
