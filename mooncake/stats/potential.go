// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"cmp"
	"math"
	"slices"

	"github.com/moonloop/moonloop/mooncake"
)

// KneeShare is the share of the infinite cache's hits at the knee of a [Potential].
const KneeShare = 0.99

// TopPrefixes is the number of shared prefixes of a [Potential].
const TopPrefixes = 10

// PotentialOptions configures a [Potential]. The zero value is exact, for all rows, and in tokens only.
type PotentialOptions struct {
	// Sizes of caches, in tokens. Empty = the powers of two below the working set, at most ten.
	Sizes []float64
	// BytesPerToken is the size of a token in the model's KV cache; 0 = unknown.
	BytesPerToken int64
	// Sample is the share of blocks from which hits are estimated, as by [Reuse]; 0 = exact.
	Sample float64
	// WarmUp is a time in milliseconds. Rows that arrive within this time after the first row fill the caches, but are not counted.
	WarmUp float64
}

// Potential describes the hits of prefix caches of all sizes: least-recently-used caches of whole blocks, over rows in file order, without
// a time model. Exact figures are those of a [CacheSim].
type Potential struct {
	Eviction string `json:"eviction"`
	// SamplingRatio is the share of blocks in the sample, SampledBlocks their number. The ratio is 1 if the figures are exact.
	SamplingRatio float64 `json:"sampling_ratio"`
	SampledBlocks int     `json:"sampled_blocks,omitzero"`
	BytesPerToken int64   `json:"kv_bytes_per_token,omitzero"`
	// Rows and PromptTokens are the rows and tokens that were counted: all except those of the warm-up.
	Rows         int64 `json:"rows"`
	WarmUpRows   int64 `json:"warm_up_rows,omitzero"`
	PromptTokens int64 `json:"prompt_tokens"`
	// Ceiling is the hit rate of the infinite cache.
	Ceiling float64 `json:"ceiling"`
	// WorkingSet is the size of a cache that evicts nothing: all distinct blocks. Knee is the size of the smallest cache with [KneeShare]
	// of the infinite cache's hits.
	WorkingSet CacheSize `json:"working_set"`
	Knee       CacheSize `json:"knee"`
	// Curve has the caches by ascending size. The infinite one, with size 0, is last.
	Curve []PotentialHits `json:"curve"`
	// Prefixes are the prefixes that save the most tokens.
	Prefixes []SharedPrefix `json:"shared_prefixes"`

	Undefined UndefinedFigures `json:"undefined,omitempty"`
}

// MarshalJSON writes null for undefined figures.
func (p Potential) MarshalJSON() ([]byte, error) {
	type plain Potential
	return p.Undefined.marshal(plain(p))
}

// CacheSize is the size of a cache in tokens, and in bytes if the size of a token is known.
type CacheSize struct {
	Tokens int64 `json:"tokens"`
	Bytes  int64 `json:"bytes,omitzero"`
}

// PotentialHits are the hits of one cache.
type PotentialHits struct {
	CacheSize
	// Rate is the hit share of prompt tokens, OfCeiling the share of the infinite cache's hits.
	Rate      float64 `json:"hit_rate"`
	OfCeiling float64 `json:"of_ceiling"`
	// StandardError is the standard error of the rate; 0 if it is exact.
	StandardError float64 `json:"standard_error,omitzero"`

	Undefined UndefinedFigures `json:"undefined,omitempty"`
}

// MarshalJSON writes null for undefined figures.
func (h PotentialHits) MarshalJSON() ([]byte, error) {
	type plain PotentialHits
	return h.Undefined.marshal(plain(h))
}

// leastSampled is the number of sampled blocks that must fit into a cache for an estimate of its hits.
const leastSampled = 100

// SharedPrefix is a common beginning of several prompts. It ends where fewer prompts share the next block.
type SharedPrefix struct {
	// ID is the id of its last block, as numbered by first appearance.
	ID uint64 `json:"id"`
	// Tokens is the number of tokens up to the end of that block.
	Tokens   int64 `json:"tokens"`
	Requests int64 `json:"requests"`
	// Saved is the number of tokens that it saves: for each request except the first, the tokens of its blocks that no shorter shared
	// prefix has. The sum over all prefixes is the number of the infinite cache's hits. Requests of a warm-up are not counted, but one of
	// them may be the first.
	Saved int64 `json:"saved_tokens"`
}

