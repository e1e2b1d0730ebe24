// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package gcpace

import (
	"runtime/debug"
	"testing"
)

func TestPercent(t *testing.T) {
	const second = 1 << 20 // a quiet one
	for _, tc := range []struct {
		live, allocated uint64
		want            int
		why             string
	}{
		{0, second, 400, "before the first collection"},
		{1 << 20, second, 400, "small: never more than five times what lives"},
		{16 << 20, second, 50, "the least room"},
		{16 << 20, 48 << 20, 150, "small: two collections a second"},
		{32 << 20, 32 << 20, 100, "a second's garbage"},
		{48 << 20, 24 << 20, 75, "large: one collection in one and a half seconds"},
		{64 << 20, 1 << 30, 100, "the most room"},
		{1 << 30, second, 25, "large: a quarter, or the collector would never rest"},
		{1<<64 - 1, 1<<64 - 1, 25, "nonsense"},
	} {
		if got := percent(tc.live, tc.allocated); got != tc.want {
			t.Errorf("%d live bytes, %d allocated: %d %%, want %d %%: %s", tc.live, tc.allocated, got, tc.want, tc.why)
		}
	}
}

func TestStartRestores(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(77)
	defer debug.SetGCPercent(before)
	p := Start()
	if during := debug.SetGCPercent(mostPercent); during == 77 {
		t.Error("Start leaves the pace as it was")
	}
	p.Rest()
	if during := debug.SetGCPercent(resting); during != resting {
		t.Errorf("while the results are written: %d, want %d", during, resting)
	}
	p.Stop()
	if after := debug.SetGCPercent(77); after != 77 {
		t.Errorf("afterwards: %d, want what it was", after)
	}
	t.Setenv("GOGC", "150")
	p = Start()
	p.Rest()
	if during := debug.SetGCPercent(77); during != 77 {
		t.Errorf("with the user's GOGC: %d", during)
	}
	p.Stop()
	if after := debug.SetGCPercent(77); after != 77 {
		t.Errorf("after a run with the user's GOGC: %d", after)
	}
}

// TestZeroPace: commands that run side by side in one process, as in tests, have no pace to set.
func TestZeroPace(t *testing.T) {
	before := debug.SetGCPercent(77)
	defer debug.SetGCPercent(before)
	p := new(Pace)
	p.Rest()
	p.Stop()
	if after := debug.SetGCPercent(77); after != 77 {
		t.Errorf("the pace is %d, want 77", after)
	}
}
