// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

// This file makes blocks of real text. A block begins with the words that encode its id, so that two ids never have the same text. Segments
// of the text follow, as many as fit, from a position that the id determines. The remaining tokens, fewer than a segment can have, are
// invented words of the block. So each block has exactly its number of tokens.

import (
	"errors"
	"fmt"
	"math/bits"
	"sort"

	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/internal/splitmix"
)

const (
	// MaxSegmentTokens is the maximum number of tokens of a segment: up to this many minus one are invented at a block's end.
	MaxSegmentTokens = 8
	// MaxTextBlock is the maximum size of a block of text, in tokens.
	MaxTextBlock = 1 << 16
	// LeastText is the minimum number of tokens of a text.
	LeastText = 1 << 10
)

// ErrPassages is wrapped by every error of [NewPassages].
var ErrPassages = errors.New("text cannot be used for prompts")

// Passages is a real text for prompts: segments, each of which has the same number of tokens after every other segment and after every word
// of a [Lexicon]. It is never changed.
type Passages struct {
	text   []byte   // in the form of a JSON string's content
	ends   []uint32 // of the segments in the text
	tokens []uint32 // of the text up to the end of each segment
	starts int      // number of segments with which a passage may begin: the first segments are repeated after them, so that passages can continue
}

// NewPassages makes passages from a text: order has the indices of its segments, and tokens has the number of tokens of each segment. It
// leaves out segments without tokens or with more than [MaxSegmentTokens]. A segment begins with a space.
func NewPassages(order []uint32, segments []string, tokens []int) (*Passages, error) {
	t := new(Passages)
	quoted := make([][]byte, len(segments))
	add := func(at uint32) {
		if quoted[at] == nil {
			quoted[at] = inner(nil, segments[at])
		}
		before := uint32(0)
		if n := len(t.tokens); n > 0 {
			before = t.tokens[n-1]
		}
		t.text = append(t.text, quoted[at]...)
		t.ends = append(t.ends, uint32(len(t.text)))           //nolint:gosec // bounded by the caller's order
		t.tokens = append(t.tokens, before+uint32(tokens[at])) //nolint:gosec // at most MaxSegmentTokens
	}
	var used []uint32
	for _, at := range order {
		if n := tokens[at]; n >= 1 && n <= MaxSegmentTokens {
			used = append(used, at)
			add(at)
		}
	}
	t.starts = len(used)
	if n := t.Tokens(); n < LeastText {
		return nil, fmt.Errorf("%w: only %d of its tokens are usable; at least %d are needed", ErrPassages, n, LeastText)
	}
	end := t.tokens[t.starts-1] + MaxTextBlock
	for i := 0; t.tokens[len(t.tokens)-1] < end; i++ {
		add(used[i%len(used)])
	}
	return t, nil
}

// Tokens returns the number of tokens of the text.
func (t *Passages) Tokens() int64 {
	if t.starts == 0 {
		return 0
	}
	return int64(t.tokens[t.starts-1])
}

// start returns the position in the text, in tokens, at which the passage of a block begins. x is derived from the block's id and the seed.
func (t *Passages) start(x uint64) uint32 {
	at, _ := bits.Mul64(splitmix.Next(x), uint64(t.starts)) //nolint:gosec // not negative
	if at == 0 {
		return 0
	}
	return t.tokens[at-1]
}

// between returns the segments between two positions of the text, as bytes, and the positions of their first token and after their last
// one.
func (t *Passages) between(from, to uint32) (text []byte, first, end uint32) {
	i, begin := 0, uint32(0)
	if from > 0 {
		i = 1 + sort.Search(len(t.tokens), func(i int) bool { return t.tokens[i] >= from })
		first, begin = t.tokens[i-1], t.ends[i-1]
	}
	j := i + sort.Search(len(t.tokens)-i, func(k int) bool { return t.tokens[i+k] > to })
	if j == i {
		return nil, from, from
	}
	return t.text[begin:t.ends[j-1]], first, t.tokens[j-1]
}

// withText returns the parts, with real text in place of most of the generated words.
func (s *scheme) withText(parts []part) []part {
	var out []part
	var search fineBlocks
	for i := range parts {
		if parts[i].raw != nil || parts[i].n == 0 {
			out = append(out, parts[i])
			continue
		}
		out = s.passages(out, &parts[i], &search)
	}
	return out
}

// passages appends the parts that replace one generated part.
func (s *scheme) passages(out []part, p *part, search *fineBlocks) []part {
	size, header := int64(s.block), int64(s.header/s.unit)
	if p.ranges != nil {
		size = int64(s.fine)
	}
	own := len(out) // index of the first part that replaces p
	words := func(from, to int64) {
		if from >= to {
			return
		}
		if n := len(out) - 1; n >= own && out[n].raw == nil { // joins the words at the end of a block to those at the beginning of the next
			out[n].n += to - from
			return
		}
		out = append(out, part{blocks: p.blocks, from: from, n: to - from})
	}
	*search = fineBlocks{ranges: p.ranges, begun: p.first}
	for at, end := p.from, p.from+p.n; at < end; {
		k := at / size
		block := k * size
		stop := min(end, block+size)
		words(at, min(stop, block+header))
		if at = max(at, block+header); at < stop {
			base := s.text.start(splitmix.Mix(search.block(p.blocks, k) ^ s.seed))
			place := func(at int64) uint32 { return base + uint32(at-block-header) } //nolint:gosec // below MaxTextBlock
			text, first, last := s.text.between(place(at), place(stop))
			if len(text) > 0 {
				from := at + int64(first-place(at))
				words(at, from)
				out = append(out, part{raw: text})
				at = from + int64(last-first)
			}
			words(at, stop)
		}
		at = stop
	}
	return out
}

// Text describes the text blocks of a builder.
type Text struct {
	// Invented is the share of their tokens that are invented words: those that encode the id, and those at the ends.
	Invented float64
}

// DescribeText measures sample blocks. The result is zero without a text.
func (b *Builder) DescribeText() (d Text) {
	if b.scheme.text == nil {
		return d
	}
	const sample = 256
	invented, all := int64(0), int64(sample)*int64(b.scheme.block)
	ids := make([]uint64, sample)
	for i := range ids {
		ids[i] = calibrationID + uint64(i)
	}
	for _, p := range b.scheme.withText([]part{{blocks: &blocks{ids: ids}, n: all}}) {
		invented += p.n
	}
	d.Invented = float64(invented) / float64(all)
	return d
}

// TextCheck returns a request whose prompt has n tokens of text, not counting those of the template, in blocks that the trace does not
// have; see [Builder.Calibration].
func (b *Builder) TextCheck(model string, n int64) (req send.Request) {
	ids := make([]uint64, n/int64(b.scheme.block)+1)
	for i := range ids {
		ids[i] = calibrationID + 1<<22 + uint64(i)
	}
	return b.measuring(model, b.join(nil, nil, b.turn("user", true, part{blocks: &blocks{ids: ids}, n: n})))
}
