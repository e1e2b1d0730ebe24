// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package tokenizer

import "unicode/utf8"

// wordPiece repeatedly takes the longest token from the left. A word that cannot be split into tokens is one unknown token.
type wordPiece struct {
	vocab    map[string]uint32
	prefix   string // of tokens that continue a word
	unk      uint32
	maxChars int
	longest  int // length of the longest token, in bytes
}

func (m *wordPiece) encode(ids []uint32, word string) []uint32 {
	if utf8.RuneCountInString(word) > m.maxChars {
		return append(ids, m.unk)
	}
	have := len(ids)
	for at := 0; at < len(word); {
		prefix := m.prefix
		if at == 0 {
			prefix = ""
		}
		end := min(len(word), at+m.longest)
		for end > at {
			if end < len(word) && !utf8.RuneStart(word[end]) {
				end--
				continue
			}
			if id, is := m.vocab[prefix+word[at:end]]; is {
				ids = append(ids, id)
				break
			}
			end--
		}
		if end <= at {
			return append(ids[:have], m.unk)
		}
		at = end
	}
	return ids
}
