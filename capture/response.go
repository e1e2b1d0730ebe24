// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// maxShared is the number of spans that one request can have at one time. A response id that more of them share is
// none: some servers give the same one to every reply.
const maxShared = 64

// responseKey is the length of the key of byResponse: response id, start, trace id, span id.
const responseKey = 16 + 8 + 24

// request passes on a request of step 3. Those of production that have a response id may still be one with others, which
// a failed one can tell what they lack.
func (c *compiler) request(p *partition, r *Inference) error {
	switch none := r.Response == (Response{}); {
	case none && r.Failed:
		return nil
	case none || p.Replay:
		return c.place(p, r)
	}
	c.enc = r.appendTo(c.enc[:0])
	c.key = append(c.key[:0], r.Response[:]...)
	c.key = appendTime(c.key, r.Start)
	c.key = append(append(c.key, r.Span.TraceID[:]...), r.Span.SpanID[:]...)
	return c.byResponse.add(c.key, c.enc)
}

// appendTime appends a time so that bytes sort like times.
func appendTime(dst []byte, t int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(t)^1<<63) //nolint:gosec // the bit pattern
}

// cluster is requests of one response id with overlapping times.
type cluster struct {
	response Response
	end      int64
	alone    *decoded // the only one so far; most response ids are of one span
	members  []member // all of several
	many     bool     // too many: they go by one by one
}

type member struct {
	length int64 // ns
	failed bool
	at     place
}

// joinResponses makes one request of those that have the same response id and overlapping times.
func (c *compiler) joinResponses() error {
	var cl cluster
	d, spare := new(decoded), new(decoded)
	err := c.byResponse.each(c.ctx, func(b []byte) error {
		if err := d.decode(b[responseKey:]); err != nil {
			return err
		}
		if d.Response != cl.response || d.Start > cl.end {
			if err := c.join(&cl); err != nil {
				return err
			}
			cl = cluster{response: d.Response, end: d.end(), alone: d, members: cl.members[:0]}
			d, spare = spare, d
			return nil
		}
		cl.end = max(cl.end, d.end())
		if cl.many {
			return c.placeServed(&d.Inference)
		}
		if err := c.admit(&cl, d); err != nil || len(cl.members) <= maxShared {
			return err
		}
		cl.many = true
		c.lost.add(lostResponse, 1)
		for _, m := range cl.members {
			if err := c.loadMember(m, d); err != nil {
				return err
			}
			if err := c.placeServed(&d.Inference); err != nil {
				return err
			}
		}
		cl.members = cl.members[:0]
		return nil
	})
	if err != nil {
		return err
	}
	return c.join(&cl)
}

// admit adds a member to a cluster that has one.
func (c *compiler) admit(cl *cluster, d *decoded) error {
	for _, r := range []*decoded{cl.alone, d} {
		if r == nil {
			continue
		}
		c.enc = r.appendTo(c.enc[:0])
		at, err := c.tree.pool.put(c.enc)
		if err != nil {
			return err
		}
		cl.members = append(cl.members, member{r.end() - r.Start, r.Failed, at})
	}
	cl.alone = nil
	return nil
}

func (c *compiler) loadMember(m member, d *decoded) error {
	b, err := c.tree.pool.get(m.at)
	if err != nil {
		return err
	}
	return d.decode(b)
}

// placeServed passes on a request of production unless it failed, which has been counted.
func (c *compiler) placeServed(r *Inference) error {
	if r.Failed {
		return nil
	}
	return c.place(c.part(Partition{}), r)
}

// join makes one request of a cluster: the shortest that did not fail, which is the nearest to the engine; what it
// lacks comes from the next longer one that has it.
func (c *compiler) join(cl *cluster) error {
	if cl.alone != nil {
		return c.placeServed(&cl.alone.Inference)
	}
	defer c.tree.pool.reset() // idle since the last trace
	// Sorted by start, trace id and span id before.
	slices.SortStableFunc(cl.members, func(a, b member) int { return cmp.Compare(a.length, b.length) })
	best := slices.IndexFunc(cl.members, func(m member) bool { return !m.failed })
	if best < 0 {
		return nil
	}
	d, other := &c.tree.leaf, &c.tree.other
	if err := c.loadMember(cl.members[best], d); err != nil {
		return err
	}
	p := c.part(Partition{})
	for i, m := range cl.members {
		if i == best {
			continue
		}
		if !m.failed {
			p.Merged++
		}
		if err := c.loadMember(m, other); err != nil {
			return err
		}
		if o := &other.Inference; !m.failed && d.Start < o.Start { // it was sent before it was received
			c.differs(d.Clock, o.Clock, o.Start-d.Start)
			d.shift(o.Start-d.Start, o.Clock)
		}
		d.complete(&other.Inference)
	}
	for _, m := range cl.members {
		if err := c.loadMember(m, other); err != nil {
			return err
		}
		c.models.said(other.Model, d.model())
	}
	return c.place(p, &d.Inference)
}

// complete takes every field that r lacks from another span of the same request.
func (r *decoded) complete(o *Inference) {
	for f, lacks := range [fromCount]bool{
		fromPrompt: !r.known() && o.known(), fromFirstToken: !r.FirstToken.Set, fromModel: r.Model.IsZero(),
		fromInput: r.InputTokens.V <= 0, fromOutput: !r.OutputTokens.Set, fromCached: !r.CachedTokens.Set,
		fromAnswered: r.Answered.IsZero(), fromEstimate: !r.OutputEstimate.Set,
	} {
		if lacks {
			r.fill(f, o)
		}
	}
	if r.Session == 0 {
		r.Session = o.Session
	}
	r.Remote = r.Remote || o.Remote
}
