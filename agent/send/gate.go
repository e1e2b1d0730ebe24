// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"errors"
	"sync"
	"time"
)

// Gate holds back a request that was prepared before it is due. Everything slow is done by then, including the connection; when the gate
// opens, one write of headers and body is left. With HTTP/2 the headers do not wait, nor do headers beyond 16 KiB.
//
// For a request that goes by [direct], the goroutine that opens the gate makes this write itself, since it cannot block. The request's own
// goroutine waits for the reply by then, so none has to be woken before the request leaves.
type Gate struct {
	decided chan struct{} // closed when the gate is open and the armed request was written, or when the gate is shut

	mu    sync.Mutex
	state gateState
	at    time.Duration // the time at which it was opened
	armed *letter       // what is left to write; nil: the request's goroutine writes
	stop  func()        // ends the exchange
}

type gateState uint8

const (
	gateClosed gateState = iota
	gateOpen
	gateShut
)

// NewGate returns a gate that is neither open nor shut.
func NewGate() *Gate { return &Gate{decided: make(chan struct{})} }

// Open releases the request, at a time of the run's clock. Call either Open or Shut, once. It does not block.
func (g *Gate) Open(at time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state, g.at = gateOpen, at
	l := g.armed
	g.armed = nil
	if l == nil {
		close(g.decided)
		return
	}
	l.post(func() { close(g.decided) })
}

// Shut cancels the request: Do returns an error.
func (g *Gate) Shut() {
	g.mu.Lock()
	stop := g.stop
	g.state = gateShut
	close(g.decided)
	g.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// onShut sets what ends the exchange when the gate is shut, which it may be already. A nil gate never is.
func (g *Gate) onShut(stop func()) {
	if g == nil {
		return
	}
	g.mu.Lock()
	g.stop = stop
	shut := g.state == gateShut
	g.mu.Unlock()
	if shut {
		stop()
	}
}

// current returns the state. The gate counts as closed until the armed request was written. A nil gate is open.
func (g *Gate) current() gateState {
	if g == nil {
		return gateOpen
	}
	select {
	case <-g.decided:
		return g.state
	default:
		return gateClosed
	}
}

// arm leaves the write to Open. It returns false if the gate is open or shut.
func (g *Gate) arm(l *letter) bool {
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state != gateClosed {
		return false
	}
	g.armed = l
	return true
}

// disarm takes the write back from Open. It returns false if there was nothing to take back.
func (g *Gate) disarm() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.armed != nil
	g.armed = nil
	return was
}

// Wait waits until the gate is open or shut, and returns which, and the time at which it was opened.
func (g *Gate) Wait() (at time.Duration, open bool) {
	<-g.decided
	return g.at, g.state == gateOpen
}

// since returns the time from which the request's time counts: that at which the gate was opened, if it is after from.
func (g *Gate) since(from time.Duration) time.Duration {
	if g != nil && g.current() == gateOpen {
		return max(from, g.at)
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
		if g.state == gateOpen {
			return nil
		}
	case <-done:
	}
	return errShut
}
