// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package observe watches the machine and the process during a run, so that effects of the client can be distinguished from effects of the
// engine.
//
// It measures four things: hiccups (ticks that are late, for which only the machine or this process can be the
// reason), the garbage collector's pauses, the share of the CPU that this process used, and the time
// for which a cgroup quota held it back.
package observe

import (
	"math"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/schedule"
)

// Machine describes the machine and the process during a run.
type Machine struct {
	Elapsed time.Duration // observed time
	// Hiccups is the number of ticks that were at least HiccupFloor late, HiccupTime the sum of their lateness and HiccupMax the greatest.
	// Their share of Elapsed is the time in which a schedule could not be followed.
	Hiccups    int64
	HiccupTime time.Duration
	HiccupMax  time.Duration
	// GCPauses counts stop-the-world pauses of the collector. GCPauseTime is their sum and GCPauseMax the longest, both
	// from the upper bounds of a histogram's buckets.
	GCPauses                int64
	GCPauseTime, GCPauseMax time.Duration
	// CPU is the user and system time of the process; CPUShare is CPU ÷ (Elapsed × processors), 0 to 1. CPUKnown is false if the platform
	// does not provide it.
	CPU      time.Duration
	CPUShare float64
	CPUKnown bool
	// Throttled is the time for which the cgroup's quota stopped the process; ThrottleKnown is false outside a
	// cgroup with a quota that can be read.
	Throttled     time.Duration
	ThrottleKnown bool
	// MaxRSS is the process's peak resident memory in bytes; 0 if unknown.
	MaxRSS int64
}

// Observer watches from Start to Stop.
type Observer struct {
	clk   clock.Clock
	meter meter
	wait  schedule.Waiter // the meter's; nil if there is none
	gone  sync.WaitGroup

	// The counters of the process and the machine at the start.
	start, cpu, throttled time.Duration
	pauses                *metrics.Float64Histogram
}

// Start begins to watch. The hiccup meter uses the waiter, and Stop closes it; nil means no hiccup meter, as in virtual time, where there
// are no hiccups.
func Start(clk clock.Clock, w schedule.Waiter) *Observer {
	o := &Observer{clk: clk, wait: w, start: clk.Now(), pauses: readPauses()}
	o.cpu, _, _ = usage()
	o.throttled, _ = throttled()
	if w != nil {
		o.gone.Go(func() { o.meter.run(clk, w) })
	}
	return o
}

// Excused returns how much of the time from a to b overlaps a hiccup. Safe for concurrent use.
func (o *Observer) Excused(a, b time.Duration) time.Duration {
	if o == nil {
		return 0
	}
	return o.meter.excused(a, b)
}

// Now returns what has been measured so far.
func (o *Observer) Now() Machine {
	m := Machine{Elapsed: o.clk.Now() - o.start}
	m.Hiccups, m.HiccupTime, m.HiccupMax = o.meter.sum()
	m.GCPauses, m.GCPauseTime, m.GCPauseMax = pausesSince(o.pauses)
	cpu, rss, ok := usage()
	if m.MaxRSS = rss; ok && m.Elapsed > 0 {
		m.CPU, m.CPUKnown = cpu-o.cpu, true
		m.CPUShare = float64(m.CPU) / float64(m.Elapsed) / float64(runtime.GOMAXPROCS(0))
	}
	if t, ok := throttled(); ok {
		m.Throttled, m.ThrottleKnown = t-o.throttled, true
	}
	return m
}

// Stop ends the measurement and returns its result.
func (o *Observer) Stop() Machine {
	m := o.Now()
	if o.wait != nil {
		o.wait.Wake()
		o.gone.Wait()
		_ = o.wait.Close()
	}
	return m
}

// readPauses returns the runtime's histogram of stop-the-world pauses of the collector; empty if the runtime has none.
func readPauses() *metrics.Float64Histogram {
	s := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	if metrics.Read(s); s[0].Value.Kind() != metrics.KindFloat64Histogram {
		return new(metrics.Float64Histogram)
	}
	return s[0].Value.Float64Histogram()
}

// pausesSince returns the number of pauses since a histogram was read, their sum and the longest.
func pausesSince(before *metrics.Float64Histogram) (n int64, total, longest time.Duration) {
	now := readPauses()
	for i, c := range now.Counts {
		if c -= before.Counts[i]; c == 0 {
			continue
		}
		n += int64(c) //nolint:gosec // a count of pauses is far below 2^63
		upper := now.Buckets[i+1]
		if math.IsInf(upper, 1) {
			upper = now.Buckets[i]
		}
		longest = time.Duration(upper * float64(time.Second))
		total += longest * time.Duration(c) //nolint:gosec // as above
	}
	return n, total, longest
}
