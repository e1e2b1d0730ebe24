// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
)

func TestDecode(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	ids := []uint64{0, 1, 7, math.MaxUint32, 1 << 50, 1 << 63, math.MaxUint64}
	for range 2000 {
		ids = append(ids, rng.Uint64())
	}
	for _, id := range ids {
		seed := rng.Uint64()
		n := 8 + rng.IntN(700)
		block := make([]byte, n*wordBytes)
		Fill(block, seed, id, n)
		if got, ok := Decode(block, seed); !ok || got != id {
			t.Fatalf("id %d, seed %d, %d words: got %d, %v", id, seed, n, got, ok)
		}
		if got, ok := Decode(block[:40], seed); !ok || got != id {
			t.Fatalf("id %d from its first 8 words alone: got %d, %v", id, got, ok)
		}
	}
}

func TestDecodeRejects(t *testing.T) {
	block := make([]byte, 512*wordBytes)
	Fill(block, 42, 7, 512)
	change := func(at int, text string) []byte {
		c := bytes.Clone(block)
		copy(c[at:], text)
		return c
	}
	plain := make([]byte, 512*wordBytes) // its 8th word is the list's first
	Fill(plain, 0, 0, 512)
	copy(plain[35:], " acid") // the third word: the bit that it sets is the 65th
	for _, tt := range []struct {
		why   string
		block []byte
	}{
		{"the 8th word says more than the one bit that is left, which is 0", plain},
		{"the same in a block of nothing else", plain[:40]},
		{"nothing", nil},
		{"seven words do not hold an id", block[:35]},
		{"part of a word", block[:42]},
		{"does not begin at a word", block[1:41]},
		{"a word that is not in the list", change(6, "zzzz")},
		{"a letter of another case", change(1, "E")},
		{"no space before a header word", change(5, "x")},
		{"the 8th word says more than the one bit that is left, which is 1", change(35, " acid")},
		{"another word in the header: another id, whose block goes on differently", change(0, " pull")},
		{"another word at the end", change(2555, " aber")},
		{"real text", bytes.Repeat([]byte(" have"), 512)},
	} {
		for _, seed := range []uint64{0, 42} {
			if id, ok := Decode(tt.block, seed); ok {
				t.Errorf("%s: decoded as %d", tt.why, id)
			}
		}
	}
	if id, ok := Decode(block, 43); !ok {
		// The header alone says nothing of the seed: another one gives another id, and the same rest.
		t.Errorf("with another seed: rejected")
	} else if id == 7 {
		t.Errorf("with another seed: the same id")
	}
}

func FuzzDecode(f *testing.F) {
	block := make([]byte, 20*wordBytes)
	Fill(block, 42, 7, 20)
	f.Add(block, uint64(42))
	f.Add(block[:40], uint64(0))
	f.Add([]byte(" aber able"), uint64(1))
	f.Fuzz(func(t *testing.T, block []byte, seed uint64) {
		id, ok := Decode(block, seed)
		if !ok {
			return
		}
		again := make([]byte, len(block))
		if n := Fill(again, seed, id, len(block)/wordBytes); n != len(block) || !bytes.Equal(again, block) {
			t.Errorf("decoded as %d, which fills %q", id, again[:n])
		}
	})
}
