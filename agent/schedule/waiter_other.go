// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package schedule

import (
	"time"

	"github.com/moonloop/moonloop/agent/clock"
)

// NewWaiter returns a Waiter on the runtime's timers, which does not spin. Only on Linux is there a more exact one.
func NewWaiter(clk clock.Clock, _ time.Duration) (Waiter, error) { return NewSleeper(clk), nil }
