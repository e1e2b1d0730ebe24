// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"slices"
	"sync"
)

// blockCache is the block prefix cache, by the definition in the package comment. Its ids stand for a block and
// all blocks before it. Safe for concurrent use.
type blockCache struct {
	capacity int // blocks; 0 is infinite

	mu      sync.Mutex
	slot    map[uint64]int32 // id → index into nodes; 0 in an infinite cache
	nodes   []cacheNode      // nodes[0] is the ring's anchor: next is the least, prev the most recent
	evicted int64
}

type cacheNode struct {
	id         uint64
	prev, next int32
}

func newBlockCache(capacity int) *blockCache {
	return &blockCache{capacity: capacity, slot: make(map[uint64]int32), nodes: make([]cacheNode, 1)}
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
	clear(c.slot)
	c.nodes = append(c.nodes[:0], cacheNode{})
}

// counts returns the number of resident and of evicted blocks.
func (c *blockCache) counts() (resident int, evicted int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.slot), c.evicted
}

// prefix returns the number of leading ids that are resident.
func (c *blockCache) prefix(ids []uint64) int {
	for i, id := range ids {
		if _, ok := c.slot[id]; !ok {
			return i
		}
	}
	return len(ids)
}

// touch inserts ids or makes them most recent, the last first so that the root ends most recent, and only then
// evicts. A prompt longer than the cache so evicts its own tail.
func (c *blockCache) touch(ids []uint64) {
	if c.capacity == 0 {
		for _, id := range ids {
			c.slot[id] = 0
		}
		return
	}
	for _, id := range slices.Backward(ids) {
		n, ok := c.slot[id]
		if ok {
			c.unlink(n)
		} else {
			n = c.insert(id)
		}
		c.linkRecent(n)
	}
	for len(c.slot) > c.capacity {
		oldest := c.nodes[0].next
		c.unlink(oldest)
		delete(c.slot, c.nodes[oldest].id)
		c.free(oldest)
		c.evicted++
	}
}

func (c *blockCache) insert(id uint64) int32 {
	c.nodes = append(c.nodes, cacheNode{id: id})
	n := int32(len(c.nodes) - 1) //nolint:gosec // at most capacity plus one prompt's blocks, both below 2^30
	c.slot[id] = n
	return n
}

// free gives up an unlinked node by moving the last node into its place, so the slice stays dense.
func (c *blockCache) free(n int32) {
	last := int32(len(c.nodes) - 1) //nolint:gosec // see insert
	if n != last {
		moved := c.nodes[last]
		c.nodes[n] = moved
		c.nodes[moved.prev].next = n
		c.nodes[moved.next].prev = n
		c.slot[moved.id] = n
	}
	c.nodes = c.nodes[:last]
}

func (c *blockCache) unlink(n int32) {
	node := c.nodes[n]
	c.nodes[node.prev].next = node.next
	c.nodes[node.next].prev = node.prev
}

func (c *blockCache) linkRecent(n int32) {
	recent := c.nodes[0].prev
	c.nodes[n].prev, c.nodes[n].next = recent, 0
	c.nodes[recent].next = n
	c.nodes[0].prev = n
}
