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
)

// The names of the files in the output directory.
const (
	SummaryJSON  = "summary.json"
	SummaryCSV   = "summary.csv"
	RequestsFile = "requests.jsonl"
)

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
	f, err := create(dir, name)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return f.finish(err)
}

// partial is a file that has its name only when it is complete.
type partial struct {
	*bufio.Writer
	file *os.File
	path string // the final one
}

const partialSuffix = ".partial"

func create(dir, name string) (*partial, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("output directory cannot be created: %w; choose another one with --out", err)
	}
	path := filepath.Join(dir, name)
	f, err := os.OpenFile(path+partialSuffix, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) //nolint:gosec // the user chose the directory
	if err != nil {
		return nil, fmt.Errorf("output file cannot be created: %w; choose another directory with --out", err)
	}
	return &partial{bufio.NewWriterSize(f, 1<<16), f, path}, nil
}

// finish flushes and closes the file and, if nothing failed, gives it its name. What could be written stays under the
// partial name otherwise.
func (p *partial) finish(err error) error {
	if err == nil {
		err = p.Flush()
	}
	if err == nil {
		err = p.file.Sync()
	}
	if cerr := p.file.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(p.path+partialSuffix, p.path)
	}
	if err != nil {
		return fmt.Errorf("%s is incomplete, what was written is in %s: %w", p.path, filepath.Base(p.path)+partialSuffix, err)
	}
	return nil
}
