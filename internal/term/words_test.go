// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package term

import "testing"

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
