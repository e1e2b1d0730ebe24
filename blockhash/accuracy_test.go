// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/moonloop/moonloop/blockhash"
)

// Conversations as servers see them, with a tokenizer whose every token is known: both sides of the comparison between
// blocks of tokens and what the text and its number of tokens give.

// request is one request of a conversation: the whole history and a new message.
type request struct {
	messages [][2]string
	tokens   []uint32
	ids      []uint64 // of its blocks of 512 tokens
}

// tokenize appends the tokens of a message in a template with a header of 4 tokens and an end of 1. Bytes per token range
// from 1 (rare signs) over 2 (digits, hex) and 3 (CJK, Cyrillic) to 5 and more (frequent words).
func tokenize(dst []uint32, role, text string) []uint32 {
	dst = append(dst, 1, 2+uint32(len(role)), 3, 4)
	for len(text) > 0 {
		n := tokenLength(text)
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(text[:n]))
		dst = append(dst, hash.Sum32())
		text = text[n:]
	}
	return append(dst, 5)
}

// tokenLength returns the bytes of the first token of text.
func tokenLength(text string) int {
	letters := func(s string) (n int) {
		for n < len(s) && (s[n]|0x20 >= 'a' && s[n]|0x20 <= 'z') {
			n++
		}
		return n
	}
	space := 0
	if text[0] == ' ' {
		space = 1
	}
	word := text[space:]
	n := letters(word)
	switch {
	case n > 0:
		// A word is whole if it is frequent, which its own hash decides, else it falls apart into pieces of 2 to 5.
		hash := fnv.New32a()
		_, _ = hash.Write([]byte(word[:n]))
		if sum := hash.Sum32(); n > 3 && sum%10 >= 7 {
			n = min(n, 2+int(sum>>8)%4)
		}
		return space + n
	case text[0] == ' ' || text[0] == '\n':
		n = 1
		for n < len(text) && n < 8 && text[n] == text[0] {
			n++
		}
		return n
	case text[0] >= '0' && text[0] <= '9':
		n = 1
		for n < len(text) && n < 3 && text[n] >= '0' && text[n] <= '9' {
			n++
		}
		return n
	}
	first, n := utf8.DecodeRuneInString(text)
	if first < utf8.RuneSelf {
		for n < len(text) && n < 3 && strings.IndexByte("\"'.,:;(){}=!\n", text[n]) >= 0 {
			n++ // signs go together, as in ");" or "\": "
		}
		return n
	}
	// Half of the pairs of letters beyond ASCII are a token.
	if second, m := utf8.DecodeRuneInString(text[n:]); m > 1 && (first+second)%2 == 0 {
		return n + m
	}
	return n
}

// writer makes up text of several kinds, deterministically.
type writer struct {
	*rand.Rand
	words []string
}

func newWriter(seed uint64) *writer {
	w := &writer{Rand: rand.New(rand.NewPCG(seed, 7))}
	for range 4000 {
		var word strings.Builder
		for range 2 + w.IntN(4) + w.IntN(5) {
			word.WriteByte(byte('a' + w.IntN(26)))
		}
		w.words = append(w.words, word.String())
	}
	return w
}

// kinds of text, by name; each appends a sentence or a line.
var kinds = []func(w *writer, b *strings.Builder){
	func(w *writer, b *strings.Builder) { // English: frequent words more often
		for range 4 + w.IntN(16) {
			b.WriteString(w.words[int(float64(len(w.words))*w.Float64()*w.Float64())] + " ")
		}
		b.WriteString("done.\n")
	},
	func(w *writer, b *strings.Builder) { // code
		b.WriteString(strings.Repeat("    ", w.IntN(5)))
		fmt.Fprintf(b, "%s.%s(%s, %d)", w.words[w.IntN(300)], w.words[w.IntN(300)], w.words[w.IntN(300)], w.IntN(5000))
		b.WriteString([]string{";\n", " {\n", " != nil {\n", ",\n"}[w.IntN(4)])
	},
	func(w *writer, b *strings.Builder) { // Chinese
		for range 8 + w.IntN(30) {
			b.WriteRune(rune(0x4E00 + w.IntN(3000)))
		}
		b.WriteString("。")
	},
	func(w *writer, b *strings.Builder) { // Cyrillic
		for range 3 + w.IntN(12) {
			for range 2 + w.IntN(8) {
				b.WriteRune(rune(0x430 + w.IntN(32)))
			}
			b.WriteByte(' ')
		}
	},
	func(w *writer, b *strings.Builder) { // JSON with names, numbers and hex, as tools return it
		fmt.Fprintf(b, "{\"%s\": \"%s %s\", \"%s\": %d, \"id\": \"%04x\"},\n", w.words[w.IntN(300)], w.words[w.IntN(4000)],
			w.words[w.IntN(300)], w.words[w.IntN(300)], w.IntN(100000), w.IntN(1<<16))
	},
}

// text returns about n bytes: of one kind, or, as with retrieved documents, of several.
func (w *writer) text(n int) string {
	var b strings.Builder
	kind := kinds[w.pick()]
	mixed := w.IntN(4) == 0
	for b.Len() < n {
		if mixed && w.IntN(12) == 0 {
			kind = kinds[w.pick()]
		}
		kind(w, &b)
	}
	return b.String()
}

