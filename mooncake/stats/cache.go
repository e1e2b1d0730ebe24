// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"cmp"
	"math"
	"slices"

	"github.com/moonloop/moonloop/mooncake"
)

// Eviction says in which order the blocks of one row age in a least-recently-used cache.
type Eviction uint8

// The eviction orders.
const (
	LeafFirst Eviction = iota // the end of a prompt goes before its beginning, as in vLLM
	RootFirst                 // the beginning goes first
)

func (e Eviction) String() string { return [...]string{"leaf-first", "root-first"}[e] }

// CacheOptions says which caches to simulate. The zero value is one infinite cache.
type CacheOptions struct {
	BlockSize int // tokens per id; 0 is [mooncake.BlockSize]
	// FineBlockSize is the number of tokens per id of hash_ranges; 0 leaves ranges out.
	FineBlockSize int
	Capacities    []int    // in blocks, above 0; the infinite cache is always simulated
	Eviction      Eviction // order of the finite caches
	MaxIDs        int      // prefixes that the infinite cache remembers when ids are not canonical; 0 is [mooncake.DefaultMaxIDs]
}

// CacheSim computes what prefix caches would have hit, for any number of capacities in one pass over the rows in
// file order, without a time model.
//
// For each row the hit is the longest run of leading blocks that are all resident; a block is told from others by its id and
// all ids before it, and by the row's model. Then all blocks are touched, and only then blocks are evicted, so that a row may
// exceed the capacity and evict parts of itself. The residents of a smaller cache
// are then always among those of a larger one (it is a stack algorithm: Mattson, Gecsei, Slutz, Traiger, 1970), and
// a block is resident at capacity C exactly when fewer than C other blocks were touched after it. One list of blocks in order of
// touch, with ranks from a Fenwick tree, answers for all capacities. Memory is bounded by the largest capacity.
type CacheSim struct {
	blockSize int
	eviction  Eviction
	caches    []*cacheCount // finite by capacity, the infinite one last
	prefixes  *prefixes
	fine      *fineSharing // nil without a fine block size
	fineStats FineStats
	lru       *recency // nil without finite caches
	skipped   int64
	observed  mooncake.ObservedCache
}

// CacheStats is what one cache hit. Rows without input_length are left out.
type CacheStats struct {
	Capacity int   `json:"capacity_blocks"` // 0: infinite
	Requests int64 `json:"requests"`
	// Blocks counts ids, HitBlocks those that were hit. HitTokens is the sum of min(hit blocks * block size, input
	// length); PrefillTokens is what remains of the input, the least that any engine has to compute.
	Blocks        int64 `json:"blocks"`
	HitBlocks     int64 `json:"hit_blocks"`
	InputTokens   int64 `json:"input_tokens"`
	HitTokens     int64 `json:"hit_tokens"`
	PrefillTokens int64 `json:"prefill_tokens"`
	// FullBlocks and FullHits count full blocks only, which is what engines cache.
	FullBlocks    int64 `json:"full_blocks"`
	FullHits      int64 `json:"full_block_hits"`
	FullHitTokens int64 `json:"full_block_hit_tokens"`
	// The rates are the quotients of the sums; the means are over requests.
	BlockRate     float64 `json:"block_hit_rate"`
	TokenRate     float64 `json:"token_hit_rate"`
	MeanBlockRate float64 `json:"mean_request_block_hit_rate"`
	MeanTokenRate float64 `json:"mean_request_token_hit_rate"`
	FullyHit      int64   `json:"fully_hit_requests"`
	NotHit        int64   `json:"not_hit_requests"`
	// HitQuantiles are the hit blocks per request: p50, p75, p90, p95, p99, max.
	HitQuantiles [6]int64 `json:"hit_blocks_p50_p75_p90_p95_p99_max"`
	// Unknown counts rows whose hits could not be told, because more ids than MaxIDs appeared in no canonical order.
	// They are counted as missing from there on.
	Unknown int64 `json:"unknown_requests,omitempty"`

	Undefined UndefinedFigures `json:"undefined,omitempty"`
}

// MarshalJSON writes null for what is undefined.
func (s CacheStats) MarshalJSON() ([]byte, error) {
	type plain CacheStats
	return s.Undefined.marshal(plain(s))
}

type cacheCount struct {
	CacheStats
	hits                 tally
	sumBlocks, sumTokens float64
}

