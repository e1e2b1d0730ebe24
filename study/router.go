// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study

// This file shows how well a router uses the caches behind it: what the instances served from their caches, compared with what they could
// have served with this routing, with a better one, and from one infinite cache.

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/report/lines"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/mooncake"
)

// Router compares a router's use of the caches behind it. Tokens are prompt tokens; all counts cover the same rows.
type Router struct {
	Dir     string `json:"dir"`
	Verdict string `json:"verdict"`
	Balance string `json:"balance,omitempty"` // for several --url; empty if a router decided
	Rows    int64  `json:"rows"`              // that were served by an instance with a name
	LeftOut int64  `json:"left_out"`          // rows that failed, or whose reply had no name
	Block   int64  `json:"block_tokens"`      // of the caches that are simulated
	// Capacity is the cache of each simulated instance, in tokens; 0: infinite.
	Capacity int64 `json:"capacity_tokens"`

	PromptTokens int64 `json:"prompt_tokens"`
	// Cached is what the engines report as cached; nil if they do not report it for every row.
	Cached *int64 `json:"cached_tokens"`
	// Routed is what the instances' caches would have served of the requests that they got. The difference to Cached was evicted, or never
	// kept.
	Routed int64 `json:"routed_tokens"`
	// Best is the best routing found for the same number of caches: each request goes to the instance that has more of its prompt than any
	// other, unless that instance has computed much more than the others. It is never below Routed.
	Best int64 `json:"best_tokens"`
	// Infinite is what one infinite cache for all requests would serve.
	Infinite int64 `json:"infinite_tokens"`
	// Imbalance is the work of the busiest instance divided by the mean, in prompt tokens that were not cached; 1 is even.
	Imbalance float64    `json:"imbalance"`
	Instances []Instance `json:"instances"` // by name

	run *Run
}

// Instance is one of the engines behind a router.
type Instance struct {
	Name         string `json:"name"`
	Rows         int64  `json:"rows"`
	PromptTokens int64  `json:"prompt_tokens"`
	Cached       *int64 `json:"cached_tokens"`
	Routed       int64  `json:"routed_tokens"`
}

// computed returns what an instance had to compute, by its own count or, without one, by the simulation.
func (i *Instance) computed() int64 {
	if i.Cached != nil {
		return i.PromptTokens - *i.Cached
	}
	return i.PromptTokens - i.Routed
}

const (
	maxInstances = 256
	// slack is the share above the mean that an instance may have computed and still get a request in the best routing, in addition to two
	// of the longest prompts so far.
	slack = 0.25
)

// ReadRouter reads the run in a folder. The cache of each instance has this many tokens; 0 = infinite. It returns an error if no reply
// named its instance, or if the names are not those of instances.
func ReadRouter(dir string, capacity int64) (*Router, error) {
	run, err := readRun(dir)
	if err != nil {
		return nil, err
	}
	if run == nil {
		return nil, fmt.Errorf("%s has no %s: no replay wrote its results there; name the folder given to `moonloop replay --out`", dir, summaryFile)
	}
	meta, err := mooncake.LoadMeta(filepath.Join(dir, lines.File))
	if err != nil {
		return nil, err
	}
	r := &Router{Dir: dir, Verdict: run.Verdict, Capacity: capacity, run: run}
	r.Balance, _ = run.schedule["balance"].(string)
	named, block, err := instancesOf(dir)
	if err != nil {
		return nil, err
	}
	s := newRouting(r, slices.Sorted(maps.Keys(named)), meta, block)
	if err := report.Records(dir, s.add); err != nil {
		return nil, err
	}
	s.end()
	return r, nil
}

// instancesOf returns the names of the instances of a run, and the size of their blocks; 0 if unknown.
func instancesOf(dir string) (named map[string]bool, block int64, err error) {
	named = map[string]bool{}
	rows := 0
	err = report.Records(dir, func(r *measure.Record) error {
		if rows++; rows > maxRows {
			return fmt.Errorf("%s: the run has more than %d rows", dir, maxRows)
		}
		if r.Outcome == measure.Served && r.Instance() != "" {
			named[r.Instance()] = true
			block = cmp.Or(block, r.Block)
		}
		if len(named) > maxInstances {
			return fmt.Errorf("%s: the replies name more than %d instances, so the header does not name instances: replay with the right --instance-header", dir, maxInstances)
		}
		return nil
	})
	if err == nil && len(named) == 0 {
		err = fmt.Errorf("%s: no request says which instance served it; have the router name it in a header of its replies (replay --instance-header NAME), or give --url once for each instance", dir)
	}
	return named, block, err
}

