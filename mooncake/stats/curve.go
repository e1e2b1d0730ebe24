// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"sort"

	"github.com/moonloop/moonloop/mooncake"
)

// curve counts the hits of caches of all sizes, without simulating each. A cache hits a block if it has that block and all blocks of the
// prompt before it; that is, if its size is above the greatest rank among these blocks. So each hit token is counted under the smallest
// cache, in blocks, that hits it (Mattson, Gecsei, Slutz, Traiger, 1970).
type curve struct {
	blockSize int
	largest   int     // above this many blocks, a cache is treated as infinite
	by        []int64 // hit tokens, by the size in blocks of the smallest cache that hits them
	rows      int64
	tokens    int64 // of all prompts
	ceiling   int64 // hit tokens of the infinite cache
}

// restart resets the counts. The caches keep their content.
func (c *curve) restart() { *c = curve{blockSize: c.blockSize, largest: c.largest} }

// add counts a row. Candidates are the blocks that the infinite cache may have; hit is the number of those that this cache has.
func (c *curve) add(row *mooncake.Row, candidates []uint64, hit int, lru *recency) {
	n := row.InputLength.V
	c.rows++
	c.tokens += n
	c.ceiling += min(int64(hit)*int64(c.blockSize), n)
	need := 0
	for i, block := range candidates {
		rank := lru.rank(block)
		if rank == math.MaxInt {
			return
		}
		if need = max(need, rank+1); need >= len(c.by) {
			c.by = append(c.by, make([]int64, need+1-len(c.by))...)
		}
		c.by[need] += int64(mooncake.BlockFill(n, c.blockSize, i))
	}
}

// sums returns, for each number of blocks, the tokens that a cache of this size hits.
func (c *curve) sums() []int64 {
	sums, sum := make([]int64, len(c.by)), int64(0)
	for i, n := range c.by {
		sum += n
		sums[i] = sum
	}
	return sums
}

// smallest returns the size in blocks of the smallest cache that hits this many tokens; 0 if none is known.
func smallest(sums []int64, tokens float64) int {
	at := sort.Search(len(sums), func(i int) bool { return float64(sums[i]) >= tokens })
	if at == len(sums) {
		return 0
	}
	return at
}
