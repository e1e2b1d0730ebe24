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
	case nodeFalse, nodeTrue, nodeNumber:
		return append(b, t.nodes[n].text...)
	case nodeString:
		return t.appendString(b, n)
	case nodeArray:
		b = append(b, '[')
		for i := range t.values(n) {
			if i > n+1 {
				b = append(b, ',')
			}
			b = t.appendCanonical(b, i)
		}
		return append(b, ']')
	case nodeObject:
		var space [16]int32
		values := space[:0]
		for value := range t.values(n) {
			values = append(values, value)
		}
		t.sortByKey(values)
		b = append(b, '{')
		for i, value := range values {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(t.appendString(b, value-1), ':')
			b = t.appendCanonical(b, value)
		}
		return append(b, '}')
	}
	return b
}

// appendString appends a string with only the escapes that JSON requires.
func (t *tree) appendString(b []byte, n int32) []byte {
	return append(appendEscaped(append(b, '"'), t.raw(n)), '"')
}

// sortByKey sorts the members of an object by their keys.
func (t *tree) sortByKey(values []int32) {
	slices.SortStableFunc(values, func(x, y int32) int { return strings.Compare(t.nodes[x-1].text, t.nodes[y-1].text) })
}

func appendEscaped(b []byte, s string) []byte {
	const hexDigits = "0123456789abcdef"
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, '\\', 'n')
		case r == '\r':
			b = append(b, '\\', 'r')
		case r == '\t':
			b = append(b, '\\', 't')
		case r < ' ':
			b = append(b, '\\', 'u', '0', '0', hexDigits[r>>4], hexDigits[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return b
}

// appendArguments appends the arguments of a call as a JSON string that contains compact JSON. Some dialects have the model's string,
// others the parsed value.
func (w *walker) appendArguments(b []byte, t *tree, n int32) []byte {
	text := ""
	switch t.kind(n) {
	case nodeNull:
	case nodeString:
		if text = t.raw(n); jsonLike(text) && w.nested.parse(text) && !w.nested.cut {
			text = string(w.nested.appendCanonical(nil, 0))
		}
	default:
		text = string(t.appendCanonical(nil, n))
	}
	return append(appendEscaped(append(b, '"'), text), '"')
}

// jsonLike reports whether a string may be a JSON container, or a string that contains one.
func jsonLike(s string) bool {
	s = strings.TrimLeft(s, " \t\r\n")
	return s != "" && (s[0] == '[' || s[0] == '{' || s[0] == '"')
}

// appendTool appends the definition of a tool in the form of the chat completions API.
func (t *tree) appendTool(b []byte, n int32) []byte {
	f := t.unwrap(n, "function")
	name := t.get(f, "name")
	if kind := t.str(t.get(n, "type")); t.kind(name) != nodeString || kind != "" && kind != "function" {
		return t.appendCanonical(b, n) // a tool defined by the provider
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

// appendCall appends a tool call in the form of the chat completions API.
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
