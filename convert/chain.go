// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/moonloop/moonloop/mooncake"
)

// chain numbers blocks 0, 1, 2, ... by first appearance. A block is identified by its own ids and by the block before it. So if two prompts
// have the same number, they are the same up to the end of that block, whatever the file's ids mean. The zero chain is ready to use.
type chain struct {
	seeds [2]maphash.Seed
	known map[[2]uint64]uint64 // keyed by a hash of 128 bits, so collisions can be ignored
	next  uint64
	buf   []byte
}

// number merges the blocks of a prompt into larger ones, and returns the numbers of the merged blocks. The ids are those of the prompt's
// blocks in a scope. The two sizes, before and after merging, are in tokens, and the second one is a multiple of the first. Ids beyond the
// prompt's length are ignored. If there are too few ids, the end of the prompt gets no number.
func (c *chain) number(scope int, ids []uint64, small, large int, tokens int64) []uint64 {
	if c.known == nil {
		c.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
		c.known = make(map[[2]uint64]uint64)
	}
	blocks := mooncake.BlockCount(tokens, small)
	ids = ids[:min(len(ids), blocks)]
	whole := len(ids) == blocks
	per := large / small
	out := make([]uint64, 0, (len(ids)+per-1)/per)
	before := ^uint64(scope) //nolint:gosec // 0 or more; no block has the complement as its number
	for len(ids) > 0 {
		n := min(per, len(ids))
		if n < per && !whole {
			break // the ids of the rest of this block are missing
		}
		fill := min(int64(large), tokens-int64(len(out))*int64(large))
		before = c.block(before, fill, ids[:n])
		out = append(out, before)
		ids = ids[n:]
	}
	return out
}

// block returns the number of a block of as many tokens as fill says, which follows the block with the number before.
func (c *chain) block(before uint64, fill int64, ids []uint64) uint64 {
	c.buf = binary.LittleEndian.AppendUint64(c.buf[:0], before)
	c.buf = binary.LittleEndian.AppendUint64(c.buf, uint64(fill)) //nolint:gosec // above 0
	for _, id := range ids {
		c.buf = binary.LittleEndian.AppendUint64(c.buf, id)
	}
	key := [2]uint64{maphash.Bytes(c.seeds[0], c.buf), maphash.Bytes(c.seeds[1], c.buf)}
	n, known := c.known[key]
	if !known {
		n = c.next
		c.next++
		c.known[key] = n
	}
	return n
}

// maxFresh is the maximum number of new ids for one prompt: a length takes a few bytes of a file, but ids take 8 bytes each in memory.
const maxFresh = 1 << 20

// fresh returns new numbers for blocks that no other prompt has.
func (c *chain) fresh(blocks int) []uint64 {
	out := make([]uint64, blocks)
	for i := range out {
		out[i] = c.next
		c.next++
	}
	return out
}

// scope identifies a part of the input in which an id always stands for the same block: a file, or one of its conversations.
type scope struct{ input, part int }

// scopes numbers scopes from 0. The zero scopes is ready to use.
type scopes map[scope]int

func (s *scopes) of(k scope) int {
	if *s == nil {
		*s = scopes{}
	}
	n, known := (*s)[k]
	if !known {
		n = len(*s)
		(*s)[k] = n
	}
	return n
}
