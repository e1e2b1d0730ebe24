// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Gate holds back a request that was prepared before it is due. Everything slow is done by then, including the connection; when the gate
// opens, one write of headers and body is left. With HTTP/2 the headers do not wait, nor do headers beyond 16 KiB.
//
// For a request that goes by [direct], the goroutine that opens the gate makes this write itself, since it cannot block. The request's own
// goroutine waits for the reply by then, so no goroutine has to be woken before the request leaves.
//
// The zero value is a gate that is neither open nor shut.
type Gate struct {
	passed atomic.Uint32 // the state, once the armed request was written

	mu    sync.Mutex
	state gateState
	at    time.Duration           // the time at which it was opened
	armed *letter                 // what is left to write; nil: the request's goroutine writes
	stop  context.CancelCauseFunc // ends the exchange
	wake  chan struct{}           // closed when passed is set; made by the first goroutine that waits for that
}

type gateState uint32

const (
	gateClosed gateState = iota
	gateOpen
	gateShut
)

// Open releases the request. The argument is the present time on the run's clock. Call either Open or Shut, once. It does not block.
func (g *Gate) Open(at time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state, g.at = gateOpen, at
	l := g.armed
	g.armed = nil
	if l == nil || l.post() {
		g.pass()
		return
	}
	go func() {
		l.postRest()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.pass()
	}()
}

// pass lets the waiting goroutines continue; g.mu must be held.
func (g *Gate) pass() {
	g.passed.Store(uint32(g.state))
	if g.wake != nil {
		close(g.wake)
	}
}

// always is a closed channel: nobody has to wait for it.
var always = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// decided returns a channel that is closed when the gate is open and the armed request was written, or when the gate is shut.
func (g *Gate) decided() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.passed.Load() != uint32(gateClosed) {
		return always
	}
	if g.wake == nil {
		g.wake = make(chan struct{})
	}
	return g.wake
}

// Shut cancels the request: Do returns an error.
func (g *Gate) Shut() {
	g.mu.Lock()
	stop := g.stop
	g.state = gateShut
	g.pass()
	g.mu.Unlock()
	if stop != nil {
		stop(errShut)
	}
}

// onShut sets the function that ends the exchange when the gate is shut, and calls it if the gate is shut already. A nil gate is never shut.
func (g *Gate) onShut(stop context.CancelCauseFunc) {
	if g == nil {
		return
	}
	g.mu.Lock()
	g.stop = stop
	shut := g.state == gateShut
	g.mu.Unlock()
	if shut {
		stop(errShut)
	}
}

// current returns the state. The gate counts as closed until the armed request was written. A nil gate is open.
func (g *Gate) current() gateState {
	if g == nil {
		return gateOpen
	}
	return gateState(g.passed.Load())
}

// arm leaves the write to Open. It returns false if the gate is nil, open or shut.
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
	if g.current() == gateClosed {
		<-g.decided()
	}
	return g.at, g.current() == gateOpen
}

// since returns the time from which the request's time counts: its start, or the time at which the gate was opened if that is later.
func (g *Gate) since(start time.Duration) time.Duration {
	if g != nil && g.current() == gateOpen {
		return max(start, g.at)
	}
	return start
}

var errShut = errors.New("the request was cancelled before it was due")

// await waits until the gate is open. A nil gate is always open.
func (g *Gate) await(done <-chan struct{}) error {
	if g == nil {
		return nil
	}
	select {
	case <-g.decided():
		if g.current() == gateOpen {
			return nil
		}
	case <-done:
	}
	return errShut
}
