// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// orderKey is the length of the key of byOrder: partition, order, and the number among rows with equal order.
const orderKey = 4 + orderLength + 8

// writing is the trace that is being written.
type writing struct {
	c    *compiler
	part *partition
	out  TraceWriter // nil before the first row
	*behind

	size     int   // tokens per block
	fine     int   // tokens per id of ranges; 0 if rows have none
	base     int64 // start of the first row, ns
	last     int64 // row index
	numbers  numbers
	names    []int64 // of the current row's ids, see outside
	ledger   ledger
	replayed replayRows
	sharing  sharing
	domains  map[journal.Domain]bool
	keys     map[journal.Domain]bool
	identity map[string]int64
	cache    *stats.Predictor // an infinite cache, to compare observations with
	hit      int64            // prompt tokens of the current row that this cache would have, if the ledger assigned the row's ids
	observed mooncake.ObservedCache
	sessions *stats.SessionDetector
	rows     int64
	edges    map[string]any // of graphs, by evidence
	sampled  map[journal.Sampled]int64
}

// writeRows writes the trace of each partition: steps 4 and 5.
func (c *compiler) writeRows() (err error) {
	outside, err := c.dealIDs()
	if err != nil {
		return err
	}
	w := &writing{c: c}
	defer func() {
		outside.close()
		w.ledger.close()
		if w.out != nil {
			_ = w.end() // there is an error already
			w.digester.Close()
			err = errors.Join(err, w.out.Close())
		}
	}()
	var d journal.Decoder
	var f followed
	err = c.byOrder.each(c.ctx, func(b []byte) error {
		if p := c.list[binary.BigEndian.Uint32(b)]; p != w.part {
			if err := w.commit(); err != nil {
				return err
			}
			*w = writing{c: c, part: p, last: -1, sharing: w.sharing, numbers: numbers{outside: outside}}
		}
		delay, record := takeDelay(b[orderKey:])
		if err := d.Decode(w.sharing.decode(record)); err != nil {
			return err
		}
		if !w.part.Replay {
			if err := f.of(c, b[orderKey-arrivalLength:orderKey], &w.sharing); err != nil {
				return err
			}
		}
		if r := &d.Inference; outside != nil && numbered(&w.sharing, r) {
			if w.names, err = outside.row(w.part.index, r.Domain, r.HashIDs); err != nil {
				return err
			}
		}
		return w.row(&d.Inference, delay)
	})
	if err == nil {
		err = w.commit()
	}
	return err
}

// numbered reports whether the ids of a row are numbered one by one.
func numbered(s *sharing, r *journal.Inference) bool { return s.kind == unshared && r.HashIDs != nil }

