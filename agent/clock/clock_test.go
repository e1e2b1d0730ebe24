// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := New()
		if c.Now() != 0 || !c.Start().Equal(began) {
			t.Errorf("starts at %v, %v", c.Now(), c.Start())
		}
		time.Sleep(1500 * time.Millisecond)
		if at := c.Now(); at != 1500*time.Millisecond || !c.Wall(at).Equal(time.Now()) {
			t.Errorf("after 1.5 s: %v, wall %v", at, c.Wall(at))
		}
		if Never >= c.Now() || Never >= -1<<61 {
			t.Error("Never lies among the instants that can be reached")
		}
	})
}
