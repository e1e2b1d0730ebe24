// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"encoding/csv"
	"errors"
	"strings"
)

// tableSplit splits a table into lines, keeping line ends within quotes. Its method split is a [bufio.SplitFunc]: a record that has not ended
// comes again with more bytes after it, and only those are examined.
type tableSplit struct {
	examined int // bytes of the record
	quotes   int // in these
}

func (s *tableSplit) split(data []byte, atEOF bool) (int, []byte, error) {
	for s.examined < len(data) {
		rest := data[s.examined:]
		ended := bytes.IndexByte(rest, '\n') + 1
		if ended > 0 {
			rest = rest[:ended]
		}
		s.examined += len(rest)
		s.quotes += bytes.Count(rest, []byte{'"'})
		if n := s.examined; ended > 0 && s.quotes%2 == 0 {
			*s = tableSplit{}
			return n, data[:n-1], nil
		}
	}
	if atEOF && len(data) > 0 {
		*s = tableSplit{}
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
