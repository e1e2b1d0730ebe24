// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	_ "embed"
	"encoding/binary"
	"strings"
)

// wordList has 512 words of four letters, sorted, one per line. Each of them, with a space before it, is one token in every vocabulary for
// which the list was made, and so is each at the start of a text, without a space.
//
//go:embed words512.txt
var wordList string

const (
	letters    = 4           // of a word
	wordBytes  = letters + 1 // with the space before it
	tokenBytes = 6           // five digits and a comma

	wordBits  = 9
	tokenBits = 12
)

// anchor is the first word of every prompt of words. After a chat template's newline or bracket, the first word is not one token in every
// vocabulary. Because it is always the same word, the template adds the same number of tokens to every prompt.
const anchor = "go"

// AnchorTokens is the number of tokens of the anchor.
const AnchorTokens = 1

// wordUnits and tokenUnits are the units that the bits of a draw select; see [littleEndian]. Only the first wordBytes or tokenBytes bytes
// of each are used.
var (
	wordUnits  = [1 << wordBits]uint64(littleEndian(after(" ", strings.Fields(wordList))))
	tokenUnits = [1 << tokenBits]uint64(commonIDs.units())
)

// littleEndian returns units of up to 8 bytes in the order of a little-endian store.
func littleEndian(units []string) []uint64 {
	all := make([]uint64, len(units))
	for i, unit := range units {
		var text [8]byte
		copy(text[:], unit)
		all[i] = binary.LittleEndian.Uint64(text[:])
	}
	return all
}

// after returns the words with the space before each.
func after(space string, words []string) []string {
	units := make([]string, len(words))
	for i, word := range words {
		units[i] = space + word
	}
	return units
}
