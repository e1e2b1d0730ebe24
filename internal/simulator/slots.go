// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"slices"
	"sync"
)

// The limits of a [slotCache]: llama.cpp's.
const (
	slotSimilarity = 0.1  // share of a prompt that a slot must contain to be chosen for it
	slotKept       = 0.5  // share of a slot's content that must stay; otherwise the content is saved
	slotRestored   = 0.25 // share of saved content that a prompt must use; otherwise the content is not restored
)

// slotCache is the cache of llama.cpp: each of a few slots has the content of its last request, and a prompt can use what it shares with
// one slot. Contents are running block ids, as in [blockCache], so a common prefix is a common run of ids. The content that a slot is about
// to lose may be saved, and restored for a later prompt. Safe for concurrent use.
type slotCache struct {
	room int // maximum number of blocks in saved contents; 0 saves nothing

	mu      sync.Mutex
	slots   []slot
	saved   [][]uint64 // the oldest first
	used    int        // number of blocks in saved
	clock   int        // counts requests
	evicted int64
}

type slot struct {
	busy    bool
	last    int // value of clock when it was last released
	content []uint64
}

func newSlotCache(slots, room int) *slotCache {
	return &slotCache{slots: make([]slot, slots), room: room}
}

// acquire gives a prompt a free slot (there must be one). It returns the slot's number and how many of the prompt's leading blocks the slot
// already had.
func (c *slotCache) acquire(ids []uint64) (number, hit int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	number = c.choose(ids)
	s := &c.slots[number]
	hit = common(s.content, ids)
	s.busy, s.content = true, ids
	return number, hit
}

// choose returns the free slot that contains the largest share of a prompt, or, if none contains enough, the one that was released first.
// If the prompt keeps too little of the slot's content, that content is saved, and replaced by the saved one that serves the prompt better,
// if there is one.
func (c *slotCache) choose(ids []uint64) int {
	best, most := -1, 0.0
	for i, s := range c.slots {
		if s.busy || len(s.content) == 0 {
			continue
		}
		if share := float64(common(s.content, ids)) / float64(max(1, len(ids))); share > most && share > slotSimilarity {
			best, most = i, share
		}
	}
	if best >= 0 && most*float64(len(ids)) >= slotKept*float64(len(c.slots[best].content)) {
		return best
	}
	if best < 0 {
		for i, s := range c.slots {
			if !s.busy && (best < 0 || s.last <= c.slots[best].last) {
				best = i
			}
		}
	}
	s := &c.slots[best]
	c.save(s.content)
	s.content = c.restore(s.content, ids)
	return best
}

// save keeps the content that a slot is about to lose.
func (c *slotCache) save(content []uint64) {
	if len(content) == 0 || len(content) > c.room {
		c.evicted += int64(len(content))
		return
	}
	if slices.ContainsFunc(c.saved, func(s []uint64) bool { return common(s, content) == len(content) }) {
		return
	}
	c.drop(func(s []uint64) bool { return common(s, content) == len(s) })
	for c.used+len(content) > c.room {
		c.used -= len(c.saved[0])
		c.evicted += int64(len(c.saved[0]))
		c.saved = slices.Delete(c.saved, 0, 1)
	}
	c.saved, c.used = append(c.saved, content), c.used+len(content)
}

// restore returns the saved content that serves a prompt best, and removes it from the saved ones. If none is better than the slot's own
// content, it returns that.
func (c *slotCache) restore(own, ids []uint64) []uint64 {
	shares := func(content []uint64) (kept, served float64) {
		n := float64(common(content, ids))
		return n / float64(max(1, len(content))), n / float64(max(1, len(ids)))
	}
	kept, served := shares(own)
	if len(own) == 0 {
		kept = -1
	}
	best := -1
	for i, s := range c.saved {
		if k, f := shares(s); k >= slotRestored && k > kept && f > served {
			best, kept, served = i, k, f
		}
	}
	if best < 0 {
		return own
	}
	content := c.saved[best]
	c.used -= len(content)
	c.saved = slices.Delete(c.saved, best, best+1)
	return content
}

func (c *slotCache) drop(which func([]uint64) bool) {
	c.saved = slices.DeleteFunc(c.saved, func(s []uint64) bool {
		if !which(s) {
			return false
		}
		c.used -= len(s)
		return true
	})
}

// release frees a slot, which keeps the given content.
func (c *slotCache) release(number int, content []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	c.slots[number] = slot{last: c.clock, content: content}
}

// reset drops everything. The content of a busy slot is known again when the slot is released.
func (c *slotCache) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saved, c.used = nil, 0
	for i := range c.slots {
		c.slots[i].content = nil
	}
}

// counts returns the number of resident and of lost blocks.
func (c *slotCache) counts() (resident int, evicted int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	resident = c.used
	for _, s := range c.slots {
		resident += len(s.content)
	}
	return resident, c.evicted
}

// common returns the length of the longest common prefix.
func common(a, b []uint64) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
