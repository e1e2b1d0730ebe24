// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// upload is a request while it comes, and the room that it takes until it is done. The memory for what has come of it
// is held before anything is known of its sender's speed, so it is lent: where another request finds no room, those
// lose theirs that come slowly.
type upload struct {
	gate  *Gate
	begun time.Time
	stop  func() // ends the reading of it; called once at most, not with gate.mu held, and not after leave

	stopping sync.Mutex // held while stop runs
	left     bool       // within stopping

	got atomic.Int64 // bytes that have come

	// Within gate.mu.
	room  int64    // bytes held
	ended *refusal // why it is not read any more; nil while it is
}

// An upload is slow when less has come of it than this rate would have brought, in bytes a second, since its first second.
const (
	slowRate  = 64 << 10
	slowAfter = time.Second
)

// lookAgain is how long slow uploads are not looked for after there were too few of them: with many uploads each look costs.
const lookAgain = 5 * time.Millisecond

// begin notes a request that begins to come. Of a gate that was shut down it has ended already.
func (g *Gate) begin(stop func()) *upload {
	u := &upload{gate: g, begun: time.Now(), stop: stop}
	g.mu.Lock()
	stopped := g.stopped
	if stopped {
		u.ended = errStopping
	} else {
		g.uploads[u] = struct{}{}
	}
	g.mu.Unlock()
	if stopped {
		stop()
	}
	return u
}

// take takes room, or returns why there is none.
func (u *upload) take(bytes int64) *refusal {
	g := u.gate
	g.mu.Lock()
	refused, slow := g.take(u, bytes)
	g.mu.Unlock()
	stopAll(slow)
	return refused
}

// take is upload.take with g.mu held. It returns the uploads that lost their room for it.
func (g *Gate) take(u *upload, bytes int64) (refused *refusal, slow []*upload) {
	switch {
	case u.ended != nil:
		return u.ended, nil
	case u.room+bytes > g.opt.Limit:
		return errTooLarge, nil
	}
	if missing := g.used + bytes - g.opt.Limit; missing > 0 {
		if slow = g.slowest(missing, u); slow == nil {
			return errBusy, nil
		}
		for _, s := range slow {
			g.end(s, errSlow)
		}
	}
	u.room += bytes
	g.used += bytes
	return nil, slow
}

// slowest returns the slowest uploads that hold a number of bytes together, nil if all slow ones hold less. g.mu is held.
func (g *Gate) slowest(bytes int64, but *upload) (list []*upload) {
	now := time.Now()
	if now.Before(g.nextLook) {
		return nil
	}
	behind := func(u *upload) float64 {
		return slowRate*(now.Sub(u.begun)-slowAfter).Seconds() - float64(u.got.Load())
	}
	for u := range g.uploads {
		if u != but && u.room > 0 && behind(u) > 0 {
			list = append(list, u)
		}
	}
	slices.SortFunc(list, func(a, b *upload) int { return cmp.Compare(behind(b), behind(a)) })
	for n, u := range list {
		if bytes -= u.room; bytes <= 0 {
			return list[:n+1]
		}
	}
	g.nextLook = now.Add(lookAgain)
	return nil
}

// end ends the reading of an upload, whose room is free from now on. g.mu is held; stopAll has to follow.
func (g *Gate) end(u *upload, why *refusal) {
	delete(g.uploads, u)
	g.used -= u.room
	u.room, u.ended = 0, why
}

// stopAll stops the reading of uploads that have ended.
func stopAll(list []*upload) {
	for _, u := range list {
		u.halt()
	}
}

// halt stops the reading, unless its handler has left.
func (u *upload) halt() {
	u.stopping.Lock()
	defer u.stopping.Unlock()
	if !u.left {
		u.stop()
	}
}

// leave is done for a handler that returns: what stop works on is its server's again.
func (u *upload) leave() {
	u.done()
	u.stopping.Lock()
	u.left = true
	u.stopping.Unlock()
}

// late ends an upload whose time is over.
func (u *upload) late() {
	u.gate.mu.Lock()
	_, coming := u.gate.uploads[u]
	if coming {
		u.gate.end(u, errSlow)
	}
	u.gate.mu.Unlock()
	if coming {
		u.halt()
	}
}

// whole notes that all of it has come, so that it is not ended any more, or returns why it was.
func (u *upload) whole() *refusal {
	u.gate.mu.Lock()
	defer u.gate.mu.Unlock()
	delete(u.gate.uploads, u)
	return u.ended
}

// giveBack gives some of its room back.
func (u *upload) giveBack(bytes int64) {
	u.gate.mu.Lock()
	defer u.gate.mu.Unlock()
	bytes = min(bytes, u.room) // none where it was ended
	u.room -= bytes
	u.gate.used -= bytes
}

// done gives all room back. It may be called again.
func (u *upload) done() {
	u.gate.mu.Lock()
	defer u.gate.mu.Unlock()
	delete(u.gate.uploads, u)
	u.gate.used -= u.room
	u.room = 0
}

// adopt takes over the room of another upload, which is done then.
func (u *upload) adopt(other *upload) {
	u.gate.mu.Lock()
	defer u.gate.mu.Unlock()
	if u.ended == nil {
		u.room += other.room
	} else {
		u.gate.used -= other.room
	}
	other.room = 0
}
