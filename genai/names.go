// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"iter"
	"slices"

	"github.com/moonloop/moonloop/semconv"
)

// NameKind says what the attributes of a name hold.
type NameKind uint8

// The kinds of names.
const (
	// NameFact is a short fact that may have spaces: a model, an agent, a session.
	NameFact NameKind = iota + 1
	// NameWord is a fact that is one word, by [IsWord]: an id, a type, a hint at what the span is.
	NameWord
	// NameReason is a word that says how something ended: the type of an error, a finish reason.
	NameReason
	// NameNumber is a number or a flag, as a text in some dialects.
	NameNumber
	// NameContent is text of prompts, replies, tools or errors, or a document that may hold such text.
	NameContent
)

// Names visits the attribute names that the known dialects use, each once, and facts of all kinds first. A name that
// ends in * stands for all that begin so and are not there themselves; one that begins with *. stands for all that end
// so and are in no other way there.
func Names() iter.Seq2[string, NameKind] {
	return func(yield func(string, NameKind) bool) {
		seen := map[string]bool{}
		for _, list := range nameLists() {
			for _, name := range list.names {
				if !seen[name] && !yield(name, list.kind) {
					return
				}
				seen[name] = true
			}
		}
	}
}

// nameLists returns the names of each kind: those that a record is read from, then those that it is not.
func nameLists() (facts []attribute) {
	var content []attribute
	for _, f := range fields {
		if f.kind == NameContent {
			content = append(content, f)
		} else {
			facts = append(facts, f)
		}
	}
	facts = append(facts, attribute{kind: NameFact, names: vocabulary["facts"]},
		attribute{kind: NameWord, names: slices.Concat(vocabulary["words"], []string{semconv.GenAITokenType})})
	content = append(content, attribute{kind: NameContent, names: vocabulary["content"]})
	for _, word := range vocabulary["content, and behind a dot"] {
		content = append(content, attribute{kind: NameContent, names: []string{word, "*." + word}})
	}
	return append(facts, content...)
}
