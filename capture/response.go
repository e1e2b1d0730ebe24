// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// maxShared is the maximum number of spans of one request at one time. A response id that more of them share is ignored, as is one of
// requests that are certainly different: some servers give the same one to every reply.
const maxShared = 64

// responseKey is the length of the key of byResponse: response id, start, trace id, span id. The partition's index follows, then
// the record.
const (
	responseKey   = 16 + 8 + 24
	responseIndex = 4
)

// request passes on a request of step 3. Requests with a response id may still be joined with others. A failed one may complete them,
// and, if a replay sent it, shows that they belong to the replay.
func (c *compiler) request(p *partition, r *journal.Inference) error {
	if r.Response == (journal.Response{}) {
		return c.acceptServed(p, r)
	}
	c.key = append(c.key[:0], r.Response[:]...)
	c.key = appendTime(c.key, r.Start)
	c.key = append(append(c.key, r.Span.TraceID[:]...), r.Span.SpanID[:]...)
	c.enc = journal.AppendRecord(binary.BigEndian.AppendUint32(c.enc[:0], p.index), r)
	return c.byResponse.add(c.key, c.enc)
}

// appendTime appends a time in a form whose bytes sort like times.
func appendTime(dst []byte, t int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(t)^1<<63) //nolint:gosec // the bit pattern
}

// cluster is requests of one response id with overlapping times.
type cluster struct {
	response journal.Response
	end      int64
	alone    *journal.Decoder // the only one so far; most response ids are of one span
	part     *partition
	members  []member // all of them, if there are several
	many     bool     // too many: they are processed separately
}

type member struct {
	part   *partition
	length int64 // ns
	failed bool
	row    bool // of a replay
	at     slot

	trace    [16]byte
	producer uint64 // 0: unknown
	input    mooncake.Opt[int64]
}

// differs reports whether two members are certainly different requests: one instrumentation of one service counted different prompts, in
// different OTel traces.
func (m *member) differs(o *member) bool {
	return m.producer != 0 && m.producer == o.producer && m.trace != o.trace && m.input.Set && o.input.Set && m.input.V != o.input.V
}

// mixed reports whether a cluster has different requests, because a server gives the same response id to all.
func (cl *cluster) mixed() bool {
	for i := range cl.members {
		if slices.ContainsFunc(cl.members[:i], func(o member) bool { return o.differs(&cl.members[i]) }) {
			return true
		}
	}
	return false
}

// joinResponses joins requests with the same response id and overlapping times.
func (c *compiler) joinResponses() error {
	var cl cluster
	d, spare := new(journal.Decoder), new(journal.Decoder)
	err := c.byResponse.each(c.ctx, func(b []byte) error {
		p := c.list[binary.BigEndian.Uint32(b[responseKey:])]
		if err := d.Decode(b[responseKey+responseIndex:]); err != nil {
			return err
		}
		if d.Response != cl.response || d.Start > cl.end {
			if err := c.join(&cl); err != nil {
				return err
			}
			cl = cluster{response: d.Response, end: endOf(&d.Inference), alone: d, part: p, members: cl.members[:0]}
			d, spare = spare, d
			return nil
		}
		cl.end = max(cl.end, endOf(&d.Inference))
		if cl.many {
			return c.acceptServed(p, &d.Inference)
		}
		if err := c.admit(&cl, p, d); err != nil || len(cl.members) <= maxShared {
			return err
		}
		cl.many = true
		c.lost.add(lostResponse, 1)
		return c.separate(&cl, d)
	})
	if err != nil {
		return err
	}
	return c.join(&cl)
}

// separate passes on the members of a cluster, each as a request of its own. d is overwritten.
func (c *compiler) separate(cl *cluster, d *journal.Decoder) error {
	for _, m := range cl.members {
		if err := c.loadMember(m, d); err != nil {
			return err
		}
		if err := c.acceptServed(m.part, &d.Inference); err != nil {
			return err
		}
	}
	cl.members = cl.members[:0]
	return nil
}

