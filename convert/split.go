// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"encoding/csv"
	"errors"
	"strings"
)

// splitTable splits a table into lines, keeping line ends within quotes.
func splitTable(data []byte, atEOF bool) (int, []byte, error) {
	for at, quotes := 0, 0; ; {
		end := bytes.IndexByte(data[at:], '\n')
		if end < 0 {
			break
		}
		quotes += bytes.Count(data[at:at+end], []byte{'"'})
		if at += end + 1; quotes%2 == 0 {
			return at, data[:at-1], nil
		}
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// maxHeader is the maximum length of the line of column names, in bytes.
const maxHeader = 4096

// columnName normalizes a column's name for comparison.
func columnName(s string) string { return strings.ToLower(strings.TrimSpace(s)) }

// columnNames returns the fields of a line, as the names of columns; none if the line is longer than maxHeader or its quotes do not match.
func columnNames(line []byte) map[string]bool {
	names := map[string]bool{}
	if len(line) > maxHeader {
		return names
	}
	fields, _ := splitCSV(string(bytes.TrimRight(line, "\r")), nil)
	for _, name := range fields {
		names[columnName(name)] = true
	}
	return names
}

// splitCSV appends the fields of a line to dst.
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
