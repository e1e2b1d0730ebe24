// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestPause: it lasts for the given time, or until the context ends, and reports which.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !Pause(t.Context(), time.Minute) || !Pause(t.Context(), 0) || !Pause(t.Context(), -time.Second) || time.Since(began) != time.Minute {
			t.Errorf("it returned after %v", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if Pause(ctx, time.Minute) || Pause(ctx, 0) || time.Since(began) != time.Minute+time.Second {
			t.Errorf("it returned true although the context had ended, or it returned after %v", time.Since(began))
		}
	})
}
