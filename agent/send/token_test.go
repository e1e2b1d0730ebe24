// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import "testing"

func TestTokenScanner(t *testing.T) {
	var s TokenScanner
	for _, c := range []struct {
		data, why string
		want      bool
	}{
		{`{"choices":[{"delta":{"role":"assistant","content":""}}]}`, "a role is not a token", false},
		{`{"choices":[{"delta":{"content":"a"}}]}`, "content", true},
		{`{"choices":[],"usage":{"completion_tokens":3}}`, "usage; nothing of the event before is left", false},
		{`{"choices":[{"delta":{"reasoning_content":"a"}}]}`, "reasoning", true},
		{`{"choices":[{"index":0,"text":"a"}]}`, "a text completion", true},
		{`{"choices":[{"text":"a"`, "broken off", false},
		{`[DONE]`, "not an object", false},
	} {
		if got := s.Token([]byte(c.data)); got != c.want {
			t.Errorf("%s: %v", c.why, got)
		}
	}
}
