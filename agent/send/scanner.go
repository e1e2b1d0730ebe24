// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import "bytes"

// scanner extracts the relevant members from a JSON object in one pass. It allocates memory only for keys that contain an escape. It does
// not validate: a missing comma and bytes after the last brace are accepted. A fuzz test checks that it agrees with encoding/json on all
// valid JSON.
type scanner struct {
	data   []byte
	i      int
	depth  int
	out    *chunk
	choice *choice // the current one
}

// maxDepth is the maximum nesting of objects and arrays.
const maxDepth = 64

// kind is the meaning of an object. A key counts only in its own kind of object, so that a "content" elsewhere is never mistaken for a
// token.
type kind uint8

const (
	kindRoot kind = iota
	kindResponse
	kindIncomplete
	kindItem
	kindPart
	kindWhy
	kindChoice
	kindDelta
	kindToolCall
	kindFunction
	kindUsage
	kindDetails
)

// root reads the outermost object.
func (s *scanner) root() bool { return s.peek() == '{' && s.object(kindRoot) }

// member reads the value of one key.
func (s *scanner) member(k kind, key []byte) bool {
	c := s.out
	switch k {
	case kindRoot:
		switch string(key) {
		case "choices":
			return s.array(kindChoice)
		case "usage":
			return s.nested(kindUsage)
		case "id":
			return s.text(&c.id)
		case "model":
			return s.text(&c.model)
		case "error":
			return s.failure()
		case "object":
			var t text
			ok := s.text(&t)
			c.failed = c.failed || t.is("error")
			c.whole.is = t.is("response")
			return ok
		case "type":
			return s.text(&c.typ)
		case "delta":
			return s.text(&c.delta)
		case "response":
			return s.nested(kindResponse)
		case "status":
			return s.text(&c.whole.status)
		case "incomplete_details":
			return s.nested(kindWhy)
		case "output":
			return s.raw(&c.output, func() bool { return s.array(kindItem) })
		}
	case kindItem:
		if string(key) == "content" {
			return s.array(kindPart)
		}
	case kindPart:
		if string(key) == "text" {
			return s.filled(&c.whole.text)
		}
	case kindWhy:
		if string(key) == "reason" {
			return s.text(&c.whole.reason)
		}
	case kindChoice:
		switch string(key) {
		case "delta", "message":
			return s.nested(kindDelta)
		case "text":
			return s.filled(&s.choice.content)
		case "finish_reason":
			return s.text(&s.choice.finish)
		case "index":
			return s.index()
		case "token_ids":
			return s.raw(&s.choice.tokenIDs, s.skip)
		}
	case kindDelta:
		switch string(key) {
		case "content", "refusal":
			return s.filled(&s.choice.content)
		case "reasoning", "reasoning_content":
			return s.filled(&s.choice.reasoning)
		case "tool_calls":
			return s.raw(&s.choice.tools, func() bool { return s.array(kindToolCall) })
		case "function_call":
			return s.nested(kindFunction)
		}
	case kindToolCall:
		if string(key) == "function" {
			return s.nested(kindFunction)
		}
	case kindFunction:
		switch string(key) {
		case "name", "arguments":
			var t text
			ok := s.text(&t)
			s.choice.called = s.choice.called || len(t) > 0
			return ok
		}
	case kindUsage:
		switch string(key) {
		case "prompt_tokens", "input_tokens":
			return s.count(&c.usage.Prompt)
		case "completion_tokens", "output_tokens":
			return s.count(&c.usage.Completion)
		case "reasoning_tokens":
			return s.count(&c.usage.Reasoning)
		case "prompt_tokens_details", "input_tokens_details", "completion_tokens_details", "output_tokens_details":
			return s.nested(kindDetails)
		}
	case kindDetails:
		switch string(key) {
		case "cached_tokens":
			return s.count(&c.usage.Cached)
		case "reasoning_tokens":
			return s.count(&c.usage.Reasoning)
		}
	case kindResponse:
		switch string(key) {
		case "id":
			return s.text(&c.id)
		case "model":
			return s.text(&c.model)
		case "status":
			return s.text(&c.status)
		case "usage":
			return s.nested(kindUsage)
		case "error":
			return s.failure()
		case "incomplete_details":
			return s.nested(kindIncomplete)
		case "output":
			return s.raw(&c.output, s.skip)
		}
	case kindIncomplete:
		if string(key) == "reason" {
			return s.text(&c.reason)
		}
	}
	return s.skip()
}

