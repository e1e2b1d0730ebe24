// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"slices"

	"github.com/moonloop/moonloop/capture/journal"
)

// Spans show properties of all spans of their producer: whether its counts exclude cached tokens, and whether its clock differs from those
// of its clients. They are collected over all records before the first row is made.

const (
	// maxClocks and maxProducers are the maximum numbers of clocks and of producers for which something is remembered.
	maxClocks    = 1 << 16
	maxProducers = 1 << 14
	// maxSampled is the maximum number of spans by which a producer is judged. With maxProducers, they need 32 MiB.
	maxSampled = 256
)

// producer is a source of token counts: an instrumentation in a service, for one model.
type producer struct {
	id    uint64
	model journal.Name
}

// learn adds the evidence of a record.
func (c *compiler) learn(d *journal.Decoder) {
	if d.Kind != journal.KindInference {
		return
	}
	if c.runs.add(&d.Inference, c.opt.MaxRuns); d.Row.Set || !d.Run.IsZero() {
		return
	}
	c.models.said(d.Model, d.Answered)
	c.models.told(&d.Inference)
	if d.Producer == 0 || !d.InputTokens.Set || cachedIn(d) == 0 || c.counting == nil {
		return
	}
	p := producer{d.Producer, d.Model}
	all := c.counting[p]
	if !all.add(stepID(d.Span.TraceID, d.Span.SpanID), d.Exclusive) {
		return
	}
	if c.counting[p] = all; len(c.counting) > maxProducers {
		c.counting = nil // so that the result does not depend on the order of records
	}
}

// cachedIn returns how many tokens of a prompt were in the cache, or were written to it.
func cachedIn(d *journal.Decoder) int64 {
	return max(d.CachedTokens.V, 0) + max(d.CacheWriteTokens.V, 0)
}

// counting is a sample of a producer's spans that report cached tokens: hashes of at most maxSampled spans, ascending. The last bit of each
// says whether the span's count of prompt tokens excluded the cached ones. The spans are those with the smallest hashes, so the sample
// depends only on which spans there are: not on their order, on how many journals have one, or on shards.
type counting []uint64

// add adds a span by its hash, and reports whether the sample has more spans, or others, than before. If records of one span differ, one
// whose count excluded cached tokens counts.
func (n *counting) add(hash uint64, exclusive bool) (changed bool) {
	hash &^= 1
	i, _ := slices.BinarySearch(*n, hash)
	if i == maxSampled {
		return false
	}
	if changed = i == len(*n) || (*n)[i]&^1 != hash; changed {
		*n = slices.Insert((*n)[:min(len(*n), maxSampled-1)], i, hash)
	}
	if exclusive {
		(*n)[i] |= 1
	}
	return changed
}

// excludes reports whether a producer's counts of prompt tokens exclude the cached ones: at least two of its spans, and a tenth of those
// that report cached tokens, have more of these than prompt tokens. One such span may be wrong. mixed is true if other spans do not show it.
func (n counting) excludes() (yes, mixed bool) {
	exclusive := 0
	for _, span := range n {
		exclusive += int(span & 1)
	}
	return exclusive >= 2 && 10*exclusive >= len(n), 0 < exclusive && exclusive < len(n)
}

// judge decides for each producer whether its counts exclude cached tokens, once all records are read.
func (c *compiler) judge() {
	c.exclusive = make(map[producer]bool, len(c.counting))
	for p, n := range c.counting {
		if yes, mixed := n.excludes(); yes || mixed {
			c.exclusive[p] = yes
		}
	}
}

// whole adds the cached tokens to a record's prompt tokens if the spans of its producer show that the producer's counts exclude them. It
// returns what the sidecar counts: a changed count, or one that was changed before, by itself, and does not show this; else nothing.
func (c *compiler) whole(d *journal.Decoder) (changed loss) {
	exclusive, doubted := c.exclusive[producer{d.Producer, d.Model}]
	switch more := cachedIn(d); {
	case !doubted || d.Row.Set || !d.Run.IsZero() || !d.InputTokens.Set || more == 0:
	case !exclusive && d.Exclusive:
		return lostUnlike
	case exclusive && !d.Exclusive:
		d.InputTokens.V += more
		d.Exclusive = true
		return lostExclusive
	}
	return loss{}
}

// sameClock is the maximum difference, in ns, of two clocks that may be the same one: some producers round to a millisecond.
const sameClock = 5e6

// timed converts the times of a request to the clock of its sender: a span outside the time of its parent has another clock. The time of
// requests that only such a clock recorded is uncertain.
func (t *tree) timed(n *node) {
	n.offset = 0
	if n.above < 0 || n.row {
		return
	}
	p := &t.nodes[n.above]
	if p.row || p.start == 0 || n.start == 0 {
		return
	}
	from, to := p.start+p.offset, p.end+p.offset
	if n.start >= from && n.start <= max(from, to) {
		return
	}
	n.offset = from - n.start
	t.c.differs(n.clock, p.clock, n.offset)
	n.clock = p.clock
}

// differs records that a clock is ahead of another one by this many ns.
func (c *compiler) differs(clock, other uint64, by int64) {
	if clock == 0 || clock == other || by <= sameClock && by >= -sameClock || c.skewed == nil {
		return
	}
	if c.skewed[clock] = true; len(c.skewed) > maxClocks {
		c.skewed = nil // as for producers
	}
}
