// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/internal/splitmix"
)

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

func TestWordList(t *testing.T) {
	list := strings.Fields(wordList)
	if len(list) != 512 || !slices.IsSorted(list) || len(slices.Compact(slices.Clone(list))) != 512 {
		t.Fatalf("%d words, sorted %v: want 512 different ones, sorted", len(list), slices.IsSorted(list))
	}
	const want = "270af7ea07ca2376dd0524977a3546a7c85b8456b60476ec9cfb022cd3b988f4"
	if got := sum([]byte(strings.Join(list, ""))); got != want {
		t.Errorf("the list's sha256 is %s, want %s: other words are not known to be one token each", got, want)
	}
	for i, w := range list {
		if got := string(littleBytes(wordUnits[i], wordBytes)); got != " "+w {
			t.Fatalf("word %d is %q, want %q", i, got, w)
		}
		if at, ok := wordIndex(w); !ok || at != uint64(i) {
			t.Errorf("index of %q is %d, %v; want %d", w, at, ok, i)
		}
	}
	for _, w := range []string{"", "aaaa", "zzzz", "aber ", "abe", "Able"} {
		if at, ok := wordIndex(w); ok {
			t.Errorf("%q is found at %d", w, at)
		}
	}
}

// The values were computed outside this project, and are part of the scheme: whoever decodes a prompt relies on them.
func TestFillGolden(t *testing.T) {
	for _, tt := range []struct {
		seed, id uint64
		mixed    uint64
		first    string
		sum      string
	}{
		{0, 0, 0, "aber aber aber aber aber aber aber aber know hash", "8e78192a7620db67c43e428995c6c475e965e608488a4165ee354d5a1a4d5c93"},
		{0, 1, 0x5692161d100b05e5, "unit rate acid self pill expr pass aber lies diff", "db244c3910e046109fa225008fd49d8a8fd9a0ef364f1441409ddb4e9a546bb1"},
		{42, 7, 0xbdbfb556329aee83, "easy pull flag gram paid went just able mine star", "a01e3b03f7d56df87b85d981d81c3e544bc87943b60e94122098b9d10e7ee7a6"},
		{5, 1 << 63, 0x4c90c93f432d261a, "aver fail guns user fail edit mine aber view than", "4a04596372476c67ba007808b886f436beaa4f821504afab7a8b16d883c8fa94"},
	} {
		if got := splitmix.Mix(tt.id ^ tt.seed); got != tt.mixed || unmix(got) != tt.id^tt.seed {
			t.Errorf("seed %d, id %d: mix %016x, want %016x; back %x", tt.seed, tt.id, got, tt.mixed, unmix(got))
		}
		dst := make([]byte, 2560)
		if n := fillWords(dst, tt.seed, tt.id, 512); n != 2560 {
			t.Fatalf("wrote %d bytes, want 2560", n)
		}
		if got := string(dst[:50]); got != " "+tt.first {
			t.Errorf("seed %d, id %d: begins %q, want %q", tt.seed, tt.id, got, tt.first)
		}
		if got := sum(dst); got != tt.sum {
			t.Errorf("seed %d, id %d: sha256 %s, want %s", tt.seed, tt.id, got, tt.sum)
		}
	}
}

func TestFillTokensGolden(t *testing.T) {
	dst := make([]byte, 3072)
	if n := tokens.fill(dst, 42, 7, 512); n != 3072 {
		t.Fatalf("wrote %d bytes, want 3072", n)
	}
	const first = "13715,12478,11586,12901,13519,10011,13890,"
	if got := string(dst[:len(first)]); got != first {
		t.Errorf("begins %s, want %s", got, first)
	}
	if got := sum(dst); got != "742d0298346706d4a9c4d831b6bef9db0bbe661b3bf88caecb63c68dff662a86" {
		t.Errorf("sha256 %s", got)
	}
}

