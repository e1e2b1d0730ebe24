// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"runtime"
	"slices"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

const (
	maxDamage = 100 // maximum number of stretches of damage, and of journals that were left out, that are listed
	// The limits of times in a trace of production, in ns: a clock that was never set would stretch it over decades.
	minStart = 946_684_800 * 1e9   // 2000-01-01
	maxStart = 7_258_118_400 * 1e9 // 2200-01-01
	// MaxTokens is the maximum number of tokens of a row of production, because ids are made for them.
	MaxTokens = 1 << 24 // and at most blockhash.MaxBlocks blocks
	// maxText is the maximum length of the text of a row in bytes, so that tokens and bytes can be multiplied: a sender may claim any number.
	maxText = 1 << 32
)

// compiler is the state of one call of Compile. Records move from sorter to sorter; see the package comment.
type compiler struct {
	ctx  context.Context //nolint:containedctx // a compiler lives as long as the call
	opt  Options
	sink Sink
	res  Result
	lost tally // for losses that belong to no partition

	parts map[Partition]*partition
	list  []*partition // by index; the first is production
	runs  runs

	byTrace    *sorter // all records
	byResponse *sorter // requests with a response id
	bySession  *sorter // requests with a session or with text
	byText     *sorter // requests whose text is known, by cells
	byOrder    *sorter // requests in the order of rows
	mask       mask
	prompted   bool      // some prompt of a session is known
	unseen     bool      // some prompt has no known reply
	replied    bool      // some reply is known
	thinned    bool      // ends of messages may have been left out
	cached     bool      // some row may have the tokens that its engine had cached
	fine       int       // tokens per fine block
	sharing    sharing   // of the current row; reused
	structured int64     // number of the next turn of a session without content
	firstText  int64     // number of the first prompt in the order of marks
	parted     bool      // some left-out ends are known from other prompts
	turned     bool      // other orders of prompts were tried
	ids        *distinct // block ids that are numbered one by one
	known      int64     // number of these, as other shards counted them
	bytes      int64     // of journals that were read
	maxInput   int64     // tokens of a row of production

	models    models
	engines   engines               // the evidence of production's engines about their caches
	followed  *sorter               // what rows share in their engine's order, by arrival
	counting  map[producer]counting // producers whose spans report cached tokens
	exclusive map[producer]bool     // those of them with a count that excludes cached tokens: whether all their counts do
	skewed    map[uint64]bool       // clocks that differ from that of a client

	others map[exchange]*sorter // for shards, see shard.go

	gone      map[uint64]gone // steps that did not become rows
	toolCalls toolCalls       // what the ids of tool calls showed

	tree  tree
	key   []byte
	enc   []byte
	cells []uint64 // of the current row
}

// Compile makes traces from journals: one for production and one for each run, through sink. It reads each journal once, in any order, and two
// at once, to its end; without a journal it returns an error. Damaged journals are compiled as far as they can be read, and counted; an error comes from
// reading, writing, or the context.
func Compile(ctx context.Context, opt Options, sink Sink, journals ...Source) (Result, error) {
	if err := cmp.Or(opt.complete(), some(journals)); err != nil {
		return Result{}, err
	}
	return compile(ctx, opt, sink, min(mostCores, runtime.GOMAXPROCS(0)), journals)
}

// some returns an error if there is no journal, because then no trace is made.
func some(journals []Source) error {
	if len(journals) == 0 {
		return errors.New("no journal to compile: give at least one, such as those of collect.Journals or a FileSource")
	}
	return nil
}

