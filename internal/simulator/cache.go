// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"container/list"
	"slices"
	"sync"
)

// blockCache is the block prefix cache, by the definition in the package comment. An id stands for a block and
// all blocks before it. Safe for concurrent use.
type blockCache struct {
	capacity int // blocks; 0 is infinite

	mu      sync.Mutex
	blocks  map[uint64]*list.Element // by id; nil elements in an infinite cache
	recency list.List                // of ids, the most recent first
	evicted int64
}

func newBlockCache(capacity int) *blockCache {
	return &blockCache{capacity: capacity, blocks: make(map[uint64]*list.Element)}
}

// admit looks ids up and commits them in one step. It returns the length of the longest resident prefix.
func (c *blockCache) admit(ids []uint64) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.prefix(ids)
	c.touch(ids)
	return k
}

// lookup returns the length of the longest resident prefix and touches that prefix.
func (c *blockCache) lookup(ids []uint64) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.prefix(ids)
	c.touch(ids[:k])
	return k
}

// commit makes all ids resident.
func (c *blockCache) commit(ids []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.touch(ids)
}

// reset drops everything.
func (c *blockCache) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.blocks)
	c.recency.Init()
}

// counts returns the number of resident and of evicted blocks.
func (c *blockCache) counts() (resident int, evicted int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.blocks), c.evicted
}

// prefix returns the number of leading ids that are resident.
func (c *blockCache) prefix(ids []uint64) int {
	for i, id := range ids {
		if _, ok := c.blocks[id]; !ok {
			return i
		}
	}
	return len(ids)
}

// touch inserts ids or makes them most recent, from the last to the first, so that the root becomes the most recent. Only then it evicts.
// So a prompt longer than the cache evicts its own tail.
func (c *blockCache) touch(ids []uint64) {
	if c.capacity == 0 {
		for _, id := range ids {
			c.blocks[id] = nil
		}
		return
	}
	for _, id := range slices.Backward(ids) {
		if block, ok := c.blocks[id]; ok {
			c.recency.MoveToFront(block)
		} else {
			c.blocks[id] = c.recency.PushFront(id)
		}
	}
	for len(c.blocks) > c.capacity {
		delete(c.blocks, c.recency.Remove(c.recency.Back()).(uint64))
		c.evicted++
	}
}