// reference writes a block according to the scheme's description, one unit after the other.
func reference(a alphabet, seed, id uint64, n int) []byte {
	header, perDraw, width := 8, 7, uint(9)
	unit := func(digit uint64) string { return " " + strings.Fields(wordList)[digit] }
	if a.ids {
		header, perDraw, width = 6, 5, 12
		unit = func(digit uint64) string { return fmt.Sprintf("%d,", 10000+digit) }
	}
	x := splitmix.Mix(id ^ seed)
	var digits []uint64
	for h := x; len(digits) < header; h >>= width {
		digits = append(digits, h&(1<<width-1))
	}
	for len(digits) < n {
		x += 0x9e3779b97f4a7c15
		hi, lo := bits.Mul64(x, x^0xe7037ed1a0b428db)
		for i, r := 0, hi^lo; i < perDraw; i, r = i+1, r>>width {
			digits = append(digits, r&(1<<width-1))
		}
	}
	var out []byte
	for _, d := range digits[:n] {
		out = append(out, unit(d)...)
	}
	return out
}

func TestFillLengths(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, a := range []alphabet{words, tokens} {
		for _, n := range []int{0, 1, 5, 6, 7, 8, 9, 10, 11, 15, 16, 22, 23, 64, 511, 512, 513, 1500} {
			seed, id := rng.Uint64(), rng.Uint64()
			want := reference(a, seed, id, n)
			dst := bytes.Repeat([]byte{'#'}, n*a.unit+9)
			if got := a.fill(dst, seed, id, n); got != len(want) || !bytes.Equal(dst[:got], want) {
				t.Errorf("ids %v, n %d: %d bytes, as described: %v", a.ids, n, got, bytes.Equal(dst[:got], want))
			}
			if rest := dst[n*a.unit:]; !bytes.Equal(rest, bytes.Repeat([]byte{'#'}, 9)) {
				t.Errorf("ids %v, n %d: wrote past the last unit: %q", a.ids, n, rest)
			}
			short := make([]byte, len(want)/2)
			got := a.fill(short, seed, id, n)
			if got != len(short)/a.unit*a.unit || !bytes.Equal(short[:got], want[:got]) {
				t.Errorf("ids %v, n %d: %d bytes into room for %d", a.ids, n, got, len(short))
			}
			if !bytes.Equal(short[got:], make([]byte, len(short)-got)) {
				t.Errorf("ids %v, n %d: wrote part of a unit", a.ids, n)
			}
		}
		if got := a.fill(make([]byte, 50), 1, 1, -3); got != 0 {
			t.Errorf("ids %v: %d bytes for a negative n", a.ids, got)
		}
	}
}

// A block can be entered at any byte.
func TestWriteFromAnywhere(t *testing.T) {
	for _, a := range []alphabet{words, tokens} {
		want := reference(a, 3, 4, 100)
		for off := range want {
			for _, n := range []int{1, 2, 7, 40, 90, len(want)} {
				n = min(n, len(want)-off)
				got := make([]byte, n)
				a.write(got, splitmix.Mix(3^4), off)
				if !bytes.Equal(got, want[off:off+n]) {
					t.Fatalf("ids %v: %d bytes from %d: %q, want %q", a.ids, n, off, got, want[off:off+n])
				}
			}
		}
	}
}

func TestSeedSpreads(t *testing.T) {
	seen := map[uint64]bool{}
	for user := range uint64(1000) {
		s := Seed(user)
		// XORed with dense small ids, two seeds must not collide: their upper halves differ.
		if seen[s>>32] {
			t.Errorf("seed %d shares its upper half with a smaller one", user)
		}
		seen[s>>32] = true
		if s == Seed(user+1) {
			t.Errorf("seeds %d and %d are equal", user, user+1)
		}
	}
	if Seed(0) != 0xe220a8397b1dcdaf { // the first output of splitmix64 from state 0
		t.Errorf("Seed(0) = %#x", Seed(0))
	}
}

func BenchmarkFill(b *testing.B) {
	for _, a := range []alphabet{words, tokens} {
		b.Run(map[bool]string{false: "words", true: "tokens"}[a.ids], func(b *testing.B) {
			dst := make([]byte, 512*a.unit)
			b.SetBytes(int64(len(dst)))
			b.ReportAllocs()
			for id := uint64(0); b.Loop(); id++ {
				a.fill(dst, 42, id, 512)
			}
		})
	}
}
