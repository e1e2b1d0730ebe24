// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// parse appends a JSON text. A text that ends too early, or goes past a limit, is kept as far as it goes and marks
// the tree as cut. It returns false, and leaves the tree empty, for a text that is not JSON.
//
// Strings may hold anything but a bare quote: producers write control characters and broken UTF-8.
func (t *tree) parse(s string, limits *Limits) bool {
	t.reset()
	long := len(s) > limits.Bytes
	if long {
		s = s[:limits.Bytes]
	}
	p := parser{tree: t, s: s, limits: limits}
	if !p.value() && !t.cut {
		t.reset()
		return false
	}
	p.finish()
	t.cut = t.cut || long
	return true
}

// parser is a JSON parser with an explicit stack, so that nesting costs nothing but its bound.
type parser struct {
	*tree
	s      string
	pos    int
	limits *Limits
	stack  [maxDepth]int32 // open containers
	depth  int
	key    bool // a key waits for its value
}

// value reads one top-level value and nothing but space after it. False means malformed, or cut.
func (p *parser) value() bool {
	for {
		c, ok := p.next()
		if !ok {
			return false
		}
		if !p.start(c) {
			return false
		}
		p.key = false
		// Close what ends here, then take the comma.
		for fresh := c == '[' || c == '{'; ; fresh = false {
			if p.depth == 0 {
				p.space()
				return p.pos == len(p.s)
			}
			if !fresh {
				if c, ok = p.next(); !ok {
					return false
				}
			} else if c, ok = p.peek(); !ok {
				return false
			}
			object := p.nodes[p.stack[p.depth-1]].kind == nodeObject
			switch {
			case c == ']' && !object, c == '}' && object:
				if fresh {
					p.pos++
				}
				p.depth--
				p.close(p.stack[p.depth])
				continue
			case fresh:
			case c != ',':
				return false
			}
			if object && !p.name() {
				return false
			}
			break
		}
	}
}

// name reads a key and its colon.
func (p *parser) name() bool {
	c, ok := p.next()
	if !ok || c != '"' || !p.string() {
		if ok && c == '"' && p.cut {
			p.nodes = p.nodes[:len(p.nodes)-1] // half a key names nothing
		}
		return false
	}
	p.key = true
	c, ok = p.next()
	return ok && c == ':'
}

// start reads a scalar or opens a container.
func (p *parser) start(c byte) bool {
	if p.full(p.limits) {
		return false
	}
	switch {
	case c == '"':
		return p.string()
	case c == '[' || c == '{':
		if p.depth == maxDepth {
			p.cut = true
			return false
		}
		kind := nodeArray
		if c == '{' {
			kind = nodeObject
		}
		p.stack[p.depth] = p.add(node{kind: kind})
		p.depth++
		return true
	case c == '-' || '0' <= c && c <= '9':
		return p.number()
	case c == 't':
		return p.literal("true", nodeTrue)
	case c == 'f':
		return p.literal("false", nodeFalse)
	case c == 'n':
		return p.literal("null", nodeNull)
	}
	return false
}

// string reads the rest of a string. The quote is looked for once, not after each escape.
func (p *parser) string() bool {
	start, from := p.pos, p.pos
	n := node{kind: nodeString}
	for {
		quote := strings.IndexByte(p.s[from:], '"')
		end := len(p.s)
		if quote >= 0 {
			end = from + quote
		}
		escape := strings.IndexByte(p.s[from:end], '\\')
		for escape >= 0 {
			n.escaped = true
			from += escape + 2
			if from > end {
				break
			}
			escape = strings.IndexByte(p.s[from:end], '\\')
		}
		if from > end && end < len(p.s) {
			continue // that quote was escaped
		}
		n.text = p.s[start:end]
		p.pos = min(end+1, len(p.s))
		if quote < 0 {
			n.cut = true
			p.cut = p.cut || p.depth > 0 || strings.IndexAny(n.text, "[{") == 0 // else it is text with a quote
		}
		p.add(n)
		p.key = false
		return quote >= 0
	}
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
	p.add(node{kind: kind})
	return true
}

