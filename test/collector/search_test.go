// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"strings"
	"testing"
)

// A piece is this many bytes of a prompt, taken at every step: text that shares piece+step-1 bytes with a prompt contains a whole piece.
const (
	piece = 12
	step  = 4
)

// search finds pieces of prompts.
type search map[[piece]byte]struct{}

// newSearch reads the prompts of a truth file.
func newSearch(t *testing.T, name string) search {
	t.Helper()
	s := search{}
	for _, r := range readTruth(t, name) {
		prompt := r.Prompt
		for i := 0; i+piece <= len(prompt); i += step {
			part := prompt[i : i+piece]
			if strings.ContainsAny(part, "\"|") { // the engine's marks, and the JSON of tools, whose names may stay
				continue
			}
			s[[piece]byte([]byte(part))] = struct{}{}
		}
	}
	return s
}

// in returns the pieces that a content contains.
func (s search) in(content []byte) (found []string) {
	for i := range max(0, len(content)-piece+1) {
		if _, ok := s[[piece]byte(content[i:])]; ok {
			found = append(found, string(content[i:i+piece]))
		}
	}
	return found
}
