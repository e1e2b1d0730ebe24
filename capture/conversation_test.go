// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf8"
)

// This file makes conversations as servers see them, with a tokenizer whose every token is known.

// chat is one request of a conversation: the whole history and a new message.
type chat struct {
	messages [][2]string
	tokens   []uint32
}

// tokenize appends the tokens of a message in a template with a header of 4 tokens and an end of 1. A token has 1 byte (rare
// characters), 2 (digits, hex), 3 (CJK, Cyrillic), or 5 and more (frequent words).
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

// tokenLength returns the length of the first token of text, in bytes.
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
		// A word is whole if it is frequent, which its hash decides; otherwise it is split into pieces of 2 to 5 bytes.
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
			n++ // punctuation is joined, as in ");" or "\": "
		}
		return n
	}
	// Half of the pairs of letters beyond ASCII are one token.
	if second, m := utf8.DecodeRuneInString(text[n:]); m > 1 && (first+second)%2 == 0 {
		return n + m
	}
	return n
}

// author invents text of several kinds, deterministically.
type author struct {
	*rand.Rand
	words []string
}

func newAuthor(seed uint64) *author {
	w := &author{Rand: rand.New(rand.NewPCG(seed, 7))}
	for range 4000 {
		var word strings.Builder
		for range 2 + w.IntN(4) + w.IntN(5) {
			word.WriteByte(byte('a' + w.IntN(26)))
		}
		w.words = append(w.words, word.String())
	}
	return w
}

// kinds of text; each appends a sentence or a line.
var kinds = []func(w *author, b *strings.Builder){
	func(w *author, b *strings.Builder) { // English: frequent words more often
		for range 4 + w.IntN(16) {
			b.WriteString(w.words[int(float64(len(w.words))*w.Float64()*w.Float64())] + " ")
		}
		b.WriteString("done.\n")
	},
	func(w *author, b *strings.Builder) { // code
		b.WriteString(strings.Repeat("    ", w.IntN(5)))
		fmt.Fprintf(b, "%s.%s(%s, %d)", w.words[w.IntN(300)], w.words[w.IntN(300)], w.words[w.IntN(300)], w.IntN(5000))
		b.WriteString([]string{";\n", " {\n", " != nil {\n", ",\n"}[w.IntN(4)])
	},
	func(w *author, b *strings.Builder) { // Chinese
		for range 8 + w.IntN(30) {
			b.WriteRune(rune(0x4E00 + w.IntN(3000)))
		}
		b.WriteString("。")
	},
	func(w *author, b *strings.Builder) { // Cyrillic
		for range 3 + w.IntN(12) {
			for range 2 + w.IntN(8) {
				b.WriteRune(rune(0x430 + w.IntN(32)))
			}
			b.WriteByte(' ')
		}
	},
	func(w *author, b *strings.Builder) { // JSON with names, numbers and hex, as tools return it
		fmt.Fprintf(b, "{\"%s\": \"%s %s\", \"%s\": %d, \"id\": \"%04x\"},\n", w.words[w.IntN(300)], w.words[w.IntN(4000)],
			w.words[w.IntN(300)], w.words[w.IntN(300)], w.IntN(100000), w.IntN(1<<16))
	},
}

// text returns about n bytes: of one kind, or, as with retrieved documents, of several.
func (w *author) text(n int) string {
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

// pick returns the index of a kind of text, English in three of seven cases.
func (w *author) pick() int { return max(0, w.IntN(len(kinds)+2)-2) }

// conversations returns the requests of n conversations of 1 to 20 turns under 8 system prompts of 0.8 to 14 kB, mixed
// as they would arrive.
func conversations(seed uint64, n int) []chat {
	w := newAuthor(seed)
	var systems [8]string
	for i := range systems {
		systems[i] = w.text(800 + w.IntN(13200))
	}
	type state struct {
		chat

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
	var out []chat
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
		out = append(out, chat{messages: slices.Clip(s.messages), tokens: slices.Clip(s.tokens)})
		add(s, "assistant", w.text(100+w.IntN(2500)))
		if s.left--; s.left == 0 {
			open = append(open[:i], open[i+1:]...)
		}
	}
	return out
}
