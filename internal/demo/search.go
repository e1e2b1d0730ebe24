// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package demo

// textRun is the length of the pieces of text that are searched for: any 2·textRun-1 consecutive bytes that a file has in common with a
// text are found.
const textRun = 16

// Search finds pieces of texts in files. It divides every text into runs, and compares each position of a file with them.
type Search map[[textRun]byte]struct{}

// NewSearch returns the search for texts.
func NewSearch(texts []string) Search {
	s := make(Search)
	for _, text := range texts {
		for i := 0; i+textRun <= len(text); i += textRun {
			s[[textRun]byte([]byte(text[i:i+textRun]))] = struct{}{}
		}
	}
	return s
}

// In reports whether a file contains a piece of one of the texts.
func (s Search) In(file []byte) bool {
	for i := 0; i+textRun <= len(file); i++ {
		if _, found := s[[textRun]byte(file[i:])]; found {
			return true
		}
	}
	return false
}