// pick returns a kind of text; two of five are English.
func (w *writer) pick() int { return max(0, w.IntN(len(kinds)+2)-2) }

// conversations returns the requests of n conversations of 1 to 20 turns below 8 system prompts of 0.8 to 14 kB, mixed
// as they would arrive.
func conversations(seed uint64, n int) []request {
	w := newWriter(seed)
	var systems [8]string
	for i := range systems {
		systems[i] = w.text(800 + w.IntN(13200))
	}
	type state struct {
		request

		left int
	}
	var open []*state
	for range n {
		s := &state{left: 1 + w.IntN(20)}
		system := systems[w.IntN(len(systems))]
		s.messages = [][2]string{{"system", system}}
		s.tokens = tokenize(nil, "system", system)
		open = append(open, s)
	}
	var out []request
	add := func(s *state, role, text string) {
		s.messages = append(s.messages, [2]string{role, text})
		s.tokens = tokenize(s.tokens, role, text)
	}
	for len(open) > 0 {
		i := w.IntN(min(40, len(open))) // 40 at a time
		s := open[i]
		size := 40 + w.IntN(1500)
		if w.IntN(8) == 0 {
			size += w.IntN(8000) // a document, a file
		}
		add(s, "user", w.text(size))
		out = append(out, request{messages: slices.Clip(s.messages), tokens: slices.Clip(s.tokens)})
		add(s, "assistant", w.text(100+w.IntN(2500)))
		if s.left--; s.left == 0 {
			open = append(open[:i], open[i+1:]...)
		}
	}
	return out
}

// cache is a prefix cache that forgets nothing.
type cache map[uint64]bool

// serve returns how many leading blocks are in the cache, and adds them all.
func (c cache) serve(ids []uint64) (shared int) {
	for shared < len(ids) && c[ids[shared]] {
		shared++
	}
	for _, id := range ids {
		c[id] = true
	}
	return shared
}

// accuracy is how far blocks by cells are from blocks by tokens.
type accuracy struct {
	requests, blocks          int
	same, sum, worst          int // requests with the same shared-block count; sum and maximum of the differences
	exactShared, anchorShared int
	bytes, tokens             int
}

func measure(t *testing.T, requests []request, cellSize int) (a accuracy) {
	t.Helper()
	exact, anchored := cache{}, cache{}
	h := testHasher(t)
	h.SetCellSize(cellSize)
	var borders blockhash.Borders
	borders.SetCellSize(cellSize)
	var laid []uint64
	for _, r := range requests {
		h.Reset()
		for _, m := range r.messages {
			h.Role(m[0])
			h.Text(m[1])
		}
		chain := h.Chain()
		var err error
		if laid, err = borders.Lay(laid[:0], chain, int64(len(r.tokens)), 512); err != nil {
			t.Fatal(err)
		}
		if len(r.ids) != len(laid) {
			t.Fatalf("%d blocks by tokens and %d by cells", len(r.ids), len(laid))
		}
		want, got := exact.serve(r.ids), anchored.serve(laid)
		diff := max(want-got, got-want)
		if diff == 0 {
			a.same++
		}
		a.requests++
		a.blocks += len(laid)
		a.sum += diff
		a.worst = max(a.worst, diff)
		a.exactShared += want
		a.anchorShared += got
		a.bytes += int(chain.Bytes)
		a.tokens += len(r.tokens)
	}
	return a
}

// TestAnchoredCells compares with exact blocks on conversations. The bounds are those of measurements on five real
// vocabularies.
func TestAnchoredCells(t *testing.T) {
	for _, c := range []struct {
		reason string
		seeds  []uint64
		same   float64 // least share of requests with the exact count of shared blocks, %
		worst  int     // most blocks that a request is off by
	}{
		{"conversations", []uint64{1, 2, 3, 4, 5}, 92, 1},
		{"a system prompt whose first user sends a document of other density: its borders stay where that one put them", []uint64{6}, 90, 2},
	} {
		for _, seed := range c.seeds {
			requests := conversations(seed, 300)
			tokens := newHasher(t, testKey(t), blockhash.Domain("tokens", "test"))
			for i := range requests {
				requests[i].ids = tokens.Tokens(nil, requests[i].tokens, 512)
			}
			for _, cellSize := range []int{blockhash.CellSize, 64} {
				a := measure(t, requests, cellSize)
				same := 100 * float64(a.same) / float64(a.requests)
				exact, anchored := 100*float64(a.exactShared)/float64(a.blocks), 100*float64(a.anchorShared)/float64(a.blocks)
				figures := fmt.Sprintf("%s, seed %d, cells of %d bytes: %d requests, %.2f bytes/token, same count %.2f %%, mean error %.3f, worst %d, hit rate %.2f %% for %.2f %%",
					c.reason, seed, cellSize, a.requests, float64(a.bytes)/float64(a.tokens), same, float64(a.sum)/float64(a.requests), a.worst, anchored, exact)
				t.Log(figures)
				if same < c.same || a.worst > c.worst || anchored < exact-0.5 || anchored > exact+0.5 {
					t.Errorf("%s; want the same count in %.0f %%, no more than %d off, and the hit rate within 0.5 points", figures, c.same, c.worst)
				}
			}
		}
	}
}
