// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/moonloop/moonloop/mooncake/internal/words"
)

// This file reads and checks the two fields that describe sharing as finely as a real cache: hash_ranges and replies.

// ranges reads hash_ranges: pairs of the first id and the number of ids.
func (p *parser) ranges(r *Row) (e *RowError) {
	const advice = "write each as [first id, number of ids], in unsigned integers, or leave the key out"
	r.HashRanges, e = tuples(p, "hash_ranges", 2, advice, func(n []uint64) (HashRange, bool) {
		return HashRange{First: n[0], Count: int64(n[1])}, n[1] <= maxTokens //nolint:gosec // refused where it is larger
	})
	return e
}

const replyAdvice = "write each as [rows back, tokens before, tokens], "

// replies reads replies: triples of the number of rows back, the tokens before the reply, and its tokens. An empty list means no replies.
func (p *parser) replies(r *Row) *RowError {
	const advice = replyAdvice + "in unsigned integers, or leave the key out"
	replies, e := tuples(p, "replies", 3, advice, func(n []uint64) (Reply, bool) {
		inRange := max(n[0], n[1], n[2]) <= maxTokens
		return Reply{Back: int64(n[0]), At: int64(n[1]), Tokens: int64(n[2])}, inRange //nolint:gosec // likewise
	})
	if len(replies) > 0 {
		r.Replies = replies
	}
	return e
}

// tuples reads an array of arrays. The given function converts each one to an element, and reports whether it is in range.
func tuples[T any](p *parser, field string, size int, advice string, element func(n []uint64) (T, bool)) ([]T, *RowError) {
	n, e := p.integers(field, size, advice)
	if n == nil {
		return nil, e
	}
	out := make([]T, len(n)/size)
	for i := range out {
		var ok bool
		if out[i], ok = element(n[i*size:]); !ok {
			return nil, tooLong(field, "element "+strconv.Itoa(i))
		}
	}
	return out, nil
}

// element returns the name of an element of an array.
func element(i int) string { return "element " + strconv.Itoa(i) }

// faultRanges checks that the ranges have each id once, and not more ids than the prompt has tokens.
func faultRanges(r *Row) *RowError {
	if r.HashRanges == nil {
		return nil
	}
	switch {
	case !r.InputLength.Set || r.HashIDs == nil:
		return fault("hash_ranges", "", "needs input_length and hash_ids: it describes the same prefixes in smaller blocks",
			"give both, or remove hash_ranges")
	case len(r.HashRanges) == 0:
		return fault("hash_ranges", "", "is empty, and a prompt has at least one block", correctOrOmit)
	}
	left := r.InputLength.V
	ascending := true
	for i, h := range r.HashRanges {
		switch {
		case h.Count < 1:
			return fault("hash_ranges", element(i), "has no id", "give the number of ids, 1 or more")
		case h.First > math.MaxUint64-uint64(h.Count-1):
			return fault("hash_ranges", element(i), "goes beyond id 2^64-1", "ids are unsigned integers below 2^64; correct the row")
		case h.Count > left:
			rule := fmt.Sprintf("is beyond input_length %d, and a block has at least one token", r.InputLength.V)
			return fault("hash_ranges", element(i), rule, "correct the row")
		}
		left -= h.Count
		ascending = ascending && (i == 0 || h.First > r.HashRanges[i-1].last())
	}
	if ascending {
		return nil
	}
	sorted := slices.Clone(r.HashRanges)
	slices.SortFunc(sorted, func(a, b HashRange) int { return cmp.Compare(a.First, b.First) })
	for i, h := range sorted[1:] {
		if h.First <= sorted[i].last() {
			return fault("hash_ranges", "", "an id occurs twice in the row, and an id stands for its block and all before it",
				correctOrOmit)
		}
	}
	return nil
}

// last returns the last id of a range that ends below 2^64.
func (h HashRange) last() uint64 { return h.First + uint64(h.Count-1) } //nolint:gosec // 1 or more

// faultReplies checks that replies follow each other within the prompt, which begins before the first one and continues after the last one.
func faultReplies(r *Row) *RowError {
	if len(r.Replies) == 0 {
		return nil
	}
	if !r.InputLength.Set {
		return fault("replies", "", "needs input_length", "give input_length, or remove replies")
	}
	end := int64(0)
	for i, reply := range r.Replies {
		rule := ""
		switch {
		case reply.Back < 1:
			rule = "is the reply of no row before this one: the number of rows back must be 1 or more"
		case reply.At < 1:
			rule = "stands at the beginning of the prompt, and there is no reply without a prompt before it"
		case reply.Tokens < 1:
			rule = "has no token"
		case reply.At < end:
			rule = "begins before the end of the one before it"
		case reply.At >= r.InputLength.V || reply.Tokens >= r.InputLength.V-reply.At:
			rule = fmt.Sprintf("does not end before the last token of the prompt (input_length %d)", r.InputLength.V)
		default:
			end = reply.At + reply.Tokens
			continue
		}
		return fault("replies", element(i), rule, replyAdvice+"in the order of the prompt, or leave the key out")
	}
	return nil
}

// checkFine returns an error if a fine block size does not fit the block size; 0 means no fine blocks.
func checkFine(fine, blockSize int) error {
	if fine == 0 || fine > 0 && fine < blockSize && blockSize%fine == 0 {
		return nil
	}
	return fmt.Errorf("fine block size %d must divide the block size %d and be below it: correct it, or leave it out", fine, blockSize)
}

// faultSizes checks that the row has the number of ids that its length requires, in blocks of both sizes. The sizes are not known from the
// row alone.
func (r *Reader) faultSizes(row *Row) *RowError {
	if row.HashRanges == nil {
		return nil
	}
	block, fine := r.opt.BlockSize, r.opt.FineBlockSize
	if fine == 0 {
		sidecar := "X.meta.json next to X.jsonl"
		if name := r.opt.Name; name != "" && name != stdinLabel {
			sidecar = MetaName(name)
		}
		return fault("hash_ranges", "", "nothing says how many tokens an id stands for",
			"give fine_block_size in the trace's sidecar ("+sidecar+"), or --fine-block-size")
	}
	if err := checkFine(fine, block); err != nil {
		return &RowError{Field: "hash_ranges", Rule: err.Error(), Err: err}
	}
	var ids int64
	for _, h := range row.HashRanges {
		ids += h.Count // at most input_length
	}
	length := row.InputLength.V
	if want := int64(BlockCount(length, fine)); ids != want {
		return fault("hash_ranges", words.Plural(ids, "id"),
			fmt.Sprintf("input_length %d has %d blocks of %d tokens", length, want, fine),
			"give the fine block size that the trace was made with, or correct the row")
	}
	if want := BlockCount(length, block); len(row.HashIDs) != want {
		return fault("hash_ids", words.Plural(int64(len(row.HashIDs)), "id"),
			fmt.Sprintf("input_length %d has %d blocks of %d tokens, and a row with hash_ranges names them all", length, want, block),
			"give the block size that the trace was made with, or correct the row")
	}
	return nil
}
