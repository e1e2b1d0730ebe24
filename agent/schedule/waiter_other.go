// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package schedule

import "github.com/moonloop/moonloop/agent/clock"

// NewWaiter returns a Waiter on the runtime's timers: only Linux has a better one.
func NewWaiter(clk clock.Clock) (Waiter, error) { return NewSleeper(clk), nil }
