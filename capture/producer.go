// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import "github.com/moonloop/moonloop/capture/journal"

// One span shows properties of all spans of its producer: whether its counts exclude cached tokens, and whether its clock differs from
// those of its clients. They are collected over all records before the first row is made.

// maxProducers is the maximum number of producers and clocks for which something is remembered.
const maxProducers = 1 << 16

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
	if !d.Exclusive || d.Producer == 0 || c.exclusive == nil {
		return
	}
	if c.exclusive[producer{d.Producer, d.Model}] = true; len(c.exclusive) > maxProducers {
		c.exclusive = nil // so that the result does not depend on the order of records
	}
}

// whole adds the cached tokens to a record's prompt tokens if other records of its producer show that the producer's counts exclude them. It
// reports whether that changed the count: one wrong record is such a proof, too, so the sidecar says how many counts changed.
func (c *compiler) whole(d *journal.Decoder) (changed bool) {
	if d.Exclusive || d.Row.Set || d.Producer == 0 || !d.InputTokens.Set || !c.exclusive[producer{d.Producer, d.Model}] {
		return false
	}
	more := max(d.CachedTokens.V, 0) + max(d.CacheWriteTokens.V, 0)
	d.InputTokens.V += more
	d.Exclusive = true
	return more > 0
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
	if c.skewed[clock] = true; len(c.skewed) > maxProducers {
		c.skewed = nil // as for producers
	}
}
