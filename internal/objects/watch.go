// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package objects

// This file ends transfers that have stalled: otherwise, a connection on which nothing arrives would be waited for forever.

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// stalled is the error for a transfer in which nothing arrived or was sent for this long.
type stalled time.Duration

func (s stalled) Error() string {
	return fmt.Sprintf("nothing was transferred for %s", time.Duration(s))
}

// watcher cancels a context when nothing has happened for a while.
type watcher struct {
	ctx    context.Context //nolint:containedctx // the context that it cancels
	cancel context.CancelCauseFunc
	timer  *time.Timer
	limit  time.Duration
}

func watch(ctx context.Context, limit time.Duration) *watcher {
	ctx, cancel := context.WithCancelCause(ctx)
	return &watcher{ctx, cancel, time.AfterFunc(limit, func() { cancel(stalled(limit)) }), limit}
}

// alive notes that something has happened.
func (w *watcher) alive() { w.timer.Reset(w.limit) }

// end stops the watcher, and ends its context.
func (w *watcher) end() {
	w.timer.Stop()
	w.cancel(nil)
}

// cause returns why something failed: the cause of the context's end, if there is one, rather than the library's error.
func (w *watcher) cause(err error) error {
	if c := context.Cause(w.ctx); err != nil && c != nil {
		return c
	}
	return err
}

// ended reports whether an error comes from the end of a context, or from a stall.
func ended(err error) bool {
	_, is := errors.AsType[stalled](err)
	return is || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
