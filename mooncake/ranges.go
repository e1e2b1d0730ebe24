// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// This file reads, writes and checks the two fields that make a trace as fine as a real cache: hash_ranges and replies.

// ranges reads hash_ranges: pairs of the first id and the number of ids.
func (p *parser) ranges(r *Row) *RowError {
	n, e := p.tuples("hash_ranges", "[first id, number of ids]", 2)
	if n == nil || e != nil {
		return e
	}
	r.HashRanges = make([]HashRange, 0, len(n)/2)
	for ; len(n) > 0; n = n[2:] {
		if n[1] > maxTokens {
			return tooLong("hash_ranges", "element "+strconv.Itoa(len(r.HashRanges)))
		}
		r.HashRanges = append(r.HashRanges, HashRange{First: n[0], Count: int64(n[1])}) //nolint:gosec // bounded above
	}
	return nil
}

// replies reads replies: triples of how many rows back, the tokens before, and the tokens. An empty list is none.
func (p *parser) replies(r *Row) *RowError {
	n, e := p.tuples("replies", "[rows back, tokens before, tokens]", 3)
	if len(n) == 0 || e != nil {
		return e
	}
	r.Replies = make([]Reply, 0, len(n)/3)
	for ; len(n) > 0; n = n[3:] {
		if max(n[0], n[1], n[2]) > maxTokens {
			return tooLong("replies", "element "+strconv.Itoa(len(r.Replies)))
		}
		r.Replies = append(r.Replies, Reply{Back: int64(n[0]), At: int64(n[1]), Tokens: int64(n[2])}) //nolint:gosec // bounded above
	}
	return nil
}

// tuples reads an array of arrays of so many unsigned integers each, and returns these one after another, until the next call. Nil
// without an error means null: absent. Numbers never pass through a float.
func (p *parser) tuples(field, want string, size int) ([]uint64, *RowError) {
	v, e := p.value(field, '[')
	if v == nil || e != nil {
		return nil, e
	}
	p.numbers = append(p.numbers[:0], 0)[:0] // not nil
	bad := func(rule string) ([]uint64, *RowError) {
		return nil, &RowError{
			Field: field, Value: "element " + strconv.Itoa(len(p.numbers)/size), Rule: rule,
			Advice: "write each as " + want + ", in unsigned integers, or leave the key out",
		}
	}
	inside, n := false, 0 // of an array, and the numbers in it
	for i := 1; i < len(v)-1; {
		switch c := v[i]; {
		case c == ',' || c == ' ' || c == '\t' || c == '\r' || c == '\n':
			i++
			continue
		case !inside && c == '[':
			inside, n = true, 0
			i++
			continue
		case !inside:
			return bad("is not an array")
		case c == ']' && n < size:
			return bad(fmt.Sprintf("holds %d numbers, not %d", n, size))
		case c == ']':
			inside = false
			i++
			continue
		case c == '-':
			return bad("holds a negative number")
		case c < '0' || c > '9':
			return bad("holds something else than an integer")
		case n == size:
			p.numbers = p.numbers[:len(p.numbers)-n]
			return bad(fmt.Sprintf("holds more than %d numbers", size))
		}
		var x uint64
		for ; v[i] >= '0' && v[i] <= '9'; i++ {
			d := uint64(v[i] - '0')
			if x > (math.MaxUint64-d)/10 {
				return bad("holds a number above 2^64-1")
			}
			x = x*10 + d
		}
		if c := v[i]; c == '.' || c|0x20 == 'e' {
			return bad("holds something else than an integer")
		}
		p.numbers = append(p.numbers, x)
		n++
	}
	return p.numbers, nil
}

// sharing writes hash_ranges and replies. No spaces stand between their numbers: a turn of a long conversation has many of both.
func (o *object) sharing(row *Row) {
	if row.HashRanges != nil {
		o.key("hash_ranges")
		o.dst = append(o.dst, '[')
		for i, r := range row.HashRanges {
			if i > 0 {
				o.dst = append(o.dst, ',')
			}
			o.dst = strconv.AppendUint(append(o.dst, '['), r.First, 10)
			o.dst = strconv.AppendInt(append(o.dst, ','), r.Count, 10)
			o.dst = append(o.dst, ']')
		}
		o.dst = append(o.dst, ']')
	}
	if len(row.Replies) > 0 {
		o.key("replies")
		o.dst = append(o.dst, '[')
		for i, r := range row.Replies {
			if i > 0 {
				o.dst = append(o.dst, ',')
			}
			o.dst = strconv.AppendInt(append(o.dst, '['), r.Back, 10)
			o.dst = strconv.AppendInt(append(o.dst, ','), r.At, 10)
			o.dst = strconv.AppendInt(append(o.dst, ','), r.Tokens, 10)
			o.dst = append(o.dst, ']')
		}
		o.dst = append(o.dst, ']')
	}
}

