// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// publicTrace returns the path of the public conversation trace, which lies beside the repository where it is available.
func publicTrace(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if filepath.Dir(dir) == dir {
			tb.Fatal("no go.mod above the package")
		}
		dir = filepath.Dir(dir)
	}
	path := filepath.Join(dir, "..", "shared", "data", "conversation_trace.jsonl")
	if _, err := os.Stat(path); err != nil {
		tb.Skip("the public conversation trace is not there: ../shared/data/conversation_trace.jsonl from the repository root")
	}
	return path
}

// publicData returns the bytes of the public trace, or of its first lines.
func publicData(tb testing.TB, lines int) []byte {
	tb.Helper()
	data, err := os.ReadFile(publicTrace(tb))
	if err != nil {
		tb.Fatal(err)
	}
	end := 0
	for range lines {
		end += bytes.IndexByte(data[end:], '\n') + 1
	}
	if lines > 0 {
		return data[:end]
	}
	return data
}

// readAll reads every row of a trace.
func readAll(tb testing.TB, r *Reader) []*Row {
	tb.Helper()
	var rows []*Row
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return rows
		}
		if err != nil {
			tb.Fatal(err)
		}
		rows = append(rows, row)
	}
}

func publicRows(tb testing.TB, lines int) []*Row {
	tb.Helper()
	return readAll(tb, NewReader(bytes.NewReader(publicData(tb, lines)), ReaderOptions{Name: "conversation", Strict: true}))
}

// toyRows are the rows that the reference digests were computed on by hand.
func toyRows() []*Row {
	row := func(t float64, n, m int64, ids ...uint64) *Row {
		return &Row{Timestamp: Some(t), InputLength: Some(n), OutputLength: Some(m), HashIDs: ids}
	}
	return []*Row{
		row(100, 1000, 5, 7, 9), row(100, 1536, 1, 7, 3, 4), row(350, 1000, 5, 7, 9), row(400, 10, 2, 8),
	}
}

func analyze(rows []*Row, opt AnalyzeOptions) *Analysis {
	a := NewAnalyzer(opt)
	for i, row := range rows {
		a.Add(row, int64(i+1))
	}
	return a.Analysis()
}

func digest(rows []*Row) Digests {
	d := NewDigester(CheckOptions{})
	for i, row := range rows {
		d.Add(row, int64(i+1))
	}
	return d.Digests()
}
