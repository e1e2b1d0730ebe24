// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"

	"github.com/moonloop/moonloop/internal/term"
)

// Sheet is a table of figures outside the page: a CSV file, or a sheet of a workbook.
type Sheet struct {
	Header []string
	// Rows have a string, an int64 or a *float64 for each column of the header; a nil pointer is a value that was not measured.
	Rows [][]any
}

// CSV writes the sheet. Values that were not measured are empty.
func (s *Sheet) CSV(w io.Writer) error {
	c := csv.NewWriter(w)
	err := c.Write(s.Header)
	for _, row := range s.Rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			switch v := cell.(type) {
			case string:
				cells[i] = text(v)
			case int64:
				cells[i] = strconv.FormatInt(v, 10)
			case *float64:
				if v != nil {
					cells[i] = strconv.FormatFloat(*v, 'f', -1, 64)
				}
			}
		}
		if err == nil {
			err = c.Write(cells)
		}
	}
	c.Flush()
	if err == nil {
		err = c.Error()
	}
	if err != nil {
		return fmt.Errorf("the table cannot be written: %w", err)
	}
	return nil
}

// computed matches a text that a spreadsheet would compute instead of showing it. A minus or plus also begins ids, which can do no harm.
var computed = regexp.MustCompile(`(?s)^(?:[=@\t＝＠]|[-+－＋].*[^\pL\pN_.:/+=-])`)

// text returns a text from a trace for a cell of a CSV file. A text that a spreadsheet would compute follows an apostrophe, which spreadsheets
// take for the sign of a text. In a workbook, cells have types, so they need none.
func text(s string) string {
	if computed.MatchString(s) {
		s = "'" + s
	}
	return term.Plain(s)
}

// column is a column of a sheet, for one type of rows.
type column[T any] struct {
	name string
	of   func(T) any
}

func newSheet[T any](columns []column[T], rows []T) *Sheet {
	s := &Sheet{Header: make([]string, len(columns)), Rows: make([][]any, len(rows))}
	for i, c := range columns {
		s.Header[i] = c.name
	}
	for i, r := range rows {
		s.Rows[i] = make([]any, len(columns))
		for j, c := range columns {
			s.Rows[i][j] = c.of(r)
		}
	}
	return s
}

// decimals returns a number with three decimals: microseconds of a duration in ms.
func decimals(v float64) *float64 {
	v = math.Round(v*1000) / 1000
	return &v
}

// shareOf returns a part in percent; nil if there is no whole.
func shareOf(part, whole int64) *float64 {
	if whole == 0 {
		return nil
	}
	return decimals(100 * float64(part) / float64(whole))
}

// quantileOf returns a quantile of durations, in ms; nil if none was measured.
func quantileOf(h histogram, q float64) *float64 {
	if h.empty() {
		return nil
	}
	return decimals(h.millis(q))
}
