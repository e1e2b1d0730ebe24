// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package preflight

// This file finds words with the engine's tokenizer.

import (
	"cmp"
	"slices"
	"strings"

	"github.com/moonloop/moonloop/agent/prompt"
)

const (
	// maxOwn is the maximum number of token ids whose text the engine is asked for.
	maxOwn = 8192
	// firstOwn is the first token id of words in a vocabulary: bytes and control tokens come before.
	firstOwn = 256
)

// pivots are units that no candidate begins with. Between two copies of one pivot, the tokens of a candidate can be identified.
var pivots = []string{" A", " .", ".", "\n"}

// byTokens returns the units of a pool, and of the engine's own vocabulary, that are one token each in the engine's tokenizer, and an
// anchor.
func (w *words) byTokens(pool []string) (good []string, anchor string, err error) {
	const n = 9
	for _, pivot := range pivots {
		ids := w.tokens(anchors[0] + strings.Repeat(pivot, n))
		if len(ids) == 0 { // the engine does not have this endpoint
			return nil, "", cmp.Or(w.err, errNoWords)
		}
		id := ids[len(ids)-1]
		if len(ids) < n || slices.ContainsFunc(ids[len(ids)-n+1:], func(other uint32) bool { return other != id }) {
			continue // the pivot is not one token
		}
		good, found := w.singles(pool, pivot, id)
		if !found {
			continue
		}
		anchor = anchors[0]
		if len(ids) != 1+n && len(w.tokens(anchors[1]+strings.Repeat(pivot, n))) < len(ids) {
			anchor = anchors[1]
		}
		return good, anchor, w.err
	}
	return nil, "", errNoWords
}

// singles returns the units that are one token each, given a pivot whose token is known.
func (w *words) singles(pool []string, pivot string, id uint32) (good []string, found bool) {
	afterSpace := func(unit string) bool { return strings.HasPrefix(unit, " ") }
	bare := slices.DeleteFunc(slices.Clone(pool), afterSpace)
	spaced := slices.DeleteFunc(slices.Clone(pool), func(unit string) bool { return !afterSpace(unit) })
	if good, found = w.between(spaced, pivot, id); !found {
		return nil, false
	}
	own, _ := w.between(w.ofVocabulary(spaced), pivot, id)
	w.err = nil // without an answer, the pool must be enough
	good = append(good, own...)
	if len(good) >= prompt.LeastWords || len(bare) == 0 {
		return good, true
	}
	// Letters and digits without a space are good if no two of them merge.
	letters := strings.Join(bare, "")
	once := len(w.tokens(anchors[0] + letters))
	if len(w.tokens(anchors[0]+letters+letters)) == once+len(bare) {
		good = append(good, bare...)
	}
	return good, true
}

// tokens returns the tokens of a text.
func (w *words) tokens(text string) (ids []uint32) {
	if w.err == nil {
		w.asked++
		ids, w.err = w.ask(text)
	}
	for _, id := range ids {
		w.known = max(w.known, id)
	}
	return ids
}

// between returns the units that are one token between two copies of the pivot.
func (w *words) between(pool []string, pivot string, id uint32) (good []string, found bool) {
	if len(pool) == 0 {
		return nil, true
	}
	var at []int // positions of the pivots
	for i, got := range w.tokens(anchors[0] + pivot + strings.Join(pool, pivot) + pivot) {
		if got == id {
			at = append(at, i)
		}
	}
	if len(at) != len(pool)+1 {
		return nil, false
	}
	for i, unit := range pool {
		if at[i+1] == at[i]+2 {
			good = append(good, unit)
		}
	}
	return good, true
}

// ofVocabulary returns words of the engine's own vocabulary that are not in the pool, if the engine shows them. The function asks only for
// ids below the greatest that the engine has shown, because the behaviour of engines for other ids is unknown.
func (w *words) ofVocabulary(pool []string) (more []string) {
	var ids []uint32
	for id := uint32(firstOwn); id < w.known && len(ids) < maxOwn; id++ {
		ids = append(ids, id)
	}
	if len(ids) == 0 || w.text == nil {
		return nil
	}
	w.asked++
	text, _ := w.text(ids)
	seen := make(map[string]bool, len(pool))
	for _, unit := range pool {
		seen[unit] = true
	}
	for word := range strings.FieldsSeq(text) {
		unit := " " + word
		if len(word) <= prompt.MostLetters && !seen[unit] && !strings.ContainsFunc(word, func(c rune) bool { return c < 'a' || c > 'z' }) {
			more = append(more, unit)
			seen[unit] = true
		}
	}
	return more
}
