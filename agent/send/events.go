// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// event is a server-sent event. Its bytes are valid until the next one.
type event struct {
	data    []byte
	lines   int     // of data
	isError bool    // its type is "error"
	at      arrival // of its last data line
}

// events reads server-sent events by the grammar of the HTML standard (section 9.2.6), with two exceptions: the last event counts even
// without a delimiter if the stream ends cleanly, and blanks around a type are allowed. Comments, id and retry are ignored.
type events struct {
	scan   bufio.Scanner
	buf    []byte          // initial buffer of scan: a usual chunk fills a third of it
	split  bufio.SplitFunc // the method line; made once, as buf is
	max    int             // bytes of a line and of an event
	seen   int             // bytes of the current line that were searched and have no line end
	skipLF bool            // the last line ended with CR
	begun  bool            // the first line is over
	in     *arrivals
	event
}

const lineBuffer = 1 << 10

func (e *events) reset(in *arrivals, bound int) {
	data := e.data[:0]
	if cap(data) > 16*lineBuffer {
		data = nil
	}
	if e.buf == nil {
		e.buf, e.split = make([]byte, lineBuffer), e.line
	}
	*e = events{scan: *bufio.NewScanner(in), buf: e.buf, split: e.split, max: bound, in: in, event: event{data: data}}
	e.scan.Buffer(e.buf[:min(len(e.buf), bound)], bound)
	e.scan.Split(e.split)
}

// line is a [bufio.SplitFunc]: lines end at LF, CRLF and CR, without waiting for the byte after a CR. It removes the byte order mark from
// the first line.
func (e *events) line(data []byte, atEOF bool) (advance int, line []byte, err error) {
	if e.skipLF && len(data) > 0 {
		e.skipLF = false
		if data[0] == '\n' {
			data, advance = data[1:], 1
		}
	}
	end := bytes.IndexByte(data[e.seen:], '\n')
	open := data[e.seen:]
	if end >= 0 {
		open = open[:end]
	}
	if cr := bytes.IndexByte(open, '\r'); cr >= 0 {
		end, e.skipLF = cr, true
	}
	switch {
	case end >= 0:
		line = data[:e.seen+end]
		advance += len(line) + 1
	case atEOF && len(data) > 0:
		line = data
		advance += len(line)
	default:
		e.seen = len(data)
		return advance, nil, nil
	}
	e.seen = 0
	if !e.begun {
		e.begun = true
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	return advance, line, nil
}

var (
	fieldData  = []byte("data")
	fieldEvent = []byte("event")
	nameError  = []byte("error")
)

// next returns the next event that has data, or the error that ended the stream: io.EOF for a clean end.
func (e *events) next() (*event, error) {
	e.event = event{data: e.data[:0]}
	for e.scan.Scan() {
		line := e.scan.Bytes()
		switch {
		case len(line) > 0:
			if e.field(line); len(e.data) > e.max {
				return nil, errLineTooLong
			}
		case e.lines > 0:
			return &e.event, nil
		default:
			e.isError = false // an event without data is ignored
		}
	}
	err := e.scan.Err()
	switch {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, errLineTooLong
	case err != nil:
		return nil, err
	case e.lines > 0:
		return &e.event, nil // without a delimiter; the next call returns the EOF
	}
	return nil, io.EOF
}

// field processes one line that is not empty.
func (e *events) field(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch {
	case bytes.Equal(name, fieldData):
		// The line end between the lines of an event, as the grammar says; in JSON it is white space.
		if e.lines++; e.lines > 1 {
			e.data = append(e.data, '\n')
		}
		e.data = append(e.data, value...)
		e.at = e.in.last
	case bytes.Equal(name, fieldEvent):
		e.isError = bytes.Equal(bytes.TrimSpace(value), nameError)
	}
}
