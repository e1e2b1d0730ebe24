// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package jsonrows finds the JSON objects of a file, one after another, in any layout: one on each line, over several lines, several on a
// line, as the elements of an array, with comments (//, # and /* */), and with trailing commas. It does not parse them. [Lines] reads the
// lines of any file.
//
// For an object on its own line, a [Reader] only reads the line: the caller parses the line, and calls [Reader.Extend] only if that fails.
// Everything else is scanned once, byte by byte, for strings, comments and brackets. Memory is limited by the longest object, whatever the
// file is.
package jsonrows

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// Layout is the set of ways in which a file differs from one with one object on each line.
type Layout uint8

// The kinds of layout.
const (
	Spans    Layout = 1 << iota // the object spans several lines
	Array                       // it is an element of a JSON array
	Shares                      // it begins on a line on which another object ends
	Comments                    // there is a comment before it or in it
	Commas                      // there is a comma before it or in it that JSON does not allow
)

// Errors of Next and Extend, in addition to io.EOF, [Unfinished] and those of the source.
var (
	ErrLongLine = errors.New("the line is too long")
	ErrLongRow  = errors.New("the row is too long")
)

// Unfinished describes something without an end, with advice.
type Unfinished string

func (u Unfinished) Error() string { return string(u) }

var utf8BOM = []byte("\xef\xbb\xbf")

// Reader finds objects. Its fields are valid until the next call.
type Reader struct {
	// Text is the text to parse: a line, with its end, or a text that was recognised as one object or as no object. Comments and trailing
	// commas are replaced by blanks, so that the bytes of Text keep their positions in the file.
	Text []byte
	Raw  []byte // Text as it is in the file
	// Line is the number, from 1, of the line on which Text begins, Column the number of bytes before it on that line.
	Line   int64
	Column int64
	Layout Layout
	Cut    bool // the file ends before the object does

	src    *bufio.Reader
	whole  *Lines // of src
	max    int
	plain  bool
	begun  bool
	lines  int64  // number of lines that have ended
	column int64  // number of bytes that were read of the line after them
	rest   []byte // of a line that was returned as Text and turned out to contain more, or less, than an object
	err    error  // of the source, after its buffered bytes
	again  int    // bytes that were scanned twice
	array  int64  // the line on which the open array begins; 0 = none
	shared bool   // an object has ended on this line
	layout Layout // of what came since the last Text
	isLine bool   // Text is a line
	raw    []byte
	clean  []byte
}

// NewReader returns a reader of a file in which no object, and no line, is longer than maxLen bytes. With plain, the file has one object on
// each line, and nothing else: each line that is not blank is a Text.
func NewReader(src *bufio.Reader, maxLen int, plain bool) *Reader {
	return &Reader{src: src, whole: NewLines(src, maxLen), max: maxLen, plain: plain}
}

// Next finds the next object, or something that is not an object. io.EOF is the end of the file. After any other error there is nothing
// more to read; Line is its position.
func (r *Reader) Next() error {
	for {
		b, err := r.peek()
		if err != nil {
			return r.end(err)
		}
		switch c := b[0]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			r.skip(blanks(b))
		case r.plain || c == '{' && r.array == 0 && r.rest == nil:
			return r.line()
		case c == '{':
			return r.value()
		case c == '[' && r.array == 0 && r.opens():
			r.array = r.lines + 1
			r.skip(1)
		case c == ']' && r.array != 0:
			r.array = 0
			r.skip(1)
		case c == ',':
			if r.array == 0 {
				r.layout |= Commas
			}
			r.skip(1)
		case c == '/' || c == '#':
			switch isComment, err := r.comment(); {
			case err != nil:
				return err
			case !isComment:
				return r.value()
			}
			r.layout |= Comments
		default:
			return r.value()
		}
	}
}

// Extend examines again a Text that is not an object by itself: the object may end on a later line, or the line may contain comments or more
// than the object. Extend reports whether there is another Text now, which begins at the same position. Next finds what follows that Text.
func (r *Reader) Extend() (bool, error) {
	if !r.isLine || r.plain {
		return false, nil
	}
	r.rest = bytes.Clone(r.Text)
	r.lines, r.column, r.layout = r.Line-1, r.Column, r.Layout
	return true, r.value()
}

// peek returns the next bytes, at least one.
func (r *Reader) peek() ([]byte, error) {
	if len(r.rest) > 0 {
		return r.rest, nil
	}
	r.rest = nil
	if !r.begun {
		r.begun = true
		if bytes.Equal(r.ahead(len(utf8BOM)), utf8BOM) {
			_, _ = r.src.Discard(len(utf8BOM))
		}
	}
	if len(r.ahead(1)) == 0 {
		return nil, r.err
	}
	return r.src.Peek(r.src.Buffered())
}

