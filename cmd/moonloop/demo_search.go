// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

// textRun is how long a piece of text is looked for: any 2·textRun-1 bytes in a row that a file has in common with a
// text are found.
const textRun = 16

// textSearch finds pieces of texts in files. It knows every text cut into runs, and compares each place of a file.
type textSearch map[[textRun]byte]struct{}

func newTextSearch(texts []string) textSearch {
	s := make(textSearch)
	for _, text := range texts {
		for i := 0; i+textRun <= len(text); i += textRun {
			s[[textRun]byte([]byte(text[i:i+textRun]))] = struct{}{}
		}
	}
	return s
}

// in reports whether a file holds a piece of one of the texts.
func (s textSearch) in(file []byte) bool {
	for i := 0; i+textRun <= len(file); i++ {
		if _, found := s[[textRun]byte(file[i:])]; found {
			return true
		}
	}
	return false
}
