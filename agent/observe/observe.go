// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package observe watches the machine and the process during a run, so that effects of the client can be told from effects of the
// engine.
//
// It measures four things: hiccups (a tick that comes late although nothing but the machine or this process
// can be the reason), the garbage collector's pauses, the share of the CPU that this process used, and the time
// for which a cgroup quota held it back.
package observe

import (
	"math"
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/schedule"
)

// Machine is what a run saw of the machine that it ran on.
type Machine struct {
	Elapsed time.Duration // observed time
	// Hiccups is the number of ticks more than HiccupFloor late, HiccupTime the sum of their lateness and
	// HiccupMax the greatest. Their share of Elapsed is the time in which a schedule could not be held.
	Hiccups    int64
	HiccupTime time.Duration
	HiccupMax  time.Duration
	// GCPauses counts stop-the-world pauses of the collector. GCPauseTime is their sum and GCPauseMax the longest, both
	// from the upper bounds of a histogram's buckets.
	GCPauses                int64
	GCPauseTime, GCPauseMax time.Duration
	// CPU is the user and system time of the process; CPUShare is CPU ÷ (Elapsed × processors), 0 to 1.
	// Unknown is set where the platform does not say.
	CPU      time.Duration
	CPUShare float64
	CPUKnown bool
	// Throttled is the time for which the cgroup's quota stopped the process; ThrottleKnown is false outside a
	// cgroup with a quota that can be read.
	Throttled     time.Duration
	ThrottleKnown bool
	// MaxRSS is the process's peak resident memory in bytes; 0 where unknown.
	MaxRSS int64
}

// HiccupShare is the part of the observed time that hiccups took, 0 to 1.
func (m Machine) HiccupShare() float64 {
	if m.Elapsed <= 0 {
		return 0
	}
	return float64(m.HiccupTime) / float64(m.Elapsed)
}

// Observer watches from Start to Stop.
type Observer struct {
	clk    clock.Clock
	meter  *meter
	start  time.Duration
	cpu    time.Duration
	throt  time.Duration
	pauses pauseCounts
}

// Start begins to watch. The waiter becomes the hiccup meter's and is closed by Stop; nil leaves hiccups out, as
// in virtual time, where there are none.
func Start(clk clock.Clock, w schedule.Waiter) *Observer {
	o := &Observer{clk: clk, start: clk.Now(), pauses: readPauses()}
	o.cpu, _ = cpuTime()
	o.throt, _ = throttled()
	if w != nil {
		o.meter = startMeter(clk, w)
	}
	return o
}

// Excused returns how much of the time from a to b overlaps a hiccup. Safe for concurrent use.
func (o *Observer) Excused(a, b time.Duration) time.Duration {
	if o == nil || o.meter == nil {
		return 0
	}
	return o.meter.excused(a, b)
}

// Now returns what has been seen so far.
func (o *Observer) Now() Machine {
	m := Machine{Elapsed: o.clk.Now() - o.start, MaxRSS: maxRSS()}
	if o.meter != nil {
		m.Hiccups, m.HiccupTime, m.HiccupMax = o.meter.sum()
	}
	m.GCPauses, m.GCPauseTime, m.GCPauseMax = readPauses().since(o.pauses)
	if cpu, ok := cpuTime(); ok && m.Elapsed > 0 {
		m.CPU, m.CPUKnown = cpu-o.cpu, true
		m.CPUShare = float64(m.CPU) / float64(m.Elapsed) / float64(runtime.GOMAXPROCS(0))
	}
	if t, ok := throttled(); ok {
		m.Throttled, m.ThrottleKnown = t-o.throt, true
	}
	return m
}

// Stop ends the watch and returns what it saw.
func (o *Observer) Stop() Machine {
	m := o.Now()
	if o.meter != nil {
		o.meter.stop()
	}
	return m
}

// pauseCounts is the runtime's histogram of stop-the-world pauses of the collector.
type pauseCounts struct {
	counts  []uint64
	buckets []float64
}

func readPauses() pauseCounts {
	s := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindFloat64Histogram {
		return pauseCounts{}
	}
	h := s[0].Value.Float64Histogram()
	return pauseCounts{append([]uint64(nil), h.Counts...), h.Buckets}
}

func (p pauseCounts) since(before pauseCounts) (n int64, total, longest time.Duration) {
	for i, c := range p.counts {
		if i < len(before.counts) {
			c -= before.counts[i]
		}
		if c == 0 {
			continue
		}
		n += int64(c) //nolint:gosec // a count of pauses is far below 2^63
		upper := p.buckets[i+1]
		if math.IsInf(upper, 1) {
			upper = p.buckets[i]
		}
		longest = time.Duration(upper * float64(time.Second))
		total += longest * time.Duration(c) //nolint:gosec // as above
	}
	return n, total, longest
}
