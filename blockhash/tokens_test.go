// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/blockhash"
)

func randomTokens(r *rand.Rand, n int) []uint32 {
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = r.Uint32N(200_000)
	}
	return tokens
}

// TestTokensTellSharedBlocks: prompts have as many leading ids in common as their shared tokens have full blocks.
func TestTokensTellSharedBlocks(t *testing.T) {
	h := testHasher(t)
	r := rand.New(rand.NewPCG(3, 3))
	for range 300 {
		size := 1 + r.IntN(600) // also more than a piece of the stack buffer
		shared := randomTokens(r, r.IntN(2000))
		a := append(slices.Clip(shared), append([]uint32{1 << 30}, randomTokens(r, r.IntN(700))...)...)
		b := append(slices.Clip(shared), append([]uint32{1 << 31}, randomTokens(r, r.IntN(700))...)...)
		ia, ib := h.Tokens(nil, a, size), h.Tokens(nil, b, size)
		if got, want := common(ia, ib), len(shared)/size; got != want {
			t.Fatalf("%d shared tokens in blocks of %d: %d ids shared, want %d", len(shared), size, got, want)
		}
		if got, want := len(ia), (len(a)+size-1)/size; got != want {
			t.Fatalf("%d tokens in blocks of %d: %d ids, want %d", len(a), size, got, want)
		}
	}
}

// TestPartialBlockHasItsLength: the same tokens as a whole prompt and as the start of a longer one are two blocks.
func TestPartialBlockHasItsLength(t *testing.T) {
	h := testHasher(t)
	tokens := randomTokens(rand.New(rand.NewPCG(4, 4)), 1000)
	whole, cut, shorter := h.Tokens(nil, tokens[:512], 512), h.Tokens(nil, tokens[:511], 512), h.Tokens(nil, tokens[:300], 512)
	if whole[0] == cut[0] || cut[0] == shorter[0] {
		t.Error("blocks of different lengths have one id")
	}
	if again := h.Tokens(nil, tokens[:300], 512); again[0] != shorter[0] {
		t.Error("the same prompt has two ids")
	}
}

// TestTokensAppend: ids are appended, and a text that is being hashed does not change.
func TestTokensAppend(t *testing.T) {
	h := testHasher(t)
	want := chainOf(h, "hello, world")
	h.Reset()
	_, _ = h.WriteString("hello, ")
	got := h.Tokens([]uint64{7}, []uint32{1, 2, 3}, 2)
	_, _ = h.WriteString("world")
	if len(got) != 3 || got[0] != 7 {
		t.Errorf("got %d values that begin with %d, want 3 that begin with 7", len(got), got[0])
	}
	if h.Chain().Tail != want.Tail {
		t.Error("hashing tokens changed the text")
	}
	for _, size := range []int{0, -1, math.MinInt} {
		if got := h.Tokens(nil, []uint32{1}, size); got != nil {
			t.Errorf("blocks of %d tokens: %d ids", size, len(got))
		}
	}
}

// TestReblockAgreesWithTokens hashes prompts in small blocks, as an engine does, makes large blocks of them, and compares their structure
// with that of large blocks of the tokens.
func TestReblockAgreesWithTokens(t *testing.T) {
	engine, ours := newHasher(t, testKey(t), blockhash.Domain("some engine")), testHasher(t)
	r := rand.New(rand.NewPCG(5, 5))
	for range 500 {
		from := 1 + r.IntN(20)
		to := from * (1 + r.IntN(20))
		shared := randomTokens(r, r.IntN(900))
		var ids, exact [2][]uint64
		for i := range ids {
			tokens := append(slices.Clip(shared), randomTokens(r, 1+r.IntN(500))...)
			hashes := engine.Tokens(nil, tokens, from)
			if r.IntN(2) == 0 { // an engine that hashes full blocks only
				hashes = hashes[:len(tokens)/from]
			}
			var err error
			if ids[i], err = ours.Reblock(nil, hashes, from, to, int64(len(tokens)), string(rune('a'+i))); err != nil {
				t.Fatal(err)
			}
			exact[i] = ours.Tokens(nil, tokens, to)
			if len(ids[i]) != len(exact[i]) {
				t.Fatalf("%d tokens, blocks of %d to blocks of %d: %d ids, want %d", len(tokens), from, to, len(ids[i]), len(exact[i]))
			}
		}
		if got, want := common(ids[0], ids[1]), common(exact[0], exact[1]); got != want {
			t.Fatalf("%d shared tokens, blocks of %d to blocks of %d: %d ids shared, want %d", len(shared), from, to, got, want)
		}
	}
}

