// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/moonloop/moonloop/agent/report/lines"
	"github.com/moonloop/moonloop/internal/atomicfile"
)

// The names of the files in the output directory.
const (
	SummaryJSON  = "summary.json"
	SummaryCSV   = "summary.csv"
	RequestsFile = lines.File
)

// PartialFile is requests.jsonl of a run under way, and what a run that was killed leaves: whole lines, in the order in which
// requests ended, of all those that had ended a second before. Its sidecar is there from the beginning, so that it can be
// read like any trace. A line at its end that a dying machine tore is refused, and left out by a lenient reader.
const PartialFile = lines.Partial

const partialSuffix = ".partial"

// WriteFiles writes summary.json and summary.csv into the directory, which is created if it is absent.
func (r *Report) WriteFiles(dir string) error {
	summary, err := r.JSON()
	if err != nil {
		return err
	}
	if err := makeFolder(dir); err != nil {
		return err
	}
	return errors.Join(
		writeFile(filepath.Join(dir, SummaryJSON), func(w io.Writer) error { _, err := w.Write(summary); return err }),
		writeFile(filepath.Join(dir, SummaryCSV), r.CSV),
	)
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := createFile(path, partialSuffix)
	if err != nil {
		return err
	}
	if err := fill(f, write); err != nil {
		return incomplete(path, f, err)
	}
	return nil
}

func makeFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("output directory cannot be created: %w; choose another one with --out", err)
	}
	return nil
}

// createFile starts the file of a path, under that path with a suffix.
func createFile(path, suffix string) (*atomicfile.File, error) {
	f, err := atomicfile.CreateAs(path+suffix, path)
	if err != nil {
		return nil, fmt.Errorf("output file cannot be created: %w; choose another directory with --out", err)
	}
	return f, nil
}

// fill writes a file and, if nothing failed, gives it its name. What could be written stays under the other name otherwise.
func fill(f *atomicfile.File, write func(io.Writer) error) error {
	w := bufio.NewWriterSize(f, 1<<16)
	err := write(w)
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = f.Commit()
	}
	if err != nil {
		_ = f.Close()
	}
	return err
}

func incomplete(path string, f *atomicfile.File, err error) error {
	return fmt.Errorf("%s is incomplete, what was written is in %s: %w", path, filepath.Base(f.Name()), err)
}