// potential computes a [Potential] from the rows of a trace.
type potential struct {
	opt      PotentialOptions
	curve    *curve    // of a CacheSim; nil if there is a sample
	estimate *estimate // nil without a sample
	first    float64   // timestamp of the first row that has one
	timed    bool
	warm     bool
	cold     int64    // rows of the warm-up
	before   []uint32 // their references to the ids that they have
}

// arrive records the timestamp of the next row, before it is counted anywhere. checker has counted the rows before it.
func (p *potential) arrive(row *mooncake.Row, checker *mooncake.Checker) {
	if !p.timed && row.Timestamp.Set {
		p.first, p.timed = row.Timestamp.V, true
	}
	switch {
	case p.warm:
	case p.opt.WarmUp <= 0 || p.timed && row.Timestamp.Set && row.Timestamp.V-p.first >= p.opt.WarmUp:
		p.warm = true
		p.restart()
		if p.cold > 0 {
			p.before = references(checker.Forest())
		}
	default:
		p.cold++
	}
}

func (p *potential) restart() {
	if p.estimate != nil {
		p.estimate.restart()
	} else {
		p.curve.restart()
	}
}

// references returns the number of references to each id.
func references(forest mooncake.Forest) []uint32 {
	counts := make([]uint32, forest.Len())
	for n, node := range forest.All() {
		counts[n] = node.References
	}
	return counts
}

// stats returns the figures. The figures of the infinite cache and of the forest cover all rows; the forest is empty if there is none.
func (p *potential) stats(infinite *CacheStats, eviction Eviction, blockSize int64, forest mooncake.Forest, why string) *Potential {
	if !p.warm { // all rows arrived during the warm-up
		p.restart()
	}
	out := &Potential{Eviction: eviction.String(), SamplingRatio: 1, BytesPerToken: p.opt.BytesPerToken, WarmUpRows: p.cold}
	size := func(tokens float64) CacheSize {
		return CacheSize{int64(math.Round(tokens)), int64(math.Round(tokens * float64(p.opt.BytesPerToken)))}
	}
	var rate func(tokens float64) (rate, standardError float64)
	if p.estimate == nil {
		rate = p.exact(out, infinite, blockSize, size)
	} else {
		rate = p.estimated(out, size)
	}
	if out.PromptTokens == 0 {
		out.Undefined.add("no row has a length, or all came during the warm-up", "ceiling", "knee", "curve")
		return out
	}
	if out.Prefixes = sharedPrefixes(forest, p.before); why != "" {
		out.Undefined.add(why, "shared_prefixes")
	}
	if p.estimate != nil && out.SampledBlocks == 0 && (forest.Len() > 0 || why != "") { // an estimate from nothing; without ids, 0 is right
		out.Undefined.add("no block is in the sample: take a larger share of the blocks, or all of them", "ceiling", "working_set", "knee", "curve")
		return out
	}
	sizes := slices.Clone(p.opt.Sizes)
	if sizes == nil {
		sizes = powersOfTwo(float64(blockSize), float64(out.WorkingSet.Tokens))
	}
	slices.Sort(sizes)
	for _, tokens := range append(slices.Compact(sizes), math.Inf(1)) {
		hits := PotentialHits{}
		if !math.IsInf(tokens, 1) {
			hits.CacheSize = size(tokens)
		}
		switch hits.Rate, hits.StandardError = rate(tokens); {
		case p.estimate != nil && tokens*out.SamplingRatio < leastSampled*float64(blockSize):
			hits.Undefined.add("too small for this sampling ratio",
				"hit_rate", "of_ceiling", "standard_error")
			hits.Rate, hits.StandardError = 0, 0
		case out.Ceiling > 0:
			hits.OfCeiling = hits.Rate / out.Ceiling
		}
		out.Curve = append(out.Curve, hits)
	}
	return out
}