func (p *parser) space() {
	for p.pos < len(p.s) && (p.s[p.pos] == ' ' || p.s[p.pos] == '\n' || p.s[p.pos] == '\t' || p.s[p.pos] == '\r') {
		p.pos++
	}
}

// peek returns the next byte after space. The end of the source within a container is a cut.
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

// finish closes what a cut left open.
func (p *parser) finish() {
	if p.key {
		p.add(node{})
	}
	for ; p.depth > 0; p.depth-- {
		p.close(p.stack[p.depth-1])
	}
}

// truncated reports whether a string has exactly the length of a known limit, in bytes or in characters.
func truncated(s string, lengths []int) bool {
	return slices.ContainsFunc(lengths, func(limit int) bool {
		return len(s) == limit || len(s) > limit && len(s) <= 4*limit && utf8.RuneCountInString(s) == limit
	})
}

// unescape undoes JSON escapes. An escape that the source cut is left out; a lone surrogate becomes U+FFFD.
func unescape(s string) string {
	b := make([]byte, 0, len(s))
	for s != "" {
		i := strings.IndexByte(s, '\\')
		if i < 0 {
			return string(append(b, s...))
		}
		b = append(b, s[:i]...)
		var n int
		b, n = appendEscape(b, s[i:])
		s = s[i+n:]
	}
	return string(b)
}

// escapes are the bytes that escapes of one letter stand for. An escape that JSON does not know stands for its letter.
var escapes = func() (table [256]byte) {
	for i := range table {
		table[i] = byte(i)
	}
	for letter, c := range map[byte]byte{'n': '\n', 't': '\t', 'r': '\r', 'b': '\b', 'f': '\f'} {
		table[letter] = c
	}
	return table
}()

// appendEscape appends what an escape at the start of s stands for, and returns its length.
func appendEscape(b []byte, s string) ([]byte, int) {
	if len(s) < 2 {
		return b, len(s)
	}
	if s[1] != 'u' {
		return append(b, escapes[s[1]]), 2
	}
	r, ok := hex4(s)
	if !ok {
		if len(s) < 6 {
			return b, len(s)
		}
		return append(b, 'u'), 2
	}
	if !utf16.IsSurrogate(r) {
		return utf8.AppendRune(b, r), 6
	}
	if low, ok := hex4(s[6:]); ok {
		if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
			return utf8.AppendRune(b, pair), 12
		}
	}
	return utf8.AppendRune(b, utf8.RuneError), 6
}

// halfPair reports whether a text that was cut ends with the first half of a surrogate pair.
func halfPair(s string) bool {
	const second = `\u`
	r, ok := hex4(s)
	return ok && 0xD800 <= r && r < 0xDC00 && len(s) < 12 && strings.HasPrefix(second, s[6:min(len(s), 8)])
}

// hexDigits are the values of hexadecimal digits; what is none is noHexDigit.
var hexDigits = func() (table [256]uint16) {
	for i := range table {
		table[i] = noHexDigit
	}
	for v, digits := range [16]string{10: "aA", 11: "bB", 12: "cC", 13: "dD", 14: "eE", 15: "fF"} {
		for _, c := range []byte(digits) {
			table[c] = uint16(v)
		}
	}
	for c := byte('0'); c <= '9'; c++ {
		table[c] = uint16(c - '0')
	}
	return table
}()

const noHexDigit = 1 << 15

// hex4 reads \uXXXX.
func hex4(s string) (rune, bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	a, b, c, d := hexDigits[s[2]], hexDigits[s[3]], hexDigits[s[4]], hexDigits[s[5]]
	return rune(a)<<12 | rune(b)<<8 | rune(c)<<4 | rune(d), (a|b|c|d)&noHexDigit == 0
}
