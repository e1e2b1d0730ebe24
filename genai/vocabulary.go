// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	_ "embed"
	"strings"
)

//go:embed vocabulary.txt
var vocabularyText string

// vocabulary holds the lists of vocabulary.txt by the names of their sections.
var vocabulary = func() map[string][]string {
	lists, section := map[string][]string{}, ""
	for line := range strings.Lines(vocabularyText) {
		if name, ok := strings.CutPrefix(line, "["); ok {
			section = strings.TrimRight(name, "]\n")
		} else if !strings.HasPrefix(line, "#") {
			lists[section] = append(lists[section], strings.Fields(line)...)
		}
	}
	return lists
}()

// vocabularySet returns a list of the vocabulary, and more words, as a set.
func vocabularySet(section string, more ...string) map[string]bool {
	set := map[string]bool{}
	for _, word := range append(more, vocabulary[section]...) {
		set[word] = true
	}
	return set
}
