// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"encoding/hex"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// parse replaces the tree by that of a JSON text. A text that ends too early, or exceeds a limit, is kept up to there and marks the tree as
// cut. For a text that is not JSON, it returns false and leaves the tree empty.
//
// Strings may contain anything but a bare quote, because producers write control characters and broken UTF-8.
func (t *tree) parse(s string) bool {
	t.reset()
	long := len(s) > t.limits.Bytes
	if long {
		s = s[:t.limits.Bytes]
	}
	p := parser{tree: t, s: s}
	if !p.whole() && !t.cut {
		t.reset()
		return false
	}
	t.cut = t.cut || long
	return true
}

// parser is a JSON parser. Its methods return false if the text is malformed, or cut there.
type parser struct {
	*tree
	s     string
	pos   int
	depth int // of open containers
}

// whole reads one value, with only space after it.
func (p *parser) whole() bool {
	if !p.value() {
		return false
	}
	p.space()
	return p.pos == len(p.s)
}

func (p *parser) value() bool {
	c, ok := p.next()
	if !ok || p.full() {
		return false
	}
	switch c {
	case '"':
		return p.string()
	case '[':
		return p.container(nodeArray, ']')
	case '{':
		return p.container(nodeObject, '}')
	case 't':
		return p.literal("true", nodeTrue)
	case 'f':
		return p.literal("false", nodeFalse)
	case 'n':
		return p.literal("null", nodeNull)
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return p.number()
	}
	return false
}

// container reads an array or an object. If the text is cut, the depth still counts the container as open.
func (p *parser) container(kind nodeKind, end byte) bool {
	if p.depth == maxDepth {
		p.cut = true
		return false
	}
	p.depth++
	n := p.add(node{kind: kind})
	ok := p.members(kind == nodeObject, end)
	p.close(n)
	if ok {
		p.depth--
	}
	return ok
}

func (p *parser) members(object bool, end byte) bool {
	switch c, ok := p.peek(); {
	case !ok:
		return false
	case c == end:
		p.pos++
		return true
	}
	for {
		if object && !p.name() {
			return false
		}
		before := len(p.nodes)
		if !p.value() {
			if object && len(p.nodes) == before {
				p.add(node{}) // for a key whose value is cut off
			}
			return false
		}
		switch c, ok := p.next(); {
		case !ok:
			return false
		case c == end:
			return true
		case c != ',':
			return false
		}
	}
}

// name reads a key and its colon.
func (p *parser) name() bool {
	c, ok := p.next()
	if !ok || c != '"' {
		return false
	}
	if !p.string() {
		p.nodes = p.nodes[:len(p.nodes)-1] // part of a key is useless
		return false
	}
	if c, ok = p.next(); !ok || c != ':' {
		p.add(node{})
		return false
	}
	return true
}

// string reads the rest of a string. It goes from quote to quote and counts the backslashes before each, instead of stopping at each escape.
func (p *parser) string() bool {
	n := node{kind: nodeString}
	start, end := p.pos, p.pos
	for {
		quote := strings.IndexByte(p.s[end:], '"')
		if n.cut = quote < 0; n.cut {
			end = len(p.s)
			break
		}
		end += quote
		escapes := end
		for escapes > start && p.s[escapes-1] == '\\' {
			escapes--
		}
		if (end-escapes)%2 == 0 {
			break
		}
		end++ // that quote was escaped
	}
	n.text = p.s[start:end]
	n.escaped = strings.IndexByte(n.text, '\\') >= 0
	p.pos = min(end+1, len(p.s))
	if n.cut {
		p.cut = p.cut || p.depth > 0 || strings.IndexAny(n.text, "[{") == 0 // else it is a text that begins with a quote
	}
	p.add(n)
	return !n.cut
}

func (p *parser) number() bool {
	start := p.pos - 1
	for p.pos < len(p.s) && strings.IndexByte("+-.0123456789eE", p.s[p.pos]) >= 0 {
		p.pos++
	}
	if p.pos == len(p.s) && p.depth > 0 {
		p.cut = true // digits may be missing
		return false
	}
	p.add(node{kind: nodeNumber, text: p.s[start:p.pos]})
	return true
}

func (p *parser) literal(word string, kind nodeKind) bool {
	rest := p.s[p.pos-1:]
	if !strings.HasPrefix(rest, word) {
		p.cut = p.cut || p.depth > 0 && strings.HasPrefix(word, rest)
		return false
	}
	p.pos += len(word) - 1
	p.add(node{kind: kind, text: word})
	return true
}

func (p *parser) space() {
	for p.pos < len(p.s) && (p.s[p.pos] == ' ' || p.s[p.pos] == '\n' || p.s[p.pos] == '\t' || p.s[p.pos] == '\r') {
		p.pos++
	}
}

// peek returns the next byte after space. The end of the text within a container is a cut.
func (p *parser) peek() (byte, bool) {
	p.space()
	if p.pos == len(p.s) {
		p.cut = p.cut || p.depth > 0
		return 0, false
	}
	return p.s[p.pos], true
}

func (p *parser) next() (byte, bool) {
	c, ok := p.peek()
	if ok {
		p.pos++
	}
	return c, ok
}

// truncated reports whether a string has exactly the length, in bytes or in characters, at which Tempo cuts strings by default.
func truncated(s string) bool {
	const length = 2048
	return len(s) == length || len(s) > length && len(s) <= 4*length && utf8.RuneCountInString(s) == length
}

// unescape replaces JSON escapes. It drops an escape that is cut; a lone surrogate becomes U+FFFD.
func unescape(s string) string {
	b := make([]byte, 0, len(s))
	for {
		plain, _, escaped := strings.Cut(s, `\`)
		b = append(b, plain...)
		if !escaped {
			return string(b)
		}
		s = s[len(plain):]
		var n int
		b, n = appendEscape(b, s)
		s = s[n:]
	}
}

// escapes are the bytes for escapes of one letter. Another escaped letter stands for itself.
var escapes = [256]byte{'n': '\n', 't': '\t', 'r': '\r', 'b': '\b', 'f': '\f'}

// appendEscape appends the character of an escape at the start of s, and returns the escape's length.
func appendEscape(b []byte, s string) ([]byte, int) {
	if len(s) < 2 {
		return b, len(s)
	}
	if c := escapes[s[1]]; c != 0 {
		return append(b, c), 2
	}
	if s[1] != 'u' {
		return append(b, s[1]), 2
	}
	r, ok := hex4(s)
	switch {
	case !ok && len(s) < 6:
		return b, len(s)
	case !ok:
		return append(b, 'u'), 2
	case !utf16.IsSurrogate(r):
		return utf8.AppendRune(b, r), 6
	}
	if low, ok := hex4(s[6:]); ok {
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return utf8.AppendRune(b, pair), 12
		}
	}
	return utf8.AppendRune(b, utf8.RuneError), 6
}

// halfPair reports whether a cut text ends with the first half of a surrogate pair.
func halfPair(s string) bool {
	const second = `\u`
	r, ok := hex4(s)
	return ok && 0xD800 <= r && r < 0xDC00 && len(s) < 12 && strings.HasPrefix(second, s[6:min(len(s), 8)])
}

// hex4 reads \uXXXX.
func hex4(s string) (rune, bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	var unit [2]byte
	_, err := hex.Decode(unit[:], []byte(s[2:6]))
	return rune(unit[0])<<8 | rune(unit[1]), err == nil
}
