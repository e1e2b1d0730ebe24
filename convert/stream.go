// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/moonloop/moonloop/internal/heap"
	"github.com/moonloop/moonloop/mooncake"
)

// request is a row before it is written to the trace.
type request struct {
	at    int64 // ns from the zero of the format's times
	input int   // index of the file
	line  int64
	seq   int64               // order in the file
	row   *mooncake.Row       // without its timestamp; ids are those of the file
	block int                 // tokens of each of its ids; 0 = the format's
	scope int                 // identifies where an id always stands for the same block
	ends  mooncake.Opt[int64] // time of the reply: the delay of the session's next turn counts from it
	later bool                // the session's previous turn decides when the row arrives; the field at only gives its position

	// shares is the number of leading tokens that the prompt shares with the session's previous turn, if no ids show it.
	shares mooncake.Opt[int64]

	chat, parent mooncake.Opt[int64] // Bailian
	prompt       *prompt             // in formats with prompts
}

// before reports whether q comes before o in the trace.
func (q *request) before(o *request) bool {
	if q.at != o.at {
		return q.at < o.at
	}
	return q.input < o.input || q.input == o.input && q.seq < o.seq
}

// size is the approximate memory of the request, in bytes.
func (q *request) size() int {
	r := q.row
	return 256 + 8*len(r.HashIDs) + len(r.SessionID) + len(r.TextInput.V) + len(r.Messages) + len(r.Tools) + len(r.Payload)
}

// reason is why a request does not become a row.
type reason string

const (
	reasonNoPrompt reason = "no prompt tokens"
	reasonNoReply  reason = "failed: no response tokens"
	reasonFailed   reason = "failed"
	reasonModel    reason = "another model"
	reasonOther    reason = "no request for text"
	reasonWarmup   reason = "of a warm-up"
	reasonNoTime   reason = "no time"
	reasonNoCounts reason = "no token counts"
)

// stream reads the rows of one file.
type stream struct {
	lines *lines
	file  io.Closer
	index int
	decoder
	seq int64

	rows, bytes int // how many more rows, and bytes of rows, of the file may be in the window
	ended       bool
	whole       bool    // all records have been read
	last        request // last row that left the window
}

// fill reads rows into the window while there is room.
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

// release counts the room of q, which has left the window, as free again. It returns an error if q is out of order.
func (s *stream) release(q *request) error {
	s.rows, s.bytes = s.rows+1, s.bytes+q.size()
	if s.last.line > 0 && q.at < s.last.at {
		return &mooncake.RowError{
			File: s.lines.name, Line: q.line, Rule: fmt.Sprintf("the row is %s earlier than that of line %d, and too far behind it to be put into order",
				time.Duration(s.last.at-q.at), s.last.line),
			Advice: "raise the look-ahead (--lookahead), or sort the file by time",
		}
	}
	s.last = *q
	s.last.row = nil
	return nil
}

// read returns the next row of the file.
func (s *stream) read() (*request, error) {
	for len(s.out) == 0 {
		record, err := s.lines.next()
		if errors.Is(err, io.EOF) && s.end != nil && !s.whole {
			s.whole, s.out = true, nil
			if fault := s.end(&s.decoder); fault != nil {
				fault.File = s.lines.name
				return nil, fault
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		s.decoder.line = s.lines.line()
		fault := s.decoder.read(record)
		if fault != nil {
			if record, more, failed := s.lines.again(fault); failed != nil {
				return nil, failed
			} else if more {
				fault = s.decoder.read(record)
			}
		}
		if fault != nil {
			return nil, s.lines.fault(fault)
		}
	}
	q := s.out[0]
	s.out = s.out[1:]
	if fault, bad := errors.AsType[*mooncake.RowError](q.row.Validate()); bad {
		at := *fault
		at.File, at.Line = s.lines.name, cmp.Or(q.line, s.lines.line())
		return nil, &at
	}
	s.seq++
	q.input, q.line, q.seq = s.index, cmp.Or(q.line, s.lines.line()), s.seq
	return q, nil
}

// window is a heap of rows, earliest first.
type window = heap.Heap[*request]
