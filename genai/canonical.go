// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// appendCanonical appends a node as compact JSON with sorted keys.
func (t *tree) appendCanonical(b []byte, n int32) []byte {
	switch t.kind(n) {
	case nodeNull:
		return append(b, "null"...)
	case nodeFalse:
		return append(b, "false"...)
	case nodeTrue:
		return append(b, "true"...)
	case nodeNumber:
		return append(b, t.nodes[n].text...)
	case nodeString:
		return t.appendString(b, n)
	case nodeArray:
		b = append(b, '[')
		for i := n + 1; i < t.nodes[n].next; i = t.nodes[i].next {
			if i > n+1 {
				b = append(b, ',')
			}
			b = t.appendCanonical(b, i)
		}
		return append(b, ']')
	case nodeObject:
		var space [16]int32
		keys := space[:0]
		for key := n + 1; key < t.nodes[n].next; key = t.nodes[key+1].next {
			keys = append(keys, key)
		}
		slices.SortStableFunc(keys, func(x, y int32) int { return strings.Compare(t.nodes[x].text, t.nodes[y].text) })
		b = append(b, '{')
		for i, key := range keys {
			if i > 0 {
				b = append(b, ',')
			}
			b = t.appendString(b, key)
			b = append(b, ':')
			b = t.appendCanonical(b, key+1)
		}
		return append(b, '}')
	}
	return b
}

// appendString appends a string with the escapes that JSON demands and no others.
func (t *tree) appendString(b []byte, n int32) []byte {
	b = append(b, '"')
	b = appendEscaped(b, t.raw(n))
	return append(b, '"')
}

// raw returns a string node without its JSON escapes.
func (t *tree) raw(n int32) string {
	if t.nodes[n].escaped {
		return unescape(t.nodes[n].text)
	}
	return t.nodes[n].text
}

func appendEscaped(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c == '\t':
			b = append(b, '\\', 't')
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		case c < utf8.RuneSelf:
			b = append(b, c)
		default:
			r, size := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += size
			continue
		}
		i++
	}
	return b
}

// appendArguments appends the arguments of a call as a JSON string that holds compact JSON. Some dialects have the
// model's string, others what it parses to.
func (w *walker) appendArguments(b []byte, t *tree, n int32) []byte {
	var text []byte
	switch t.kind(n) {
	case nodeNull:
		return append(b, `""`...)
	case nodeString:
		s := t.raw(n)
		if !jsonLike(s) || !w.nested.parse(s, w.limits) || w.nested.cut {
			return append(appendEscaped(append(b, '"'), s), '"')
		}
		text = w.nested.appendCanonical(nil, 0)
	default:
		text = t.appendCanonical(nil, n)
	}
	return append(appendEscaped(append(b, '"'), string(text)), '"')
}

// jsonLike reports whether a string may be a JSON container, or a string that holds one.
func jsonLike(s string) bool {
	s = strings.TrimLeft(s, " \t\r\n")
	return s != "" && (s[0] == '[' || s[0] == '{' || s[0] == '"')
}

// appendTool appends the definition of a tool in the shape of the chat completions API.
func (t *tree) appendTool(b []byte, n int32) []byte {
	f := n
	if inner := t.get(n, "function"); t.kind(inner) == nodeObject {
		f = inner
	}
	name := t.get(f, "name")
	if kind := t.str(t.get(n, "type")); t.kind(name) != nodeString || kind != "" && kind != "function" {
		return t.appendCanonical(b, n) // a tool of the provider's own
	}
	b = append(b, `{"function":{`...)
	if description := t.get(f, "description"); description != none {
		b = append(b, `"description":`...)
		b = t.appendCanonical(b, description)
		b = append(b, ',')
	}
	b = append(b, `"name":`...)
	b = t.appendString(b, name)
	if parameters := t.get(f, "parameters", "inputSchema", "input_schema", "jsonSchema"); parameters != none {
		b = append(b, `,"parameters":`...)
		b = t.appendCanonical(b, parameters)
	}
	return append(b, `},"type":"function"}`...)
}

// appendCall appends the call of a tool in the shape of the chat completions API.
func (w *walker) appendCall(b []byte, t *tree, name, arguments, id int32) []byte {
	b = append(b, `{"function":{"arguments":`...)
	b = w.appendArguments(b, t, arguments)
	b = append(b, `,"name":`...)
	b = t.appendCanonical(b, name)
	b = append(b, '}')
	if id != none {
		b = append(b, `,"id":`...)
		b = t.appendCanonical(b, id)
	}
	return append(b, `,"type":"function"}`...)
}
