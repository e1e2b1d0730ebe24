// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"io"

	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/internal/splitmix"
	"github.com/moonloop/moonloop/mooncake"
)

// part is a piece of a body: bytes as they are, or, when raw is nil, n tokens that are made as they are read.
type part struct {
	raw []byte

	blocks

	from int64 // place of the first token among those that the blocks make
	n    int64 // tokens
}

// blocks are those that tokens are made of.
type blocks struct {
	ids    []uint64             // of the trace's blocks, or
	ranges []mooncake.HashRange // of the fine ones, unless it is nil
	first  int64                // number of the block that the first id or range stands for
	row    int64                // whose own blocks follow them
}

// scheme turns ids into bytes. It is the same for every body of a builder.
type scheme struct {
	alphabet
	seed  uint64
	block int       // tokens
	fine  int       // tokens of a fine block
	text  *Passages // what blocks are made of beside words; nil: nothing
}

// size returns the length of a part in bytes.
func (s *scheme) size(p *part) int64 {
	switch {
	case p.raw != nil || p.n == 0:
		return int64(len(p.raw))
	case s.ids:
		return p.n*int64(s.unit) - 1 // no comma after the last id
	}
	return p.n * int64(s.unit)
}

// body is a request's body: parts that stand one after the other. Nothing changes it, so any number of readers
// can be open on it.
type body struct {
	*scheme
	parts []part
	size  int64
}

func newBody(s *scheme, parts []part) send.Body {
	if s.text != nil {
		parts = s.withText(parts)
	}
	b := &body{scheme: s, parts: parts}
	for i := range parts {
		b.size += s.size(&parts[i])
	}
	return send.Body{Size: b.size, Open: func() io.Reader { return &reader{body: b, left: b.size} }}
}

// reader reads a body. It has no Seek method on purpose: a client that retries would rewind one reader under two
// attempts instead of opening a second.
type reader struct {
	*body
	part int   // being read
	off  int64 // in it
	left int64 // of the whole

	search fineBlocks // among those that were read last, unless they are of one range
}

// fineBlocks is a place in the ranges of fine blocks.
type fineBlocks struct {
	ranges []mooncake.HashRange
	span   int   // the range that was used last
	begun  int64 // number of its first block
}

// Len returns the number of bytes that are left.
func (r *reader) Len() int { return int(r.left) }

// Read implements [io.Reader]. Whatever the sizes of the reads, the bytes are the same.
func (r *reader) Read(p []byte) (n int, err error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	for n < len(p) && r.left > 0 {
		at := &r.parts[r.part]
		size := r.scheme.size(at)
		if r.off == size {
			r.part, r.off = r.part+1, 0
			continue
		}
		var got int
		if at.raw != nil {
			got = copy(p[n:], at.raw[r.off:])
		} else {
			got = r.generate(p[n:], at, size)
		}
		n += got
		r.off += int64(got)
		r.left -= int64(got)
	}
	return n, nil
}

// fineSalt keeps the ids of fine blocks apart from those of the trace's blocks: they are numbers of their own, and both kinds
// of rows may be in one trace.
const fineSalt = 0x8f3a1d5c97e6b042

// generate writes what p has room for of the blocks from the reader's position on.
func (r *reader) generate(p []byte, at *part, size int64) (n int) {
	tokens, c := r.block, &r.search
	if at.ranges != nil {
		tokens = r.fine
	}
	block := int64(tokens * r.unit)
	p = p[:min(int64(len(p)), size-r.off)]
	off := at.from*int64(r.unit) + r.off
	k, in := off/block, off%block
	// Parts of a conversation are of the same ranges, but for the last block of an earlier row: the search goes on where it was.
	same := len(at.ranges) > 0 && len(c.ranges) == len(at.ranges) && &at.ranges[0] == &c.ranges[0]
	if at.ranges != nil && (!same || k < c.begun) {
		if len(at.ranges) == 1 {
			c = new(fineBlocks)
		}
		*c = fineBlocks{ranges: at.ranges, begun: at.first}
	}
	for n < len(p) {
		id := c.block(&at.blocks, k)
		to := p[n:min(int64(len(p)), int64(n)+block-in)]
		r.write(to, splitmix.Mix(id^r.seed), int(in))
		n += len(to)
		k, in = k+1, 0
	}
	return n
}

// block returns the id of block k of a part; of fine ones k is no less than before.
func (c *fineBlocks) block(of *blocks, k int64) uint64 {
	id := privateID(of.row, k)
	if i := k - of.first; of.ranges != nil {
		return c.id(k, id)
	} else if i < int64(len(of.ids)) {
		return of.ids[i]
	}
	return id
}

// id returns the id of block k, which is no earlier than those before, or private behind the ranges.
func (c *fineBlocks) id(k int64, private uint64) uint64 {
	for c.span < len(c.ranges) && k >= c.begun+c.ranges[c.span].Count {
		c.begun += c.ranges[c.span].Count
		c.span++
	}
	if c.span == len(c.ranges) {
		return private
	}
	return (c.ranges[c.span].First + uint64(k-c.begun)) ^ fineSalt //nolint:gosec // not negative: the reader goes forward
}

// privateID returns the id of block k of a prompt where no id of the trace reaches: a bijection of row and k, so
// that no two rows share one, and spread over all 64 bits, so that it meets one of n ids of a trace with a
// probability of n/2^64. Both are below 2^32. It depends on nothing else, so every shard of a replay agrees on it.
func privateID(row, k int64) uint64 {
	return splitmix.Mix((uint64(row)<<32 | uint64(k)) ^ 0x6d6f6f6e6c6f6f70) //nolint:gosec // bits, not numbers
}
