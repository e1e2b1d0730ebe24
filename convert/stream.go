// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/moonloop/moonloop/internal/heap"
	"github.com/moonloop/moonloop/mooncake"
)

// request is a row on its way into the trace.
type request struct {
	at    int64 // ns from the zero of the format's times
	input int   // index of the file
	line  int64
	row   *mooncake.Row // without its timestamp; ids are those of the file

	chat, parent mooncake.Opt[int64] // Bailian
}

// before is the order of rows in the trace.
func (q *request) before(o *request) bool {
	if q.at != o.at {
		return q.at < o.at
	}
	return q.input < o.input || q.input == o.input && q.line < o.line
}

// size is the approximate memory of the request, in bytes.
func (q *request) size() int { return 256 + 8*len(q.row.HashIDs) + len(q.row.SessionID) }

// parser reads a line of a file. It returns a row, or nil for a line without data; the error is a [*mooncake.RowError], or a reason
// why the line gives no row. The parser does not keep the line.
type parser func(line []byte) (*request, error)

// reason says why a line does not become a row.
type reason string

func (r reason) Error() string { return string(r) }

const (
	reasonNoPrompt reason = "no prompt tokens"
	reasonFailed   reason = "failed: no response tokens"
	reasonModel    reason = "another model"
)

// newParser returns the parser for a file of the format.
func newParser(opt *Options, lost *losses) parser {
	if opt.Format == Bailian {
		return (&bailian{lost}).parse
	}
	return (&csvParser{csvFormat: csvFormats[opt.Format], opt: opt, lost: lost}).parse
}

// stream reads the rows of one file.
type stream struct {
	lines *lines
	file  io.Closer
	index int
	parse parser
	lost  *losses

	rows, bytes int // of the file that the window still has room for
	ended       bool
	last        request // that left the window
}

// fill reads rows into the window as long as there is room.
func (s *stream) fill(w *window) error {
	for !s.ended && s.rows > 0 && s.bytes > 0 {
		q, err := s.read()
		if errors.Is(err, io.EOF) {
			s.ended = true
			return nil
		}
		if err != nil {
			return err
		}
		w.Push(q)
		s.rows, s.bytes = s.rows-1, s.bytes-q.size()
	}
	return nil
}

// leave is called with each row that leaves the window. It makes room for another, and returns an error if the row is out of order.
func (s *stream) leave(q *request) error {
	s.rows, s.bytes = s.rows+1, s.bytes+q.size()
	if s.last.line > 0 && q.at < s.last.at {
		return &mooncake.RowError{
			File: s.lines.name, Line: q.line, Rule: fmt.Sprintf("the row is %s earlier than that of line %d, and too far behind it to be put into order",
				time.Duration(s.last.at-q.at), s.last.line),
			Advice: "raise the look-ahead, or sort the file by time",
		}
	}
	s.last = *q
	s.last.row = nil
	return nil
}

// read returns the next row of the file.
func (s *stream) read() (*request, error) {
	for {
		line, err := s.lines.next()
		if err != nil {
			return nil, err
		}
		q, err := s.parse(line)
		if line, more, failed := s.lines.again(err); failed != nil {
			return nil, failed
		} else if more {
			q, err = s.parse(line)
		}
		if err == nil && q != nil {
			if err = q.row.Validate(); err == nil {
				q.input, q.line = s.index, s.lines.line()
				return q, nil
			}
		}
		if fault, ok := errors.AsType[*mooncake.RowError](err); ok {
			return nil, s.lines.fault(fault)
		}
		if why, ok := errors.AsType[reason](err); ok {
			s.lost.add("rows", string(why), 1)
		}
	}
}

// window is a heap of rows, the earliest first.
type window = heap.Heap[*request]
