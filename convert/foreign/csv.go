// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/moonloop/moonloop/mooncake"
)

// splitCSV appends the fields of a line to dst. A field that is quoted must end on its line.
func splitCSV(line string, dst []string) ([]string, error) {
	if strings.IndexByte(line, '"') >= 0 {
		r := csv.NewReader(strings.NewReader(line))
		r.TrimLeadingSpace = true
		fields, err := r.Read()
		if err != nil {
			return nil, errors.New("its quotes do not match")
		}
		return append(dst, fields...), nil
	}
	for field := range strings.SplitSeq(line, ",") {
		dst = append(dst, field)
	}
	return dst, nil
}

// table reads the lines of a CSV file with a header.
type table struct {
	names  []string       // as the header spells them
	index  map[string]int // by columnName
	fields []string       // of the line read last
}

// header takes the line with the names. Columns that are wanted must be there.
func (t *table) header(line string, wanted ...string) *mooncake.RowError {
	if len(line) > maxHeader {
		return &mooncake.RowError{Rule: "the first line is too long for column names", Advice: headerAdvice(wanted)}
	}
	names, err := splitCSV(line, nil)
	if err != nil {
		return &mooncake.RowError{Rule: "the first line cannot be read: " + err.Error()}
	}
	t.names, t.index = names, make(map[string]int, len(names))
	for i, name := range names {
		key := columnName(name)
		if _, twice := t.index[key]; twice && key != "" {
			return &mooncake.RowError{Field: clip(strings.TrimSpace(name)), Rule: "the column is there twice"}
		}
		t.index[key] = i
	}
	for _, name := range wanted {
		if _, ok := t.index[columnName(name)]; !ok {
			return &mooncake.RowError{Field: name, Rule: "the column is missing", Advice: headerAdvice(wanted)}
		}
	}
	return nil
}

func headerAdvice(wanted []string) string {
	return "the first line must name the columns, " + strings.Join(wanted, ", ") + " among them"
}

// column returns the place of a column, -1 if the file has none.
func (t *table) column(name string) int {
	if i, ok := t.index[columnName(name)]; ok {
		return i
	}
	return -1
}

// line splits a line of values.
func (t *table) line(line string) *mooncake.RowError {
	fields, err := splitCSV(line, t.fields[:0])
	if err != nil {
		return &mooncake.RowError{Rule: "the line cannot be read: " + err.Error()}
	}
	t.fields = fields
	if len(fields) != len(t.names) {
		return &mooncake.RowError{
			Rule:   fmt.Sprintf("the line has %d fields, the header has %d columns", len(fields), len(t.names)),
			Advice: "the file may be cut off or damaged there",
		}
	}
	return nil
}

// text returns a value; that of column -1 is empty.
func (t *table) text(column int) string {
	if column < 0 {
		return ""
	}
	return strings.TrimSpace(t.fields[column])
}

// name is the column's name for messages.
func (t *table) name(column int) string { return clip(strings.TrimSpace(t.names[column])) }

// count reads a number of tokens.
func (t *table) count(column int) (int64, *mooncake.RowError) {
	s := t.text(column)
	n, err := tokens(s)
	if err != nil {
		return 0, t.fault(column, err)
	}
	return n, nil
}

// fault is an error of a value.
func (t *table) fault(column int, err error) *mooncake.RowError {
	s := t.text(column)
	if s == "" {
		return &mooncake.RowError{Field: t.name(column), Rule: "is empty"}
	}
	return &mooncake.RowError{Field: t.name(column), Value: shown(s), Rule: err.Error()}
}

// others returns the columns with none of the names.
func (t *table) others(names ...string) []int {
	var rest []int
	for i, name := range t.names {
		if !slices.ContainsFunc(names, func(n string) bool { return columnName(n) == columnName(name) }) {
			rest = append(rest, i)
		}
	}
	return rest
}

// lose counts the values of columns without a place in a row.
func (t *table) lose(columns []int, lost *losses) {
	for _, i := range columns {
		if t.text(i) != "" {
			lost.value(strings.TrimSpace(t.names[i]))
		}
	}
}
