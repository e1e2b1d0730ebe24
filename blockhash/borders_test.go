// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/blockhash"
)

// A prompt of five cells and the start of a sixth, with values that are easy to read.
func fiveCells() blockhash.Chain {
	return blockhash.Chain{Cells: []uint64{1000, 2000, 3000, 4000, 5000}, Tail: 9000, Bytes: 5*blockhash.CellSize + 64}
}

func TestLay(t *testing.T) {
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
		{"above size tokens per cell the index tells blocks apart", fiveCells(), 704, 64, // 128, 256, ...
			[]uint64{1000, 1001, 2000, 2003, 3000, 3005, 4000, 4007, 5000, 5009, 9010}},
		{"a text of less than a cell is all tail", blockhash.Chain{Tail: 9000, Bytes: 5}, 1000, 512, []uint64{9000, 9001}},
		{"no text at all", blockhash.Chain{Tail: 9000}, 600, 512, []uint64{9000, 9001}},
		{"a text of whole cells ends with the last one", blockhash.Chain{Cells: []uint64{1000, 2000}, Tail: 9000, Bytes: 256}, 64, 32, []uint64{1000, 2000}},
		{"ids wrap", blockhash.Chain{Tail: math.MaxUint64, Bytes: 5}, 1000, 512, []uint64{math.MaxUint64, 0}},
	} {
		got, err := new(blockhash.Borders).Lay(nil, c.chain, c.tokens, c.size)
		if err != nil {
			t.Errorf("%s: %v", c.reason, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, diff)
		}
	}
}

// TestLayAnchors: what prompts share keeps its positions, and only new text is spread.
func TestLayAnchors(t *testing.T) {
	first := blockhash.Chain{Cells: []uint64{1000, 2000}, Tail: 9000, Bytes: 256} // 50 tokens a cell
	longer := blockhash.Chain{Cells: []uint64{1000, 2000, 3000, 4000}, Tail: 9001, Bytes: 512}
	for _, c := range []struct {
		reason string
		tokens int64
		want   []uint64
	}{
		{"new text of 10 tokens a cell", 120, []uint64{1000, 2000, 9003}},                    // 50, 100, 110, 120
		{"new text of 100 tokens a cell", 300, []uint64{1000, 2000, 3000, 3003, 4000, 4005}}, // 50, 100, 200, 300
		{"the same text, counted as less", 60, []uint64{1000, 2000}},                         // 50, 100, 100, 100
	} {
		var b blockhash.Borders
		if _, err := b.Lay(nil, first, 100, 50); err != nil {
			t.Fatal(err)
		}
		got, err := b.Lay(nil, longer, c.tokens, 50)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, diff)
		}
		again, err := b.Lay(nil, first, 7777, 50)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]uint64{1000, 2000}, again[:2]); diff != "" {
			t.Errorf("%s: the first definer's positions are frozen (-want +got):\n%s", c.reason, diff)
		}
	}
}

func TestLayRefuses(t *testing.T) {
	var b blockhash.Borders
	for _, c := range []struct {
		reason string
		chain  blockhash.Chain
		tokens int64
		size   int
		want   error
	}{
		{"fewer than no tokens", fiveCells(), -1, 512, blockhash.ErrLength},
		{"the least number", fiveCells(), math.MinInt64, 512, blockhash.ErrLength},
		{"too many blocks", fiveCells(), blockhash.MaxBlocks*16 + 1, 16, blockhash.ErrLength},
		{"far too many blocks", fiveCells(), math.MaxInt64, 1, blockhash.ErrLength},
		{"blocks of nothing", fiveCells(), 100, 0, blockhash.ErrBlockSize},
		{"blocks of less", fiveCells(), 100, math.MinInt, blockhash.ErrBlockSize},
		{"blocks whose borders overflow", fiveCells(), math.MaxInt64, math.MaxInt, blockhash.ErrBlockSize},
		{"more cells than text", blockhash.Chain{Cells: []uint64{1, 2}, Bytes: 128}, 100, 512, blockhash.ErrLength},
		{"text without its cells", blockhash.Chain{Bytes: 128}, 100, 512, blockhash.ErrLength},
		{"one byte less than no text", blockhash.Chain{Bytes: -1}, 100, 512, blockhash.ErrLength},
		{"less than no text", blockhash.Chain{Bytes: -1 << 40}, 100, 512, blockhash.ErrLength},
	} {
		got, err := b.Lay([]uint64{9}, c.chain, c.tokens, c.size)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.reason, err, c.want)
		}
		if len(got) != 1 {
			t.Errorf("%s: %d ids in spite of the error", c.reason, len(got)-1)
		}
	}
	if b.Len() != 0 {
		t.Errorf("%d cells of refused prompts are remembered", b.Len())
	}
	if ids, err := b.Lay(nil, fiveCells(), blockhash.MaxBlocks*16, 16); err != nil || len(ids) != blockhash.MaxBlocks {
		t.Errorf("the longest prompt: %d blocks, error %v", len(ids), err)
	}
}