func newCompiler(ctx context.Context, opt Options, sink Sink) *compiler {
	share := opt.Memory / 8
	c := &compiler{
		ctx: ctx, opt: opt, sink: sink, lost: tally{}, parts: map[Partition]*partition{},
		byTrace:    newSorter(opt.TempDir, opt.Memory-5*share),
		byResponse: newSorter(opt.TempDir, share),
		bySession:  newSorter(opt.TempDir, share),
		byText:     newSorter(opt.TempDir, share),
		byOrder:    newSorter(opt.TempDir, share),
		followed:   newSorter(opt.TempDir, share),
		counting:   map[producer]counting{},
		skewed:     map[uint64]bool{},
		gone:       map[uint64]gone{},
		ids:        newDistinct(),
		fine:       FineBlockSizeOf(opt.BlockSize),
		maxInput:   min(MaxTokens, blockhash.MaxBlocks*int64(opt.BlockSize)),
	}
	for stage, s := range map[Stage]*sorter{
		StageGroup: c.byTrace, StageJoin: c.byResponse, StageTurns: c.bySession, StageText: c.byText, StageWrite: c.byOrder,
	} {
		s.stage, s.progress = stage, opt.Progress
	}
	c.tree = tree{c: c, pool: pool{dir: opt.TempDir, limit: share}}
	return c
}

func (c *compiler) close() {
	c.tree.pool.close()
	for _, s := range []*sorter{c.byTrace, c.byResponse, c.bySession, c.byText, c.byOrder, c.followed} {
		s.close()
	}
	for _, s := range c.others {
		s.close()
	}
}

// readAll sorts the records of all journals into the order of step 2.
func (c *compiler) readAll(journals []Source) error {
	for _, j := range journals {
		if err := c.read(j, inCompiled); err != nil {
			return err
		}
	}
	counted := c.res
	for _, beside := range []struct {
		journals []Source
		at       position
	}{{c.opt.Before, inBefore}, {c.opt.After, inAfter}} {
		for _, j := range beside.journals {
			if err := c.read(j, beside.at); err != nil {
				return err
			}
		}
	}
	c.res = counted
	c.lost.add(lostTorn, c.res.Torn.Records)
	c.lost.add(lostDamaged, c.res.DamageCount)
	return nil
}

// group makes requests from the records of each trace.
func (c *compiler) group() error {
	c.judge()
	err := c.byTrace.each(c.ctx, func(b []byte) error { return c.tree.record(b[partLength:]) })
	if err != nil {
		return err
	}
	return c.tree.finish()
}

// read reads one journal.
func (c *compiler) read(j Source, at position) error {
	progress := func(bytes int64) {
		if c.opt.Progress != nil {
			c.opt.Progress(StageRead, c.bytes+bytes, 0)
		}
	}
	found, err := j.Read(c.ctx, progress, func(b []byte, d *journal.Decoder) error {
		c.learn(d)
		trace, span := d.Span.TraceID, d.Span.SpanID
		if to := d.Joined; !to.IsZero() {
			// As if it belonged to the trace of its client, with an id that no span there has.
			own := sha256.Sum256(append(append(c.key[:0], trace[:]...), span[:]...))
			trace, span = to.TraceID, [8]byte(own[:8])
		}
		c.key = append(append(appendPart(c.key[:0], trace[:]), trace[:]...), span[:]...)
		c.key = append(c.key, c.rank(d), byte(255-d.Fields), byte(at)) //nolint:gosec // at most one for each tag
		return c.byTrace.add(c.key, b)
	})
	c.res.DamageCount += found.DamageCount
	c.res.DamageBytes += found.DamageBytes
	c.res.Damage = append(c.res.Damage, found.Damage[:min(len(found.Damage), maxDamage-len(c.res.Damage))]...)
	switch {
	case err != nil:
		return err
	case found.LeftOut != nil:
		if at == inCompiled {
			c.leaveOut(found.LeftOut)
		}
		return nil
	}
	c.res.Torn.Records += found.Torn.Records
	c.res.Torn.Bytes += found.Torn.Bytes
	if found.Torn.Records > 0 && len(c.res.TornIn) < maxDamage {
		c.res.TornIn = append(c.res.TornIn, j.Name)
	}
	c.bytes += found.Bytes
	c.res.Journals++
	return nil
}

