// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"maps"
	"slices"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// learned is what a step of one shard has found out and later steps of all shards need, in addition to the records that the step passes on.
// Sets are joined, and counts are added, so the order of the shards does not matter.
type learned struct {
	Result    Result         `json:"result"`         // counts of what was read
	Lost      []countedLoss  `json:"lost,omitempty"` // of no partition
	Runs      []journal.Name `json:"runs,omitempty"`
	Nameless  bool           `json:"nameless,omitempty"`
	Parts     []learnedPart  `json:"parts,omitempty"`
	Models    []learnedModel `json:"models,omitempty"`
	ManyNames bool           `json:"many_models,omitempty"`
	// Producers and Skewed have too many elements if ManyProducers or ManySkewed is true, and are then nil.
	Producers     []learnedProducer `json:"producers,omitempty"`
	ManyProducers bool              `json:"many_producers,omitempty"`
	Skewed        []uint64          `json:"skewed,omitempty"`
	ManySkewed    bool              `json:"many_skewed,omitempty"`
	Gone          []gone            `json:"gone,omitempty"`
	ToolCalls     [6]int64          `json:"tool_calls"`
	Engines       []learnedEngine   `json:"engines,omitempty"`
	Prompted      bool              `json:"prompted,omitempty"`
	Replied       bool              `json:"replied,omitempty"`
	Unseen        bool              `json:"unseen,omitempty"`
	Thinned       bool              `json:"thinned,omitempty"`
	CachedCounts  bool              `json:"cached_counts,omitempty"`
	Parted        bool              `json:"parted,omitempty"`
	Turned        bool              `json:"turned,omitempty"`
	IDs           int64             `json:"ids,omitempty"`
}

type learnedPart struct {
	Partition
	Spans, Merged int64
	ByResponse    int64
	Multi         bool
	Sums          [4]uint64
	Lost          []countedLoss
}

type countedLoss struct {
	What, Reason string
	Count        int64
}

type learnedModel struct {
	Name    journal.Name
	Answers []journal.Name
	Orders  []journal.PromptOrder
}

type learnedProducer struct {
	ID    uint64
	Model journal.Name
	Spans counting
}

type learnedEngine struct {
	Model                    journal.Name
	Told, Order              journal.PromptOrder
	Rows, Step, Most         int64
	Heads                    heads
	Input, Cached, Predicted int64
	Foreign, Beyond          bool
	Explained, Foretold      int64
}

// counted returns the counts of losses; in one shard, some may be below 0.
func (t tally) counted() []countedLoss {
	var out []countedLoss
	for l, n := range t {
		out = append(out, countedLoss{l.what, l.reason, n})
	}
	slices.SortFunc(out, func(a, b countedLoss) int {
		return cmp.Or(cmp.Compare(a.What, b.What), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}

// join adds counts.
func (t tally) join(more []countedLoss) {
	for _, l := range more {
		key := loss{l.What, l.Reason}
		if t[key] += l.Count; t[key] == 0 {
			delete(t, key)
		}
	}
}

// learned returns what the compiler has found out since it began.
func (c *compiler) learned() *learned {
	l := &learned{
		Result: c.res, Lost: c.lost.counted(), Runs: c.runs.sorted(), Nameless: c.runs.nameless,
		ManyNames: c.models.many, ManyProducers: c.counting == nil, ManySkewed: c.skewed == nil, Skewed: slices.Sorted(maps.Keys(c.skewed)),
		ToolCalls: [6]int64{c.toolCalls.agreed, c.toolCalls.added, c.toolCalls.replaced, c.toolCalls.early, c.toolCalls.unknown, c.toolCalls.reused},
		Prompted:  c.prompted, Replied: c.replied, Unseen: c.unseen, Thinned: c.thinned, CachedCounts: c.cached, Parted: c.parted, Turned: c.turned, IDs: c.ids.count(),
	}
	for _, p := range c.list {
		if p.met {
			l.Parts = append(l.Parts, learnedPart{p.Partition, p.Spans, p.Merged, p.MergedByResponse, p.multi, [4]uint64{p.tokens, p.bytes, p.output, p.outputs}, p.lost.counted()})
		}
	}
	for name, m := range c.models.names {
		one := learnedModel{Name: name, Orders: m.orders}
		for answer := range m.answers {
			one.Answers = append(one.Answers, answer.name)
		}
		slices.SortFunc(one.Answers, compareNamesOf)
		l.Models = append(l.Models, one)
	}
	slices.SortFunc(l.Models, func(a, b learnedModel) int { return compareNamesOf(a.Name, b.Name) })
	for p, spans := range c.counting {
		l.Producers = append(l.Producers, learnedProducer{p.id, p.model, spans})
	}
	slices.SortFunc(l.Producers, func(a, b learnedProducer) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), compareNamesOf(a.Model, b.Model))
	})
	for _, id := range slices.Sorted(maps.Keys(c.gone)) {
		l.Gone = append(l.Gone, c.gone[id])
	}
	for _, e := range c.engines.list {
		l.Engines = append(l.Engines, learnedEngine{
			Model: e.model, Told: e.told, Order: e.order, Rows: e.rows, Step: e.step, Most: e.most, Heads: e.heads, Input: e.input, Cached: e.cached,
			Predicted: e.predicted, Foreign: e.foreign, Beyond: e.beyond, Explained: e.explained, Foretold: e.foretold,
		})
	}
	return l
}

