// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package splitmix

import "testing"

// TestNext compares the generator with the first outputs of the reference implementation from state 0 (prng.di.unimi.it/splitmix64.c).
func TestNext(t *testing.T) {
	for i, want := range []uint64{0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f, 0xf88bb8a8724c81ec} {
		if got := Next(uint64(i) * Golden); got != want {
			t.Errorf("output %d is %#x, want %#x", i, got, want)
		}
	}
	if Mix(0) != 0 {
		t.Errorf("Mix(0) is %#x, want 0", Mix(0))
	}
	if low, high := Uniform(0), Uniform(1<<64-1); low != 0 || high >= 1 || high < 0.999 {
		t.Errorf("from %v to %v, want 0 to just below 1", low, high)
	}
}
