// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/moonloop/moonloop/capture/journal"
)

const (
	// maxShared is the maximum number of spans of one request at one time. A response id that more of them share is ignored. It is also the
	// number of spans with one response id, at any time, that are compared with each other.
	maxShared = 64
	// maxOrigins is the maximum number of origins of spans with one response id that are told apart.
	maxOrigins = 32
)

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

// answer is the requests with one response id, in order of their starts. They are in clusters: those of a cluster overlap in time. Usually a
// cluster is the spans of one request: of an application, a gateway and an engine.
//
// Some servers give the same response id to several requests, or to all. Two spans of one origin show this, unless one is within the other,
// like those of two gateways in a row. Then a cluster is one request only if it has one span of each origin, if these counted the same prompt,
// and if its origins occur together in the other clusters, too: of an application and the gateway that records all its requests, the first
// never has more spans in a cluster than the second. Of two applications, each sometimes has more than the other. Failed attempts show
// nothing: the next attempt of the same request may have the same id.
type answer struct {
	response journal.Response
	alone    *journal.Decoder // the only request so far; most response ids are of one span
	part     *partition       // of that request
	members  []member         // if there are several: of all clusters; after maxShared of them, of the current cluster
	from     int              // the first member of the current cluster
	end      int64            // of the current cluster
	many     bool             // the current cluster has too many members, which are processed separately
	reused   bool             // several requests have this response id
	long     bool             // there were more than maxShared members

	origins []origin
	crowded bool               // more than maxOrigins
	met     uint32             // origins in clusters that have ended, by bit
	exceeds [maxOrigins]uint32 // for each origin, those of which a cluster that has ended has fewer spans
}

// origin is what records spans: one instrumentation of one service, or, if that is unknown, one clock.
type origin struct{ producer, clock uint64 }

type member struct {
	part   *partition
	start  int64
	length int64 // ns
	failed bool
	row    bool // of a replay
	first  bool // of its cluster
	at     slot

	origin int // its index; maxOrigins if there are too many
	input  int64
}

// lasts returns the duration of a span, in ns; that of a span without an end may be any.
func (m *member) lasts() int64 {
	if m.length == 0 {
		return math.MaxInt64
	}
	return m.length
}

// counts reports whether two spans may have counted the same prompt. Some producers write 0 for unknown.
func (m *member) counts(o *member) bool {
	return m.input <= 0 || o.input <= 0 || m.input == o.input
}

// within reports whether a span begins after another one, and ends before it does.
func (m *member) within(o *member) bool {
	return m.start > o.start && m.start+m.length < o.start+o.length
}

// origin returns the index of a request's origin.
func (a *answer) origin(r *journal.Inference) int {
	of := origin{producer: r.Producer}
	if r.Producer == 0 {
		of.clock = r.Clock
	}
	i := slices.Index(a.origins, of)
	if i >= 0 {
		return i
	}
	if len(a.origins) == maxOrigins {
		a.crowded = true
		return maxOrigins
	}
	i = len(a.origins)
	for other := range i {
		if a.met&(1<<other) != 0 {
			a.exceeds[other] |= 1 << i
		}
	}
	a.origins = append(a.origins, of)
	return i
}

// ended compares how many members each origin has in the current cluster, when it ends.
func (a *answer) ended() {
	var counts [maxOrigins + 1]int
	for _, m := range a.members[a.from:] {
		if !m.failed {
			counts[m.origin]++
		}
	}
	for i := range a.origins {
		for k := range a.origins {
			if counts[i] > counts[k] {
				a.exceeds[i] |= 1 << k
			}
		}
		if counts[i] > 0 {
			a.met |= 1 << i
		}
	}
}

// compare finds out whether several requests have this response id.
func (a *answer) compare() {
	for i := range a.members {
		m := &a.members[i]
		for k := range a.members[:i] {
			o := &a.members[k]
			if m.origin != o.origin || m.failed || o.failed {
				continue
			}
			if !m.within(o) && !o.within(m) || !m.counts(o) && a.knows(m.origin) {
				a.reused = true
				return
			}
		}
	}
}

// knows reports whether an origin is one producer: spans of unknown producers may be of several, which count differently.
func (a *answer) knows(origin int) bool {
	return origin < len(a.origins) && a.origins[origin].producer != 0
}

// one reports whether a cluster is one request.
func (a *answer) one(cluster []member) bool {
	if !a.reused {
		return true
	}
	for i := range cluster {
		m := &cluster[i]
		for k := range cluster[:i] {
			o := &cluster[k]
			if m.failed || o.failed {
				continue
			}
			if a.crowded || m.origin == o.origin || !m.counts(o) || a.exceeds[m.origin]&(1<<o.origin) != 0 && a.exceeds[o.origin]&(1<<m.origin) != 0 {
				return false
			}
		}
	}
	return true
}