func compareNamesOf(a, b journal.Name) int { return cmp.Compare(a.String(), b.String()) }

// know adds what shards have found out, before the compiler begins a phase. Of the counts, it adds only those that it needs in advance, unless
// it will report everything at the end.
func (c *compiler) know(all []*learned, p *phase) {
	last := p.name == "write"
	for _, l := range all {
		for _, name := range l.Runs {
			c.runs.add(&journal.Inference{Run: name}, c.opt.MaxRuns)
		}
		c.runs.nameless = c.runs.nameless || l.Nameless
	}
	c.partition()
	for _, l := range all {
		c.models.know(l)
		if p.name == "group" { // the only one that needs it
			c.counting = joinCounting(c.counting, l)
		}
		c.skewed = joinClocks(c.skewed, l)
		c.prompted = c.prompted || l.Prompted
		c.replied, c.unseen = c.replied || l.Replied, c.unseen || l.Unseen
		c.thinned, c.parted, c.cached = c.thinned || l.Thinned, c.parted || l.Parted, c.cached || l.CachedCounts
		c.turned = c.turned || l.Turned
		for _, e := range l.Engines {
			c.engines.know(e)
		}
		for _, p := range l.Parts {
			known := c.part(p.Partition)
			known.tokens, known.bytes = known.tokens+p.Sums[0], known.bytes+p.Sums[1]
			known.output, known.outputs = known.output+p.Sums[2], known.outputs+p.Sums[3]
			if last {
				known.Spans, known.Merged, known.multi = known.Spans+p.Spans, known.Merged+p.Merged, known.multi || p.Multi
				known.MergedByResponse += p.ByResponse
				known.lost.join(p.Lost)
			}
		}
		if !last {
			continue
		}
		c.res.add(&l.Result)
		c.lost.join(l.Lost)
		for _, g := range l.Gone {
			if len(c.gone) < maxGone {
				c.gone[g.ID] = g
			}
		}
		n := l.ToolCalls
		c.toolCalls.add(toolCalls{n[0], n[1], n[2], n[3], n[4], n[5]})
		c.known += l.IDs
	}
}

