// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/blockhash"
)

// chainOf returns the chain of a text written at once, in memory of its own.
func chainOf(h *blockhash.Hasher, text string) blockhash.Chain {
	h.Reset()
	_, _ = h.WriteString(text)
	chain := h.Chain()
	chain.Cells = slices.Clone(chain.Cells)
	return chain
}

func randomText(r *rand.Rand, n int) string {
	text := make([]byte, n)
	for i := range text {
		text[i] = byte('a' + r.IntN(26))
	}
	return string(text)
}

// common returns how many leading elements two lists share.
func common[T comparable](a, b []T) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// TestCellsTellSharedPrefixes: texts have as many leading cells in common as their shared beginning has full cells, and no others.
func TestCellsTellSharedPrefixes(t *testing.T) {
	h := testHasher(t)
	r := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		shared := randomText(r, r.IntN(1200))
		a, b := shared+"A"+randomText(r, r.IntN(600)), shared+"B"+randomText(r, r.IntN(600))
		ca, cb := chainOf(h, a), chainOf(h, b)
		want := len(shared) / blockhash.CellSize
		if got := common(ca.Cells, cb.Cells); got != want {
			t.Fatalf("texts that share %d bytes share %d cells, want %d", len(shared), got, want)
		}
		for i, cell := range ca.Cells[want:] {
			if slices.Contains(cb.Cells, cell) {
				t.Fatalf("cell %d of a text occurs in one that differs from there on", want+i)
			}
		}
		if ca.Tail == cb.Tail {
			t.Fatal("texts that differ have one tail")
		}
		if len(ca.Cells) != len(a)/blockhash.CellSize || ca.Bytes != int64(len(a)) {
			t.Fatalf("a text of %d bytes has %d cells and %d bytes", len(a), len(ca.Cells), ca.Bytes)
		}
	}
}

// TestTailIsNoCell: a text that ends with a full cell is not the beginning of a longer one.
func TestTailIsNoCell(t *testing.T) {
	chain := chainOf(testHasher(t), strings.Repeat("x", 3*blockhash.CellSize))
	if slices.Contains(chain.Cells, chain.Tail) {
		t.Error("the tail is a cell")
	}
}

// TestKeysAndDomainsShareNothing compares all values of one prompt under different keys and domains.
func TestKeysAndDomainsShareNothing(t *testing.T) {
	text := strings.Repeat("the same text everywhere ", 100)
	tokens := []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	domain := blockhash.Domain("text", "a")
	seen := map[uint64]string{}
	for name, h := range map[string]*blockhash.Hasher{
		"first":             newHasher(t, testKey(t), domain),
		"of another domain": newHasher(t, testKey(t), blockhash.Domain("text", "b")),
		"of another key":    newHasher(t, newKey(t, make([]byte, 32)), domain),
		"of a random key":   newHasher(t, blockhash.RandomKey(), domain),
	} {
		chain := chainOf(h, text)
		values := append(chain.Cells, chain.Tail)
		values = h.Tokens(values, tokens, 4)
		values, err := h.Reblock(values, []uint64{11, 12, 13}, 4, 8, 11, "span")
		if err != nil {
			t.Fatal(err)
		}
		if values, err = h.Reblock(values, []uint64{21, 22}, 4, 8, 11, "span"); err != nil {
			t.Fatal(err)
		}
		for _, value := range values {
			if other, ok := seen[value]; ok {
				t.Errorf("the hasher %s gives a value of the hasher %s", name, other)
			}
			seen[value] = name
		}
	}
}

// TestPiecesMakeNoDifference writes one prompt in random pieces.
func TestPiecesMakeNoDifference(t *testing.T) {
	h := testHasher(t)
	r := rand.New(rand.NewPCG(2, 2))
	for range 200 {
		text := randomText(r, r.IntN(3000))
		want := chainOf(h, text)
		h.Reset()
		for rest := text; rest != ""; {
			n := min(len(rest), r.IntN(300))
			_, _ = h.WriteString(rest[:n])
			rest = rest[n:]
		}
		if diff := cmp.Diff(want, h.Chain(), equateEmpty); diff != "" {
			t.Fatalf("a text of %d bytes in pieces (-whole +pieces):\n%s", len(text), diff)
		}
	}
}

