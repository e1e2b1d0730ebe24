// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package gcpace sets the pace of the garbage collector for a process that measures time. The setting is for the whole process, so only
// commands use it, and no importable package.
package gcpace

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// The pace during a run. A collection at the wrong moment costs milliseconds, and more memory makes collections rarer. The cost of a
// collection is proportional to the live heap. A live heap of eachSecond may grow by what the run allocates in a second, so that there is
// about one collection per second; a smaller one by proportionally less, a larger one by more. The growth is from leastRoom to mostRoom, and
// in any case from leastPercent to mostPercent of the live heap, because otherwise the collector of a large heap would never rest.
const (
	eachSecond   = 32 << 20 // bytes
	leastRoom    = 8 << 20
	mostRoom     = 64 << 20
	leastPercent = 25
	mostPercent  = 400
	interval     = time.Second / 4 // between two adjustments
	beginning    = 4               // number of intervals in the beginning of a run
)

// resting is the pace while the results of a run are written: it costs little, and there is no reason to use more memory for it than for
// the run.
const resting = 50

// Pace is the collector's pace during a run. The zero Pace changes nothing.
type Pace struct {
	forget func()
	user   bool // GOGC is set: the pace is the user's
	before int
	quit   func() // ends the adjustment
	gone   chan struct{}
}

// Start sets the collector's pace until Stop, unless the user has set GOGC. It also releases the memory that only the program's start
// needed.
func Start() *Pace {
	quit := make(chan struct{})
	p := &Pace{forget: forgetter(), user: os.Getenv("GOGC") != "", quit: sync.OnceFunc(func() { close(quit) }), gone: make(chan struct{})}
	p.forget()
	if p.user {
		close(p.gone)
		return p
	}
	// Go's own pace at first: reading a trace ahead makes much garbage, and no request waits for it.
	pace := 100
	p.before = debug.SetGCPercent(pace)
	_, allocated := heap()
	adjust := func() {
		live, all := heap()
		next := percent(live, uint64(time.Second/interval)*(all-allocated))
		allocated = all
		// Setting it stops the world for a moment, so small changes are ignored.
		if next < pace*9/10 || next > pace*11/10 {
			pace = next
			debug.SetGCPercent(pace)
		}
	}
	go func() {
		defer close(p.gone)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-quit:
				return
			case <-tick.C:
				adjust()
				if n <= beginning {
					p.forget()
				}
			}
		}
	}()
	return p
}

// Rest ends the run: it releases the memory that only the requests needed, before the results need other memory.
func (p *Pace) Rest() {
	if p.quit == nil {
		return
	}
	p.set(resting)
	debug.FreeOSMemory()
	p.forget()
}

// Stop restores the pace from before Start.
func (p *Pace) Stop() {
	if p.quit != nil {
		p.set(p.before)
	}
}

// set ends the adjustment and sets a pace, unless the pace is the user's.
func (p *Pace) set(percent int) {
	p.quit()
	<-p.gone
	if !p.user {
		debug.SetGCPercent(percent)
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
	return int(min(mostPercent, max(leastPercent, 100*room/max(1, float64(live)))))
}