// NewCacheSim returns a simulation. Capacities of 0 or less are ignored.
func NewCacheSim(opt CacheOptions) *CacheSim {
	if opt.BlockSize <= 0 {
		opt.BlockSize = mooncake.BlockSize
	}
	capacities := slices.DeleteFunc(slices.Clone(opt.Capacities), func(c int) bool { return c <= 0 })
	slices.Sort(capacities)
	capacities = slices.Compact(capacities)
	s := &CacheSim{
		blockSize: opt.BlockSize, eviction: opt.Eviction,
		prefixes: newPrefixes(opt.BlockSize, cmp.Or(max(opt.MaxIDs, 0), mooncake.DefaultMaxIDs)),
	}
	if opt.FineBlockSize > 0 {
		s.fine = newFineSharing(opt.FineBlockSize, hashCost*min(cmp.Or(max(opt.MaxIDs, 0), mooncake.DefaultMaxIDs), math.MaxInt/hashCost))
		s.fineStats.BlockSize = opt.FineBlockSize
	}
	for _, c := range capacities {
		s.caches = append(s.caches, &cacheCount{CacheStats: CacheStats{Capacity: c}})
	}
	s.caches = append(s.caches, new(cacheCount))
	if n := len(capacities); n > 0 {
		s.lru = newRecency(capacities[n-1])
	}
	return s
}

// Add processes the next row in file order.
func (s *CacheSim) Add(row *mooncake.Row) {
	if !row.InputLength.Set {
		s.skipped++
		if s.fine != nil {
			s.fine.skip()
		}
		return
	}
	common := s.prefixes.add(row)
	blocks := s.prefixes.nodes
	infinite := s.caches[len(s.caches)-1]
	infinite.add(row, common.blocks, len(blocks), s.blockSize)
	most := common.blocks // no cache hits more than the infinite one
	if !common.known {
		infinite.Unknown++
		most = len(blocks)
	}
	s.observe(row, common)
	if s.lru == nil {
		return
	}
	// The hit of a cache ends at the first block whose rank reaches its capacity, so with the blocks from left to
	// right the caches end in ascending order.
	finite := s.caches[:len(s.caches)-1]
	done := 0
	for i, block := range blocks[:most] {
		rank, ok := s.lru.rank(block)
		for done < len(finite) && (!ok || rank >= finite[done].Capacity) {
			finite[done].add(row, i, len(blocks), s.blockSize)
			done++
		}
		if done == len(finite) {
			break
		}
	}
	for ; done < len(finite); done++ {
		finite[done].add(row, most, len(blocks), s.blockSize)
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

// observe counts what the infinite cache has of a row as finely as the row says, and sets it beside what production's engine had.
func (s *CacheSim) observe(row *mooncake.Row, common overlap) {
	length, size := row.InputLength.V, int64(s.blockSize)
	whole := min(int64(common.blocks), length/size) * size
	s.fineStats.replies(row)
	switch {
	case s.fine != nil && row.HashRanges != nil:
		prompts, all := s.fine.add(row)
		if common.known && all.Known {
			fine := s.fineStats.ranges(length, whole, max(prompts.Tokens, common.tokens), max(all.Tokens, common.tokens))
			s.observed.Add(row, fine, s.fineStats.BlockSize)
			return
		}
		s.fineStats.Unknown++
	case s.fine != nil:
		s.fine.skip()
		fallthrough
	default:
		if common.known {
			s.observed.Add(row, whole, s.blockSize)
		}
	}
}

// Fine returns what the infinite cache hit of the rows with ranges so far.
func (s *CacheSim) Fine() FineStats { return s.fineStats.rated() }

// Stats returns what each cache hit so far: the finite ones by ascending capacity, then the infinite one.
func (s *CacheSim) Stats() []CacheStats {
	out := make([]CacheStats, len(s.caches))
	for i, c := range s.caches {
		out[i] = c.stats()
	}
	return out
}

// Observed sets what production's engine had cached beside what the infinite cache hit, over the rows so far that say so.
func (s *CacheSim) Observed() mooncake.ObservedCache { return s.observed }

// add counts a row of which k leading blocks of all were hit.
func (c *cacheCount) add(row *mooncake.Row, k, all, blockSize int) {
	n, size := row.InputLength.V, int64(blockSize)
	tokens := hitTokens(k, n, blockSize)
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
	if s.Requests > 0 {
		s.MeanBlockRate = c.sumBlocks / float64(s.Requests)
		s.MeanTokenRate = c.sumTokens / float64(s.Requests)
	}
	copy(s.HitQuantiles[:], c.hits.quantiles(50, 75, 90, 95, 99, 100))
	return s
}

// hitTokens returns the prompt tokens in k leading blocks. The last block may be partial, so it is bounded by
// the length.
func hitTokens(k int, length int64, blockSize int) int64 {
	return min(int64(k)*int64(blockSize), length)
}

func quotient(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
