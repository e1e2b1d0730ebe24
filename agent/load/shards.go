// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

// This file divides the rows of a trace between shards that do not talk to each other. Each reads the whole trace and comes to the
// same division, which is a function of the trace and of the options: [Counts].Plan tells whether two shards agree.

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/moonloop/moonloop/mooncake"
)

// MaxShards is the number of shards beyond which no shard is looked for that has less than the others: as many as an Indexed Job of
// Kubernetes has.
const MaxShards = 100_000

const (
	// maxGroups bounds, twice, the groups whose shard is known. A group of which nothing has come for this many others may come to
	// another shard: in all shards the same one, so that no row is lost or sent twice.
	maxGroups = 1 << 21
	// maxRemembered is the number of rows, the last ones, of which is known whether another shard has them.
	maxRemembered = 1 << 20
)

// division gives each group of rows that belong together a shard, and all its rows with it: the one that has the least of the rows
// and tokens so far. So shards have equal parts of any stretch of the trace, as far as no group is larger than that.
type division struct {
	own, of int
	block   int // tokens per id
	trunk   *mooncake.Trunk
	groups  recent[groupKey, *share]
	parts   []part // of the shards that have a group
	rows    float64
	tokens  float64
	largest share // of the groups of the own shard
	remembered
}

// newDivision begins a division with the rows of the look-ahead, which show the trunk where the sidecar does not name it. Blocks that
// more rows have than a shard is to have belong to it, too.
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

// groupKey is a group: of what kind, and which one. A session and a block of one number are two groups.
type groupKey struct {
	block bool
	n     uint64
}

// share is what a group has.
type share struct {
	shard  int
	rows   int64
	tokens int64
}

// part is what a shard has.
type part struct{ rows, tokens float64 }

// assign says whether the row belongs to the own shard. Rows come in file order.
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

// least is the shard whose greater share, of the rows or of the tokens, is the least with a row of this many tokens.
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

// rowTokens is what a row weighs: the tokens of its prompt and its reply, of a text that is not counted a guess.
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

// remembered knows of the last rows which ones are other shards'.
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

// elsewhere reports whether another shard has a row, as far as that is known.
func (r *remembered) elsewhere(index int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return index >= max(0, r.next-maxRemembered) && index < r.next && r.bits[index%maxRemembered/64]>>(index%64)&1 != 0
}

// Elsewhere reports whether the row of an index is another shard's. Of rows that lie more than a million rows back, and of those
// that have not been read, it knows nothing. It may be called at any time.
func (s *Stream) Elsewhere(index int64) bool { return s.division != nil && s.division.elsewhere(index) }

// Parts is what a shard has of the schedule.
type Parts struct {
	Rows, Tokens       int64 // of all shards
	OwnRows, OwnTokens int64
	// LargestRows and LargestTokens are those of the own shard's largest group: a session, a graph, or rows that share their first
	// block below the trunk. In them are rows that the window or the limit leaves out.
	LargestRows, LargestTokens int64
	// Plan is a digest of the schedule: of each row, its offset and its shard. Shards that do not have equal ones are not parts of
	// one schedule. 0 where the trace was not read to the end of the schedule.
	Plan uint64
}

// tally notes a row of the schedule.
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

// tallied closes the tally at the end of the schedule.
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
