// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"strings"
)

// shape is how a file is divided into records.
type shape struct {
	split bufio.SplitFunc
	table bool // the first record names the columns
}

// The shapes.
var (
	jsonLines = shape{split: bufio.ScanLines}
	// jsonObjects are objects in an array, one after another, or a single one, over any number of lines.
	jsonObjects = shape{split: splitObjects}
	commaTable  = shape{split: splitTable, table: true}
)

// splitObjects splits off an object. What is none ends with its line.
func splitObjects(data []byte, atEOF bool) (int, []byte, error) {
	begin := len(data) - len(bytes.TrimLeft(data, " \t\r\n,[]"))
	if rest, found := bytes.CutPrefix(data[begin:], utf8BOM); found {
		begin = len(data) - len(bytes.TrimLeft(rest, " \t\r\n,[]"))
	}
	switch {
	case begin == len(data):
		return begin, nil, nil
	case data[begin] != '{':
		n, line, err := bufio.ScanLines(data[begin:], atEOF)
		if n == 0 {
			return 0, nil, err
		}
		return begin + n, line, err
	}
	depth, quoted := 0, false
	for i := begin; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				return i + 1, data[begin : i+1], nil
			}
		}
	}
	if atEOF {
		return len(data), data[begin:], nil // the reader of it says that it breaks off
	}
	return begin, nil, nil
}

// splitTable splits off a line of a table, with the line ends in its quotes.
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

// maxHeader is the length of the longest line of column names, in bytes.
const maxHeader = 4096

// columnName is a column's name as it is compared.
func columnName(s string) string { return strings.ToLower(strings.TrimSpace(s)) }

// columnNames are the names in the first line of a table; none where it is no such line.
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
