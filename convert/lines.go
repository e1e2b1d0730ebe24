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

	"github.com/moonloop/moonloop/internal/jsonrows"
	"github.com/moonloop/moonloop/mooncake"
)

var (
	utf8BOM = []byte("\xef\xbb\xbf")
	newline = []byte{'\n'}
)

// source is a source of lines.
type source interface {
	// next returns the next line that is not empty, valid until the next call. After the last one it returns io.EOF.
	next() ([]byte, error)
	// again returns another text that begins where the line does, longer or shorter, and whether there is one; only if fault says that the
	// line is not one JSON object.
	again(fault error) ([]byte, bool, error)
	// line is the number of the line that next returned; cut says whether that line is the file's last one and has no line end.
	line() int64
	cut() bool
}

// lines reads the records of a table, or the JSON objects of a file.
type lines struct {
	source
	name   string
	advice string // for a line that is too long
	filled int64  // lines that were not empty
	cells  bool   // the lines are those of a table, not objects
}

// newLines reads a table, or objects. A table may also come as objects with the columns as their members, as from a Parquet file.
func newLines(in io.Reader, name string, maxLine int, advice string, table bool) *lines {
	l := &lines{name: name, advice: advice, cells: table}
	r := bufio.NewReaderSize(in, 64<<10)
	if head, _ := r.Peek(64); table && bytes.HasPrefix(bytes.TrimSpace(bytes.TrimPrefix(head, utf8BOM)), []byte("{")) {
		l.cells = false
	}
	if !l.cells {
		l.source = objects{jsonrows.NewReader(r, maxLine, false)}
		return l
	}
	in = r
	csv := &tableLines{in: bufio.NewScanner(in)}
	csv.in.Buffer(make([]byte, 0, min(64<<10, maxLine)), maxLine)
	var records tableSplit
	csv.in.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		n, record, err := records.split(data, atEOF)
		if n > 0 {
			csv.number, csv.passed = csv.passed+1, csv.passed+int64(bytes.Count(data[:n], newline))
			csv.ended = data[n-1] == '\n'
		}
		return n, record, err
	})
	l.source = csv
	return l
}

// next returns the next line without surrounding space, valid until the next call. After the last one it returns io.EOF.
func (l *lines) next() ([]byte, error) {
	line, err := l.source.next()
	if err == nil {
		l.filled++
	}
	return line, l.failure(err)
}

// again returns another text that begins where the line does, longer or shorter, and whether there is one; only if fault says that the
// line is not one JSON object.
func (l *lines) again(fault error) ([]byte, bool, error) {
	line, more, err := l.source.again(fault)
	return line, more, l.failure(err)
}

// failure describes an error of the file.
func (l *lines) failure(err error) error {
	unfinished, isUnfinished := errors.AsType[jsonrows.Unfinished](err)
	fault := &mooncake.RowError{File: l.name, Line: l.line(), Err: err}
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return err
	case isUnfinished:
		fault.Rule = unfinished.Error()
	case errors.Is(err, jsonrows.ErrLongRow):
		fault.Rule, fault.Advice = "the JSON object that begins here is too long", "raise the line limit (--max-line)"+l.advice
	case errors.Is(err, bufio.ErrTooLong), errors.Is(err, jsonrows.ErrLongLine):
		fault.Rule, fault.Advice = "the line is too long", "raise the line limit (--max-line)"+l.advice
	default:
		return fmt.Errorf("%s:%d: the file cannot be read to its end: %w; use a complete copy of the file", l.name, l.line(), err)
	}
	return fault
}

// objects are the objects of a JSON file, usually one per line.
type objects struct{ *jsonrows.Reader }

func (o objects) next() ([]byte, error) {
	err := o.Next()
	return bytes.TrimSpace(o.Text), err
}

func (o objects) again(fault error) ([]byte, bool, error) {
	if e, ok := errors.AsType[*mooncake.RowError](fault); !ok || !errors.Is(e.Err, errNoJSON) {
		return nil, false, nil
	}
	more, err := o.Extend()
	return bytes.TrimSpace(o.Text), more, err
}

func (o objects) line() int64 { return o.Line }
func (o objects) cut() bool   { return o.Cut && !bytes.HasSuffix(o.Raw, []byte{'\n'}) }

// tableLines reads the records of a table: each is a line, or several if there are line ends in quotes.
type tableLines struct {
	in     *bufio.Scanner
	number int64 // of the first line of the last record
	passed int64 // number of line ends up to the end of the last record
	ended  bool  // the last record has a line end
}

func (l *tableLines) next() ([]byte, error) {
	for l.in.Scan() {
		record := l.in.Bytes()
		if l.number == 1 {
			record = bytes.TrimPrefix(record, utf8BOM)
		}
		if record = bytes.TrimSpace(record); len(record) > 0 {
			return record, nil
		}
	}
	if err := l.in.Err(); err != nil {
		l.number = l.passed + 1 // the line that could not be read
		return nil, err
	}
	return nil, io.EOF
}

func (l *tableLines) again(error) ([]byte, bool, error) { return nil, false, nil }
func (l *tableLines) line() int64                       { return l.number }
func (l *tableLines) cut() bool                         { return !l.ended }

// fault adds the line number to an error about the last line.
func (l *lines) fault(e *mooncake.RowError) error {
	at := *e
	at.File, at.Line = l.name, l.line()
	return &at
}

// errNoJSON is the error for a line that is not exactly one JSON object.
var errNoJSON = errors.New("not a JSON object")

// noObject is the error for a line that is JSON but not an object.
func noObject() *mooncake.RowError {
	return &mooncake.RowError{Rule: "the line must be a JSON object", Advice: "write one object on each line"}
}

// jsonFault describes why a line is not JSON, without quoting it.
func jsonFault(err error) *mooncake.RowError {
	out := &mooncake.RowError{Rule: "is not valid JSON", Err: errNoJSON}
	switch e, ok := errors.AsType[*jsontext.SyntacticError](err); {
	case errors.Is(err, jsontext.ErrDuplicateName):
		out.Rule = "a key occurs twice in one object"
	case errors.Is(err, io.ErrUnexpectedEOF):
		out.Rule, out.Advice = "the JSON object does not end", "the file may be cut off, or a quote or bracket may be missing"
		out.Err = errors.Join(errNoJSON, io.ErrUnexpectedEOF)
	case ok:
		out.Rule += " at byte " + strconv.FormatInt(e.ByteOffset+1, 10)
	}
	return out
}
