// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/blockhash"
)

// TestNothingIsAllocatedPerBlock hashes long prompts with memory that is there already.
func TestNothingIsAllocatedPerBlock(t *testing.T) {
	h := testHasher(t)
	r := rand.New(rand.NewPCG(9, 9))
	text, tokens := randomText(r, 100_000), randomTokens(r, 20_000)
	hashes := make([]uint64, 1000)
	ids := make([]uint64, 0, 2000)
	chain := chainOf(h, text)
	attr, err := chain.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	ends := evenEnds(chain, 20_000)
	var back blockhash.Chain
	for name, run := range map[string]func(){
		"messages": func() { h.Reset(); h.Role("user"); h.Text(text); h.Chain() },
		"short messages": func() {
			h.Reset()
			for range 100 {
				h.Role("user")
				h.Text("hello")
			}
			h.Chain()
		},
		"tokens": func() { h.Tokens(ids[:0], tokens, 512) },
		"engine": func() { _, _ = h.Reblock(ids[:0], hashes, 16, 512, 16_001, "span") },
		"lay":    func() { _, _ = chain.Blocks(ids[:0], ends, 20_000, 512) },
		"encode": func() { attr, _ = chain.AppendBinary(attr[:0]) },
		"decode": func() {
			if err := back.UnmarshalBinary(attr); err != nil {
				t.Fatal(err)
			}
		},
	} {
		run() // memory grows here
		if n := testing.AllocsPerRun(20, run); n != 0 {
			t.Errorf("%s: %v allocations for a prompt, want none", name, n)
		}
	}
}

// benchmarkText returns a text as long as the mean prompt of the public conversation trace: 12,035 tokens, 48 kB.
func benchmarkText() string {
	return strings.Repeat("The quick brown fox jumps over the lazy dog. ", 1070)
}

func BenchmarkCells(b *testing.B) {
	h, text := testHasher(b), benchmarkText()
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		h.Reset()
		h.Role("user")
		h.Text(text)
		h.Chain()
	}
}

// BenchmarkCellsShort hashes a short prompt, such as a chat turn.
func BenchmarkCellsShort(b *testing.B) {
	h, text := testHasher(b), benchmarkText()[:200]
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		h.Reset()
		h.Role("user")
		h.Text(text)
		h.Chain()
	}
}

func BenchmarkTokens(b *testing.B) {
	for _, size := range []int{16, 512} {
		b.Run(decimal(uint64(size)), func(b *testing.B) {
			h := testHasher(b)
			tokens := randomTokens(rand.New(rand.NewPCG(1, 2)), 12_035)
			ids := make([]uint64, 0, 1000)
			b.SetBytes(int64(4 * len(tokens)))
			b.ReportAllocs()
			for b.Loop() {
				ids = h.Tokens(ids[:0], tokens, size)
			}
		})
	}
}

// BenchmarkBlocks lays the blocks of a prompt of 48 kB.
func BenchmarkBlocks(b *testing.B) {
	const tokens = 12_035
	chain := chainOf(testHasher(b), randomText(rand.New(rand.NewPCG(1, 2)), 48_000))
	ends := evenEnds(chain, tokens)
	var ids []uint64
	b.SetBytes(48_000)
	b.ReportAllocs()
	for b.Loop() {
		ids, _ = chain.Blocks(ids[:0], ends, tokens, 512)
	}
}

func BenchmarkNewHasher(b *testing.B) {
	key, domain := testKey(b), blockhash.Domain("text", "bench")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := blockhash.NewHasher(key, domain); err != nil {
			b.Fatal(err)
		}
	}
}