// peek returns the next byte that is not white space, or 0 at the end.
func (s *scanner) peek() byte {
	for ; s.i < len(s.data); s.i++ {
		switch c := s.data[s.i]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// object reads an object, whose brace is next.
func (s *scanner) object(k kind) bool {
	if s.depth++; s.depth > maxDepth {
		return false
	}
	s.i++
	for {
		switch s.peek() {
		case '}':
			s.i++
			s.depth--
			return true
		case ',':
			s.i++
		case '"':
			key, ok := s.key()
			if !ok || s.peek() != ':' {
				return false
			}
			s.i++
			if !s.member(k, key) {
				return false
			}
		default:
			return false
		}
	}
}

// nested reads a value, which is used if it is an object.
func (s *scanner) nested(k kind) bool {
	if s.peek() == '{' {
		return s.object(k)
	}
	return s.skip()
}

// array reads a value, which is used if it is an array of objects.
func (s *scanner) array(k kind) bool {
	if s.peek() != '[' {
		return s.skip()
	}
	if s.depth++; s.depth > maxDepth {
		return false
	}
	s.i++
	for {
		switch s.peek() {
		case ']':
			s.i++
			s.depth--
			return true
		case ',':
			s.i++
		case '{':
			if k == kindChoice {
				s.out.choices = append(s.out.choices, choice{})
				s.choice = &s.out.choices[len(s.out.choices)-1]
			}
			if !s.object(k) {
				return false
			}
		default:
			if !s.skip() {
				return false
			}
		}
	}
}

// raw reads a value, which is used unchanged if it is an array.
func (s *scanner) raw(to *[]byte, read func() bool) bool {
	if s.peek() != '[' {
		return s.skip()
	}
	from := s.i
	ok := read()
	*to = s.data[from:s.i]
	return ok
}

// failure reads the value of an error key.
func (s *scanner) failure() bool {
	s.peek()
	from := s.i
	if !s.skip() {
		return false
	}
	s.out.failed = s.out.failed || meansFailure(s.data[from:s.i])
	return true
}

// meansFailure reports whether the value of an error key is an error: anything but null, false and an empty string is, even an empty object.
func meansFailure(value []byte) bool {
	switch string(value) {
	case "", "null", "false", `""`:
		return false
	}
	return true
}

// text reads a value, which is used if it is a string.
func (s *scanner) text(t *text) bool {
	if s.peek() != '"' {
		return s.skip()
	}
	v, ok := s.value()
	if ok {
		*t = v
	}
	return ok
}

// filled reads a value, which is used if it is a string that is not empty.
func (s *scanner) filled(t *text) bool {
	var v text
	ok := s.text(&v)
	if len(v) > 0 {
		*t = v
	}
	return ok
}

// count reads a value, which is used if it is a number of digits only.
func (s *scanner) count(n *int64) bool {
	v, ok := s.number()
	s.out.note(n, v)
	return ok
}

func (s *scanner) index() bool {
	v, ok := s.number()
	if v != Unknown {
		s.choice.index = v
	}
	return ok
}

func (s *scanner) number() (int64, bool) {
	s.peek()
	from := s.i
	if !s.skip() {
		return Unknown, false
	}
	return digits(s.data[from:s.i]), true
}

// key reads a key, whose quote is next, and decodes it.
func (s *scanner) key() ([]byte, bool) {
	key, ok := s.value()
	if bytes.IndexByte(key, '\\') >= 0 {
		key = text(key).append(nil)
	}
	return key, ok
}

// value reads a string, whose quote is next.
func (s *scanner) value() ([]byte, bool) {
	from := s.i + 1
	for i := from; i < len(s.data); i++ {
		switch s.data[i] {
		case '"':
			s.i = i + 1
			return s.data[from:i], true
		case '\\':
			i++
		}
	}
	return nil, false
}

// skip reads a value of any kind.
func (s *scanner) skip() bool {
	switch s.peek() {
	case '"':
		_, ok := s.value()
		return ok
	case '{', '[':
		return s.skipNested()
	}
	from := s.i
	for ; s.i < len(s.data); s.i++ {
		switch s.data[s.i] {
		case ',', '}', ']', ' ', '\t', '\n', '\r', '"', '{', '[', ':':
			return s.i > from
		}
	}
	return false // an object does not end with a value
}

// skipNested reads an object or array without relevant members.
func (s *scanner) skipNested() bool {
	depth := s.depth
	for s.i < len(s.data) {
		switch s.data[s.i] {
		case '"':
			if _, ok := s.value(); !ok {
				return false
			}
			continue
		case '{', '[':
			if depth++; depth > maxDepth {
				return false
			}
		case '}', ']':
			depth--
		}
		s.i++
		if depth == s.depth {
			return true
		}
	}
	return false
}
