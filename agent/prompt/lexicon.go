// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

// This file chooses other words for prompts, for an engine whose tokenizer splits the package's words into several tokens.

import (
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The limits of a lexicon: the number of its words, a power of two, and the letters of each.
const (
	LeastWords = 16
	MostWords  = 512
	// MostLetters is the number of letters that fit into 8 bytes after a space.
	MostLetters = 7
)

// ErrLexicon is wrapped by every error of [NewLexicon].
var ErrLexicon = errors.New("words of prompts")

// Lexicon is the list of words from which prompts are made. On the engines that it is for, each word is one token after any other word. All
// have the same length, so that any byte of a prompt can be generated without those before it.
type Lexicon struct {
	anchor, space string
	words         []string
	alphabet      alphabet
}

// usual is the lexicon of the embedded list.
var usual = &Lexicon{anchor: anchor, space: " ", words: strings.Fields(wordList), alphabet: words}

// CommonLexicon returns the words of the embedded list: one token each in every common vocabulary.
func CommonLexicon() *Lexicon { return usual }

// NewLexicon makes a lexicon of words of ASCII letters and digits: a power of two of them, from [LeastWords] to [MostWords], of one length.
// Their order has no effect. The parameter space, which is a space or empty, precedes each word; anchor is the first word of every prompt.
func NewLexicon(anchor, space string, list []string) (*Lexicon, error) {
	n := len(list)
	if n < LeastWords || n > MostWords || n&(n-1) != 0 {
		return nil, fmt.Errorf("%w: %d of them: want a power of two from %d to %d", ErrLexicon, n, LeastWords, MostWords)
	}
	l := &Lexicon{anchor: anchor, space: space, words: slices.Sorted(slices.Values(list))}
	for i, word := range l.words {
		switch {
		case len(word) != len(l.words[0]) || len(word) > MostLetters:
			return nil, fmt.Errorf("%w: words of %d and of %d letters: want one length of at most %d", ErrLexicon, len(l.words[0]), len(word), MostLetters)
		case strings.ContainsFunc(word, func(c rune) bool { return !isPlain(c) }) || word == "":
			return nil, fmt.Errorf("%w: word %d: want letters and digits of ASCII", ErrLexicon, i)
		case i > 0 && word == l.words[i-1]:
			return nil, fmt.Errorf("%w: word %d occurs twice", ErrLexicon, i)
		}
	}
	if strings.ContainsFunc(anchor, func(c rune) bool { return !isPlain(c) }) || anchor == "" || space != "" && space != " " {
		return nil, fmt.Errorf("%w: want an anchor of letters, and a space or nothing before each word", ErrLexicon)
	}
	l.alphabet = newAlphabet(len(space)+l.Letters(), littleEndian(after(space, l.words)))
	return l, nil
}

func isPlain(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// Anchor returns the word that every prompt begins with.
func (l *Lexicon) Anchor() string { return l.anchor }

// Len returns the number of words.
func (l *Lexicon) Len() int { return len(l.words) }

// Letters returns the number of letters of each word.
func (l *Lexicon) Letters() int { return len(l.words[0]) }

// Text returns the first n words, in their order, as in a prompt, each with its space.
func (l *Lexicon) Text(n int) string {
	n = min(n, len(l.words))
	return strings.Repeat(l.space, min(n, 1)) + strings.Join(l.words[:n], l.space)
}

// Digest returns the SHA-256 of the words in their order, without separators, in hexadecimal digits. Runs whose anchor and digest are equal
// send equal prompts for equal rows.
func (l *Lexicon) Digest() string {
	sum := sha256.Sum256([]byte(strings.Join(l.words, "")))
	return hex.EncodeToString(sum[:])
}

// MinWords returns how many words a lexicon needs for blocks of this many tokens: the beginning of a block encodes its id, a number of 64
// bits, and two ids must not give the same block.
func MinWords(blockSize int) int {
	n := LeastWords
	for n < MostWords && headerUnits(n) > blockSize {
		n *= 2
	}
	return n
}

// short is a list of 512 words of three letters, which are one token each in as many vocabularies as the other words.
//
//go:embed words3.txt
var short string

// Candidates returns words that may be one token on an engine, each with its space: those of the embedded lists, words of two letters, and
// words of one letter or digit. The last candidates are single letters and digits without a space, which are one token
// if every byte is.
func Candidates() []string {
	const consonants, vowels, digits = "bcdfghjklmnpqrstvwxyz", "aeiou", "0123456789"
	list := after(" ", slices.Concat(usual.words, strings.Fields(short)))
	for _, v := range vowels {
		for _, c := range consonants {
			list = append(list, " "+string(v)+string(c), " "+string(c)+string(v))
		}
	}
	for _, space := range []string{" ", ""} {
		for _, c := range vowels + consonants + digits {
			list = append(list, space+string(c))
		}
	}
	return list
}

// TokenRange is a range of token ids for prompts that begins with First: a power of two of them, all with the same
// number of digits.
type TokenRange struct{ First, Count int }

// Last returns the greatest id of the range.
func (r TokenRange) Last() int { return r.First + r.Count - 1 }

// TokenRanges returns the ranges to try on an engine: first the one for common vocabularies, then others, each in the middle of a smaller
// vocabulary, because special tokens are at its ends.
func TokenRanges() []TokenRange {
	return []TokenRange{commonIDs, {3584, 4096}, {1792, 2048}, {1000, 1024}, {448, 512}, {224, 256}, {112, 128}, {32, 64}}
}

// commonIDs are ids that every vocabulary of 32,000 entries has, all of five digits.
var commonIDs = TokenRange{10000, 1 << tokenBits}

// units returns the ids as in a prompt, each with a comma, in the order of a little-endian store. It makes no string for an id, because the
// common ids are made at each start of the program.
func (r TokenRange) units() []uint64 {
	units := make([]uint64, r.Count)
	var text [8]byte
	for i := range units {
		text[len(strconv.AppendInt(text[:0], int64(r.First+i), 10))] = ','
		units[i] = binary.LittleEndian.Uint64(text[:])
	}
	return units
}

// alphabet returns the encoding of blocks in ids of the range.
func (r TokenRange) alphabet() alphabet {
	if r == commonIDs {
		return tokens
	}
	a := newAlphabet(len(strconv.Itoa(r.First))+1, r.units())
	a.ids, a.step = true, 5*a.unit
	return a
}
