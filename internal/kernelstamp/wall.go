// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package kernelstamp reports when bytes arrived at a TCP socket: when the kernel received them, not when the program read
// them. The difference is the scheduling delay of the program. On a busy machine, it is the main error of measured latencies.
// The agent uses this package to timestamp tokens, and the simulator to timestamp requests.
package kernelstamp

import (
	"sync"
	"sync/atomic"
	"time"
)

// Wall converts kernel timestamps, which are of the wall clock, to instants of a monotonic clock. Both clocks are slewed alike.
// Only a step of the wall clock changes their offset, so the offset is sampled again from time to time. Safe for concurrent
// use.
type Wall struct {
	now    func() time.Duration
	offset atomic.Int64 // wall − monotonic, ns
	taken  atomic.Int64 // instant of the last sample

	mu    sync.Mutex
	first int64
	worst time.Duration
}

const resample = time.Second

// NewWall returns a Wall for now, a monotonic clock, and takes the first sample.
func NewWall(now func() time.Duration) *Wall {
	w := &Wall{now: now}
	w.first = w.sample()
	w.offset.Store(w.first)
	w.taken.Store(int64(now()))
	return w
}

// Instant returns the instant, in ns of the monotonic clock, of a wall-clock reading in ns.
func (w *Wall) Instant(ns int64) int64 { return ns - w.offset.Load() }

// Refresh takes a new sample if the last is older than a second: cheap enough to call once per request.
func (w *Wall) Refresh() {
	last := w.taken.Load()
	if now := int64(w.now()); now-last > int64(resample) && w.taken.CompareAndSwap(last, now) {
		w.Step()
	}
}

// Step takes a new sample and returns the greatest change of the wall clock against the monotonic clock since the first sample, as far as
// the samples show it.
func (w *Wall) Step() time.Duration {
	offset := w.sample()
	w.offset.Store(offset)
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := time.Duration(offset - w.first); d.Abs() > w.worst.Abs() {
		w.worst = d
	}
	return w.worst
}

// sample returns wall − monotonic. Of 100 tries it uses the one with the least time between its two readings of the monotonic
// clock. The error is at most half of that time, some 20 ns.
func (w *Wall) sample() int64 {
	var offset int64
	least := time.Duration(1<<63 - 1)
	for range 100 {
		a := w.now()
		ns := time.Now().UnixNano()
		b := w.now()
		if b-a < least {
			least = b - a
			offset = ns - int64(a+(b-a)/2)
		}
	}
	return offset
}
