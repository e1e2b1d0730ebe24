// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package term

import (
	"testing"
	"time"
)

// One of something has a singular noun, whatever its plural.
func TestCounted(t *testing.T) {
	for noun, want := range map[string]string{
		"rows": "1 row", "replies": "1 reply", "ancestries": "1 ancestry", "stretches": "1 stretch",
		"stretches of a journal": "1 stretch of a journal", "replies of rows": "1 reply of rows", "hash ids": "1 hash id",
	} {
		if got := Counted(1, noun); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := Counted(1002, noun); got != "1,002 "+noun {
			t.Errorf("got %q", got)
		}
	}
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 µs", 99_400: "99 µs", 100_000: "0.10 ms", 1_234_000: "1.23 ms", 12_340_000: "12.3 ms", 123_400_000: "123 ms", 1234 * time.Millisecond: "1.23 s",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%d ns: %q, want %q", d, got, want)
		}
	}
}
