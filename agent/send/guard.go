// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
)

// stage is what an exchange waits for.
type stage uint8

const (
	stagePause   stage = iota // between attempts
	stageConnect              // a connection
	stageUpload               // the request to be written
	stageFirst                // the first content
	stageStream               // the next bytes
	stageTail                 // the end, after a finish reason or an error
	stageOver                 // the end, after the reply is complete
)

// tailLimit is how long to wait for the end of a reply after its finish reason or error; bytes that still arrive restart it. The reply is
// complete by then; only reuse of the connection and late usage depend on it.
const tailLimit = 5 * time.Second

// overLimit is how long to wait for the end of a reply after [DONE] or the final usage, whatever still arrives. Only reuse of the
// connection depends on it, while the caller's slot is occupied.
const overLimit = 100 * time.Millisecond

// guard ends an exchange whose time is over, with one timer. Frequent events only store a time (alive); the timer reads it when it fires,
// and continues to wait if there is time left.
type guard struct {
	clk    clock.Clock
	limits limits
	cancel context.CancelCauseFunc
	heard  atomic.Int64 // last sign of activity, ns

	mu      sync.Mutex
	stage   stage
	start   time.Duration // of the exchange
	gate    *Gate         // that holds it back, or nil
	since   time.Duration // start of the stage
	sent    time.Duration // the end of the upload, from stageFirst on
	timer   *time.Timer
	rings   time.Duration // when timer does; clock.Never if it is stopped
	expired *timeout
	done    bool
	idle    bool // done, and the timer will not ring
}

// limits are the four timeouts, and the time after the upload at which the exchange is closed on purpose; 0 = none.
type limits struct{ connect, first, idle, total, hangUp time.Duration }

// timeout is the cause with which a guard cancels.
type timeout struct {
	class Class // empty: the tail was cut, which is not a failure
	text  string
}

func (t *timeout) Error() string { return t.text }

// alive records a sign of activity.
func (g *guard) alive(at time.Duration) { g.heard.Store(int64(at)) }

// enter begins a stage. After stageTail only stageOver can follow: a late chunk does not make a complete reply incomplete. stageFirst can
// follow only stageUpload, because net/http may report the end of an upload late.
func (g *guard) enter(s stage) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done || g.expired != nil || g.stage >= stageTail && s <= g.stage || s == stageFirst && g.stage != stageUpload {
		return
	}
	now := g.clk.Now()
	g.stage, g.since = s, now
	if s == stageFirst {
		g.sent = now
	}
	g.alive(now)
	g.arm(now)
}

// arm sets the timer to the next deadline. A timer that rings earlier is left unchanged: it then continues to wait. Most exchanges end
// before it rings.
func (g *guard) arm(now time.Duration) {
	at, t := g.deadline()
	switch {
	case t == nil && g.timer != nil:
		g.timer.Stop()
		g.rings = clock.Never
	case t == nil:
	case g.timer == nil:
		g.timer, g.rings = time.AfterFunc(at-now, g.ring), at
	case g.rings == clock.Never || at < g.rings:
		g.timer.Reset(at - now)
		g.rings = at
	}
}

// deadline returns the next time at which the exchange is over, and why; nil = never.
func (g *guard) deadline() (at time.Duration, why *timeout) {
	earliest := func(from, limit time.Duration, t *timeout) {
		if limit > 0 && (why == nil || from+limit < at) {
			at, why = from+limit, t
		}
	}
	heard := time.Duration(g.heard.Load())
	start := g.gate.since(g.start)
	if g.stage >= stageTail {
		if g.stage == stageOver {
			earliest(g.since, overLimit, tailCut)
		}
		earliest(heard, tailLimit, tailCut)
		earliest(heard, g.limits.idle, tailCut)
		earliest(start, g.limits.total, tailCut)
		return at, why
	}
	earliest(start, g.limits.total, totalOver)
	if g.stage >= stageFirst {
		earliest(g.sent, g.limits.hangUp, hungUp)
	}
	switch g.stage {
	case stageConnect:
		earliest(g.since, g.limits.connect, connectOver)
	case stageUpload:
		earliest(heard, g.limits.idle, uploadOver)
	case stageFirst:
		earliest(g.since, g.limits.first, firstOver)
	case stageStream:
		earliest(heard, g.limits.idle, idleOver)
	default:
	}
	return at, why
}

var (
	tailCut     = &timeout{text: "the reply was complete but did not end"}
	totalOver   = &timeout{ClassTotalTimeout, "the exchange took longer than the total timeout"}
	connectOver = &timeout{ClassConnectTimeout, "no connection (DNS, TCP, TLS) within the connect timeout"}
	uploadOver  = &timeout{ClassIdleTimeout, "the server read no more of the request within the idle timeout"}
	firstOver   = &timeout{ClassFirstTokenTimeout, "no content within the first-token timeout after the request was sent"}
	hungUp      = &timeout{ClassDisconnected, "the connection was closed on purpose"}
	idleOver    = &timeout{ClassIdleTimeout, "the stream was silent for the idle timeout"}
)

// ring is called by the timer: it ends the exchange or continues to wait.
func (g *guard) ring() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done || g.expired != nil {
		return
	}
	now := g.clk.Now()
	at, why := g.deadline()
	switch {
	case why == nil:
		g.rings = clock.Never
	case now < at:
		g.timer.Reset(at - now)
		g.rings = at
	default:
		g.expired = why
		g.cancel(why)
	}
}

// stop ends the guard and returns the timeout that ended the exchange, or nil.
func (g *guard) stop() *timeout {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.done = true
	g.idle = g.timer == nil || g.timer.Stop()
	return g.expired
}
