// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"
	"slices"

	"github.com/moonloop/moonloop/mooncake"
)

// Eviction is the order in which the blocks of one row age in a least-recently-used cache.
type Eviction uint8

// The eviction orders.
const (
	LeafFirst Eviction = iota // the end of a prompt is evicted before its beginning, as in vLLM
	RootFirst                 // the beginning is evicted first
)

func (e Eviction) String() string { return [...]string{"leaf-first", "root-first"}[e] }

// CacheOptions selects the caches to simulate. The zero value is one infinite cache.
type CacheOptions struct {
	BlockSize int // tokens per id; 0 = [mooncake.BlockSize]
	// FineBlockSize is the number of tokens per id of hash_ranges; 0 = ignore ranges.
	FineBlockSize int
	Capacities    []int    // in blocks, above 0; the infinite cache is always simulated
	Eviction      Eviction // order of the finite caches
	MaxIDs        int      // prefixes that the infinite cache remembers if ids are not canonical; 0 = [mooncake.DefaultMaxIDs]
	// Curve records what caches of every size up to MaxIDs blocks hit. It uses about 100 bytes for each distinct block.
	Curve bool
}

// CacheSim computes the hits of prefix caches, for any number of capacities in one pass over the rows in file order, without a time model.
//
// The hit of a row is the longest run of leading blocks that are all resident. A block is identified by its id, all ids before it, and the
// row's model. Then all blocks of the row are touched, and only afterwards are blocks evicted, so a row may exceed the capacity and evict
// parts of itself. The residents of a smaller cache are then always a subset of those of a larger one (it is a stack algorithm: Mattson,
// Gecsei, Slutz, Traiger, 1970), and a block is resident at capacity C exactly when fewer than C other blocks were touched after it. One
// list of blocks in order of touch, with ranks from a Fenwick tree, therefore serves all capacities. The largest capacity bounds the
// memory.
type CacheSim struct {
	sharing
	eviction  Eviction
	caches    []*cacheCount // finite caches by capacity, the infinite one last
	fineStats FineStats
	lru       *recency // nil without finite caches
	curve     *curve   // nil unless asked for
	observed  mooncake.ObservedCache
}

// CacheStats are the hits of one cache. Rows without input_length are left out.
type CacheStats struct {
	Capacity int   `json:"capacity_blocks"` // 0 = infinite
	Requests int64 `json:"requests"`
	// Blocks is the number of ids, HitBlocks the number of those that hit. HitTokens is the sum of min(hit blocks * block size, input
	// length). PrefillTokens is the rest of the input: the least that any engine must compute.
	Blocks        int64 `json:"blocks"`
	HitBlocks     int64 `json:"hit_blocks"`
	InputTokens   int64 `json:"input_tokens"`
	HitTokens     int64 `json:"hit_tokens"`
	PrefillTokens int64 `json:"prefill_tokens"`
	// FullBlocks and FullHits count only full blocks, because engines cache only those.
	FullBlocks    int64 `json:"full_blocks"`
	FullHits      int64 `json:"full_block_hits"`
	FullHitTokens int64 `json:"full_block_hit_tokens"`
	// The rates are quotients of the sums. The means are over requests.
	BlockRate     float64 `json:"block_hit_rate"`
	TokenRate     float64 `json:"token_hit_rate"`
	MeanBlockRate float64 `json:"mean_request_block_hit_rate"`
	MeanTokenRate float64 `json:"mean_request_token_hit_rate"`
	FullyHit      int64   `json:"fully_hit_requests"`
	NotHit        int64   `json:"not_hit_requests"`
	// HitQuantiles are the hit blocks per request: p50, p75, p90, p95, p99, max.
	HitQuantiles [6]int64 `json:"hit_blocks_p50_p75_p90_p95_p99_max"`
	// Unknown counts rows whose hits are unknown, because more than MaxIDs ids appeared that are not canonical. These ids then count as
	// misses.
	Unknown int64 `json:"unknown_requests,omitzero"`

	Undefined UndefinedFigures `json:"undefined,omitempty"`
}

// MarshalJSON writes null for undefined figures.
func (s CacheStats) MarshalJSON() ([]byte, error) {
	type plain CacheStats
	return s.Undefined.marshal(plain(s))
}

type cacheCount struct {
	CacheStats
	hits                 tally
	sumBlocks, sumTokens float64
}

// NewCacheSim returns a simulation. It ignores capacities of 0 or less.
func NewCacheSim(opt CacheOptions) *CacheSim {
	if opt.BlockSize <= 0 {
		opt.BlockSize = mooncake.BlockSize
	}
	if opt.MaxIDs <= 0 {
		opt.MaxIDs = mooncake.DefaultMaxIDs
	}
	capacities := slices.DeleteFunc(slices.Clone(opt.Capacities), func(c int) bool { return c <= 0 })
	slices.Sort(capacities)
	capacities = slices.Compact(capacities)
	s := &CacheSim{
		eviction: opt.Eviction, sharing: newSharing(opt.BlockSize, opt.FineBlockSize, opt.MaxIDs),
		fineStats: FineStats{BlockSize: max(0, opt.FineBlockSize)},
	}
	for _, c := range capacities {
		s.caches = append(s.caches, &cacheCount{CacheStats: CacheStats{Capacity: c}})
	}
	s.caches = append(s.caches, new(cacheCount))
	largest := 0
	if n := len(capacities); n > 0 {
		largest = capacities[n-1]
	}
	if opt.Curve {
		largest = max(largest, opt.MaxIDs)
		s.curve = &curve{blockSize: opt.BlockSize, largest: largest}
	}
	if largest > 0 {
		s.lru = newRecency(largest)
	}
	return s
}

