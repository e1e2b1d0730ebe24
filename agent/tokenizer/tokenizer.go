// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package tokenizer

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Tokenizer turns text into token ids. Safe for concurrent use.
type Tokenizer struct {
	raw, normal addedTokens // found before and after the text is normalized
	normalize   []normalizer
	split       []splitter
	model       model
}

// model turns a piece of text into token ids.
type model interface {
	encode(ids []uint32, piece string) []uint32
}

// normalizer changes a text, splitter cuts pieces. first says that the piece begins the whole text.
type (
	normalizer func(text string) string
	splitter   func(pieces []piece) ([]piece, error)
	piece      struct {
		text  string
		first bool
	}
)

// Encode returns the token ids of a text. They include those of special tokens that are spelled in it, and none that a template or the
// beginning of a prompt would add. The error says that splitting the text took too long, which patterns in the tokenizer's file
// can cause.
func (t *Tokenizer) Encode(text string) (ids []uint32, err error) {
	at := 0
	err = t.raw.cut(text, func(part string, id int64) error {
		first := at == 0
		at += len(part)
		if id >= 0 {
			ids = append(ids, uint32(id)) //nolint:gosec // of 32 bits in the file
			return nil
		}
		for _, n := range t.normalize {
			part = n(part)
		}
		return t.normal.cut(part, func(part string, id int64) error {
			if id >= 0 {
				ids, first = append(ids, uint32(id)), false //nolint:gosec // of 32 bits in the file
				return nil
			}
			pieces := []piece{{part, first}}
			first = false
			for _, split := range t.split {
				if pieces, err = split(pieces); err != nil {
					return err
				}
			}
			for _, p := range pieces {
				if p.text != "" {
					ids = t.model.encode(ids, p.text)
				}
			}
			return nil
		})
	})
	return ids, err
}

// Count returns the number of tokens of a text; see [Tokenizer.Encode].
func (t *Tokenizer) Count(text string) (int, error) {
	ids, err := t.Encode(text)
	return len(ids), err
}

// added is a token that is searched for literally in a text.
type added struct {
	text           string
	id             uint32
	lstrip, rstrip bool
}

// addedTokens has the tokens by their first byte.
type addedTokens [256][]added

func (a *addedTokens) add(t added) { a[t.text[0]] = append(a[t.text[0]], t) }

// sort sorts tokens with the same first byte, the longest first. It must be called after the last add.
func (a *addedTokens) sort() {
	for _, list := range a {
		slices.SortStableFunc(list, func(a, b added) int { return len(b.text) - len(a.text) })
	}
}

// cut calls yield for each added token in a text, with its id, and for each part between them, with -1.
func (a *addedTokens) cut(text string, yield func(part string, id int64) error) error {
	from := 0
	for at := 0; at < len(text); {
		var found *added
		for i := range a[text[at]] {
			if strings.HasPrefix(text[at:], a[text[at]][i].text) {
				found = &a[text[at]][i]
				break
			}
		}
		if found == nil {
			at++
			continue
		}
		begin, end := at, at+len(found.text)
		if found.lstrip {
			begin = from + len(strings.TrimRightFunc(text[from:at], unicode.IsSpace))
		}
		if found.rstrip {
			end = len(text) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
		}
		if begin > from {
			if err := yield(text[from:begin], -1); err != nil {
				return err
			}
		}
		if err := yield(text[begin:end], int64(found.id)); err != nil {
			return err
		}
		at, from = end, end
	}
	if from < len(text) {
		return yield(text[from:], -1)
	}
	return nil
}

// runeLen returns the length of the first character of a text, in bytes.
func runeLen(text string) int {
	_, n := utf8.DecodeRuneInString(text)
	return n
}
