// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"errors"
	"time"
)

// Gate holds back a request that was prepared before it is due. Everything slow is done by then, including the connection; when the gate
// opens, one write of headers and body is left. With HTTP/2 the headers do not wait, nor do headers beyond 16 KiB.
type Gate struct {
	decided chan struct{}
	open    bool          // set before decided is closed, as at is
	at      time.Duration // the time at which it was opened
}

// NewGate returns a gate that is neither open nor shut.
func NewGate() *Gate { return &Gate{decided: make(chan struct{})} }

// Open releases the request, at a time of the run's clock. Call either Open or Shut, once.
func (g *Gate) Open(at time.Duration) {
	g.open, g.at = true, at
	close(g.decided)
}

// Shut cancels the request: Do returns an error.
func (g *Gate) Shut() { close(g.decided) }

// Wait waits until the gate is open or shut, and returns which, and the time at which it was opened.
func (g *Gate) Wait() (at time.Duration, open bool) {
	<-g.decided
	return g.at, g.open
}

// since returns the time from which the request's time counts: that at which the gate was opened, if it is after from.
func (g *Gate) since(from time.Duration) time.Duration {
	if g == nil {
		return from
	}
	select {
	case <-g.decided:
		if g.open {
			return max(from, g.at)
		}
	default:
	}
	return from
}

var errShut = errors.New("the request was cancelled before it was due")

// pass waits until the gate is open. A nil gate is always open.
func (g *Gate) pass(done <-chan struct{}) error {
	if g == nil {
		return nil
	}
	select {
	case <-g.decided:
		if g.open {
			return nil
		}
	case <-done:
	}
	return errShut
}
