// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestWarner warns on several goroutines at once, and again when the time is over.
func TestWarner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		warn := warner(&out, time.Minute)
		for range 2 {
			var all sync.WaitGroup
			for _, text := range []string{"a", "b", "a", "b"} {
				all.Go(func() { warn(text) })
			}
			all.Wait()
			time.Sleep(time.Minute + 1)
		}
		if a, b := strings.Count(out.String(), "warning: a\n"), strings.Count(out.String(), "warning: b\n"); a != 2 || b != 2 {
			t.Errorf("want each warning twice: %s", out.String())
		}
	})
}
