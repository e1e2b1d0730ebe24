// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package export

import (
	"archive/zip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/report/lines"
	"github.com/moonloop/moonloop/agent/report/page"
	"github.com/moonloop/moonloop/internal/atomicfile"
)

// Workbook writes the results of a folder, which page.Load has read, as an Excel workbook: the sheets summary (of summary.csv; a killed run
// has none), requests, series and, if the run has sessions, sessions. It returns the number of requests that did not fit into a sheet. An
// existing file is replaced when the new one is complete.
func Workbook(run *page.Run, dir, name string) (left int64, err error) {
	err = atomicfile.Write(name, atomicfile.Anything, func(w io.Writer) (err error) {
		book := &workbook{zip: zip.NewWriter(w)}
		if left, err = fill(book, run, dir); err != nil {
			return err
		}
		return book.close()
	})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return left, nil
}

func fill(book *workbook, run *page.Run, dir string) (left int64, err error) {
	if summary, err := summarySheet(dir); err != nil {
		return 0, err
	} else if summary != nil {
		if err := addSheet(book, "summary", summary); err != nil {
			return 0, err
		}
	}
	if left, err = addRequests(book, dir); err != nil {
		return 0, err
	}
	if err := addSheet(book, "series", run.Series()); err != nil {
		return 0, err
	}
	if sessions := run.Sessions(); sessions != nil {
		return left, addSheet(book, "sessions", sessions)
	}
	return left, nil
}

// summarySheet reads summary.csv; nil if there is none.
func summarySheet(dir string) (*page.Sheet, error) {
	f, err := os.Open(filepath.Join(dir, report.SummaryCSV)) //nolint:gosec // the user's folder
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil //nolint:nilnil // of a run that was killed
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil || len(lines) == 0 {
		return nil, fmt.Errorf("%s was not written by a replay: %w", f.Name(), errors.Join(err))
	}
	s := &page.Sheet{Header: lines[0]}
	for _, line := range lines[1:] {
		row := make([]any, len(line))
		for i, cell := range line {
			row[i] = cell
			if v, err := strconv.ParseFloat(cell, 64); err == nil && i > 0 {
				row[i] = &v
			}
		}
		s.Rows = append(s.Rows, row)
	}
	return s, nil
}

func addSheet(book *workbook, name string, table *page.Sheet) error {
	s, err := book.sheet(name, table.Header)
	if err != nil {
		return err
	}
	for _, row := range table.Rows {
		s.add(row)
	}
	return s.close()
}

// addRequests adds a row for each request, as many as fit into a sheet. Lists, which a cell cannot contain, become their length.
func addRequests(book *workbook, dir string) (left int64, err error) {
	var header []string
	fields := reflect.VisibleFields(reflect.TypeFor[Request]())
	shown := fields[:0]
	for _, f := range fields {
		name, _, _ := strings.Cut(f.Tag.Get("parquet"), ",")
		if f.Type.Kind() == reflect.Slice {
			name = strings.TrimSuffix(name, "_ms")
		}
		header, shown = append(header, name), append(shown, f)
	}
	s, err := book.sheet("requests", header)
	if err != nil {
		return 0, err
	}
	err = lines.Read(dir, parseRequest, func(r *Request) error {
		if s.rows == sheetRows {
			left++
			return nil
		}
		cells := make([]any, len(shown))
		for i, f := range shown {
			v := reflect.ValueOf(r).Elem().FieldByIndex(f.Index)
			if v.Kind() == reflect.Slice {
				cells[i] = v.Len()
				continue
			}
			cells[i] = v.Interface()
		}
		s.add(cells)
		return nil
	})
	return left, errors.Join(err, s.close())
}
