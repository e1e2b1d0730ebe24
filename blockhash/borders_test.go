// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash_test

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/blockhash"
)

// A prompt of five cells and the start of a sixth, with values that are easy to read.
func fiveCells() blockhash.Chain {
	return blockhash.Chain{Cells: []uint64{1000, 2000, 3000, 4000, 5000}, Tail: 9000, Bytes: 5*blockhash.CellSize + 64}
}

func TestBlocks(t *testing.T) {
	for _, c := range []struct {
		reason string
		chain  blockhash.Chain
		tokens int64
		size   int
		want   []uint64
	}{
		// 704 bytes; cell j ends after (j+1)·tokens·128/704 tokens.
		{"no tokens, no blocks", fiveCells(), 0, 100, nil},
		{"a border is the first cell end at or after it", fiveCells(), 352, 100, []uint64{2000, 4000, 5000, 9003}}, // 64, 128, ... 320
		{"a cell that ends with the block is its border", fiveCells(), 352, 64, []uint64{1000, 2000, 3000, 4000, 5000, 9005}},
		{"one block is the tail", fiveCells(), 352, 512, []uint64{9000}},
		{"with more than size tokens per cell, the index distinguishes blocks", fiveCells(), 704, 64, // 128, 256, ...
			[]uint64{1000, 1001, 2000, 2003, 3000, 3005, 4000, 4007, 5000, 5009, 9010}},
		{"a text of less than a cell is all tail", blockhash.Chain{Tail: 9000, Bytes: 5}, 1000, 512, []uint64{9000, 9001}},
		{"no text at all", blockhash.Chain{Tail: 9000}, 600, 512, []uint64{9000, 9001}},
		{"a text of whole cells ends with the last one", blockhash.Chain{Cells: []uint64{1000, 2000}, Tail: 9000, Bytes: 256}, 64, 32, []uint64{1000, 2000}},
		{"ids wrap", blockhash.Chain{Tail: math.MaxUint64, Bytes: 5}, 1000, 512, []uint64{math.MaxUint64, 0}},
	} {
		got, err := c.chain.Blocks(nil, evenEnds(c.chain, c.tokens), c.tokens, c.size)
		if err != nil {
			t.Errorf("%s: %v", c.reason, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, diff)
		}
	}
}

func TestBlocksRefuses(t *testing.T) {
	for _, c := range []struct {
		reason string
		chain  blockhash.Chain
		tokens int64
		size   int
		want   error
	}{
		{"a negative number of tokens", fiveCells(), -1, 512, blockhash.ErrLength},
		{"the smallest number", fiveCells(), math.MinInt64, 512, blockhash.ErrLength},
		{"too many blocks", fiveCells(), blockhash.MaxBlocks*16 + 1, 16, blockhash.ErrLength},
		{"far too many blocks", fiveCells(), math.MaxInt64, 1, blockhash.ErrLength},
		{"blocks of nothing", fiveCells(), 100, 0, blockhash.ErrBlockSize},
		{"blocks of a negative size", fiveCells(), 100, math.MinInt, blockhash.ErrBlockSize},
		{"blocks whose borders overflow", fiveCells(), math.MaxInt64, math.MaxInt, blockhash.ErrBlockSize},
	} {
		got, err := c.chain.Blocks([]uint64{9}, nil, c.tokens, c.size)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.reason, err, c.want)
		}
		if len(got) != 1 {
			t.Errorf("%s: %d ids in spite of the error", c.reason, len(got)-1)
		}
	}
	if got, err := fiveCells().Blocks(nil, make([]int64, 6), 100, 10); !errors.Is(err, blockhash.ErrLength) || got != nil {
		t.Errorf("ends of six cells for five: %v, error %v", got, err)
	}
	if ids, err := fiveCells().Blocks(nil, nil, blockhash.MaxBlocks*16, 16); err != nil || len(ids) != blockhash.MaxBlocks {
		t.Errorf("the longest prompt: %d blocks, error %v", len(ids), err)
	}
}

// TestBlocksByEnds: the given ends determine the borders, and after the last one the tail does.
func TestBlocksByEnds(t *testing.T) {
	for _, c := range []struct {
		reason string
		ends   []int64
		tokens int64
		want   []uint64
	}{
		{"cells of other lengths", []int64{10, 90, 100, 110, 300}, 320, []uint64{3000, 5000, 5002, 9003}},
		{"cells without tokens", []int64{100, 100, 100, 100, 200}, 200, []uint64{1000, 5000}},
		{"only three ends are known", []int64{60, 120, 180}, 300, []uint64{2000, 9001, 9002}},
		{"fewer tokens than the ends say", []int64{100, 200, 300, 400, 500}, 150, []uint64{1000, 2000}},
	} {
		got, err := fiveCells().Blocks(nil, c.ends, c.tokens, 100)
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s: error %v (-want +got):\n%s", c.reason, err, diff)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		reason string
		chain  blockhash.Chain
		want   error
	}{
		{"what a hasher made", fiveCells(), nil},
		{"no text", blockhash.Chain{}, nil},
		{"more text than the most cells cover", blockhash.Chain{Cells: make([]uint64, blockhash.MaxCells), Bytes: 1 << 40}, nil},
		{"more cells than text", blockhash.Chain{Cells: []uint64{1, 2}, Bytes: 128}, blockhash.ErrLength},
		{"text without its cells", blockhash.Chain{Bytes: 128}, blockhash.ErrLength},
		{"one byte less than no text", blockhash.Chain{Bytes: -1}, blockhash.ErrLength},
		{"less than no text", blockhash.Chain{Bytes: -1 << 40}, blockhash.ErrLength},
	} {
		if err := c.chain.Validate(); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.reason, err, c.want)
		}
	}
}
