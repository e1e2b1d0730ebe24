// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package gcpace sets the pace of the garbage collector for a process that measures time. The setting is for the whole process, so only
// commands use it, and no importable package.
package gcpace

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The pace during a run. A collection at the wrong moment costs milliseconds, and more memory makes collections rarer. The cost of a
// collection is proportional to the live heap. A live heap of eachSecond may grow by what the run allocates in a second, so that there is
// about one collection per second; a smaller one by proportionally less, a larger one by more. The growth is at least leastRoom, at most
// mostRoom, and always at least least percent of the live heap, because otherwise the collector of a large heap would never rest.
const (
	eachSecond = 32 << 20 // bytes
	leastRoom  = 12 << 20
	mostRoom   = 64 << 20
	least      = 25 // per cent
	most       = 400
	every      = time.Second / 4 // for a run's end, when the report is a different load than requests
	begun      = 4               // times every: then the run's beginning is over
)

// Start sets the collector's pace until the returned function is called, which restores the previous one, unless the user has set GOGC. It
// also releases the memory that only the program's start needed.
func Start() (restore func()) {
	forget := forgetter()
	forget()
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	// Go's own pace at first: reading a trace ahead makes much garbage, and no request waits for it.
	pace := 100
	before := debug.SetGCPercent(pace)
	_, allocated := heap()
	adjust := func() {
		live, all := heap()
		next := percent(live, uint64(time.Second/every)*(all-allocated))
		allocated = all
		// Setting it stops the world for a moment, so small changes are ignored.
		if next < pace*9/10 || next > pace*11/10 {
			pace = next
			debug.SetGCPercent(pace)
		}
	}
	quit, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-quit:
				return
			case <-tick.C:
				adjust()
				if n == begun {
					forget()
				}
			}
		}
	}()
	return func() {
		close(quit)
		<-gone
		debug.SetGCPercent(before)
	}
}

// heap returns what lives, as the collector counts it, and what the program has allocated since its start, both in bytes.
func heap() (live, allocated uint64) {
	s := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}, {Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(s)
	return s[0].Value.Uint64() + s[1].Value.Uint64() + s[2].Value.Uint64(), s[3].Value.Uint64()
}

// percent returns the percentage by which the heap may grow before it is collected. live is its base (live heap, stacks and globals), and
// allocated is the amount allocated in a second, both in bytes.
func percent(live, allocated uint64) int {
	room := min(mostRoom, max(leastRoom, float64(allocated)*float64(live)/eachSecond))
	return int(min(most, max(least, 100*room/max(1, float64(live)))))
}
