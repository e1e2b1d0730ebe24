// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

// TokenScanner reports whether an event of a stream has a token, with the client's own scanner. It is for programs that measure a client's
// minimum cost. The zero value is ready; it is not safe for concurrent use, and keeps no part of the events.
type TokenScanner struct{ chunk chunk }

// Token reports whether the data of an event is a whole JSON object with content, reasoning or a tool call in it.
func (s *TokenScanner) Token(data []byte) bool {
	if !s.chunk.parse(data) {
		return false
	}
	for i := range s.chunk.choices {
		if s.chunk.choices[i].produced() {
			return true
		}
	}
	return false
}
