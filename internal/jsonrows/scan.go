// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package jsonrows

import (
	"bytes"
	"errors"
	"io"
	"slices"
)

// maxDepth is the number of brackets within one another at which an object is given up. What parses it has given up before.
const maxDepth = 10_001

// scan is the state in which a value is between two of its bytes.
type scan struct {
	state  state
	object bool   // it began with a brace; else it is no object, and ends with its line
	array  bool   // it is the element of an array
	open   []byte // the brackets that are open
	last   byte   // of what is neither white space nor a comment
	comma  int    // where the last comma is
	fresh  bool   // there was only white space on this line
	indent int64  // how much
	first  int64  // what there was before the value on its first line
	alone  bool   // its first line has nothing but the brace
	spans  bool   // it has more than one line
	start  int    // where the line begins
	doubt  int    // where the first line begins that could be the next object; 0 is none
	clean  []byte
	layout Layout
}

type state uint8

const (
	between      state = iota
	inString           // between quotes
	escaped            // behind a backslash there
	slash              // behind what may begin a comment
	lineComment        // to the end of the line
	blockComment       // to */
	star               // behind what may end that
)

// verdict is what a byte means for the value.
type verdict uint8

const (
	more   verdict = iota // it belongs to it
	closed                // it is its last one
	over                  // the value has ended before it
	broken                // the value does not end, which shows here
)

// value gives out what begins here: an object, or something else up to the end of the line or of the array's element. An object that
// is cut off ends where that shows: in a string that its line ends in, or where a line begins like the next object.
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

// rewind ends an object that is cut off where a line begins that could have been the next object, if there is one. All of a file is
// scanned again for that as often as the longest object could be.
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

// resume goes on behind an object that is cut off. Of an object of several lines it leaves out those that begin further in than the
// object, or unlike an object: they are no objects.
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

// bytes scans some bytes. It returns how many belong to the value, and what the last one, or the one behind it, means.
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

// newLine notes that the value goes on on another line.
func (s *scan) newLine() {
	if !s.spans {
		s.spans, s.alone = true, s.last == '{' && len(s.open) == 1
	}
	s.layout |= Spans
	s.fresh, s.indent, s.start = true, 0, len(s.clean)+1
}

// between takes a byte that is not in a string, nor in a comment.
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
		return more // which may not be the last that counts
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
