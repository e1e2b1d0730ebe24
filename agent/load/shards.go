// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

// This file divides the rows of a trace between shards that do not communicate. Each reads the whole trace and computes the same division,
// which depends only on the trace and the options: [Parts].Plan shows whether two shards agree.

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/moonloop/moonloop/mooncake"
)

// MaxShards is the maximum number of shards: as many as an Indexed Job of Kubernetes can have.
const MaxShards = 100_000

const (
	// maxGroups is half the maximum number of groups whose shard is remembered. A group that had no rows while this many other groups had
	// some may be assigned again. All processes then assign it to the same shard, so that no row is lost or sent twice.
	maxGroups = 1 << 21
	// maxRemembered is the number of the most recent rows for which it is known whether they belong to another shard.
	maxRemembered = 1 << 20
)

// division assigns each group of rows that belong together, with all its rows, to a shard: to the one with the smallest share of rows and
// tokens so far. So shards have equal parts of any section of the trace, unless a group is larger than that.
type division struct {
	own, of int // the own shard, and the number of shards
	block   int // tokens per id
	trunk   *mooncake.Trunk
	groups  recent[groupKey, *share]
	parts   []part // of the shards that have a group
	rows    float64
	tokens  float64
	largest share // the largest group of the own shard
	remembered
}

// newDivision begins a division with the rows of the look-ahead. They show the trunk, if the sidecar does not have it. Blocks that more
// rows have than a shard should get also belong to the trunk.
func newDivision(opt Options, head []entry) *division {
	rows := make([][]uint64, 0, len(head))
	for _, e := range head {
		rows = append(rows, e.Blocks(opt.BlockSize))
	}
	return &division{
		own: opt.Shard, of: opt.Shards, block: opt.BlockSize, trunk: opt.Trunk.Of(rows, float64(len(rows))/float64(opt.Shards)),
		groups: recent[groupKey, *share]{most: maxGroups},
	}
}

// groupKey identifies a group by its kind and number. A session and a block with the same number are two groups.
type groupKey struct {
	block bool
	n     uint64
}

// share is the size of a group.
type share struct {
	shard  int
	rows   int64
	tokens int64
}

// part is the load of a shard.
type part struct{ rows, tokens float64 }

// assign sets the shard of a row. Rows must be passed in file order.
func (d *division) assign(e *entry) {
	tokens := rowTokens(e.Row)
	key := groupKey{n: e.group()}
	if len(e.after) == 0 && e.SessionID == "" && e.WaitFor == nil {
		if id, ok := d.trunk.Below(e.Blocks(d.block)); ok {
			key = groupKey{true, id}
		}
	}
	d.rows++
	d.tokens += float64(tokens)
	g, known := d.groups.get(key)
	if !known {
		g = &share{shard: d.least(float64(tokens))}
		d.groups.set(key, g)
	}
	g.rows++
	g.tokens += tokens
	p := &d.parts[g.shard]
	p.rows++
	p.tokens += float64(tokens)
	if e.shard = g.shard; g.shard == d.own && g.tokens > d.largest.tokens {
		d.largest = *g
	}
	d.remember(e.index, g.shard != d.own)
}

// least returns the shard whose greater share, of the rows or of the tokens, is the smallest after adding a row of this many tokens.
func (d *division) least(tokens float64) int {
	if n := len(d.parts); n < d.of && n < MaxShards {
		d.parts = append(d.parts, part{})
		return n
	}
	found, least := 0, [2]float64{}
	for i, p := range d.parts {
		rows, tokens := (p.rows+1)/d.rows, (p.tokens+tokens)/max(1, d.tokens)
		if worse := [2]float64{max(rows, tokens), min(rows, tokens)}; i == 0 || worse[0] < least[0] || worse[0] == least[0] && worse[1] < least[1] {
			found, least = i, worse
		}
	}
	return found
}

// rowTokens returns the weight of a row: the tokens of its prompt and its reply; for a text that is not counted, a guess.
func rowTokens(r *mooncake.Row) int64 {
	const (
		bytesPerToken = 4
		most          = 1 << 40 // so that no sum overflows
	)
	in := r.InputLength.V
	if !r.InputLength.Set {
		in = int64(len(r.TextInput.V)+len(r.Messages)+len(r.Tools)+len(r.Payload)) / bytesPerToken
	}
	return max(0, min(in, most)) + max(0, min(r.OutputLength.V, most))
}

// remembered records which of the last rows belong to other shards.
type remembered struct {
	mu   sync.Mutex
	bits []uint64
	next int64 // index
}

func (r *remembered) remember(index int64, elsewhere bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bits == nil {
		r.bits = make([]uint64, maxRemembered/64)
	}
	word, bit := &r.bits[index%maxRemembered/64], uint64(1)<<(index%64)
	*word &^= bit
	if elsewhere {
		*word |= bit
	}
	r.next = index + 1
}

// elsewhere reports whether another shard has a row, if that is known.
func (r *remembered) elsewhere(index int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return index >= max(0, r.next-maxRemembered) && index < r.next && r.bits[index%maxRemembered/64]>>(index%64)&1 != 0
}

// Elsewhere reports whether the row at an index belongs to another shard. It is false for rows more than a million rows back, and for rows
// that have not been read. It may be called at any time.
func (s *Stream) Elsewhere(index int64) bool { return s.division != nil && s.division.elsewhere(index) }

// Parts describes a shard's part of the schedule.
type Parts struct {
	Rows, Tokens       int64 // of all shards
	OwnRows, OwnTokens int64
	// LargestRows and LargestTokens are those of the own shard's largest group: a session, a graph, or rows that share their first block
	// after the trunk. They include rows outside the window or the limit.
	LargestRows, LargestTokens int64
	// Plan is a digest of the schedule: of the offset and the shard of each row. Shards with different digests do not belong to one
	// schedule. 0 if the trace was not read to the end of the schedule.
	Plan uint64
}

// tally adds a row to the digest of the schedule and to the counts.
func (s *Stream) tally(e *entry, offset time.Duration) {
	if s.plan == nil {
		s.plan = xxhash.New()
	}
	s.planned = mooncake.AppendRow(s.planned[:0], e.Row)
	for _, n := range []int64{e.index, int64(offset), int64(e.shard)} {
		s.planned = binary.LittleEndian.AppendUint64(s.planned, uint64(n)) //nolint:gosec // any bits
	}
	_, _ = s.plan.Write(s.planned) // never fails
	tokens := rowTokens(e.Row)
	s.count(func(c *Counts) {
		c.Parts.Rows++
		c.Parts.Tokens += tokens
		if e.shard == s.opt.Shard {
			c.Parts.OwnRows++
			c.Parts.OwnTokens += tokens
		} else {
			c.OtherShards++
		}
	})
}

// tallied completes the digest at the end of the schedule.
func (s *Stream) tallied() {
	if s.division == nil || s.plan == nil {
		return
	}
	l := s.division.largest
	s.count(func(c *Counts) {
		c.Parts.LargestRows, c.Parts.LargestTokens = l.rows, l.tokens
		if !c.Cut {
			c.Parts.Plan = s.plan.Sum64()
		}
	})
}
