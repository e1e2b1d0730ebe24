// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// Tokens appends the token ids of a prompt that was sent as token ids (a completions request whose prompt is integers) to dst. For any
// other prompt, for a list of several prompts, and for an incomplete list, ok is false and dst unchanged. A prompt of text costs one search
// and is not parsed.
func (c *Content) Tokens(dst []uint32) (tokens []uint32, ok bool) {
	if c.form != formDocument || c.system.Type() != pcommon.ValueTypeEmpty || c.remote || !mayBeTokens(c.value) {
		return dst, false
	}
	w := &c.reader.walker
	w.begin(nil)
	defer w.end()
	p, ok := c.load(w)
	t, list := &w.main, p.list
	if !ok || p.lead != none || p.unread || t.cut || t.gaps {
		return dst, false
	}
	if t.kind(list) == nodeArray && t.kind(list+1) == nodeArray && t.nodes[list].next == t.nodes[list+1].next {
		list++ // a list of one prompt
	}
	if t.kind(list) != nodeArray || t.nodes[list].next == list+1 {
		return dst, false
	}
	tokens = dst
	for i := range t.values(list) {
		id, err := strconv.ParseUint(t.nodes[i].text, 10, 32)
		if t.nodes[i].kind != nodeNumber || err != nil {
			return dst, false
		}
		tokens = append(tokens, uint32(id))
	}
	return tokens, true
}

// mayBeTokens reports whether a value can contain a list of numbers as a prompt.
func mayBeTokens(v pcommon.Value) bool {
	switch v.Type() {
	case pcommon.ValueTypeSlice:
		return v.Slice().Len() > 0 && v.Slice().At(0).Type() != pcommon.ValueTypeMap && v.Slice().At(0).Type() != pcommon.ValueTypeStr
	case pcommon.ValueTypeMap:
		_, ok := v.Map().Get("prompt")
		return ok
	case pcommon.ValueTypeStr:
		s := v.Str()
		for !beginsNumbers(s) {
			const key = `"prompt"` // within a text its quotes would be escaped
			i := strings.Index(s, key)
			if i < 0 {
				return false
			}
			s = strings.TrimLeft(s[i+len(key):], ": \t\r\n")
		}
		return true
	default:
		return false
	}
}

// beginsNumbers reports whether a JSON text begins with a list whose first member is a number.
func beginsNumbers(s string) bool {
	rest := strings.TrimLeft(s, "[ \t\r\n")
	return strings.HasPrefix(s, "[") && rest != "" && rest[0] >= '0' && rest[0] <= '9'
}

// Part reports whether the content is one message of several, each with its own log record.
func (c *Content) Part() bool { return c.form == formMessage }