// exact fills in the figures of a [CacheSim].
func (p *potential) exact(out *Potential, infinite *CacheStats, blockSize int64, size func(float64) CacheSize) func(float64) (float64, float64) {
	c := p.curve
	sums := c.sums()
	out.Rows, out.PromptTokens, out.Ceiling = c.rows, c.tokens, quotient(c.ceiling, c.tokens)
	distinct := infinite.Blocks - infinite.HitBlocks
	out.WorkingSet = size(float64(distinct * blockSize))
	knee := smallest(sums, KneeShare*float64(c.ceiling))
	out.Knee = size(float64(int64(knee) * blockSize))
	if knee == 0 && c.ceiling > 0 {
		out.Undefined.add("the knee is at a cache of more blocks than can be remembered", "knee")
	}
	return func(tokens float64) (float64, float64) {
		if math.IsInf(tokens, 1) {
			return out.Ceiling, 0
		}
		blocks := int64(tokens) / blockSize
		if at := min(blocks, int64(len(sums))-1); at >= 0 {
			return quotient(sums[at], c.tokens), 0
		}
		return 0, 0
	}
}

// estimated fills in the figures of a sample.
func (p *potential) estimated(out *Potential, size func(float64) CacheSize) func(float64) (float64, float64) {
	e := p.estimate
	counted := e.hits()
	hits := &counted[errorParts]
	out.Eviction = RootFirst.String()
	out.SamplingRatio, out.SampledBlocks = e.all.Rate(), e.all.Blocks()
	out.Rows, out.PromptTokens = e.rows, int64(hits.Tokens)
	out.WorkingSet = size(e.all.WorkingSet())
	if out.PromptTokens > 0 {
		out.Ceiling = hits.Rate(math.Inf(1))
		out.Knee = size(hits.Knee(KneeShare))
	}
	return func(tokens float64) (float64, float64) { return hits.Rate(tokens), standardError(&counted, tokens) }
}

// powersOfTwo returns the ten largest powers of two between two sizes.
func powersOfTwo(least, below float64) (sizes []float64) {
	for n := math.Exp2(math.Ceil(math.Log2(max(below, 1))) - 1); n >= least && len(sizes) < 10; n /= 2 {
		sizes = append(sizes, n)
	}
	return sizes
}

// sharedPrefixes returns the prefixes that save the most tokens. A prefix ends with the last block of a run that the same number of rows
// have. Rows that are not counted have made the references before; a block that they have is a hit of all others.
func sharedPrefixes(forest mooncake.Forest, before []uint32) (top []SharedPrefix) {
	type run struct {
		tokens, own    int64 // through the block, and of the run
		requests, hits int64 // of the block
		goesOn         bool
	}
	runs := make([]run, forest.Len())
	for n, node := range forest.All() { // parents come before children
		tokens, requests := int64(node.Tokens), int64(node.References)
		hits := requests - 1
		if int(n) < len(before) {
			requests -= int64(before[n])
			hits = requests
		}
		runs[n] = run{tokens: tokens, own: tokens, requests: requests, hits: hits}
		if node.Parent == mooncake.NoParent {
			continue
		}
		parent := &runs[node.Parent]
		runs[n].tokens += parent.tokens
		if requests == parent.requests && hits == parent.hits {
			runs[n].own += parent.own
			parent.goesOn = true
		}
	}
	for n, r := range runs {
		if r.hits > 0 && !r.goesOn {
			top = append(top, SharedPrefix{uint64(n), r.tokens, r.requests, r.hits * r.own})
			if len(top) >= 64*TopPrefixes {
				top = mostSaving(top)
			}
		}
	}
	return mostSaving(top)
}

func mostSaving(top []SharedPrefix) []SharedPrefix {
	slices.SortFunc(top, func(a, b SharedPrefix) int { return cmp.Or(cmp.Compare(b.Saved, a.Saved), cmp.Compare(a.ID, b.ID)) })
	return top[:min(len(top), TopPrefixes)]
}
