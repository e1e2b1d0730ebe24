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

// upload is a request while it comes, and the memory that is reserved for it until it is done. The memory for what has come of it
// is reserved before anything is known of its sender's speed, so it is lent: where another request finds no room, those
// lose theirs that come slowly.
type upload struct {
	gate  *Gate
	begun time.Time
	stop  func() // ends the reading of it; called once at most, not with gate.mu held, and not after detach

	stopping sync.Mutex // held while stop runs
	detached bool       // within stopping

	got atomic.Int64 // bytes that have come

	// Within gate.mu.
	reserved int64    // bytes
	ended    *refusal // why it is not read any more, or not decoded; nil while it is
	counted  bool     // that it was refused
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
	defer g.unlock()
	if g.stopped {
		g.end(u, errStopping)
	} else {
		g.uploads[u] = struct{}{}
	}
	return u
}

// reserve reserves memory, or returns why there is none. Others may lose theirs for it.
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

// slowest returns the slowest uploads for which a number of bytes is reserved together, nil if it is less for all slow ones. g.mu is held.
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

// end ends the reading of an upload, whose memory is free from now on. g.mu is held, and released by unlock.
func (g *Gate) end(u *upload, why *refusal) {
	delete(g.uploads, u)
	g.used -= u.reserved
	u.reserved, u.ended = 0, why
	g.halting = append(g.halting, u)
}

// unlock unlocks g.mu, and then stops the reading of what has ended.
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

// detach is done for a handler that returns: what stop works on is its server's again.
func (u *upload) detach() {
	u.free()
	u.stopping.Lock()
	u.detached = true
	u.stopping.Unlock()
}

// expire ends an upload whose time is over, if not all of it has come.
func (u *upload) expire() {
	u.gate.mu.Lock()
	defer u.gate.unlock()
	if _, coming := u.gate.uploads[u]; coming {
		u.gate.end(u, errSlow)
	}
}

// received notes that all of it has come, so that it is not ended any more, or returns why it was.
func (u *upload) received() *refusal {
	u.gate.mu.Lock()
	defer u.gate.unlock()
	delete(u.gate.uploads, u)
	return u.ended
}

// release releases some of its memory.
func (u *upload) release(bytes int64) {
	u.gate.mu.Lock()
	defer u.gate.unlock()
	bytes = min(bytes, u.reserved) // none where it was ended
	u.reserved -= bytes
	u.gate.used -= bytes
}

// free releases all of its memory, at its end. It may be called again.
func (u *upload) free() {
	_ = u.received()
	u.release(u.gate.opt.Limit)
}

// adopt takes over what another upload has: its memory, or why it was refused and counted. The other one is done then.
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