// routing simulates the caches, row by row in the order of the trace.
type routing struct {
	*Router
	index        map[string]int // of the instances
	fine, coarse int64          // tokens of an id, in rows with hash_ranges and in rows without
	unit         int64          // tokens of a block of the caches

	routed, best []*blockCache // by instance
	infinite     *blockCache
	greedy       int64   // hits of best
	load         []int64 // computed by best
	longest      int64
	unknown      int64 // rows whose engine does not report cached tokens

	// the destination of each row so far, by its index in the file, or -1
	routedAt, bestAt []int16
}

func newRouting(r *Router, names []string, meta *mooncake.Meta, block int64) *routing {
	s := &routing{Router: r, index: map[string]int{}, coarse: mooncake.BlockSize, infinite: newBlockCache(0), load: make([]int64, len(names))}
	if meta != nil {
		s.coarse, s.fine = int64(cmp.Or(meta.BlockSize, mooncake.BlockSize)), int64(meta.FineBlockSize)
	}
	s.unit = cmp.Or(s.fine, s.coarse)
	if block > s.unit && block%s.unit == 0 {
		s.unit = block
	}
	r.Block = s.unit
	blocks := r.Capacity / s.unit
	if r.Capacity > 0 {
		blocks = max(1, blocks)
	}
	for i, name := range names {
		s.index[name] = i
		zero := int64(0)
		r.Instances = append(r.Instances, Instance{Name: name, Cached: &zero})
		s.routed, s.best = append(s.routed, newBlockCache(blocks)), append(s.best, newBlockCache(blocks))
	}
	return s
}

// add adds the next row.
func (s *routing) add(rec *measure.Record) error {
	at, ok := s.index[rec.Instance()]
	if !ok || rec.Outcome != measure.Served || !rec.Row.InputLength.Set {
		s.LeftOut++
		s.routedAt, s.bestAt = append(s.routedAt, -1), append(s.bestAt, -1)
		return nil
	}
	keys, unit := s.keys(rec.Row)
	s.keepReplies(rec, keys, unit)
	length := rec.Row.InputLength.V
	s.longest = max(s.longest, length)
	tokens := func(c *blockCache) int64 { return int64(c.hit(keys)) * unit }

	s.Infinite += tokens(s.infinite)
	s.infinite.add(keys)

	i := &s.Instances[at]
	i.Rows++
	i.PromptTokens += length
	i.Routed += tokens(s.routed[at])
	s.routed[at].add(keys)
	if cached := rec.Exchange.Usage.Cached; cached == send.Unknown {
		s.unknown++
	} else {
		*i.Cached += min(cached, length)
	}

	to := s.choose(keys, unit)
	hit := tokens(s.best[to])
	s.greedy += hit
	s.load[to] += length - hit
	s.best[to].add(keys)
	s.routedAt, s.bestAt = append(s.routedAt, int16(at)), append(s.bestAt, int16(to)) //nolint:gosec // below maxInstances
	return nil
}

// choose returns the instance whose cache has the longest part of a prompt, among those that have not computed much more than the others;
// if there are several, the one that has computed least.
func (s *routing) choose(keys []uint64, unit int64) int {
	var sum int64
	for _, n := range s.load {
		sum += n
	}
	most := (1+slack)*float64(sum)/float64(len(s.load)) + float64(2*s.longest)
	best, bestHit := -1, int64(-1)
	for i, c := range s.best {
		if float64(s.load[i]) > most {
			continue
		}
		if hit := int64(c.hit(keys)) * unit; hit > bestHit || hit == bestHit && s.load[i] < s.load[best] {
			best, bestHit = i, hit
		}
	}
	return best // at least one is not above the mean
}

// keepReplies adds the earlier replies of a prompt to the caches of the instances that generated them.
func (s *routing) keepReplies(rec *measure.Record, keys []uint64, unit int64) {
	for j, reply := range rec.Row.Replies {
		from := int64(len(s.routedAt)) - reply.Back
		if j >= len(rec.Replies) || rec.Replies[j] != "" || from < 0 || s.routedAt[from] < 0 {
			continue // invented words were inserted, or the reply is not of this run
		}
		upTo := keys[:min(int64(len(keys)), (reply.At+reply.Tokens-1)/unit)] // the last token of a reply is never computed
		s.infinite.add(upTo)
		s.routed[s.routedAt[from]].add(upTo)
		s.best[s.bestAt[from]].add(upTo)
	}
}

