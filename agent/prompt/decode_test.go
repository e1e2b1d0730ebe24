// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/moonloop/moonloop/internal/splitmix"
)

// decode recognises a block of words that fillWords wrote with this seed, and returns its id. The block is whole words: at least the 8
// that contain the id, and as many more as there are. ok is true only if every byte is what fillWords would have written. In a prompt the
// blocks follow the anchor. Each has 5 bytes for each token of the block size; the last one may be shorter.
func decode(block []byte, seed uint64) (id uint64, ok bool) {
	if len(block) < words.header || len(block)%wordBytes != 0 {
		return 0, false
	}
	var x uint64
	for at := words.header - wordBytes; at >= 0; at -= wordBytes {
		if block[at] != ' ' {
			return 0, false
		}
		digit, ok := wordIndex(string(block[at+1 : at+wordBytes]))
		if !ok {
			return 0, false
		}
		x = x<<wordBits | digit
	}
	// The header is compared, too: its 8th word has only one bit of the id, and the other bits of that word were shifted out unseen.
	var want [64 * wordBytes]byte
	for off := 0; off < len(block); off += len(want) {
		n := min(len(want), len(block)-off)
		words.write(want[:n], x, off)
		if !bytes.Equal(want[:n], block[off:off+n]) {
			return 0, false
		}
	}
	return unmix(x) ^ seed, true
}

// fillWords writes the first n words of the block of id, each a space and four letters, and returns the number of bytes written.
// It writes no more words than dst has room for and touches nothing past them.
func fillWords(dst []byte, seed, id uint64, n int) int { return words.fill(dst, seed, id, n) }

func (a *alphabet) fill(dst []byte, seed, id uint64, n int) int {
	n = max(0, min(n, len(dst)/a.unit)) * a.unit
	a.write(dst[:n], splitmix.Mix(id^seed), 0)
	return n
}

// unmix reverses [splitmix.Mix].
func unmix(x uint64) uint64 {
	x = (x ^ x>>31 ^ x>>62) * 0x319642b2d24d8ec3
	x = (x ^ x>>27 ^ x>>54) * 0x96de1b173f119089
	return x ^ x>>30 ^ x>>60
}

// wordIndex returns the position of a word in the list.
func wordIndex(text string) (index uint64, ok bool) {
	i, ok := slices.BinarySearch(usual.words, text)
	return uint64(i), ok
}

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
		fillWords(block, seed, id, n)
		if got, ok := decode(block, seed); !ok || got != id {
			t.Fatalf("id %d, seed %d, %d words: got %d, %v", id, seed, n, got, ok)
		}
		if got, ok := decode(block[:40], seed); !ok || got != id {
			t.Fatalf("id %d from its first 8 words alone: got %d, %v", id, got, ok)
		}
	}
}

func TestDecodeRejects(t *testing.T) {
	block := make([]byte, 512*wordBytes)
	fillWords(block, 42, 7, 512)
	change := func(at int, text string) []byte {
		c := bytes.Clone(block)
		copy(c[at:], text)
		return c
	}
	plain := make([]byte, 512*wordBytes) // its 8th word is the list's first
	fillWords(plain, 0, 0, 512)
	copy(plain[35:], " acid") // the list's third word: it sets the 65th bit
	for _, tt := range []struct {
		why   string
		block []byte
	}{
		{"the 8th word says more than the one bit that is left, which is 0", plain},
		{"the same in a block of only 8 words", plain[:40]},
		{"an empty block", nil},
		{"seven words do not hold an id", block[:35]},
		{"part of a word", block[:42]},
		{"does not begin at a word", block[1:41]},
		{"a word that is not in the list", change(6, "zzzz")},
		{"a capital letter", change(1, "E")},
		{"no space before a header word", change(5, "x")},
		{"the 8th word says more than the one bit that is left, which is 1", change(35, " acid")},
		{"another word in the header: another id, whose block continues differently", change(0, " pull")},
		{"another word at the end", change(2555, " aber")},
		{"real text", bytes.Repeat([]byte(" have"), 512)},
	} {
		for _, seed := range []uint64{0, 42} {
			if id, ok := decode(tt.block, seed); ok {
				t.Errorf("%s: decoded as %d", tt.why, id)
			}
		}
	}
	if id, ok := decode(block, 43); !ok {
		// The header alone does not depend on the seed: another seed gives another id, for which the rest of the block is the same.
		t.Errorf("with another seed: rejected")
	} else if id == 7 {
		t.Errorf("with another seed: the same id")
	}
}

func FuzzDecode(f *testing.F) {
	block := make([]byte, 20*wordBytes)
	fillWords(block, 42, 7, 20)
	f.Add(block, uint64(42))
	f.Add(block[:40], uint64(0))
	f.Add([]byte(" aber able"), uint64(1))
	f.Fuzz(func(t *testing.T, block []byte, seed uint64) {
		id, ok := decode(block, seed)
		if !ok {
			return
		}
		again := make([]byte, len(block))
		if n := fillWords(again, seed, id, len(block)/wordBytes); n != len(block) || !bytes.Equal(again, block) {
			t.Errorf("decoded as %d, which fills %q", id, again[:n])
		}
	})
}
