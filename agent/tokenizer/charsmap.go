// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package tokenizer

// This file reads the character maps of SentencePiece, as in files of T5 and XLM-R: a double array of characters to replace, in the format
// of the library Darts-clone, followed by the replacement texts, each with a zero byte at its end.

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// charsMap is a character map. A unit has a label (the low 8 bits; the highest bit is not set), a leaf mark, and the
// distance to its children.
type charsMap struct {
	units []uint32
	texts string
}

// splitGrapheme is the minimum length, in bytes, of graphemes that the library of Hugging Face replaces only character by character.
const splitGrapheme = 6

// readCharsMap reads a map in base64.
func readCharsMap(text string) (m charsMap, err error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) < 4 {
		return m, fmt.Errorf("normalizer Precompiled: its map of characters: %w", errForm)
	}
	size := uint64(binary.LittleEndian.Uint32(raw))
	raw = raw[4:]
	if size == 0 || size%4 != 0 || size > uint64(len(raw)) {
		return m, fmt.Errorf("normalizer Precompiled: its map of characters: %w", errForm)
	}
	m.units = make([]uint32, size/4)
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	m.texts = string(raw[size:])
	return m, nil
}

// unit returns a unit, 0 for an index beyond the map.
func (m *charsMap) unit(at uint32) uint32 {
	if uint64(at) >= uint64(len(m.units)) {
		return 0
	}
	return m.units[at]
}

// replacement finds the shortest prefix of a text that is in the map, and returns its replacement, which stands for the whole text, as in the
// library.
func (m *charsMap) replacement(text string) (string, bool) {
	offset := func(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }
	at := offset(m.unit(0))
	for i := range len(text) {
		c := uint32(text[i])
		if c == 0 {
			break
		}
		at ^= c
		unit := m.unit(at)
		if unit&(1<<31|0xff) != c {
			break
		}
		at ^= offset(unit)
		if unit>>8&1 == 0 {
			continue
		}
		value := m.unit(at) &^ (1 << 31)
		if uint64(value) > uint64(len(m.texts)) {
			break
		}
		found, _, _ := strings.Cut(m.texts[value:], "\x00")
		return found, true
	}
	return "", false
}

// normalize replaces graphemes, or, where a grapheme is long or not in the map, its characters.
func (m *charsMap) normalize(text string) string {
	var b strings.Builder
	state := -1
	for len(text) > 0 {
		var grapheme string
		grapheme, text, _, state = uniseg.FirstGraphemeClusterInString(text, state)
		if len(grapheme) < splitGrapheme {
			if with, found := m.replacement(grapheme); found {
				b.WriteString(with)
				continue
			}
		}
		for len(grapheme) > 0 {
			_, n := utf8.DecodeRuneInString(grapheme)
			if with, found := m.replacement(grapheme[:n]); found {
				b.WriteString(with)
			} else {
				b.WriteString(grapheme[:n])
			}
			grapheme = grapheme[n:]
		}
	}
	return b.String()
}