// forget subtracts the counts that a compiler had before it began. Sets are not changed, which does not matter, except that producers are
// not said again: only reading adds to them.
func (l *learned) forget(before *learned) {
	if before.Producers != nil {
		l.Producers = nil
	}
	for i := range l.Parts {
		at := slices.IndexFunc(before.Parts, func(p learnedPart) bool { return p.Partition == l.Parts[i].Partition })
		if at < 0 {
			continue
		}
		for k, n := range before.Parts[at].Sums {
			l.Parts[i].Sums[k] -= n
		}
	}
	for i := range l.Engines {
		e := &l.Engines[i]
		at := slices.IndexFunc(before.Engines, func(o learnedEngine) bool { return o.Model == e.Model && o.Told == e.Told })
		if at < 0 {
			continue
		}
		o := &before.Engines[at]
		e.Rows, e.Input, e.Cached, e.Predicted = e.Rows-o.Rows, e.Input-o.Input, e.Cached-o.Cached, e.Predicted-o.Predicted
		e.Explained, e.Foretold = e.Explained-o.Explained, e.Foretold-o.Foretold
	}
}

// know adds what shards have found out about the names of models.
func (m *models) know(l *learned) {
	if l.ManyNames {
		m.many, m.names = true, nil
	}
	for _, one := range l.Models {
		known := m.of(one.Name)
		for _, name := range one.Answers {
			m.said(one.Name, name)
		}
		for _, o := range one.Orders {
			if known != nil {
				known.addOrder(o)
			}
		}
	}
}

// know adds what shards have counted of an engine.
func (e *engines) know(o learnedEngine) {
	of := template{o.Model, o.Told}
	at, known := e.of[of]
	if !known {
		if e.of == nil {
			e.of = map[template]int{}
		}
		at = len(e.list)
		e.of[of] = at
		e.list = append(e.list, modelEngine{template: of})
	}
	one := &e.list[at]
	one.rows, one.step, one.most = one.rows+o.Rows, mooncake.CommonStep(one.step, o.Step), max(one.most, o.Most)
	one.heads |= o.Heads
	one.input, one.cached, one.predicted = one.input+o.Input, one.cached+o.Cached, one.predicted+o.Predicted
	one.foreign, one.beyond = one.foreign || o.Foreign, one.beyond || o.Beyond
	one.order = cmp.Or(one.order, o.Order)
	one.explained, one.foretold = one.explained+o.Explained, one.foretold+o.Foretold
}

// joinCounting adds producers; nil means too many.
func joinCounting(all map[producer]counting, l *learned) map[producer]counting {
	if all == nil || l.ManyProducers {
		return nil
	}
	for _, p := range l.Producers {
		of := producer{p.ID, p.Model}
		spans := all[of]
		for _, span := range p.Spans {
			spans.add(span, span&1 == 1)
		}
		all[of] = spans
	}
	if len(all) > maxProducers {
		return nil
	}
	return all
}

// joinClocks adds clocks; nil means too many.
func joinClocks(all map[uint64]bool, l *learned) map[uint64]bool {
	if all == nil || l.ManySkewed {
		return nil
	}
	for _, clock := range l.Skewed {
		all[clock] = true
	}
	if len(all) > maxClocks {
		return nil
	}
	return all
}

// add adds counts of records.
func (r *Result) add(o *Result) {
	r.Journals, r.Inferences, r.Contents, r.Links = r.Journals+o.Journals, r.Inferences+o.Inferences, r.Contents+o.Contents, r.Links+o.Links
	r.Copies += o.Copies
	r.Torn.Records, r.Torn.Bytes = r.Torn.Records+o.Torn.Records, r.Torn.Bytes+o.Torn.Bytes
	r.TornIn = append(r.TornIn, o.TornIn[:min(len(o.TornIn), maxDamage-len(r.TornIn))]...)
	r.Damage = append(r.Damage, o.Damage[:min(len(o.Damage), maxDamage-len(r.Damage))]...)
	r.DamageCount, r.DamageBytes = r.DamageCount+o.DamageCount, r.DamageBytes+o.DamageBytes
	r.LeftOut = append(r.LeftOut, o.LeftOut[:min(len(o.LeftOut), maxDamage-len(r.LeftOut))]...)
}
