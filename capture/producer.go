// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import "github.com/moonloop/moonloop/capture/journal"

// What one span shows of all that its producer writes: whether its counts leave out the cached tokens, and whether its clock
// differs from those of its clients. It is gathered over all records before the first row is made.

// maxProducers bounds the producers and the clocks that something is known of; of those past it nothing is.
const maxProducers = 1 << 16

// producer is who counts tokens: an instrumentation in a service, of one model.
type producer struct {
	id    uint64
	model journal.Name
}

// learn takes what a record shows.
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
		c.exclusive = nil // whatever the order of the records
	}
}

// whole adds the cached tokens to a count of a producer that leaves them out, where that count does not show it.
func (c *compiler) whole(d *journal.Decoder) {
	if d.Exclusive || d.Row.Set || d.Producer == 0 || !d.InputTokens.Set || !c.exclusive[producer{d.Producer, d.Model}] {
		return
	}
	d.InputTokens.V += max(d.CachedTokens.V, 0) + max(d.CacheWriteTokens.V, 0)
	d.Exclusive = true
}

// sameClock is how far apart two clocks may seem, in ns, and be one: some producers round to a millisecond.
const sameClock = 5e6

// timed finds the instants of a request by the clock of whoever sent it: a span that lies outside of the one above it has
// another clock. Of requests that only such a clock saw the instant is uncertain.
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

// differs notes that a clock shows an instant that another one shows this many ns later.
func (c *compiler) differs(clock, other uint64, by int64) {
	if clock == 0 || clock == other || by <= sameClock && by >= -sameClock || c.skewed == nil {
		return
	}
	if c.skewed[clock] = true; len(c.skewed) > maxProducers {
		c.skewed = nil // as of producers
	}
}
