// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"iter"
	"slices"

	"github.com/moonloop/moonloop/semconv"
)

// NameKind is the kind of an attribute's values.
type NameKind uint8

// The kinds of names.
const (
	// NameFact is a short fact that may contain spaces: a model, an agent, a session.
	NameFact NameKind = iota + 1
	// NameWord is a fact that is one word, by [IsWord]: an id, a type, a hint at what the span is.
	NameWord
	// NameReason is a word for how something ended: the type of an error, a finish reason.
	NameReason
	// NameNumber is a number or a flag; in some dialects as a text.
	NameNumber
	// NameContent is text of prompts, replies, tools or errors, or a document that may contain such text.
	NameContent
)

// Names visits the attribute names that the known dialects use, each once; facts of all kinds come first. A name that ends in * stands for
// all names with that beginning that are not listed; one that begins with *. stands for all names with that end that are not covered
// otherwise.
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

// nameLists returns the names of each kind: first those from which records are read, then the others.
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
	for _, word := range vocabulary["content, and after a dot"] {
		content = append(content, attribute{kind: NameContent, names: []string{word, "*." + word}})
	}
	return append(facts, content...)
}
