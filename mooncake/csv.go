// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

// This file converts a table (CSV) to JSON lines, one object for each record, so that the reader of rows can read it.

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/moonloop/moonloop/internal/jsonrows"
)

// looksLikeTable reports whether text begins with a line of column names, one of which is a row's prompt or its length.
func looksLikeTable(text []byte, names Mapping) bool {
	line, _, _ := bytes.Cut(text, []byte{'\n'})
	if len(line) == 0 || bytes.IndexByte(line, ',') < 0 || strings.IndexByte(`{[<`, line[0]) >= 0 {
		return false
	}
	columns, err := csv.NewReader(bytes.NewReader(line)).Read()
	return err == nil && slices.ContainsFunc(columns, func(column string) bool {
		column = strings.TrimSpace(column)
		for _, field := range []string{"input_length", "text_input", "messages", "payload"} {
			if key := names[field]; column == key || key == "" && (column == field || slices.Contains(mappable[field], column)) {
				return true
			}
		}
		return false
	})
}

// tableRows converts a table to JSON lines. It implements [io.Reader]. Unless cells contain line ends, each record keeps its line number,
// so that errors name the right line.
type tableRows struct {
	in      *csv.Reader
	bytes   *recordBytes
	columns []string
	number  int    // of the line on which the last record begins
	line    []byte // the unread rest of the last converted lines
	err     error
}

// recordBytes reads at most a number of bytes for each record: without a limit, a quote that is not closed would put the rest of the file into
// memory.
type recordBytes struct {
	in         io.Reader
	most, left int
}

func (r *recordBytes) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, jsonrows.ErrLongLine
	}
	n, err := r.in.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}

// newTableRows reads a table whose records have at most this many bytes.
func newTableRows(in *bufio.Reader, maxRecord int) *tableRows {
	if head, err := in.Peek(len(utf8BOM)); err == nil && bytes.Equal(head, utf8BOM) {
		_, _ = in.Discard(len(utf8BOM))
	}
	limited := &recordBytes{in: in, most: min(maxRecord, math.MaxInt-1)}
	r := csv.NewReader(limited)
	r.ReuseRecord, r.TrimLeadingSpace = true, true
	return &tableRows{in: r, bytes: limited}
}

func (t *tableRows) Read(p []byte) (int, error) {
	for len(t.line) == 0 {
		if t.err != nil {
			return 0, t.err
		}
		t.next()
	}
	n := copy(p, t.line)
	t.line = t.line[n:]
	return n, nil
}

// next converts the next record.
func (t *tableRows) next() {
	t.bytes.left = t.bytes.most + 1 // the end of the file is found by another read
	cells, err := t.in.Read()
	if errors.Is(err, jsonrows.ErrLongLine) {
		err = tableFault{fmt.Errorf("the record after that of line %d of the table is longer than %d bytes; close its quotes, or raise the limit on lines (--max-line of moonloop inspect and transform) if it is real", t.number, t.bytes.most)}
	}
	if wrong, is := errors.AsType[*csv.ParseError](err); is {
		err = tableFault{fmt.Errorf("line %d of the table: %w; the first line has %d columns", wrong.Line, wrong.Err, len(t.columns))}
	}
	switch {
	case err != nil:
		t.err = err
		return
	case t.columns == nil:
		for _, cell := range cells {
			t.columns = append(t.columns, strings.TrimSpace(cell))
		}
		t.line = []byte{'\n'} // replaces the line of column names
	default:
		t.line = append(appendCells(t.line[:0], t.columns, cells), '\n')
	}
	t.number, _ = t.in.FieldPos(0)
}

// appendCells appends a record as a JSON object. Empty cells are left out.
func appendCells(dst []byte, columns, cells []string) []byte {
	dst = append(dst, '{')
	first := true
	for i, cell := range cells {
		cell = strings.TrimSpace(cell)
		if cell == "" {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		name, _ := json.Marshal(columns[i])
		dst = append(append(dst, name...), ':')
		dst = append(dst, cellOf(columns[i], cell)...)
	}
	return append(dst, '}')
}

// ParseCells is [ParseRow] for a record of a table, which has one cell for each column.
func ParseCells(columns, cells []string) (*Row, error) {
	if len(cells) != len(columns) {
		return nil, fault("cells", len(cells), fmt.Sprintf("there are %d columns", len(columns)), "give one cell for each column")
	}
	return ParseRow(appendCells(nil, columns, cells))
}

// IsField reports whether rows have a member with this name, including members without effect.
func IsField(name string) bool { return rowFields[name] != nil || foreignFields[name] }

// tableFault is an error in a table.
type tableFault struct{ error }

// textColumns are the columns whose cells are texts, whatever they look like.
var textColumns = []string{"session_id", "request_id", "model", "class", "policy_class", "slo_class", "text_input"}

// cellOf returns a cell as JSON. A cell that is JSON, other than a text, is kept.
func cellOf(column, cell string) []byte {
	if !slices.Contains(textColumns, column) && cell[0] != '"' && json.Valid([]byte(cell)) {
		return []byte(cell)
	}
	text, _ := json.Marshal(cell)
	return text
}

var _ io.Reader = (*tableRows)(nil)
