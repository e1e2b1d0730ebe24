// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"errors"
	"time"
)

// Gate holds a request back that has been prepared before it is due. All that takes time is done by then, a connection
// included; what is left when the gate opens is one write of headers and body. With HTTP/2 the headers do not wait, nor do
// those beyond 16 KiB.
type Gate struct {
	decided chan struct{}
	open    bool          // set before decided is closed, as at is
	at      time.Duration // the instant at which it was opened
}

// NewGate returns a gate that is neither open nor shut for good.
func NewGate() *Gate { return &Gate{decided: make(chan struct{})} }

// Open lets the request go, at an instant of the run's clock. Of Open and Shut call one, once.
func (g *Gate) Open(at time.Duration) {
	g.open, g.at = true, at
	close(g.decided)
}

// Shut says that the request will not go: Do gives it up.
func (g *Gate) Shut() { close(g.decided) }

// Wait waits until the gate is open or shut, and returns which, and the instant at which it was opened.
func (g *Gate) Wait() (at time.Duration, open bool) {
	<-g.decided
	return g.at, g.open
}

// since returns the instant from which on the request's time counts: that at which the gate was opened, if it has been and
// lies after from.
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

var errShut = errors.New("the request was given up before it was due")

// pass waits until the gate is open. No gate always is.
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
