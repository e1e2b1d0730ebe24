// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bytes"
	"io"
)

// event is a server-sent event. Its bytes are valid until the next one.
type event struct {
	data    []byte
	lines   int     // of data
	isError bool    // its type is "error"
	at      arrival // of its last data line
}

// events reads server-sent events by the grammar of the HTML standard (section 9.2.6), with two leniencies: an event
// that the stream's clean end leaves undelimited counts, and a field may be followed by blanks. Comments, id and
// retry are of no use here.
type events struct {
	src lines
	in  *arrivals
	event
}

func (e *events) reset(in *arrivals, bound int) {
	data := e.data[:0]
	if cap(data) > 16*lineBuffer {
		data = nil
	}
	e.src.reset(in, bound)
	e.in, e.event = in, event{data: data}
}

var (
	fieldData  = []byte("data")
	fieldEvent = []byte("event")
	nameError  = []byte("error")
)

// next returns the next event that has data, or the error that ended the stream: io.EOF for a clean end.
func (e *events) next() (*event, error) {
	e.event = event{data: e.data[:0]}
	for {
		line, err := e.src.next()
		if len(line) > 0 {
			e.field(line)
		}
		switch {
		case len(e.data) > e.src.max:
			return nil, errLineTooLong
		case err == io.EOF && e.lines > 0: //nolint:errorlint // a reader's EOF is io.EOF itself
			return &e.event, nil // undelimited; the next call returns the EOF
		case err != nil:
			return nil, err
		case len(line) > 0:
		case e.lines > 0:
			return &e.event, nil
		default:
			e.isError = false // an event without data is none
		}
	}
}

// field takes one line that is not empty.
func (e *events) field(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch {
	case bytes.Equal(name, fieldData):
		// The line end that the grammar puts between the lines of an event: a blank to JSON.
		if e.lines++; e.lines > 1 {
			e.data = append(e.data, '\n')
		}
		e.data = append(e.data, value...)
		e.at = e.in.last
	case bytes.Equal(name, fieldEvent):
		e.isError = bytes.Equal(bytes.TrimSpace(value), nameError)
	}
}
