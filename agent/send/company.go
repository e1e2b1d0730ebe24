// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"sync"
)

// company are the direct exchanges that one context stops: all requests of a run have the same context. A context.AfterFunc for each
// exchange would add a microsecond to a short request. The zero value is ready.
type company struct {
	mu      sync.Mutex
	done    <-chan struct{} // of the context
	flights map[*flight]struct{}
	leave   func() bool // ends the wait for the context
}

// join adds an exchange, unless the present ones have another context.
func (c *company) join(ctx context.Context, f *flight) (joined bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if done := ctx.Done(); c.leave == nil || done != c.done {
		if len(c.flights) > 0 {
			return false
		}
		if c.leave != nil {
			c.leave()
		}
		c.done, c.leave = done, context.AfterFunc(ctx, func() { c.stop(done) })
	}
	if c.flights == nil {
		c.flights = make(map[*flight]struct{})
	}
	c.flights[f] = struct{}{}
	return true
}

// part removes an exchange. It reports whether the exchange's context has not stopped the exchange, and will not.
func (c *company) part(f *flight) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, there := c.flights[f]
	delete(c.flights, f)
	return there
}

// stop stops the exchanges of a context.
func (c *company) stop(done <-chan struct{}) {
	c.mu.Lock()
	var flights map[*flight]struct{}
	if c.leave != nil && c.done == done {
		flights, c.flights, c.leave = c.flights, nil, nil
	}
	c.mu.Unlock()
	for f := range flights {
		f.stop()
	}
}

// close ends the wait for the context, which may never end, unless exchanges remain.
func (c *company) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.flights) == 0 && c.leave != nil {
		c.leave()
		c.leave = nil
	}
}