// faultRanges: the ranges name each id once, and no more ids than the prompt has tokens.
func faultRanges(r *Row) *RowError {
	if r.HashRanges == nil {
		return nil
	}
	bad := func(element int, rule, advice string) *RowError {
		return &RowError{Field: "hash_ranges", Value: "element " + strconv.Itoa(element), Rule: rule, Advice: advice}
	}
	switch {
	case !r.InputLength.Set || r.HashIDs == nil:
		return &RowError{
			Field: "hash_ranges", Rule: "needs input_length and hash_ids: it says more finely what they say",
			Advice: "give both, or remove hash_ranges",
		}
	case len(r.HashRanges) == 0:
		return &RowError{Field: "hash_ranges", Rule: "is empty, and a prompt has a block at least", Advice: "correct the row, or leave the key out"}
	}
	left := r.InputLength.V
	ascending := true
	for i, h := range r.HashRanges {
		switch {
		case h.Count < 1:
			return bad(i, "has no id", "give the number of ids, 1 or more")
		case h.First > math.MaxUint64-uint64(h.Count-1):
			return bad(i, "goes beyond id 2^64-1", "ids are unsigned integers below 2^64; correct the row")
		case h.Count > left:
			return bad(i, fmt.Sprintf("is beyond input_length %d, and no block has less than a token", r.InputLength.V), "correct the row")
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
			return &RowError{
				Field: "hash_ranges", Rule: "an id occurs twice in the row, and an id stands for its block and all before it",
				Advice: "correct the row, or leave the key out",
			}
		}
	}
	return nil
}

// last returns the last id of a range that is not beyond 2^64-1.
func (h HashRange) last() uint64 { return h.First + uint64(h.Count-1) } //nolint:gosec // 1 or more

// faultReplies: replies stand one after another within the prompt, which begins before the first and goes on after the last.
func faultReplies(r *Row) *RowError {
	if len(r.Replies) == 0 {
		return nil
	}
	if !r.InputLength.Set {
		return &RowError{Field: "replies", Rule: "needs input_length", Advice: "give input_length, or remove replies"}
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
		return &RowError{
			Field: "replies", Value: "element " + strconv.Itoa(i), Rule: rule,
			Advice: "write each as [rows back, tokens before, tokens], in the order of the prompt, or leave the key out",
		}
	}
	return nil
}

// checkFine reports a fine block size that does not fit the block size; 0 is none.
func checkFine(fine, blockSize int) error {
	if fine == 0 || fine > 0 && fine < blockSize && blockSize%fine == 0 {
		return nil
	}
	return fmt.Errorf("fine block size %d must divide the block size %d and be below it: correct it, or leave it out", fine, blockSize)
}

// faultSizes: the row has the ids that its length asks for, in blocks of both sizes. What blocks are is no matter of a row alone.
func (r *Reader) faultSizes(row *Row) *RowError {
	if row.HashRanges == nil {
		return nil
	}
	block, fine := r.opt.BlockSize, r.opt.FineBlockSize
	if fine == 0 {
		return &RowError{
			Field: "hash_ranges", Rule: "nothing says how many tokens an id stands for",
			Advice: "give fine_block_size in the trace's sidecar (" + cmp.Or(r.sidecar, "X.meta.json beside X.jsonl") + "), or --fine-block-size",
		}
	}
	if err := checkFine(fine, block); err != nil {
		return &RowError{Field: "hash_ranges", Rule: err.Error(), Err: err}
	}
	var ids int64
	for _, h := range row.HashRanges {
		ids += h.Count // at most input_length
	}
	if want := int64(BlockCount(row.InputLength.V, fine)); ids != want {
		return &RowError{
			Field: "hash_ranges", Value: plural(ids, "id"),
			Rule:   fmt.Sprintf("input_length %d has %d blocks of %d tokens", row.InputLength.V, want, fine),
			Advice: "give the fine block size that the trace was made with, or correct the row",
		}
	}
	if want := BlockCount(row.InputLength.V, block); len(row.HashIDs) != want {
		return &RowError{
			Field: "hash_ids", Value: plural(int64(len(row.HashIDs)), "id"),
			Rule:   fmt.Sprintf("input_length %d has %d blocks of %d tokens, and a row with hash_ranges names them all", row.InputLength.V, want, block),
			Advice: "give the block size that the trace was made with, or correct the row",
		}
	}
	return nil
}
