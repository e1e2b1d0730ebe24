// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/moonloop/moonloop/internal/atomicfile"
)

// The names of the files in the output directory.
const (
	SummaryJSON  = "summary.json"
	SummaryCSV   = "summary.csv"
	RequestsFile = "requests.jsonl"
)

// PartialFile is requests.jsonl of a run under way, and what a run that was killed leaves: whole lines, in the order in which
// requests ended, of all those that had ended a second before. Its sidecar is there from the beginning, so that it can be
// read like any trace. A line at its end that a dying machine tore is refused, and left out by a lenient reader.
const PartialFile = RequestsFile + partialSuffix

// WriteFiles writes summary.json and summary.csv into the directory, which is created if it is absent.
func (r *Report) WriteFiles(dir string) error {
	text, err := r.JSON()
	if err != nil {
		return err
	}
	var table bytes.Buffer
	if err := r.CSV(&table); err != nil {
		return err
	}
	return errors.Join(writeFile(dir, SummaryJSON, text), writeFile(dir, SummaryCSV, table.Bytes()))
}

func writeFile(dir, name string, content []byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("output directory cannot be created: %w; choose another one with --out", err)
	}
	f, err := createFile(filepath.Join(dir, name), partialSuffix)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return f.finish(err)
}

// partial is a file that has its name only when it is complete.
type partial struct {
	*bufio.Writer
	file *atomicfile.File
	path string // the final one
}

const partialSuffix = ".partial"

// createFile starts the file of a path, under that path with a suffix.
func createFile(path, suffix string) (*partial, error) {
	f, err := atomicfile.CreateAs(path+suffix, path)
	if err != nil {
		return nil, fmt.Errorf("output file cannot be created: %w; choose another directory with --out", err)
	}
	return &partial{bufio.NewWriterSize(f, 1<<16), f, path}, nil
}

// finish flushes and closes the file and, if nothing failed, gives it its name. What could be written stays under the
// partial name otherwise.
func (p *partial) finish(err error) error {
	if err = p.complete(err); err != nil {
		return fmt.Errorf("%s is incomplete, what was written is in %s: %w", p.path, filepath.Base(p.file.Name()), err)
	}
	return nil
}

// complete is finish with the bare error.
func (p *partial) complete(err error) error {
	if err == nil {
		err = p.Flush()
	}
	if err == nil {
		err = p.file.Commit()
	}
	if err != nil {
		_ = p.file.Close()
	}
	return err
}
