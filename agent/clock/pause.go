// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"context"
	"time"
)

// Pause waits this long, or until ctx ends. It returns false if ctx has ended.
func Pause(ctx context.Context, lasts time.Duration) bool {
	if lasts > 0 {
		over := time.NewTimer(lasts)
		defer over.Stop()
		select {
		case <-over.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}