// dealIDs stores all ids to be numbered if they do not fit into memory. If they do, it returns nil.
func (c *compiler) dealIDs() (*outside, error) {
	o := outsideOf(c.known+c.ids.count(), c.opt.TempDir, c.opt.Memory)
	if o == nil {
		return nil, nil
	}
	var d journal.Decoder
	var s sharing
	err := c.byOrder.walk(c.ctx, func(b []byte) error {
		_, record := takeDelay(b[orderKey:])
		if err := d.Decode(s.decode(record)); err != nil {
			return err
		}
		if !numbered(&s, &d.Inference) {
			return nil
		}
		return o.add(binary.BigEndian.Uint32(b), d.Domain, d.HashIDs)
	})
	if err == nil {
		err = o.settle()
	}
	if err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

// row writes a row, or counts why not.
func (w *writing) row(r *journal.Inference, delay mooncake.Opt[float64]) error {
	p := w.part
	switch {
	case !p.estimate(r):
		p.lost.add(lostTokens, 1)
		w.c.drop(r)
		return nil
	case p.Replay && r.Row.V == w.last:
		p.lost.add(lostRepeated, 1)
		return nil
	}
	row := &mooncake.Row{InputLength: r.InputTokens, OutputLength: r.OutputTokens}
	if p.Replay {
		row.InputLength, row.OutputLength, row.Timestamp = r.InputLength, r.OutputLength, r.Timestamp
	} else {
		if w.out == nil {
			w.base = r.Start
		}
		row.Timestamp = mooncake.Some(float64(r.Start-w.base) / 1e6)
		row.Observed = p.observed(r)
	}
	if w.c.opt.Format == FormatFull {
		row.SessionID, row.Delay, row.Model, row.OTel = r.Session.String(), delay, r.Model.String(), r.Span
		row.Class, row.Priority = r.Class.String(), r.Priority
		if !r.Link.IsZero() {
			row.OTel = r.Link
		}
		if p.Replay {
			w.waits(row, r)
		} else {
			w.step(row, r.Step)
		}
	} else if !row.Timestamp.Set && r.Offset.Set {
		// For a row scheduled by a delay: its scheduled time.
		row.Timestamp = mooncake.Some((r.Offset.V - r.Spread.V) * 1000)
	}
	if err := row.Validate(); err != nil { // before its ids get numbers
		p.lost.add(lostInvalid, 1)
		w.c.drop(r)
		return nil
	}
	if w.out == nil {
		if err := w.start(r); err != nil {
			return err
		}
	}
	if !p.Replay && w.c.skewed[r.Clock] {
		p.lost.add(lostClock, 1)
	}
	w.last = r.Row.V
	if p.Replay {
		w.replayed.row(r.Row.V, w.rows)
	}
	identity := w.ids(row, r)
	w.identity[identity.String()]++
	w.rows++
	if !p.Replay {
		w.sampled[r.Sampled]++
	}
	if !p.Replay && w.c.cached { // else there is no observation to compare a prediction with
		if hit, known := w.predict(row, r); known {
			grain := w.size
			if row.HashRanges != nil {
				grain = w.fine
			}
			w.observed.Add(row, hit, grain)
		}
	}
	if w.c.opt.Format != FormatFull {
		row.Observed = mooncake.Observed{}
	}
	if p.Replay && row.SessionID != "" {
		w.sessions.Add(row)
	}
	if err := w.write(row); err != nil {
		return fmt.Errorf("trace of %s: %w", p.name(), err)
	}
	return nil
}

// behind digests rows in one goroutine and writes them in another, while the next ones are made.
type behind struct {
	digester *mooncake.Digester
	batch    []*mooncake.Row
	size     int                  // number of ids in the batch
	batches  chan []*mooncake.Row // nil if there are no goroutines
	failed   atomic.Bool
	ended    chan error
}

// Rows are passed on in batches of this many, or with this many ids in all.
const (
	batchRows = 128
	batchIDs  = 1 << 15
)

// begin starts the goroutines. Each row is digested before it is written.
func (b *behind) begin(d *mooncake.Digester, out TraceWriter) {
	batches, digested, ended := make(chan []*mooncake.Row, 1), make(chan []*mooncake.Row, 1), make(chan error, 1)
	b.digester, b.batches, b.ended = d, batches, ended
	go func() {
		defer close(digested)
		line := int64(0)
		for batch := range batches {
			for _, row := range batch {
				line++
				d.Add(row, line)
			}
			digested <- batch
		}
	}()
	go func() {
		var err error
		for batch := range digested {
			for _, row := range batch {
				if err != nil {
					break
				}
				if err = out.Write(row); err != nil {
					b.failed.Store(true)
				}
			}
		}
		ended <- err
	}()
}

// write queues a row, which must not be changed afterwards. It may return the error of an earlier row.
func (b *behind) write(row *mooncake.Row) error {
	b.batch, b.size = append(b.batch, row), b.size+len(row.HashIDs)
	if len(b.batch) < batchRows && b.size < batchIDs {
		return nil
	}
	if b.failed.Load() {
		return b.end()
	}
	b.batches <- b.batch
	b.batch, b.size = make([]*mooncake.Row, 0, batchRows), 0
	return nil
}

// end waits until all rows are written.
func (b *behind) end() error {
	if b.batches == nil {
		return nil
	}
	b.batches <- b.batch
	close(b.batches)
	b.batch, b.batches = nil, nil
	return <-b.ended
}

// predict returns the number of a row's prompt tokens that an infinite prefix cache would have. For a row with ids from the ledger, the
// ledger has counted them; other rows share no id with such a row.
func (w *writing) predict(row *mooncake.Row, r *journal.Inference) (tokens int64, known bool) {
	if w.sharing.kind != unshared {
		return w.hit, true
	}
	one := *row
	one.Model = w.c.models.one(r).String() // because blocks of different models are kept apart
	hit, known := w.cache.Predict(&one)
	return hit.Whole, known
}

// observed returns what telemetry reported for a request of production, in addition to its lengths.
func (p *partition) observed(r *journal.Inference) (o mooncake.Observed) {
	if o.CachedTokens = r.CachedTokens; o.CachedTokens.V > r.InputTokens.V || o.CachedTokens.V < 0 {
		p.lost.add(lostObserved, 1)
		o.CachedTokens = mooncake.Opt[int64]{}
	}
	if r.FirstToken.Set && r.FirstToken.V >= r.Start {
		o.TTFT = mooncake.Some(float64(r.FirstToken.V-r.Start) / 1e6)
	}
	if s := r.Finish.String(); mooncake.IsFinishReason(s) {
		o.FinishReason = s
	}
	if r.End > r.Start { // the end of a span without one is its start
		o.Duration = mooncake.Some(float64(r.End-r.Start) / 1e6)
	}
	return o
}

// start begins the trace with its first row.
func (w *writing) start(r *journal.Inference) error {
	w.size = w.c.opt.BlockSize
	if w.part.Replay && r.BlockSize > 0 && r.BlockSize <= math.MaxInt32 {
		w.size = int(r.BlockSize)
	}
	if w.part.Replay {
		w.fine = int(r.FineBlockSize)
	} else {
		w.fine = w.c.fine
		w.ledger = newLedger(w.size, w.c.fine, w.c.opt.TempDir, w.c.opt.Memory/4)
	}
	if w.fine >= w.size || w.fine > 0 && w.size%w.fine != 0 || w.c.opt.Format != FormatFull {
		w.fine = 0
	}
	w.domains, w.keys, w.identity = map[journal.Domain]bool{}, map[journal.Domain]bool{}, map[string]int64{}
	w.sampled = map[journal.Sampled]int64{}
	w.sessions = stats.NewSessionDetector(w.size, 0)
	w.cache = stats.NewPredictor(stats.PredictorOptions{BlockSize: w.size})
	out, err := w.c.sink(w.part.Partition)
	if err != nil {
		return fmt.Errorf("trace of %s cannot be started: %w", w.part.name(), err)
	}
	w.out, w.behind = out, new(behind)
	w.begin(mooncake.NewDigester(mooncake.CheckOptions{
		BlockSize: w.size, FineBlockSize: w.fine, Memory: max(w.c.opt.Memory/4, 1), TempDir: w.c.opt.TempDir,
	}), out)
	return nil
}

// ids sets the row's ids to the numbers of its blocks in the trace, and returns their identity.
func (w *writing) ids(row *mooncake.Row, r *journal.Inference) journal.Identity {
	p, blocks := w.part, mooncake.BlockCount(row.InputLength.V, w.size)
	if w.sharing.kind != unshared {
		shared := w.ledger.assign(row, &w.sharing, &w.numbers, w.rows)
		replies, lost := w.ledger.replies(&w.sharing, w.rows, row.InputLength.V)
		p.lost.add(lostReply, lost)
		if row.Replies = replies; w.fine == 0 && w.c.fine < w.size { // the row has only plain fields
			row.HashRanges, row.Replies = nil, nil
			shared = shared / int64(w.size) * int64(w.size)
		}
		w.hit = cachedOf(row, shared)
		if r.Identity != journal.Structure {
			w.from(r)
		}
		return r.Identity
	}
	if r.HashIDs != nil && int(r.BlockSize) != w.size {
		p.lost.add(lostBlockSize, 1)
		r.HashIDs = nil
	}
	switch {
	case r.HashIDs != nil && p.Replay:
		row.HashIDs = slices.Clone(r.HashIDs) // as in the replayed row, even if they are too few or too many
		w.ranges(row, r)
	case r.HashIDs != nil:
		if len(r.HashIDs) > blocks {
			p.lost.add(lostSurplus, int64(len(r.HashIDs)-blocks))
		}
		row.HashIDs = slices.Clone(r.HashIDs[:min(blocks, len(r.HashIDs))])
	case w.c.opt.Format == FormatMooncake:
		row.HashIDs = w.numbers.fresh([]uint64{}, blocks) // some tools need the field
		return journal.Lengths
	default:
		return journal.Lengths
	}
	w.from(r)
	w.numbers.renumber(r.Domain, row.HashIDs, w.names)
	if !p.Replay {
		// Engines that hash only full blocks have no hash of the last one, which no other row can have.
		row.HashIDs = w.numbers.fresh(row.HashIDs, blocks-len(row.HashIDs))
	}
	if r.Identity == journal.NoIdentity {
		return journal.Trace
	}
	return r.Identity
}

// ranges sets the ranges and replies of a replay's row: those of the row for which the replay sent the request.
func (w *writing) ranges(row *mooncake.Row, r *journal.Inference) {
	if len(r.HashRanges) == 0 || w.c.opt.Format != FormatFull {
		return
	}
	// The spans of a replay may have any values; those that no reader accepts must not end the trace.
	said := mooncake.Row{InputLength: row.InputLength, HashIDs: row.HashIDs, HashRanges: r.HashRanges}
	if w.fine == 0 || int(r.FineBlockSize) != w.fine || said.Validate() != nil || !whole(&said, w.size, w.fine) {
		w.part.lost.add(lostRanges, 1)
		return
	}
	if row.HashRanges = w.replayed.number(r.Domain, r.HashRanges); row.HashRanges == nil {
		w.part.lost.add(lostRanges, 1)
		return
	}
	said = mooncake.Row{InputLength: row.InputLength, Replies: w.replayed.replies(r, w.rows)}
	if said.Validate() == nil {
		row.Replies = said.Replies
	}
	w.part.lost.add(lostReply, int64(len(r.Replies)-len(row.Replies)))
}

// whole reports whether a row that is valid by itself has all ids of its prompt, in blocks of both sizes.
func whole(row *mooncake.Row, size, fine int) bool {
	var ids int64
	for _, h := range row.HashRanges {
		ids += h.Count // at most the length in all
	}
	tokens := row.InputLength.V
	return ids == int64(mooncake.BlockCount(tokens, fine)) && len(row.HashIDs) == mooncake.BlockCount(tokens, size)
}

// maxDomains is the maximum number of hash domains, and of keys, in a sidecar: senders may name any, but readers refuse a huge sidecar.
const maxDomains = 1 << 12

// from records the source of a row's ids.
func (w *writing) from(r *journal.Inference) {
	add := func(set map[journal.Domain]bool, d journal.Domain) {
		if len(set) < maxDomains || set[d] {
			set[d] = true
		} else {
			w.part.lost.add(lostDomain, 1)
		}
	}
	add(w.domains, r.Domain)
	if r.Key != 0 {
		add(w.keys, r.Key)
	}
}

// commit completes the current trace, if it has rows.
func (w *writing) commit() error {
	if w.out == nil {
		return nil
	}
	out, p := w.out, w.part
	w.out = nil
	defer w.digester.Close()
	if err := errors.Join(w.end(), w.ledger.err(), w.numbers.err()); err != nil {
		return errors.Join(fmt.Errorf("trace of %s: %w", p.name(), err), out.Close())
	}
	w.ledger.close()
	m := mooncake.Meta{
		Schema: mooncake.MetaSchema, Tool: w.c.opt.Tool, Rows: w.rows, BlockSize: w.size, FineBlockSize: w.fine,
		SessionMode: mooncake.SessionNone, Identity: w.identity, Digests: w.digester.Digests(), Trunk: w.digester.Trunk(),
		Dropped: p.lost.list(w.c.lost),
		Transformations: []mooncake.Transformation{{Name: "compile", Parameters: map[string]any{
			"format": string(w.c.opt.Format), "missing_tokens": string(w.c.opt.MissingTokens), "run": p.Run.String(),
		}}},
	}
	if orders, effect := w.c.engines.orders(); orders != nil && !p.Replay {
		m.Transformations[0].Parameters["prompt_order"], m.Transformations[0].Effect = orders, effect
	}
	if w.edges != nil {
		m.Transformations[0].Parameters["graph_edges"] = w.edges
	}
	if counts := w.c.toolCalls.parameters(); counts != nil && !p.Replay {
		m.Transformations[0].Parameters["graph_tool_calls"] = counts
	}
	if aliases := w.c.models.aliases(); len(aliases) > 0 && !p.Replay {
		m.Transformations[0].Parameters["model_aliases"] = aliases
	}
	if w.c.opt.Format == FormatFull && p.multi {
		m.SessionMode = mooncake.SessionFull // production: each request has its whole prompt
		if p.Replay {
			m.SessionMode, _ = w.sessions.Mode()
		}
	}
	if !p.Replay {
		m.TimeBase = time.Unix(0, w.base).UTC()
	}
	m.Sampling = samplings(w.sampled)
	if o := w.observed; o.Rows > 0 {
		m.ObservedCache = &o
	}
	m.HashDomains, m.HashKeys = names(w.domains), names(w.keys)
	if len(m.HashKeys) > 0 {
		m.Privacy = &mooncake.Privacy{HashAlgorithm: blockhash.Algorithm}
	}
	err := w.digester.Err()
	if err == nil {
		err = out.Commit(&m)
	}
	p.Meta = m
	if err != nil {
		return errors.Join(fmt.Errorf("trace of %s: %w", p.name(), err), out.Close())
	}
	return out.Close()
}

// samplings returns the samples to which rows belong, the lowest rate first; nil if nothing was left out.
func samplings(rows map[journal.Sampled]int64) (list []mooncake.Sampling) {
	if rows[journal.Sampled{}] > 0 && len(rows) == 1 {
		return nil
	}
	for s, n := range rows {
		one := mooncake.Sampling{Rate: 1, TrunkList: mooncake.FingerprintText(uint32(s.List)), Rows: n}
		if s.PerMillion > 0 {
			one.Rate, one.By = float64(s.PerMillion)/1e6, mooncake.SampleSession
		}
		if s.ByPrefix {
			one.By = mooncake.SamplePrefix
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b mooncake.Sampling) int {
		return cmp.Or(cmp.Compare(a.Rate, b.Rate), cmp.Compare(a.TrunkList, b.TrunkList), cmp.Compare(a.By, b.By))
	})
	return list
}

func names(set map[journal.Domain]bool) []string {
	var out []string
	for d := range set {
		out = append(out, d.String())
	}
	slices.Sort(out)
	return out
}

// name returns a description of the partition, for errors.
func (p *Partition) name() string {
	switch {
	case !p.Replay:
		return "production"
	case p.Run.IsZero():
		return "a replay without a run id"
	}
	return "run " + p.Run.String()
}
