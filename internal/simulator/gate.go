// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

// errFull is returned by a gate whose queue is full.
var errFull = errors.New("the queue is full")

// gate limits how many requests are inside at the same time; first come, first served. It is the engine's
// queue, and with a limit of one its serial prefill lane.
type gate struct {
	limit   int // 0 means no limit
	waiters int // bound of the queue; 0 means no bound

	mu     sync.Mutex
	inside int
	queue  list.List // of chan time.Duration
}

// acquire waits for a place and returns the instant from which it is held: now, or the instant that the place's former holder gave to
// release. The holder must call release.
func (g *gate) acquire(ctx context.Context, now func() time.Duration) (time.Duration, error) {
	g.mu.Lock()
	if g.limit == 0 || g.inside < g.limit {
		g.inside++
		g.mu.Unlock()
		return now(), nil
	}
	if g.waiters > 0 && g.queue.Len() >= g.waiters {
		g.mu.Unlock()
		return 0, errFull
	}
	ready := make(chan time.Duration, 1)
	place := g.queue.PushBack(ready)
	g.mu.Unlock()

	select {
	case at := <-ready:
		return at, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case at := <-ready: // handed over just now: pass it on
		g.releaseLocked(max(at, now()))
	default:
		g.queue.Remove(place)
	}
	return 0, ctx.Err()
}

// release gives the place, from the given instant on, to the first in the queue.
func (g *gate) release(at time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.releaseLocked(at)
}

func (g *gate) releaseLocked(at time.Duration) {
	if first := g.queue.Front(); first != nil {
		g.queue.Remove(first)
		first.Value.(chan time.Duration) <- at
		return
	}
	g.inside--
}

// running returns how many are inside.
func (g *gate) running() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return int64(g.inside)
}

// waiting returns how many wait.
func (g *gate) waiting() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return int64(g.queue.Len())
}
