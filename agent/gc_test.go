// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"runtime/debug"
	"testing"
)

func TestGCPace(t *testing.T) {
	for _, tc := range []struct {
		live uint64
		want int
	}{
		{0, 400},         // before the first collection
		{1 << 20, 400},   // small: never more than five times the live heap
		{16 << 20, 400},  // the headroom exactly
		{32 << 20, 200},  // half of it
		{64 << 20, 100},  // as Go has it
		{1 << 30, 100},   // large: never below that, or the collector would never rest
		{1<<64 - 1, 100}, // nonsense
	} {
		if got := gcPace(tc.live); got != tc.want {
			t.Errorf("%d live bytes: %d %%, want %d %%", tc.live, got, tc.want)
		}
	}
}

func TestPaceGCRestores(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(77)
	defer debug.SetGCPercent(before)
	restore := paceGC()
	if during := debug.SetGCPercent(gcMost); during != gcMost {
		t.Errorf("during a run: %d", during)
	}
	restore()
	if after := debug.SetGCPercent(77); after != 77 {
		t.Errorf("after a run: %d, want what it was", after)
	}
	t.Setenv("GOGC", "150")
	restore = paceGC()
	if during := debug.SetGCPercent(77); during != 77 {
		t.Errorf("with the user's GOGC: %d", during)
	}
	restore()
}