// TestBordersAreBounded feeds ever new prompts among which one comes back again and again: the memory stays within its
// limit, what is in use is not forgotten, and the rest is counted.
func TestBordersAreBounded(t *testing.T) {
	const limit, perPrompt = 1000, 20
	b := blockhash.Borders{Limit: limit}
	h := testHasher(t)
	r := rand.New(rand.NewPCG(6, 6))
	text := randomText(r, perPrompt*blockhash.CellSize)
	want, err := b.Lay(nil, chainOf(h, text), 500, 32)
	if err != nil {
		t.Fatal(err)
	}
	made := perPrompt
	for i := range 2000 {
		if _, err := b.Lay(nil, chainOf(h, randomText(r, perPrompt*blockhash.CellSize)), 700, 32); err != nil {
			t.Fatal(err)
		}
		made += perPrompt
		if b.Len() > limit+2*perPrompt {
			t.Fatalf("%d cells after %d prompts, want %d at most", b.Len(), i+2, limit+2*perPrompt)
		}
		if int64(made) != int64(b.Len())+b.Forgotten() {
			t.Fatalf("%d cells made, %d remembered, %d forgotten", made, b.Len(), b.Forgotten())
		}
		if i%10 == 0 {
			// With another count: positions that were forgotten would be new ones.
			got, err := b.Lay(nil, chainOf(h, text), 900, 32)
			if err != nil {
				t.Fatal(err)
			}
			if n := common(want, got); n < len(want)-1 {
				t.Fatalf("after %d prompts %d of %d blocks are still shared", i+2, n, len(want))
			}
		}
	}
	if b.Forgotten() == 0 {
		t.Error("nothing was ever forgotten: the test tests nothing")
	}
}

// TestForgettingBeginsAtTheLeaves: of two prompts that share a beginning, one comes back; the beginning stays known.
func TestForgettingBeginsAtTheLeaves(t *testing.T) {
	b := blockhash.Borders{Limit: 100}
	h := testHasher(t)
	r := rand.New(rand.NewPCG(7, 7))
	system := randomText(r, 10*blockhash.CellSize)
	lay := func(text string, tokens int64) []uint64 {
		t.Helper()
		ids, err := b.Lay(nil, chainOf(h, text), tokens, 16)
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	first := lay(system+randomText(r, 10*blockhash.CellSize), 400)
	for range 50 {
		lay(system+randomText(r, 10*blockhash.CellSize), 500)
	}
	if got := common(first, lay(system+randomText(r, 10*blockhash.CellSize), 900)); got != 12 && got != 13 {
		t.Errorf("%d blocks of the shared beginning are known, want the 12 of its 200 tokens", got)
	}
}

// TestLayIsDeterministic: the result depends on nothing but the prompts and their order.
func TestLayIsDeterministic(t *testing.T) {
	run := func() (out []uint64) {
		h, b := testHasher(t), blockhash.Borders{Limit: 300}
		r := rand.New(rand.NewPCG(8, 8))
		for range 300 {
			text := strings.Repeat("shared ", r.IntN(300)) + randomText(r, r.IntN(2000))
			var err error
			if out, err = b.Lay(out, chainOf(h, text), int64(r.IntN(2000)), 64); err != nil {
				t.Fatal(err)
			}
		}
		return out
	}
	if !slices.Equal(run(), run()) {
		t.Error("two runs differ")
	}
}
