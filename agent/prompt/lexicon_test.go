// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/internal/splitmix"
)

// numbered returns n words of this many digits, in descending order.
func numbered(n, letters int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("%0*d", letters, n-i-1))
	}
	return list
}

func lexicon(t *testing.T, anchor, space string, list []string) *Lexicon {
	t.Helper()
	l, err := NewLexicon(anchor, space, list)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLexiconBlocks: blocks of other words, and of other token ids, have all promised properties: an id is in the first units and nowhere
// else, a block can be entered at any byte, and a shorter one is the beginning of a longer one.
func TestLexiconBlocks(t *testing.T) {
	alphabets := map[string]alphabet{
		"512 words of 3": lexicon(t, "go", " ", numbered(512, 3)).alphabet,
		"256 words of 7": lexicon(t, "go", " ", numbered(256, 7)).alphabet,
		"64 words of 2":  lexicon(t, "a", " ", numbered(64, 2)).alphabet,
		"16 words of 7":  lexicon(t, "a", " ", numbered(16, 7)).alphabet,
		"32, no space":   lexicon(t, "a", "", strings.Split("abcdefghijklmnopqrstuvwxyz012345", "")).alphabet,
	}
	for _, r := range TokenRanges() {
		alphabets[fmt.Sprintf("ids from %d", r.First)] = r.alphabet()
	}
	for name, a := range alphabets {
		t.Run(name, func(t *testing.T) {
			n := a.header / a.unit
			if n*int(a.bits) < 64 || (n-1)*int(a.bits) >= 64 {
				t.Fatalf("%d units of %d bits spell an id of 64", n, a.bits)
			}
			whole := make([]byte, 60*a.unit)
			if got := a.fill(whole, 3, 4, 60); got != len(whole) {
				t.Fatalf("%d bytes, want %d", got, len(whole))
			}
			// The units of the header are the bits of the id.
			var x uint64
			spelled := map[string]uint64{}
			for i, unit := range a.all {
				spelled[string(littleBytes(unit, a.unit))] = uint64(i)
			}
			for i := range n {
				digit, known := spelled[string(whole[i*a.unit:(i+1)*a.unit])]
				if !known {
					t.Fatalf("unit %d is %q", i, whole[i*a.unit:(i+1)*a.unit])
				}
				x |= digit << (uint(i) * a.bits)
			}
			if unmix(x)^3 != 4 {
				t.Errorf("the header says id %d, want 4", unmix(x)^3)
			}
			seen := map[string]bool{}
			for at := 0; at < len(whole); at += a.unit {
				unit := string(whole[at : at+a.unit])
				if _, known := spelled[unit]; !known {
					t.Fatalf("unit %d is %q", at/a.unit, unit)
				}
				seen[unit] = true
			}
			if want := min(len(a.all), 64) / 2; len(seen) < want {
				t.Errorf("60 units are %d different ones, want %d at least", len(seen), want)
			}
			for off := range whole {
				for _, m := range []int{1, 64, len(whole)} {
					m = min(m, len(whole)-off)
					got := make([]byte, m)
					a.write(got, splitmix.Mix(3^4), off)
					if !bytes.Equal(got, whole[off:off+m]) {
						t.Fatalf("%d bytes from %d: %q, want %q", m, off, got, whole[off:off+m])
					}
				}
			}
		})
	}
}

func littleBytes(unit uint64, n int) (b []byte) {
	for ; n > 0; n-- {
		b, unit = append(b, byte(unit)), unit>>8
	}
	return b
}

// TestLexicon: which words a lexicon refuses, and how it describes the others.
func TestLexicon(t *testing.T) {
	for _, tt := range []struct {
		why           string
		anchor, space string
		list          []string
	}{
		{"too few", "go", " ", numbered(8, 3)},
		{"too many", "go", " ", numbered(1024, 4)},
		{"not a power of two", "go", " ", numbered(48, 3)},
		{"two lengths", "go", " ", append(numbered(31, 3), "ab")},
		{"a character that is neither a letter nor a digit", "go", " ", append(numbered(31, 2), `a"`)},
		{"empty words", "go", " ", make([]string, 32)},
		{"a word that occurs twice", "go", " ", append(numbered(31, 2), "00")},
		{"too long", "go", " ", numbered(32, 8)},
		{"no anchor", "", " ", numbered(32, 2)},
		{"a separator that is not a space", "go", "\t", numbered(32, 2)},
	} {
		if l, err := NewLexicon(tt.anchor, tt.space, tt.list); !errors.Is(err, ErrLexicon) {
			t.Errorf("%s: %v, %v", tt.why, l, err)
		}
	}
	list := numbered(32, 2)
	l, again := lexicon(t, "go", " ", list), lexicon(t, "go", " ", slices.Sorted(slices.Values(list)))
	if l.Digest() != again.Digest() || l.Len() != 32 || l.Letters() != 2 || l.Text(3) != " 00 01 02" {
		t.Errorf("%d of %d letters, %q, digests %s and %s", l.Len(), l.Letters(), l.Text(3), l.Digest(), again.Digest())
	}
	if c := CommonLexicon(); c.Digest() != "270af7ea07ca2376dd0524977a3546a7c85b8456b60476ec9cfb022cd3b988f4" || c.Text(1) != " aber" {
		t.Errorf("the common words: %s, %q", c.Digest(), c.Text(1))
	}
	for size, want := range map[int]int{8: 256, 10: 128, 13: 32, 15: 32, 16: 16, 512: 16} {
		if got := MinWords(size); got != want {
			t.Errorf("blocks of %d: %d words at least, want %d", size, got, want)
		}
	}
	seen := map[string]bool{}
	for _, unit := range Candidates() {
		if seen[unit] || len(unit) > 5 || unit != strings.ToLower(unit) {
			t.Errorf("candidate %q", unit)
		}
		seen[unit] = true
	}
	for _, r := range TokenRanges() {
		if first, last := fmt.Sprint(r.First), fmt.Sprint(r.Last()); len(first) != len(last) || r.Count&(r.Count-1) != 0 {
			t.Errorf("ids %s to %s", first, last)
		}
	}
}

// TestCalibrationProvesEveryWord: a single word that is two tokens changes the slope, whichever it is, and however small the lexicon.
func TestCalibrationProvesEveryWord(t *testing.T) {
	for _, l := range []*Lexicon{CommonLexicon(), lexicon(t, "a", " ", numbered(16, 2))} {
		b := newBuilder(t, Options{Words: l, Seed: 77, BlockSize: 32})
		var counts []map[string]int64
		for _, r := range b.Calibration("m", false) {
			count := map[string]int64{}
			for word := range strings.FieldsSeq(decoded(t, r)["messages"].([]any)[0].(map[string]any)["content"].(string)) {
				count[word]++
			}
			if count[l.Anchor()] == 0 {
				t.Errorf("the anchor is missing")
			}
			counts = append(counts, count)
		}
		for _, word := range l.words {
			if got, want := counts[1][word]-counts[0][word], int64(512/l.Len()); got != want {
				t.Errorf("%d words: %q is %d times more in the second request, want %d", l.Len(), word, got, want)
			}
		}
	}
}
