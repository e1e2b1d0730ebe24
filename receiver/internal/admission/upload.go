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

// upload is a request that is arriving, and the memory that is reserved for it until it is done. Memory is reserved before the sender's
// speed is known, so it is only lent: if another request finds no room, slow uploads lose their memory.
type upload struct {
	gate  *Gate
	begun time.Time
	stop  func() // ends its reading; called at most once, not with gate.mu locked, and not after detach

	stopping sync.Mutex // locked while stop runs
	detached bool       // guarded by stopping

	got atomic.Int64 // bytes received

	// Guarded by gate.mu:
	reserved int64    // bytes
	ended    *refusal // why it is no longer read, or not decoded; nil while it is
	counted  bool     // it was counted as refused
}

// An upload is slow if it has received fewer bytes than slowRate, in bytes a second, would have brought since the end of its first second.
const (
	slowRate  = 64 << 10
	slowAfter = time.Second
)

// lookAgain is the pause after a search that found too few slow uploads, because with many uploads a search is expensive.
const lookAgain = 5 * time.Millisecond

// begin records a request that begins to arrive. After Shutdown it has ended already.
func (g *Gate) begin(stop func()) *upload {
	u := &upload{gate: g, begun: time.Now(), stop: stop}
	g.mu.Lock()
	defer g.unlock()
	if g.stopped {
		g.end(u, errStopping)
	} else {
		g.uploads[u] = struct{}{}
	}
	return u
}

// reserve reserves memory, or returns why there is none. Other uploads may lose theirs for it.
func (u *upload) reserve(bytes int64) *refusal {
	g := u.gate
	g.mu.Lock()
	defer g.unlock()
	switch {
	case u.ended != nil:
		return u.ended
	case u.reserved+bytes > g.opt.Limit:
		return errTooLarge
	}
	if missing := g.used + bytes - g.opt.Limit; missing > 0 {
		slow := g.slowest(missing, u)
		if slow == nil {
			return errBusy
		}
		for _, s := range slow {
			g.end(s, errSlow)
		}
	}
	u.reserved += bytes
	g.used += bytes
	return nil
}

// slowest returns the slowest uploads that together have reserved a number of bytes, nil if all slow ones have less. g.mu must be locked.
func (g *Gate) slowest(bytes int64, but *upload) (list []*upload) {
	now := time.Now()
	if now.Before(g.nextLook) {
		return nil
	}
	behind := func(u *upload) float64 {
		return slowRate*(now.Sub(u.begun)-slowAfter).Seconds() - float64(u.got.Load())
	}
	for u := range g.uploads {
		if u != but && u.reserved > 0 && behind(u) > 0 {
			list = append(list, u)
		}
	}
	slices.SortFunc(list, func(a, b *upload) int { return cmp.Compare(behind(b), behind(a)) })
	for n, u := range list {
		if bytes -= u.reserved; bytes <= 0 {
			return list[:n+1]
		}
	}
	g.nextLook = now.Add(lookAgain)
	return nil
}

// end ends the reading of an upload; its memory is free from now on. g.mu must be locked, and is unlocked by unlock.
func (g *Gate) end(u *upload, why *refusal) {
	delete(g.uploads, u)
	g.used -= u.reserved
	u.reserved, u.ended = 0, why
	g.halting = append(g.halting, u)
}

// unlock unlocks g.mu, and then stops the reading of ended uploads.
func (g *Gate) unlock() {
	halting := g.halting
	g.halting = nil
	g.mu.Unlock()
	for _, u := range halting {
		u.halt()
	}
}

// halt stops the reading, unless its handler has returned.
func (u *upload) halt() {
	u.stopping.Lock()
	defer u.stopping.Unlock()
	if !u.detached {
		u.stop()
	}
}

// detach is called when a handler returns: from then on stop must not be called.
func (u *upload) detach() {
	u.free()
	u.stopping.Lock()
	u.detached = true
	u.stopping.Unlock()
}

// expire ends an upload whose time is over, if it has not arrived completely.
func (u *upload) expire() {
	u.gate.mu.Lock()
	defer u.gate.unlock()
	if _, coming := u.gate.uploads[u]; coming {
		u.gate.end(u, errSlow)
	}
}

// received records that the upload has arrived completely, so that nothing ends it from now on, or returns why it was ended.
func (u *upload) received() *refusal {
	u.gate.mu.Lock()
	defer u.gate.unlock()
	delete(u.gate.uploads, u)
	return u.ended
}

// release releases some of the upload's memory.
func (u *upload) release(bytes int64) {
	u.gate.mu.Lock()
	defer u.gate.unlock()
	bytes = min(bytes, u.reserved) // 0 if it was ended
	u.reserved -= bytes
	u.gate.used -= bytes
}

// free releases all of its memory, at its end. It may be called again.
func (u *upload) free() {
	_ = u.received()
	u.release(u.gate.opt.Limit)
}

// adopt takes the memory of another upload, or its refusal, which has been counted. The other upload is done then.
func (u *upload) adopt(other *upload) {
	u.gate.mu.Lock()
	defer u.gate.unlock()
	u.got.Store(other.got.Load())
	if u.ended == nil {
		u.reserved += other.reserved
	} else {
		u.gate.used -= other.reserved
	}
	other.reserved = 0
	if other.ended != nil {
		u.ended, u.counted = other.ended, true
	}
}
