// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package export

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"github.com/xuri/excelize/v2"

	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/report/lines"
	"github.com/moonloop/moonloop/agent/report/page"
	"github.com/moonloop/moonloop/internal/atomicfile"
)

// Workbook writes the results of a folder, which page.Load has read, as an Excel workbook: the sheets summary (of summary.csv; of a killed
// run, what its records show), requests, series and, if the run has sessions, sessions. It returns the number of requests that did not fit
// into a sheet. An existing file is replaced when the new one is complete.
func Workbook(run *page.Run, dir, name string) (left int64, err error) {
	book := excelize.NewFile()
	defer func() { _ = book.Close() }() // which removes its temporary files
	err = atomicfile.Write(name, atomicfile.Anything, func(w io.Writer) (err error) {
		if left, err = fill(book, run, dir); err != nil {
			return err
		}
		return book.Write(w)
	})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return left, nil
}

func fill(book *excelize.File, run *page.Run, dir string) (left int64, err error) {
	first := book.GetSheetName(0)
	summary, err := summarySheet(dir)
	if err != nil {
		return 0, err
	}
	if summary == nil {
		summary = run.Recorded()
	}
	if summary != nil {
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
		if err := addSheet(book, "sessions", sessions); err != nil {
			return 0, err
		}
	}
	return left, book.DeleteSheet(first)
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
	if err == nil && len(lines) == 0 {
		err = errors.New("it is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("%s was not written by a replay: %w", f.Name(), err)
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

// sheetWriter writes the rows of a sheet one after another.
type sheetWriter struct {
	*excelize.StreamWriter
	rows int
}

func newSheet(book *excelize.File, name string, header []string) (*sheetWriter, error) {
	if _, err := book.NewSheet(name); err != nil {
		return nil, err
	}
	if err := book.SetSheetDimension(name, ""); err != nil { // otherwise stream readers assume that there is one cell
		return nil, err
	}
	stream, err := book.NewStreamWriter(name)
	if err != nil {
		return nil, err
	}
	if err := stream.SetPanes(&excelize.Panes{Freeze: true, YSplit: 1, TopLeftCell: "A2", ActivePane: "bottomLeft"}); err != nil {
		return nil, err
	}
	w, cells := &sheetWriter{StreamWriter: stream}, make([]any, len(header))
	for i, h := range header {
		cells[i] = h
	}
	return w, w.add(cells)
}

func (w *sheetWriter) add(cells []any) error {
	w.rows++
	return w.SetRow("A"+strconv.Itoa(w.rows), cells)
}

func addSheet(book *excelize.File, name string, s *page.Sheet) error {
	w, err := newSheet(book, name, s.Header)
	if err != nil {
		return err
	}
	for _, row := range s.Rows {
		for i, cell := range row {
			row[i] = plain(cell)
		}
		if err := w.add(row); err != nil {
			return err
		}
	}
	return w.Flush()
}

// plain returns a cell in the library's form: nil is an empty one.
func plain(cell any) any {
	switch v := cell.(type) {
	case *float64:
		if v == nil {
			return nil
		}
		return *v
	case *int64:
		if v == nil {
			return nil
		}
		return *v
	case string:
		if v == "" {
			return nil
		}
	}
	return cell
}

// addRequests adds a row for each request, as many as fit into a sheet. Lists, which a cell cannot contain, become their length.
func addRequests(book *excelize.File, dir string) (left int64, err error) {
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
	w, err := newSheet(book, "requests", header)
	if err != nil {
		return 0, err
	}
	err = lines.Read(dir, parseRequest, func(r *Request) error {
		if w.rows >= excelize.TotalRows {
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
			cells[i] = plain(v.Interface())
		}
		return w.add(cells)
	})
	return left, errors.Join(err, w.Flush())
}
