// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
)

// wall turns kernel stamps, which count on the wall clock, into instants of the run. The two clocks are slewed
// alike; only a step parts them, so the offset is taken anew now and then.
type wall struct {
	clk    clock.Clock
	offset atomic.Int64 // wall − run, ns
	taken  atomic.Int64 // instant of the last sample
	used   atomic.Bool  // a connection has kernel stamps

	mu    sync.Mutex
	first int64
	worst time.Duration
}

const resample = time.Second

func newWall(clk clock.Clock) *wall {
	w := &wall{clk: clk}
	w.first = w.sample()
	w.offset.Store(w.first)
	w.taken.Store(int64(clk.Now()))
	return w
}

// run returns the instant of a wall-clock reading.
func (w *wall) run(ns int64) int64 { return ns - w.offset.Load() }

// refresh takes a new sample if the last is old. It is called once per exchange.
func (w *wall) refresh() {
	last := w.taken.Load()
	if now := int64(w.clk.Now()); now-last > int64(resample) && w.taken.CompareAndSwap(last, now) {
		w.step()
	}
}

// step takes a new sample and returns the largest step seen so far.
func (w *wall) step() time.Duration {
	offset := w.sample()
	w.offset.Store(offset)
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := time.Duration(offset - w.first); d.Abs() > w.worst.Abs() {
		w.worst = d
	}
	return w.worst
}

// sample returns wall − run. Of 100 tries it trusts the one that was disturbed least: its error is at most half of
// the time between its two readings of the run's clock, some 20 ns.
func (w *wall) sample() int64 {
	var offset int64
	least := time.Duration(1<<63 - 1)
	for range 100 {
		a := w.clk.Now()
		ns := time.Now().UnixNano()
		b := w.clk.Now()
		if b-a < least {
			least = b - a
			offset = ns - int64(a+(b-a)/2)
		}
	}
	return offset
}