func TestReblockPicks(t *testing.T) {
	h := testHasher(t)
	hashes := []uint64{1, 2, 3, 4, 5}
	sealed, err := h.Reblock(nil, hashes, 16, 16, 80, "")
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range sealed {
		if id == hashes[i] {
			t.Error("an engine's hash is not sealed")
		}
	}
	for _, c := range []struct {
		reason string
		n, to  int
		tokens int64
		want   []int // indices into hashes; -1 means none of them
	}{
		{"every second hash", 4, 32, 64, []int{1, 3}},
		{"the last hash, too, if the last block is not full", 5, 32, 80, []int{1, 3, 4}},
		{"the last hash, too, if it covers fewer tokens", 5, 32, 65, []int{1, 3, 4}},
		{"the rest of the prompt has no hash", 4, 32, 65, []int{1, 3, -1}},
		{"only a part of the last block has hashes", 5, 32, 95, []int{1, 3, -1}},
		{"one block from all hashes", 5, 160, 80, []int{4}},
		{"no hash at all", 0, 32, 15, []int{-1}},
	} {
		got, err := h.Reblock(nil, hashes[:c.n], 16, c.to, c.tokens, "span")
		if err != nil {
			t.Errorf("%s: %v", c.reason, err)
			continue
		}
		var picked []int
		for _, id := range got {
			at := -1
			for i := range sealed {
				if sealed[i] == id {
					at = i
				}
			}
			picked = append(picked, at)
		}
		if diff := cmp.Diff(c.want, picked); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, diff)
		}
	}
}

// TestMintedIDs: an id that replaces a hash dropped by the engine belongs to one request, and is the same each time.
func TestMintedIDs(t *testing.T) {
	h := testHasher(t)
	mint := func(hash uint64, tokens int64, span string) uint64 {
		t.Helper()
		ids, err := h.Reblock(nil, []uint64{hash}, 16, 32, tokens, span)
		if err != nil {
			t.Fatal(err)
		}
		return ids[len(ids)-1]
	}
	first := mint(1, 17, "span a")
	if first != mint(1, 17, "span a") {
		t.Error("a span that passes twice gets two ids")
	}
	for reason, other := range map[string]uint64{
		"another span":   mint(1, 17, "span b"),
		"another length": mint(1, 18, "span a"),
		"another hash":   mint(2, 17, "span a"),
	} {
		if other == first {
			t.Errorf("%s has the same id", reason)
		}
	}
}

func TestReblockRefuses(t *testing.T) {
	h := testHasher(t)
	five := []uint64{1, 2, 3, 4, 5}
	for _, c := range []struct {
		reason   string
		from, to int
		tokens   int64
		want     error
	}{
		{"hashes of larger blocks", 32, 16, 160, blockhash.ErrBlockSize},
		{"no multiple", 16, 40, 80, blockhash.ErrBlockSize},
		{"blocks of nothing", 0, 16, 80, blockhash.ErrBlockSize},
		{"blocks of less than nothing", -16, 16, 80, blockhash.ErrBlockSize},
		{"into blocks of nothing", 16, 0, 80, blockhash.ErrBlockSize},
		{"a hash too many", 16, 32, 64, blockhash.ErrLength},
		{"a hash is missing", 16, 32, 96, blockhash.ErrLength},
		{"two are missing, with a rest", 16, 32, 115, blockhash.ErrLength},
		{"no tokens", 16, 32, 0, blockhash.ErrLength},
		{"a negative number of tokens", 16, 32, -80, blockhash.ErrLength},
		{"the smallest number of tokens", 16, 32, math.MinInt64, blockhash.ErrLength},
	} {
		got, err := h.Reblock([]uint64{9}, five, c.from, c.to, c.tokens, "span")
		if !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.reason, err, c.want)
		}
		if len(got) != 1 {
			t.Errorf("%s: %d ids in spite of the error", c.reason, len(got)-1)
		}
	}
}