// joinResponses joins requests with the same response id and overlapping times.
func (c *compiler) joinResponses() error {
	var a answer
	d, spare := new(journal.Decoder), new(journal.Decoder)
	err := c.byResponse.each(c.ctx, func(b []byte) error {
		p := c.list[binary.BigEndian.Uint32(b[responseKey:])]
		if err := d.Decode(b[responseKey+responseIndex:]); err != nil {
			return err
		}
		if d.Response != a.response {
			if err := c.finishAnswer(&a); err != nil {
				return err
			}
			a = answer{response: d.Response, end: endOf(&d.Inference), alone: d, part: p, members: a.members[:0], origins: a.origins[:0]}
			d, spare = spare, d
			return nil
		}
		return c.nextOfAnswer(&a, p, d)
	})
	if err != nil {
		return err
	}
	return c.finishAnswer(&a)
}

// nextOfAnswer adds a request to those with its response id. There is one already.
func (c *compiler) nextOfAnswer(a *answer, p *partition, d *journal.Decoder) error {
	if first := a.alone; first != nil {
		a.alone = nil
		if err := c.admit(a, a.part, first, true); err != nil {
			return err
		}
	}
	apart := d.Start > a.end
	if apart {
		if err := c.endCluster(a); err != nil {
			return err
		}
	}
	if a.end = max(a.end, endOf(&d.Inference)); a.many {
		return c.acceptServed(p, &d.Inference)
	}
	if err := c.admit(a, p, d, apart); err != nil {
		return err
	}
	switch {
	case len(a.members)-a.from > maxShared:
		if err := c.joinEnded(a); err != nil {
			return err
		}
		c.lost.add(lostResponse, 1)
		a.many = true
		err := c.separate(a.members)
		a.members = a.members[:0]
		c.tree.pool.reset()
		return err
	case len(a.members) > maxShared && !a.long:
		return c.joinEnded(a)
	}
	return nil
}

// endCluster ends the current cluster.
func (c *compiler) endCluster(a *answer) error {
	if a.many {
		a.many = false
		return nil
	}
	a.ended()
	a.from = len(a.members)
	if a.long {
		return c.joinEnded(a)
	}
	return nil
}

// joinEnded joins the members of clusters that have ended. What the spans so far showed counts.
func (c *compiler) joinEnded(a *answer) error {
	if a.long = len(a.members) > maxShared || a.long; a.long {
		a.reused = true // no request has so many spans
	} else {
		a.compare()
	}
	for rest := a.members[:a.from]; len(rest) > 0; {
		n := 1
		for n < len(rest) && !rest[n].first {
			n++
		}
		if err := c.join(a, rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	a.members, a.from = slices.Delete(a.members, 0, a.from), 0
	if len(a.members) == 0 {
		c.tree.pool.reset() // idle since the last trace
	}
	return nil
}

// finishAnswer joins what is left of the requests with one response id.
func (c *compiler) finishAnswer(a *answer) error {
	if a.alone != nil {
		return c.acceptServed(a.part, &a.alone.Inference)
	}
	if err := c.endCluster(a); err != nil {
		return err
	}
	return c.joinEnded(a)
}

// separate passes on members, each as a request of its own.
func (c *compiler) separate(members []member) error {
	d := &c.tree.leaf
	for _, m := range members {
		if err := c.loadMember(m, d); err != nil {
			return err
		}
		if err := c.acceptServed(m.part, &d.Inference); err != nil {
			return err
		}
	}
	return nil
}

// admit adds a member.
func (c *compiler) admit(a *answer, p *partition, d *journal.Decoder, first bool) error {
	c.enc = journal.AppendRecord(c.enc[:0], &d.Inference)
	at, err := c.tree.pool.put(c.enc)
	a.members = append(a.members, member{
		part: p, start: d.Start, length: endOf(&d.Inference) - d.Start, failed: d.Failed, row: d.Row.Set, first: first, at: at,
		origin: a.origin(&d.Inference), input: d.InputTokens.V,
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
func (c *compiler) join(a *answer, cluster []member) error {
	switch {
	case len(cluster) == 1:
		return c.separate(cluster)
	case slices.ContainsFunc(cluster, func(m member) bool { return m.part.Replay }):
		return c.joinReplay(cluster)
	case !a.one(cluster):
		c.lost.add(lostMixed, 1)
		return c.separate(cluster)
	}
	// Sorted by start, trace id and span id before.
	slices.SortStableFunc(cluster, func(a, b member) int { return cmp.Compare(a.lasts(), b.lasts()) })
	best := slices.IndexFunc(cluster, func(m member) bool { return !m.failed })
	if best < 0 {
		return nil
	}
	d, other := &c.tree.leaf, &c.tree.other
	if err := c.loadMember(cluster[best], d); err != nil {
		return err
	}
	p := c.part(Partition{})
	for i, m := range cluster {
		if i == best {
			continue
		}
		if !m.failed {
			p.Merged++
			p.MergedByResponse++
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
	for _, m := range cluster {
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
func (c *compiler) joinReplay(cluster []member) error {
	d := &c.tree.leaf
	of, row := cluster[slices.IndexFunc(cluster, func(m member) bool { return m.part.Replay })].part, false
	for _, m := range cluster {
		row = row || m.row
	}
	for _, m := range cluster {
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
		to.MergedByResponse++
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
