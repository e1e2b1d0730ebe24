// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package jsonrows

import (
	"bytes"
	"errors"
	"io"
	"slices"
)

// maxDepth is the maximum nesting of an object. A deeper one is given up; its parser would have given up earlier.
const maxDepth = 10_001

// scan is the state between two bytes of a value.
type scan struct {
	state  state
	object bool   // the value began with a brace; else it is not an object, and ends with its line
	array  bool   // the value is the element of an array
	open   []byte // the brackets that are open
	last   byte   // the last byte that belongs neither to white space nor to a comment
	comma  int    // where the last comma is
	fresh  bool   // there was only white space on this line
	indent int64  // number of white-space bytes
	first  int64  // bytes before the value on its first line
	alone  bool   // its first line has only the brace
	spans  bool   // it has more than one line
	start  int    // where the line begins
	doubt  int    // beginning of the first line that could be the next object; 0 = none
	clean  []byte
	layout Layout
}

type state uint8

const (
	between      state = iota
	inString           // within quotes
	escaped            // after a backslash in them
	slash              // after a byte that may begin a comment
	lineComment        // until the end of the line
	blockComment       // until */
	star               // after a byte that may end the comment
)

// verdict is the meaning of a byte for the value.
type verdict uint8

const (
	more   verdict = iota // it belongs to the value
	closed                // it is the last byte of the value
	over                  // the value has ended before it
	broken                // the value does not end, as this byte proves
)

// value returns the value that begins here: an object, or something else up to the end of the line or of the array's element. An object
// that is cut off ends where that shows: in a string that ends with its line, or where a line begins like the next object.
func (r *Reader) value() error {
	r.begin()
	r.isLine = false
	s := scan{first: r.column, array: r.array != 0, clean: r.clean[:0]}
	r.raw = r.raw[:0]
	defer func() { r.Text, r.Raw, r.clean, r.Layout = s.clean, r.raw, s.clean, r.Layout|s.layout }()
	for first := true; ; first = false {
		b, err := r.peek()
		switch {
		case errors.Is(err, io.EOF):
			r.Cut = s.object && !r.rewind(&s)
			return nil
		case err != nil:
			return r.end(err)
		case first:
			s.object = b[0] == '{'
		}
		n, v := s.bytes(b)
		r.raw = append(r.raw, b[:n]...)
		r.skip(n)
		if len(r.raw) > r.max {
			if !s.object {
				return ErrLongLine
			}
			return ErrLongRow
		}
		switch v {
		case more:
		case broken:
			if r.rewind(&s) {
				return nil
			}
			return r.resume(&s)
		case closed, over:
			r.shared = v == closed
			return nil
		}
	}
}

// rewind ends an object that is cut off at a line that could have been the next object, if there is one. In the whole file, at most as many
// bytes are scanned again for this as the longest object may have.
func (r *Reader) rewind(s *scan) bool {
	if n := len(r.raw) - s.doubt; s.doubt > 0 && len(s.open) > 0 && r.again+n <= r.max {
		r.again += n
		next := r.raw[s.doubt:]
		r.rest = slices.Concat(next, r.rest)
		r.lines, r.column, r.shared = r.lines-int64(bytes.Count(next, []byte{'\n'})), 0, false
		r.raw, s.clean = r.raw[:s.doubt], s.clean[:s.doubt]
		return true
	}
	return false
}

// resume continues after an object that is cut off. If it has several lines, it skips lines that are indented further than the object, or
// begin unlike an object.
func (r *Reader) resume(s *scan) error {
	for fresh := s.fresh; ; {
		b, err := r.peek()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return r.end(err)
		}
		in := len(b) - len(bytes.TrimLeft(b, " \t\r"))
		switch {
		case !fresh || in == len(b):
		case !s.spans, r.column+int64(in) <= s.first && (b[in] == '{' || b[in] == ']' && r.array != 0):
			return nil
		}
		n := bytes.IndexByte(b, '\n') + 1
		fresh = n > 0 || fresh && in == len(b)
		if n == 0 {
			n = len(b)
		}
		r.raw = append(r.raw, b[:min(n, r.max-len(r.raw))]...)
		r.skip(n)
	}
}

// bytes scans some bytes. It returns how many belong to the value, and the meaning of the last one, or of the one after it.
func (s *scan) bytes(b []byte) (int, verdict) {
	for i, c := range b {
		at := len(s.clean)
		v := more
		switch s.state {
		case inString:
			switch c {
			case '"':
				s.state = between
			case '\\':
				s.state = escaped
			case '\n':
				return i, broken
			}
		case escaped:
			if s.state = inString; c == '\n' {
				return i, broken
			}
		case slash:
			if c == '/' || c == '*' {
				s.state = lineComment
				if c == '*' {
					s.state = blockComment
				}
				s.clean[at-1], c = ' ', ' '
				s.layout |= Comments
				break
			}
			s.state, s.last = between, '/'
			v = s.between(c)
		case lineComment:
			if c != '\n' {
				c = ' '
				break
			}
			s.state = between
			v = s.between(c)
		case blockComment, star:
			switch {
			case c == '/' && s.state == star:
				s.state = between
			case c == '*':
				s.state = star
			default:
				s.state = blockComment
			}
			if c == '\n' {
				s.newLine()
			} else {
				c = ' '
			}
		case between:
			v = s.between(c)
			if s.state == lineComment {
				c = ' '
			}
		}
		if v == over || v == broken {
			return i, v
		}
		s.clean = append(s.clean, c)
		if v == closed {
			return i + 1, v
		}
	}
	return len(b), more
}

// newLine records that the value continues on another line.
func (s *scan) newLine() {
	if !s.spans {
		s.spans, s.alone = true, s.last == '{' && len(s.open) == 1
	}
	s.layout |= Spans
	s.fresh, s.indent, s.start = true, 0, len(s.clean)+1
}

// between processes a byte outside strings and comments.
func (s *scan) between(c byte) verdict {
	switch c {
	case '\n':
		if !s.object {
			return over
		}
		s.newLine()
		return more
	case ' ', '\t', '\r':
		s.indent++
		return more
	case '"':
		s.state = inString
	case '#':
		s.state = lineComment
		s.layout |= Comments
		return more
	case '/':
		s.state = slash
		return more // it does not become s.last yet, because a comment may begin here
	case ',':
		if !s.object && s.array && len(s.open) == 0 {
			return over
		}
		s.comma = len(s.clean)
	case '{', '[':
		if c == '{' && s.fresh && s.indent <= s.first && len(s.open) > 0 {
			if !s.mayOpen() {
				return broken
			}
			if s.doubt == 0 && !s.alone {
				s.doubt = s.start
			}
		}
		if len(s.open) == maxDepth {
			return broken
		}
		s.open = append(s.open, c)
	case '}', ']':
		if len(s.open) == 0 && c == ']' && s.array {
			return over
		}
		if s.last == ',' && len(s.open) > 0 {
			s.clean[s.comma] = ' '
			s.layout |= Commas
		}
		s.open = s.open[:max(0, len(s.open)-1)]
	}
	s.fresh, s.last = false, c
	if s.object && len(s.open) == 0 {
		return closed
	}
	return more
}

// mayOpen reports whether an object can begin here.
func (s *scan) mayOpen() bool {
	in := s.open[len(s.open)-1]
	return s.last == ':' || in == '[' && (s.last == '[' || s.last == ',')
}