// leaveOut counts a journal that was left out.
func (c *compiler) leaveOut(out *LeftOut) {
	one, size := lostForeign, lostForeignOf
	if out.Removed {
		one, size = lostRemoved, lostRemovedOf
	}
	c.lost.add(one, 1)
	c.lost.add(size, out.Bytes)
	if len(c.res.LeftOut) < maxDamage {
		c.res.LeftOut = append(c.res.LeftOut, *out)
	}
}

// rank returns the rank of a record among those of its span, of which the lowest is used, and counts the record by its kind.
func (c *compiler) rank(d *journal.Decoder) byte {
	switch {
	case d.Kind == journal.KindContent:
		c.res.Contents++
		return 2
	case d.Kind == journal.KindLink:
		c.res.Links++
		return 3
	case annotated(&d.Inference):
		c.res.Inferences++
		return 0
	}
	c.res.Inferences++
	return 1
}

// recordKey is the length of the key of byTrace after its part: trace id, span id, rank, number of missing fields, position.
const recordKey = 16 + 8 + 3

// position says where a journal is: among the compiled ones, or before or after them, see [Options].
type position byte

const (
	inBefore position = iota
	inCompiled
	inAfter
)

// runs are the runs that records name.
type runs struct {
	named    map[journal.Name]bool // at least the first MaxRuns of all, by name
	nameless bool                  // some row of a replay names no run
}

// add adds the run of a request.
func (r *runs) add(d *journal.Inference, most int) {
	if d.Run.IsZero() {
		r.nameless = r.nameless || d.Row.Set
		return
	}
	if r.named[d.Run] {
		return
	}
	if r.named == nil {
		r.named = map[journal.Name]bool{}
	}
	if r.named[d.Run] = true; len(r.named) > 2*most {
		for _, name := range r.sorted()[most:] {
			delete(r.named, name)
		}
	}
}

func (r *runs) sorted() []journal.Name {
	return slices.SortedFunc(maps.Keys(r.named), func(a, b journal.Name) int { return cmp.Compare(a.String(), b.String()) })
}

// partition makes the partitions after all records were read: those of the first runs by name. An index is the same whatever journals the
// records were in.
func (c *compiler) partition() {
	all := []Partition{{}}
	if c.runs.nameless {
		all = append(all, Partition{Replay: true})
	}
	for _, name := range c.runs.sorted() {
		all = append(all, Partition{Replay: true, Run: name})
	}
	for i, p := range all[:min(len(all), 1+c.opt.MaxRuns)] {
		known := &partition{maxInput: c.maxInput, index: uint32(i), lost: tally{}, TraceResult: TraceResult{Partition: p}}
		c.parts[p] = known
		c.list = append(c.list, known)
	}
}

// part returns a partition; nil if there are too many.
func (c *compiler) part(p Partition) *partition {
	known := c.parts[p]
	if known != nil {
		known.met = true
	}
	return known
}

func (c *compiler) result() Result {
	res := c.res
	res.Dropped = c.lost.list()
	for _, p := range slices.SortedFunc(maps.Values(c.parts), func(a, b *partition) int {
		replay := func(p *partition) int {
			if p.Replay {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(replay(a), replay(b)), cmp.Compare(a.Run.String(), b.Run.String()))
	}) {
		if !p.met {
			continue
		}
		if p.Meta.Rows == 0 {
			p.Meta.Dropped = p.lost.list(c.lost)
		}
		res.Traces = append(res.Traces, p.TraceResult)
	}
	return res
}

// Sink starts the trace of a partition, which has at least one row. One trace is written at a time.
type Sink func(Partition) (TraceWriter, error)

// TraceWriter writes a trace: for example a [*mooncake.File]. After Commit or an error it is closed.
type TraceWriter interface {
	Write(*mooncake.Row) error
	Commit(*mooncake.Meta) error
	Close() error
}
