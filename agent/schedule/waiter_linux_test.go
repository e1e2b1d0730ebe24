// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
)

// TestSpinLearns: the spin follows the duration of wake-ups, within its bounds, and does not change after waits that are too short to show
// it.
func TestSpinLearns(t *testing.T) {
	clk := clock.New()
	w := &timerfd{clk: clk, most: 60 * time.Microsecond, spin: 30 * time.Microsecond, armed: true}
	for range 1000 { // as if each wake-up came late
		w.until = clk.Now() - time.Microsecond
		w.learn()
	}
	if w.spin != w.most {
		t.Errorf("spin %v after late wake-ups, want %v", w.spin, w.most)
	}
	w.until = Forever
	w.short = true
	w.learn()
	if w.spin != w.most {
		t.Errorf("spin %v after a short wait, want %v", w.spin, w.most)
	}
	w.short = false
	for range 1000 { // as if each came in time
		w.learn()
	}
	if w.spin != 0 {
		t.Errorf("spin %v after wake-ups in time, want 0", w.spin)
	}
}
