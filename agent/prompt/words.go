// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	_ "embed"
	"sort"
	"strings"
)

// wordList holds 512 words of four letters, sorted, one a line. Each of them, with a space before it, is one token
// in every vocabulary that the list was made for, and so is a bare one at the start of a text.
//
//go:embed words512.txt
var wordList string

const (
	letters    = 4           // of a word
	wordBytes  = letters + 1 // with the space before it
	tokenBytes = 6           // five digits and a comma
	firstToken = 10000       // the smallest of the 4,096 token ids in use, all of five digits

	wordBits  = 9
	tokenBits = 12
)

// anchor is the word that every prompt of words begins with. After a chat template's newline or bracket the first
// word is not one token in every vocabulary; with the same word there always, the template costs every prompt the same.
const anchor = "go"

// wordUnits and tokenUnits hold what one draw of bits spells: up to 8 bytes in the order of a little-endian store,
// of which the first wordBytes or tokenBytes count.
var (
	wordUnits  = spellWords()
	tokenUnits = spellTokens()
)

func spellWords() (units [1 << wordBits]uint64) {
	for i := range units {
		units[i] = littleEndian(" " + word(i))
	}
	return units
}

func spellTokens() (units [1 << tokenBits]uint64) {
	for i := range units {
		var text [tokenBytes]byte
		text[tokenBytes-1] = ','
		for at, rest := tokenBytes-2, firstToken+i; at >= 0; at, rest = at-1, rest/10 {
			text[at] = "0123456789"[rest%10]
		}
		units[i] = littleEndian(string(text[:]))
	}
	return units
}

// word returns word i of the list.
func word(i int) string {
	return wordList[i*wordBytes : i*wordBytes+letters]
}

// wordIndex returns the place of a word in the list.
func wordIndex(text string) (index uint64, ok bool) {
	i, ok := sort.Find(len(wordUnits), func(i int) int { return strings.Compare(text, word(i)) })
	return uint64(i), ok //nolint:gosec // an index of the list
}

func littleEndian(text string) (unit uint64) {
	for i := len(text) - 1; i >= 0; i-- {
		unit = unit<<8 | uint64(text[i])
	}
	return unit
}
