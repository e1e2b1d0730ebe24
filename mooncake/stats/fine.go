// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/internal/ranges"
)

// FineStats is what an infinite prefix cache hits of the rows with hash_ranges, in whole blocks of three kinds: those of the
// trace, those of the ranges, and these with the replies to earlier rows in the cache, too. Of each prompt an engine computes a
// token at least, which the fine figures heed.
type FineStats struct {
	BlockSize   int   `json:"fine_block_size,omitzero"` // tokens per id of hash_ranges
	Rows        int64 `json:"rows"`                     // with hash_ranges
	InputTokens int64 `json:"input_tokens"`             // of these rows

	CoarseHitTokens  int64 `json:"hit_tokens_by_hash_ids"`
	HitTokens        int64 `json:"hit_tokens_by_ranges"`
	RepliesHitTokens int64 `json:"hit_tokens_with_replies"`
	// The rates are shares of InputTokens.
	CoarseRate  float64 `json:"token_hit_rate_by_hash_ids"`
	Rate        float64 `json:"token_hit_rate_by_ranges"`
	RepliesRate float64 `json:"token_hit_rate_with_replies"`

	ReplyRows   int64 `json:"rows_with_replies"`
	Replies     int64 `json:"replies"`      // as rows list them: the reply to a turn is in all later ones
	ReplyTokens int64 `json:"reply_tokens"` // prompt tokens that were replies
	// Unknown counts rows with ranges of which the hits could not be told, because more prefixes than can be remembered came in
	// no canonical order. They are in no token of the above.
	Unknown int64 `json:"unknown_rows,omitzero"`
}

// replies counts the replies of a row.
func (s *FineStats) replies(row *mooncake.Row) {
	if len(row.Replies) == 0 {
		return
	}
	s.ReplyRows++
	s.Replies += int64(len(row.Replies))
	for _, r := range row.Replies {
		s.ReplyTokens += r.Tokens
	}
}

// ranges counts a row with ranges by the tokens in whole blocks of hash ids, and those in common with prompts, and with replies. It
// returns the tokens that an engine with blocks as fine has cached.
func (s *FineStats) ranges(length, coarse, prompts, all int64) (cached int64) {
	cached = wholeBlocks(all, length, int64(s.BlockSize))
	s.Rows++
	s.InputTokens += length
	s.CoarseHitTokens += coarse
	s.HitTokens += wholeBlocks(prompts, length, int64(s.BlockSize))
	s.RepliesHitTokens += cached
	return cached
}

// IsZero reports whether no row has ranges or replies.
func (s FineStats) IsZero() bool { return s.Rows+s.ReplyRows+s.Unknown == 0 }

// rated returns the figures with their rates.
func (s FineStats) rated() FineStats {
	s.CoarseRate = quotient(s.CoarseHitTokens, s.InputTokens)
	s.Rate = quotient(s.HitTokens, s.InputTokens)
	s.RepliesRate = quotient(s.RepliesHitTokens, s.InputTokens)
	return s
}

// sharing is what an infinite prefix cache has after the rows so far.
type sharing struct {
	prefixes *prefixes
	fine     *fineSharing // nil without a fine block size
}

// newSharing returns an empty cache that remembers at least bound prefixes.
func newSharing(blockSize, fineBlockSize, bound int) sharing {
	s := sharing{prefixes: newPrefixes(blockSize, bound)}
	if fineBlockSize > 0 {
		s.fine = &fineSharing{size: int64(fineBlockSize), lineage: ranges.NewLineage(fineBlockSize, s.prefixes.budget, "", 0)}
	}
	return s
}

// shared is what the cache has of a row.
type shared struct {
	overlap            // by hash ids alone
	ranged       bool  // ranges say more
	prompts, all int64 // leading tokens by all that the row says: of prompts, and with the replies to them
	sure         bool  // no range was forgotten, and no hash id
}

// wholeByIDs returns the tokens in the whole blocks of hash ids that the cache has of a prompt.
func (s *shared) wholeByIDs(length int64, blockSize int) int64 {
	size := int64(blockSize)
	return min(int64(s.blocks), length/size) * size
}

// add takes the next row, which has a length.
func (s *sharing) add(row *mooncake.Row) shared {
	ids := s.prefixes.add(row)
	out := shared{
		overlap: ids, prompts: ids.tokens, all: ids.tokens, sure: ids.known,
		ranged: s.fine != nil && row.HashRanges != nil,
	}
	if !out.ranged {
		s.skip()
		return out
	}
	prompts, all := s.fine.add(row)
	out.prompts, out.all, out.sure = max(out.prompts, prompts.Tokens), max(out.all, all.Tokens), out.sure && all.Known
	return out
}

// skip tells of a row that is not to be shared with by ranges.
func (s *sharing) skip() {
	if s.fine != nil {
		s.fine.skip()
	}
}

// fineSharing is what an infinite prefix cache has of rows with ranges: the prompts of the rows before, block by fine block, and
// the replies to them. It takes 16 bytes for a row with new blocks while ids are canonical, and 12 for each row that a reply may
// belong to.
type fineSharing struct {
	lineage *ranges.Lineage
	size    int64 // tokens of a fine block
	rows    int64 // that came, of all kinds
	first   int64 // index of the first row with ranges; rows before have no end
	// ends and lengths are, for each row from the first on, the node behind its last full block, and its prompt tokens: both are
	// ranges.NoNode and 0 for a row without ranges.
	ends    []uint64
	lengths []uint32
}

// skip tells of a row that is not to be shared with.
func (f *fineSharing) skip() {
	if f.rows++; len(f.ends) > 0 {
		f.end(ranges.NoNode, 0)
	}
}

// add takes the next row, which has ranges, and returns what the cache has of its prompt: prompts alone, and with replies.
func (f *fineSharing) add(row *mooncake.Row) (prompts, all ranges.Shared) {
	length := row.InputLength.V
	prompts = ranges.Add(f.lineage, row.Model, length, row.HashRanges)
	all = prompts
	at := 0 // of the path, on which replies stand one behind the other
	for _, reply := range row.Replies {
		there, known := f.replied(row, reply, &at)
		switch {
		case there:
			// The last token that an engine generated was never fed to it.
			all.Tokens = max(all.Tokens, reply.At+reply.Tokens-1)
		case !known:
			all.Known = false
		}
	}
	if f.rows++; len(f.ends) == 0 {
		f.first = f.rows - 1
	}
	f.end(f.lineage.End(row.Model, length/f.size, &at), length)
	return prompts, all
}

// replied reports whether the prompt up to a reply is all of the prompt that it was the reply to, and of nothing else: then
// the cache has the reply behind it. The search on the path goes on from where the one before ended.
func (f *fineSharing) replied(row *mooncake.Row, reply mooncake.Reply, from *int) (there, known bool) {
	at := f.rows - reply.Back - f.first // its place in ends
	switch {
	case at < 0:
		return false, true // it has no ranges
	case at >= int64(len(f.ends)):
		return false, !f.lineage.Full
	}
	end := f.ends[at]
	return int64(f.lengths[at]) == reply.At && end != ranges.NoNode && f.lineage.End(row.Model, reply.At/f.size, from) == end, true
}

// end remembers where a row ends.
func (f *fineSharing) end(node uint64, length int64) {
	if int64(len(f.ends)) == f.rows-f.first-1 && f.lineage.Spend(1) {
		f.ends = append(f.ends, node)
		f.lengths = append(f.lengths, uint32(min(length, math.MaxUint32))) //nolint:gosec // bounded here
	}
}
