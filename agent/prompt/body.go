// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"io"

	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/internal/splitmix"
	"github.com/moonloop/moonloop/mooncake"
)

// part is a piece of a body: raw bytes, or, if raw is nil, n tokens that are generated as they are read.
type part struct {
	raw []byte

	*blocks

	from int64 // position of the first token, among those that the blocks generate
	n    int64 // tokens
}

// blocks are the blocks from which tokens are generated. The parts of a row share them.
type blocks struct {
	ids    []uint64             // of the trace's blocks, if ranges is nil
	ranges []mooncake.HashRange // of the fine blocks
	first  int64                // number of the block of the first id or range
	row    int64                // index of the row whose private blocks follow
}

// scheme converts ids to bytes. It is the same for every body of a builder.
type scheme struct {
	alphabet
	seed  uint64
	block int       // tokens
	fine  int       // tokens of a fine block
	text  *Passages // text of blocks, in addition to words; nil: none
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

// body is a request's body: a sequence of parts. It is never changed, so any number of readers can be open on it.
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

// reader reads a body. It deliberately has no Seek method: a client that retries would rewind one reader shared by two attempts instead of
// opening a second one.
type reader struct {
	*body
	part int   // the current one
	off  int64 // in the current part
	left int64 // of the whole body

	search fineBlocks // the position among the current ranges
}

// fineBlocks is a position in the ranges of fine blocks.
type fineBlocks struct {
	ranges []mooncake.HashRange
	span   int   // the range that was used last
	begun  int64 // number of its first block
}

// Len returns the number of bytes that are left.
func (r *reader) Len() int { return int(r.left) }

// Read implements [io.Reader]. The bytes do not depend on the sizes of the reads.
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

// fineSalt separates the ids of fine blocks from those of the trace's blocks: their numbers are unrelated, and both kinds of rows may be in
// one trace.
const fineSalt = 0x8f3a1d5c97e6b042

// generate fills p with the blocks from the reader's position on.
func (r *reader) generate(p []byte, at *part, size int64) (n int) {
	tokens, c := r.block, &r.search
	if at.ranges != nil {
		tokens = r.fine
	}
	block := int64(tokens * r.unit)
	p = p[:min(int64(len(p)), size-r.off)]
	off := at.from*int64(r.unit) + r.off
	k, in := off/block, off%block
	// The parts of a conversation use the same ranges, except for the last block of an earlier row, so the search continues from the last
	// position.
	same := len(at.ranges) > 0 && len(c.ranges) == len(at.ranges) && &at.ranges[0] == &c.ranges[0]
	if at.ranges != nil && (!same || k < c.begun) {
		if len(at.ranges) == 1 {
			c = new(fineBlocks)
		}
		*c = fineBlocks{ranges: at.ranges, begun: at.first}
	}
	for n < len(p) {
		id := c.block(at.blocks, k)
		to := p[n:min(int64(len(p)), int64(n)+block-in)]
		r.write(to, splitmix.Mix(id^r.seed), int(in))
		n += len(to)
		k, in = k+1, 0
	}
	return n
}

// block returns the id of block k of a part; for fine blocks, k must not decrease.
func (c *fineBlocks) block(of *blocks, k int64) uint64 {
	id := privateID(of.row, k)
	if i := k - of.first; of.ranges != nil {
		return c.id(k, id)
	} else if i < int64(len(of.ids)) {
		return of.ids[i]
	}
	return id
}

// id returns the id of block k, which must not decrease, or a private id after the ranges.
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

// privateID returns the id of block k of a prompt beyond the trace's ids. Row and k are below 2^32. The id is a bijection of the two, so no
// two rows share an id. It is spread over all 64 bits, so it equals one of n ids of a trace with a probability of n/2^64. It depends on
// nothing else, so all shards of a replay agree on it.
func privateID(row, k int64) uint64 {
	return splitmix.Mix((uint64(row)<<32 | uint64(k)) ^ 0x6d6f6f6e6c6f6f70) //nolint:gosec // bits, not numbers
}