// Add processes the next row in file order.
func (s *CacheSim) Add(row *mooncake.Row) {
	if !row.InputLength.Set {
		s.skip()
		return
	}
	common := s.add(row)
	blocks, blockSize := s.prefixes.nodes, s.prefixes.blockSize
	infinite := s.caches[len(s.caches)-1]
	infinite.add(row, common.blocks, len(blocks), blockSize)
	most := common.blocks // no cache hits more than the infinite one
	if !common.known {
		infinite.Unknown++
		most = len(blocks)
	}
	s.observe(row, &common)
	if s.lru == nil {
		return
	}
	if s.curve != nil {
		s.curve.add(row, blocks[:most], common.blocks, s.lru)
	}
	// The hit of a cache ends at the first block whose rank reaches its capacity. So, from left to right, the hits end in ascending order
	// of capacity.
	rank := func(hit int) int {
		if hit == most {
			return math.MaxInt
		}
		return s.lru.rank(blocks[hit])
	}
	hit, next := 0, rank(0)
	for _, c := range s.caches[:len(s.caches)-1] {
		for ; next < c.Capacity; next = rank(hit) {
			hit++
		}
		c.add(row, hit, len(blocks), blockSize)
	}
	if s.eviction == RootFirst {
		for _, block := range blocks {
			s.lru.touch(block)
		}
	} else {
		for _, block := range slices.Backward(blocks) {
			s.lru.touch(block)
		}
	}
	s.lru.evict()
}

// observe counts the infinite cache's hits of a row with the finest blocks that the row has, and compares them with the tokens that
// production's engine had cached.
func (s *CacheSim) observe(row *mooncake.Row, common *shared) {
	length, blockSize := row.InputLength.V, s.prefixes.blockSize
	whole := common.wholeByIDs(length, blockSize)
	s.fineStats.replies(row)
	switch {
	case !common.ranged:
		if common.known {
			s.observed.Add(row, whole, blockSize)
		}
	case common.sure:
		s.observed.Add(row, s.fineStats.ranges(length, whole, common.prompts, common.all), s.fineStats.BlockSize)
	default:
		s.fineStats.Unknown++
	}
}

// Fine returns the hits of the infinite cache for the rows with ranges so far.
func (s *CacheSim) Fine() FineStats { return s.fineStats.rated() }

// Stats returns the hits of each cache so far: the finite ones by ascending capacity, then the infinite one.
func (s *CacheSim) Stats() []CacheStats {
	out := make([]CacheStats, len(s.caches))
	for i, c := range s.caches {
		out[i] = c.stats()
	}
	return out
}

// hitTokens returns the hit tokens of the infinite cache so far.
func (s *CacheSim) hitTokens() int64 { return s.caches[len(s.caches)-1].HitTokens }

// Observed compares the tokens that production's engine had cached with the hits of the infinite cache, over the rows so far that have
// both.
func (s *CacheSim) Observed() mooncake.ObservedCache { return s.observed }

// add counts a row with k hits among its leading blocks.
func (c *cacheCount) add(row *mooncake.Row, k, all, blockSize int) {
	n, size := row.InputLength.V, int64(blockSize)
	tokens := min(int64(k)*size, n) // the last block may be partial
	full := min(int64(k), n/size)
	c.Requests++
	c.Blocks += int64(all)
	c.HitBlocks += int64(k)
	c.InputTokens += n
	c.HitTokens += tokens
	c.FullBlocks += min(int64(all), n/size)
	c.FullHits += full
	c.FullHitTokens += full * size
	c.hits.add(int64(k))
	c.sumTokens += float64(tokens) / float64(n)
	if all > 0 {
		c.sumBlocks += float64(k) / float64(all)
	}
	switch k {
	case 0:
		c.NotHit++
	case all:
		c.FullyHit++
	}
}

func (c *cacheCount) stats() CacheStats {
	s := c.CacheStats
	s.PrefillTokens = s.InputTokens - s.HitTokens
	if s.Requests == 0 {
		s.Undefined.add("no row has a length", "blocks", "hit_blocks", "input_tokens", "hit_tokens", "prefill_tokens", "full_blocks", "full_block_hits",
			"full_block_hit_tokens", "block_hit_rate", "token_hit_rate", "mean_request_block_hit_rate", "mean_request_token_hit_rate",
			"fully_hit_requests", "not_hit_requests", "hit_blocks_p50_p75_p90_p95_p99_max")
	}
	if s.Blocks == 0 {
		s.Undefined.add("no row has blocks", "block_hit_rate", "mean_request_block_hit_rate")
	}
	s.BlockRate = quotient(s.HitBlocks, s.Blocks)
	s.TokenRate = quotient(s.HitTokens, s.InputTokens)
	s.MeanBlockRate = c.sumBlocks / float64(max(s.Requests, 1))
	s.MeanTokenRate = c.sumTokens / float64(max(s.Requests, 1))
	copy(s.HitQuantiles[:], c.hits.quantiles(50, 75, 90, 95, 99, 100))
	return s
}

func quotient(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
