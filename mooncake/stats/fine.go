// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"math"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/internal/ranges"
)

// FineStats are the hits of an infinite prefix cache for the rows with hash_ranges, in whole blocks of three kinds: the trace's blocks, the
// blocks of the ranges, and the latter with the replies to earlier rows in the cache, too. An engine computes at least one token of each
// prompt; the fine figures take that into account.
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
	Replies     int64 `json:"replies"`      // as rows list them: all later turns list the reply to a turn
	ReplyTokens int64 `json:"reply_tokens"` // prompt tokens that were replies
	// Unknown counts rows with ranges whose hits are unknown, because there were more prefixes that are not canonical than can be
	// remembered. No token of these rows is in the figures above.
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

// ranges counts a row with ranges: the tokens in whole blocks of hash ids, and those in common with earlier prompts, and with prompts and
// replies. It returns the tokens that an engine with blocks as fine would have cached.
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

// rated returns the figures with their rates filled in.
func (s FineStats) rated() FineStats {
	s.CoarseRate = quotient(s.CoarseHitTokens, s.InputTokens)
	s.Rate = quotient(s.HitTokens, s.InputTokens)
	s.RepliesRate = quotient(s.RepliesHitTokens, s.InputTokens)
	return s
}

// sharing is the content of an infinite prefix cache after the rows so far.
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

// shared is the part of a row that the cache has.
type shared struct {
	overlap            // by hash ids only
	ranged       bool  // the row has ranges
	prompts, all int64 // leading tokens by hash ids and ranges: of earlier prompts, and of earlier prompts with their replies
	sure         bool  // no range and no hash id was forgotten
}

// wholeByIDs returns the tokens in the whole blocks of hash ids that the cache has of a prompt.
func (s *shared) wholeByIDs(length int64, blockSize int) int64 {
	size := int64(blockSize)
	return min(int64(s.blocks), length/size) * size
}

// add adds the next row, which must have a length.
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

// skip passes over a row that later rows do not share ranges with.
func (s *sharing) skip() {
	if s.fine != nil {
		s.fine.skip()
	}
}

// fineSharing is the content of an infinite prefix cache for rows with ranges: the prompts of earlier rows, in fine blocks, and the replies
// to them. It uses 16 bytes for a row with new blocks while ids are canonical, and 12 for each row that a reply may belong to.
type fineSharing struct {
	lineage *ranges.Lineage
	size    int64 // tokens of a fine block
	rows    int64 // number of rows of all kinds so far
	first   int64 // index of the first row with ranges; earlier rows have no entry in ends
	// ends and lengths have, for each row from the first one on, the node after its last full block, and its prompt tokens; they are
	// ranges.NoNode and 0 for a row without ranges.
	ends    []uint64
	lengths []uint32
}

// skip passes over a row that later rows do not share with.
func (f *fineSharing) skip() {
	if f.rows++; len(f.ends) > 0 {
		f.end(ranges.NoNode, 0)
	}
}

// add adds the next row, which must have ranges, and returns the part of its prompt that the cache has: of prompts only, and with replies.
func (f *fineSharing) add(row *mooncake.Row) (prompts, all ranges.Shared) {
	length := row.InputLength.V
	prompts = ranges.Add(f.lineage, row.Model, length, row.HashRanges)
	all = prompts
	at := 0 // position in the path, along which the replies follow each other
	for _, reply := range row.Replies {
		there, known := f.replied(row, reply, &at)
		switch {
		case there:
			// The last token that an engine generated was never an input of the model.
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

// replied reports whether the prompt up to a reply is exactly the prompt that the reply answered: then the cache has the reply after it.
// The search in the path continues where the previous one ended.
func (f *fineSharing) replied(row *mooncake.Row, reply mooncake.Reply, from *int) (there, known bool) {
	at := f.rows - reply.Back - f.first // its index in ends
	switch {
	case at < 0:
		return false, true // it has no ranges
	case at >= int64(len(f.ends)):
		return false, !f.lineage.Full
	}
	end := f.ends[at]
	return int64(f.lengths[at]) == reply.At && end != ranges.NoNode && f.lineage.End(row.Model, reply.At/f.size, from) == end, true
}

// end remembers the end of a row.
func (f *fineSharing) end(node uint64, length int64) {
	if int64(len(f.ends)) == f.rows-f.first-1 && f.lineage.Spend(1) {
		f.ends = append(f.ends, node)
		f.lengths = append(f.lengths, uint32(min(length, math.MaxUint32))) //nolint:gosec // bounded here
	}
}
