// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"bufio"
	"bytes"
	"container/heap"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

// stream reads the rows of one file in the order of time.
type stream struct {
	name   string
	index  int
	lines  *bufio.Scanner
	line   int64
	parser parser
	lost   *losses

	ahead      window
	rows, room int // the most that the window holds: rows, and bytes
	size       int // bytes in the window
	ended      bool
	last       request // that left the window
}

func newStream(in io.Reader, name string, index int, p parser, lost *losses, maxLine int) *stream {
	s := &stream{name: name, index: index, lines: bufio.NewScanner(in), parser: p, lost: lost}
	s.lines.Buffer(make([]byte, 0, min(64<<10, maxLine)), maxLine)
	return s
}

// next returns the next row, or io.EOF.
func (s *stream) next() (*request, error) {
	for !s.ended && len(s.ahead) < s.rows && s.size < s.room {
		q, err := s.read()
		if errors.Is(err, io.EOF) {
			s.ended = true
			break
		}
		if err != nil {
			return nil, err
		}
		heap.Push(&s.ahead, q)
		s.size += q.size()
	}
	if len(s.ahead) == 0 {
		return nil, io.EOF
	}
	q := heap.Pop(&s.ahead).(*request) //nolint:forcetypeassert // that is what a window holds
	s.size -= q.size()
	if s.last.line > 0 && q.at < s.last.at {
		return nil, &mooncake.RowError{
			File: s.name, Line: q.line, Rule: fmt.Sprintf("the row is %s earlier than that of line %d, and too far behind it to be put into order",
				time.Duration(s.last.at-q.at), s.last.line),
			Advice: "raise the look-ahead, or sort the file by time",
		}
	}
	s.last = *q
	s.last.row = nil
	return q, nil
}

// read returns the next row of the file.
func (s *stream) read() (*request, error) {
	for s.lines.Scan() {
		line := s.lines.Bytes()
		if s.line++; s.line == 1 {
			line = bytes.TrimPrefix(line, utf8BOM)
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		q, drop, fault := s.parser.parse(line)
		if fault == nil && q != nil {
			if err, ok := errors.AsType[*mooncake.RowError](q.row.Validate()); ok {
				fault = err
			}
		}
		switch {
		case fault != nil:
			at := *fault
			at.File, at.Line = s.name, s.line
			return nil, &at
		case drop != "":
			s.lost.add("rows", drop)
		case q != nil:
			q.input, q.line = s.index, s.line
			return q, nil
		}
	}
	switch err := s.lines.Err(); {
	case err == nil:
		return nil, io.EOF
	case errors.Is(err, bufio.ErrTooLong):
		return nil, &mooncake.RowError{File: s.name, Line: s.line + 1, Rule: "the line is too long", Advice: "raise the line limit if the row is real", Err: err}
	default:
		return nil, fmt.Errorf("%s:%d: the file cannot be read to its end: %w", s.name, s.line+1, err)
	}
}

// window is a heap of rows, the earliest first.
type window []*request

func (w window) Len() int           { return len(w) }
func (w window) Less(i, j int) bool { return w[i].before(w[j]) }
func (w window) Swap(i, j int)      { w[i], w[j] = w[j], w[i] }

// Push is heap's.
func (w *window) Push(q any) { *w = append(*w, q.(*request)) } //nolint:forcetypeassert // only requests are pushed

// Pop is heap's.
func (w *window) Pop() any {
	last := len(*w) - 1
	q := (*w)[last]
	(*w)[last] = nil
	*w = (*w)[:last]
	return q
}