// admit adds a member to a cluster that has one already.
func (c *compiler) admit(cl *cluster, p *partition, d *journal.Decoder) error {
	if first := cl.alone; first != nil {
		cl.alone = nil
		if err := c.admit(cl, cl.part, first); err != nil {
			return err
		}
	}
	c.enc = journal.AppendRecord(c.enc[:0], &d.Inference)
	at, err := c.tree.pool.put(c.enc)
	cl.members = append(cl.members, member{
		part: p, length: endOf(&d.Inference) - d.Start, failed: d.Failed, row: d.Row.Set, at: at,
		trace: d.Span.TraceID, producer: d.Producer, input: d.InputTokens,
	})
	return err
}

func (c *compiler) loadMember(m member, d *journal.Decoder) error {
	b, err := c.tree.pool.get(m.at)
	if err != nil {
		return err
	}
	return d.Decode(b)
}

// acceptServed passes on a request, unless it failed, belongs to a replay but is not a row, or belongs to an unwanted trace: such requests
// have been counted.
func (c *compiler) acceptServed(p *partition, r *journal.Inference) error {
	if r.Failed || p.Replay && !r.Row.Set || !p.wanted(c.opt.Replays) {
		return nil
	}
	return c.accept(p, r)
}

// join makes one request of a cluster: the shortest that did not fail, because it is nearest to the engine; missing values come from the
// next longer one that has them. If a replay made the request, it belongs to the replay, and its row is known.
func (c *compiler) join(cl *cluster) error {
	if cl.alone != nil {
		return c.acceptServed(cl.part, &cl.alone.Inference)
	}
	defer c.tree.pool.reset() // idle since the last trace
	if slices.ContainsFunc(cl.members, func(m member) bool { return m.part.Replay }) {
		return c.joinReplay(cl)
	}
	if cl.mixed() {
		c.lost.add(lostMixed, 1)
		return c.separate(cl, &c.tree.leaf)
	}
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
		if o := &other.Inference; !m.failed && d.Start < o.Start { // it must have been sent before it was received
			c.differs(d.Clock, o.Clock, o.Start-d.Start)
			shift(&d.Inference, o.Start-d.Start, o.Clock)
		}
		complete(d, &other.Inference)
	}
	for _, m := range cl.members {
		if err := c.loadMember(m, other); err != nil {
			return err
		}
		c.stands(&d.Inference, other.Step)
		c.models.said(other.Model, modelOf(&d.Inference))
	}
	return c.accept(p, &d.Inference)
}

// joinReplay passes on the rows of a replay. Spans of the same requests that counted as production, because a gateway or an engine did not
// continue the replay's trace, become spans of the replay: no user sent these requests.
func (c *compiler) joinReplay(cl *cluster) error {
	d := &c.tree.leaf
	of, row := cl.members[slices.IndexFunc(cl.members, func(m member) bool { return m.part.Replay })].part, false
	for _, m := range cl.members {
		row = row || m.row
	}
	for _, m := range cl.members {
		if !m.part.Replay {
			c.move(m, of, row)
			continue
		}
		if err := c.loadMember(m, d); err != nil {
			return err
		}
		if err := c.acceptServed(m.part, &d.Inference); err != nil {
			return err
		}
	}
	return nil
}

// move counts a span of production for a replay instead. row says whether the replay has a row of its request.
func (c *compiler) move(m member, to *partition, row bool) {
	m.part.Spans--
	to.Spans++
	if m.failed {
		m.part.lost.remove(lostFailed)
	}
	switch {
	case !to.wanted(c.opt.Replays):
		to.lost.add(lostPolicy, 1)
	case !row:
		to.lost.add(lostNoRow, 1)
	case m.failed:
		to.lost.add(lostFailed, 1)
	default:
		to.Merged++
	}
}

// complete takes every field that r lacks from another span of the same request.
func complete(r *journal.Decoder, o *journal.Inference) {
	has := fieldsOf(&r.Inference)
	for f, other := range fieldsOf(o) {
		if other && !has[f] {
			fill(r, f, o)
		}
	}
	if r.Session == 0 {
		r.Session = o.Session
	}
	if r.Step.ID == 0 {
		r.Step = o.Step
	}
	if r.Class.IsZero() {
		r.Class = o.Class
	}
	if !r.Priority.Set {
		r.Priority = o.Priority
	}
	if len(r.Tools.Made)+len(r.Tools.Given) == 0 {
		r.Tools = o.Tools
	}
	r.Remote = r.Remote || o.Remote
}