// ahead returns the next n bytes of the source, or as many as there are. If there are fewer, it keeps the reason in r.err.
func (r *Reader) ahead(n int) []byte {
	if r.err != nil {
		n = min(n, r.src.Buffered())
	}
	b, err := r.src.Peek(n)
	if err != nil {
		r.err = err
	}
	return b
}

// skip consumes bytes that peek has returned.
func (r *Reader) skip(n int) {
	b := r.rest
	if b == nil {
		b, _ = r.src.Peek(n) // they are in the buffer
	}
	r.advance(b[:n])
	if r.rest != nil {
		r.rest = r.rest[n:]
		return
	}
	_, _ = r.src.Discard(n)
}

// advance advances the position in the file over some bytes.
func (r *Reader) advance(b []byte) {
	if ended := bytes.LastIndexByte(b, '\n'); ended >= 0 {
		r.lines += int64(bytes.Count(b, []byte{'\n'}))
		r.column, r.shared = 0, false
		b = b[ended+1:]
	}
	r.column += int64(len(b))
}

// end returns the error for the end of the file.
func (r *Reader) end(err error) error {
	r.Text, r.Raw, r.isLine = nil, nil, false
	if errors.Is(err, io.EOF) && r.array != 0 {
		r.Line = r.array
		return Unfinished("the JSON array that begins here does not end: the file may be cut off; use a complete copy of the file, or close the array")
	}
	if r.Line = r.lines; r.column > 0 || !errors.Is(err, io.EOF) { // the last line may lack its line end; another one may not have arrived
		r.Line++
	}
	return err
}

// line returns a line as Text.
func (r *Reader) line() error {
	r.begin()
	line, err := r.whole.Next()
	if err != nil {
		return err
	}
	if line[len(line)-1] == '\n' {
		r.lines++
		r.column, r.shared = 0, false
	} else {
		r.column += int64(len(line))
	}
	r.Text, r.Raw, r.isLine = line, line, true
	return nil
}

// begin records the beginning of a Text.
func (r *Reader) begin() {
	r.Line, r.Column = r.lines+1, r.column
	if r.shared {
		r.layout |= Shares
	}
	if r.array != 0 {
		r.layout |= Array
	}
	r.Layout, r.layout, r.Cut = r.layout, 0, false
}

// next returns the next byte, which must exist.
func (r *Reader) next() byte {
	if len(r.rest) > 0 {
		return r.rest[0]
	}
	return r.ahead(1)[0]
}

// second returns the byte after the next one, 0 if the file, or a line, ends before it.
func (r *Reader) second() byte {
	b := r.rest // which ends with its line
	if b == nil {
		b = r.ahead(2)
	}
	if len(b) < 2 {
		return 0
	}
	return b[1]
}

// opens reports whether the next bracket opens an array of rows, not a row that is an array.
func (r *Reader) opens() bool {
	switch r.second() {
	case 0, '{', ']', '/', '#', ' ', '\t', '\r', '\n':
		return true
	}
	return false
}

// comment skips a comment, if there is one.
func (r *Reader) comment() (isComment bool, err error) {
	second, marks := r.second(), 2
	if r.next() == '#' {
		second, marks = '/', 1
	}
	if second != '/' && second != '*' {
		return false, nil
	}
	from := r.lines + 1
	r.skip(marks)
	for star := false; ; {
		b, err := r.peek()
		switch {
		case errors.Is(err, io.EOF) && second == '/':
			return true, nil
		case errors.Is(err, io.EOF):
			r.Line = from
			return true, Unfinished("the comment that begins here does not end: write */ after it")
		case err != nil:
			return true, r.end(err)
		}
		if second == '/' {
			if end := bytes.IndexByte(b, '\n'); end >= 0 {
				r.skip(end)
				return true, nil
			}
			r.skip(len(b))
			continue
		}
		if star && b[0] == '/' {
			r.skip(1)
			return true, nil
		}
		if end := bytes.Index(b, []byte("*/")); end >= 0 {
			r.skip(end + 2)
			return true, nil
		}
		star = b[len(b)-1] == '*'
		r.skip(len(b))
	}
}

// blanks counts the white space that bytes begin with.
func blanks(b []byte) int {
	for i, c := range b {
		if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return i
		}
	}
	return len(b)
}
