// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"time"
)

// within returns f's error, or the context's where f has not ended a grace after its context: OpenTelemetry's HTTP client reads on,
// whatever its context says, where a receiver has switched protocols (HTTP 101) and then says nothing. Such a call is left to
// itself. The grace is for calls that do end, which know best why.
func within(ctx context.Context, grace time.Duration, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
		return context.Cause(ctx)
	}
}
