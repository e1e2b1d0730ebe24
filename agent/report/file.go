// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

// PartialFile is requests.jsonl during a run, and after a run was killed. It has a whole line for each request, in the order in which the
// requests ended; only those that ended in the last second may be missing. Its sidecar exists from the beginning, so that it can be read
// like any trace. If the machine crashed, its last line may be torn. A reader of records ignores such a line; a reader of traces refuses the
// file or, with --lenient, rejects the line.
const PartialFile = lines.Partial

const partialSuffix = ".partial"

// WriteFiles writes summary.json and summary.csv into the directory, and creates the directory if it is absent.
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

// createFile creates a file at path + suffix. Commit renames it to path.
func createFile(path, suffix string) (*atomicfile.File, error) {
	f, err := atomicfile.CreateAs(path+suffix, path)
	if err != nil {
		return nil, fmt.Errorf("output file cannot be created: %w; choose another directory with --out", err)
	}
	return f, nil
}

// fill writes a file and, if nothing failed, renames it to its final name. After an error, the file with the temporary name has what was
// written.
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
	if _, gone := os.Lstat(f.Name()); errors.Is(gone, fs.ErrNotExist) {
		return fmt.Errorf("%s was not completed, and what was written is lost, because %s was removed meanwhile: %w; leave the folder of a run alone until the run has ended",
			path, filepath.Base(f.Name()), err)
	}
	return fmt.Errorf("%s was not completed; what was written is in %s: %w", path, filepath.Base(f.Name()), err)
}