// keys returns the whole blocks of a prompt, without its last token, which is always computed: each key identifies all tokens before it,
// too.
func (s *routing) keys(row *mooncake.Row) (keys []uint64, unit int64) {
	ids, size := row.HashIDs, s.coarse
	if len(row.HashRanges) > 0 && s.fine > 0 {
		ids, size = nil, s.fine
		for _, r := range row.HashRanges {
			for i := range r.Count {
				ids = append(ids, r.First+uint64(i))
			}
		}
	}
	unit = s.unit
	if unit%size != 0 {
		unit = size
	}
	group := int(unit / size)
	chain := xxhash.Sum64String(row.Model)
	var b [8]byte
	d := xxhash.New()
	for n := min(int64(len(ids))/int64(group), (row.InputLength.V-1)/unit); n > 0; n-- {
		d.ResetWithSeed(chain)
		for _, id := range ids[:group] {
			binary.LittleEndian.PutUint64(b[:], id)
			_, _ = d.Write(b[:]) // which never fails
		}
		ids = ids[group:]
		chain = d.Sum64()
		keys = append(keys, chain)
	}
	return keys, unit
}

// end adds up the counts of the instances.
func (s *routing) end() {
	cached, most, work := int64(0), int64(0), int64(0)
	for i := range s.Instances {
		one := &s.Instances[i]
		if s.unknown > 0 {
			one.Cached = nil
		} else {
			cached += *one.Cached
		}
		s.Rows += one.Rows
		s.PromptTokens += one.PromptTokens
		s.Routed += one.Routed
		most, work = max(most, one.computed()), work+one.computed()
	}
	if s.unknown == 0 {
		s.Cached = &cached
	}
	s.Best = max(s.greedy, s.Routed)
	s.Imbalance = 1
	if work > 0 {
		s.Imbalance = float64(most) * float64(len(s.Instances)) / float64(work)
	}
}

// Share returns a count as a share of the prompt tokens, 0 to 1.
func (r *Router) Share(tokens int64) float64 {
	if r.PromptTokens == 0 {
		return math.NaN()
	}
	return float64(tokens) / float64(r.PromptTokens)
}

// blockCache holds blocks by their keys.
type blockCache struct {
	all map[uint64]struct{} // infinite
	lru *simplelru.LRU[uint64, struct{}]
}

// newBlockCache returns a cache with this many blocks, with the least recently used ones evicted; 0 = infinite.
func newBlockCache(blocks int64) *blockCache {
	if blocks <= 0 {
		return &blockCache{all: map[uint64]struct{}{}}
	}
	lru, err := simplelru.NewLRU[uint64, struct{}](int(blocks), nil)
	if err != nil {
		panic(err) // only for sizes below 1
	}
	return &blockCache{lru: lru}
}

// hit returns the number of leading blocks in the cache.
func (c *blockCache) hit(keys []uint64) (n int) {
	for _, key := range keys {
		there := false
		if c.lru != nil {
			there = c.lru.Contains(key)
		} else {
			_, there = c.all[key]
		}
		if !there {
			break
		}
		n++
	}
	return n
}

// add uses the blocks of a prompt; its end is evicted first, as in vLLM.
func (c *blockCache) add(keys []uint64) {
	for _, key := range slices.Backward(keys) {
		if c.lru != nil {
			c.lru.Add(key, struct{}{})
		} else {
			c.all[key] = struct{}{}
		}
	}
}

// ReadRouters reads several runs for comparison. The best routing of one is the best for all with the same number of instances. It returns
// an error if they replayed different traces.
func ReadRouters(dirs []string, capacity int64) (all []*Router, err error) {
	for _, dir := range dirs {
		r, err := ReadRouter(dir, capacity)
		if err != nil {
			return nil, err
		}
		if len(all) > 0 {
			first, here := all[0].run.trace, r.run.trace
			if first.Rows != here.Rows || first.Seq != here.Seq || first.Tree != here.Tree {
				return nil, fmt.Errorf("%s and %s cannot be compared: they replayed different traces (%d rows, digest %s; %d rows, digest %s)",
					all[0].Dir, dir, first.Rows, short(first.Seq), here.Rows, short(here.Seq))
			}
		}
		all = append(all, r)
	}
	best := map[[2]int64]int64{}
	for _, r := range all {
		of := [2]int64{int64(len(r.Instances)), r.PromptTokens}
		best[of] = max(best[of], r.Best)
	}
	for _, r := range all {
		r.Best = best[[2]int64{int64(len(r.Instances)), r.PromptTokens}]
	}
	return all, nil
}
