// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/moonloop/moonloop/mooncake"
)

var (
	utf8BOM = []byte("\xef\xbb\xbf")
	newline = []byte{'\n'}
)

// lines reads the records of a file that hold anything: its lines, or what another split function takes for one.
type lines struct {
	name   string
	advice string // on a record that is too long
	in     *bufio.Scanner
	number int64 // of the line that the last record begins on
	passed int64 // line ends up to its end
	filled int64 // records that held something
	ended  bool  // it has its newline
}

func newLines(in io.Reader, name string, split bufio.SplitFunc, maxLine int, advice string) *lines {
	l := &lines{name: name, advice: advice, in: bufio.NewScanner(in)}
	l.in.Buffer(make([]byte, 0, min(64<<10, maxLine)), maxLine)
	l.in.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		n, record, err := split(data, atEOF)
		if n > 0 {
			begin := 0
			if record != nil {
				begin = cap(data) - cap(record) // it is a part of data
			}
			l.number = l.passed + 1 + int64(bytes.Count(data[:begin], newline))
			l.passed += int64(bytes.Count(data[:n], newline))
			l.ended = data[n-1] == '\n'
		}
		return n, record, err
	})
	return l
}

// next returns the next record without the space around it, valid until the call after. Behind the last one the error is io.EOF.
func (l *lines) next() ([]byte, error) {
	for l.in.Scan() {
		record := l.in.Bytes()
		if l.number == 1 {
			record = bytes.TrimPrefix(record, utf8BOM)
		}
		if record = bytes.TrimSpace(record); len(record) > 0 {
			l.filled++
			return record, nil
		}
	}
	switch err := l.in.Err(); {
	case err == nil:
		return nil, io.EOF
	case errors.Is(err, bufio.ErrTooLong):
		return nil, &mooncake.RowError{File: l.name, Line: l.passed + 1, Rule: "the line is too long", Advice: "raise the line limit" + l.advice, Err: err}
	default:
		return nil, fmt.Errorf("%s:%d: the file cannot be read to its end: %w", l.name, l.passed+1, err)
	}
}

// fault says where the last line is of which an error is.
func (l *lines) fault(e *mooncake.RowError) error {
	at := *e
	at.File, at.Line = l.name, l.number
	return &at
}

// noObject is the error of a line that is JSON and no object.
func noObject() *mooncake.RowError {
	return &mooncake.RowError{Rule: "the line must be a JSON object", Advice: "write one object on each line"}
}

// jsonFault says why a line is no JSON, without repeating it.
func jsonFault(err error) *mooncake.RowError {
	out := &mooncake.RowError{Rule: "is not valid JSON"}
	switch e, ok := errors.AsType[*jsontext.SyntacticError](err); {
	case errors.Is(err, jsontext.ErrDuplicateName):
		out.Rule = "a key occurs twice in one object"
	case errors.Is(err, io.ErrUnexpectedEOF):
		out.Rule, out.Advice = "the JSON object does not end on its line", "the file may be cut off, or an object may be spread over several lines"
		out.Err = io.ErrUnexpectedEOF
	case ok:
		out.Rule += " at byte " + strconv.FormatInt(e.ByteOffset+1, 10)
	}
	return out
}