var equateEmpty = cmp.Transformer("cells", func(c blockhash.Chain) any {
	return struct {
		Cells []string
		Tail  uint64
		Bytes int64
	}{decimals(c.Cells), c.Tail, c.Bytes}
})

func TestRoleAndText(t *testing.T) {
	h := testHasher(t)
	want := chainOf(h, "system\nBe brief.\nuser\npart one, part two\nassistant\n\n")
	h.Reset()
	h.Role("system")
	h.Text("Be brief.")
	h.Role("user")
	_, _ = h.WriteString("part one, ")
	h.Text("part two")
	h.Role("assistant")
	h.Text("")
	if diff := cmp.Diff(want, h.Chain(), equateEmpty); diff != "" {
		t.Errorf("(-as text +as messages):\n%s", diff)
	}
}

// TestChainInBetween: asking for the chain does not end the prompt.
func TestChainInBetween(t *testing.T) {
	h := testHasher(t)
	text := strings.Repeat("0123456789", 50)
	want := chainOf(h, text)
	h.Reset()
	for i := range text {
		_, _ = h.WriteString(text[i : i+1])
		if got := h.Chain(); got.Bytes != int64(i+1) {
			t.Fatalf("%d bytes after %d", got.Bytes, i+1)
		}
	}
	if diff := cmp.Diff(want, h.Chain(), equateEmpty); diff != "" {
		t.Errorf("(-whole +asked in between):\n%s", diff)
	}
}

// TestTextBeyondTheLastCell: MaxCells bounds memory, but texts that differ after the last cell are still distinguished.
func TestTextBeyondTheLastCell(t *testing.T) {
	const full = blockhash.MaxCells * blockhash.CellSize
	h := testHasher(t)
	text := strings.Repeat("x", full+10*blockhash.CellSize)
	long, other := chainOf(h, text), chainOf(h, text[:len(text)-1]+"y")
	if len(long.Cells) != blockhash.MaxCells || long.Bytes != int64(len(text)) {
		t.Errorf("%d cells, %d bytes; want %d and %d", len(long.Cells), long.Bytes, blockhash.MaxCells, len(text))
	}
	if long.Tail == other.Tail {
		t.Error("texts that differ after their last cell have one tail")
	}
	if got := common(long.Cells, other.Cells); got != blockhash.MaxCells {
		t.Errorf("they share %d cells, want %d", got, blockhash.MaxCells)
	}
	attr, _ := long.AppendBinary(nil)
	var back blockhash.Chain
	if err := back.UnmarshalBinary(attr); err != nil {
		t.Error(err)
	}
	if short := chainOf(h, "short"); len(short.Cells) != 0 {
		t.Error("a prompt inherits cells from the one before")
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	word := func(v uint64) []byte { return referenceWords([]uint64{v}) }
	for _, c := range []struct {
		reason string
		data   []byte
	}{
		{"nothing at all", nil},
		{"no length", word(1)},
		{"a torn word", append(append(word(1), word(0)...), 1)},
		{"a cell is missing", append(word(1), word(128)...)},
		{"a cell too many", append(append(word(1), word(2)...), word(127)...)},
		{"a length below 0 if it were signed", append(word(1), word(1<<63)...)},
		{"the length -1 if it were signed", append(word(1), word(1<<64-1)...)},
		{"a length without its cells", append(word(1), word(1<<62)...)},
	} {
		before := blockhash.Chain{Cells: []uint64{5}, Tail: 6, Bytes: 130}
		if err := before.UnmarshalBinary(c.data); err == nil {
			t.Errorf("%s: accepted", c.reason)
		}
		if diff := cmp.Diff(blockhash.Chain{Cells: []uint64{5}, Tail: 6, Bytes: 130}, before); diff != "" {
			t.Errorf("%s: the chain was touched:\n%s", c.reason, diff)
		}
	}
}
