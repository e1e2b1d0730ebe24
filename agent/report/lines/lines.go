// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package lines reads the records that a replay wrote into a folder, one JSON object per line. The caller parses each line and so decides
// what it needs: figures, a page, a table of requests and a comparison each need something else, and do not pay for the rest.
package lines

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/moonloop/moonloop/internal/atomicfile"
	"github.com/moonloop/moonloop/internal/jsonrows"
)

// File has the records of a run that ended, in the order of the trace. Partial has those of a running or killed run, in the order in which
// requests ended.
const (
	File    = "requests.jsonl"
	Partial = File + ".partial"
)

// Longest is the maximum length of a line, in bytes: a gap takes about 7 bytes, so this is a reply of more than eight million tokens.
const Longest = 64 << 20

// ErrNoResult is the error of a parser for a line that is a row of a trace, not a record of a replay.
var ErrNoResult = errors.New("no field \"result\": this is a trace, not the records of a replay; name the folder that --out wrote")

// Read calls yield with the parsed value of each line of [File] in a folder, or, for a killed run, of [Partial]: its last line may be torn,
// and is then ignored. The bytes of a line are valid until parse returns. An error of yield ends the reading, and is returned unchanged;
// every other error names the file and the line. The error is [fs.ErrNotExist] if neither file exists.
func Read[T any](dir string, parse func(line []byte) (T, error), yield func(T) error) error {
	name, partial := filepath.Join(dir, File), false
	f, err := atomicfile.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		name, partial = filepath.Join(dir, Partial), true
		f, err = atomicfile.Open(name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return missing(dir)
	}
	if err != nil {
		return fmt.Errorf("the records of a run cannot be read: %w; name the folder given to `moonloop replay --out`", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	in := jsonrows.NewLines(bufio.NewReaderSize(f, 64<<10), Longest)
	var torn error
	for n := 1; ; n++ {
		line, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if torn != nil { // a line follows, so it was not the last
			return torn
		}
		if err != nil {
			return fmt.Errorf("%s: line %d: %w", name, n, err)
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		value, err := parse(line)
		if err != nil {
			if torn = fmt.Errorf("%s: line %d: %w", name, n, jsonrows.Explain(err)); !partial {
				return torn
			}
			continue
		}
		if err := yield(value); err != nil {
			return err
		}
	}
}

// missing is the error for a folder without either file.
type missing string

func (m missing) Error() string {
	return fmt.Sprintf("%s has neither %s nor %s: no replay wrote its results there; name the folder given to `moonloop replay --out`", string(m), File, Partial)
}

// Is reports that the files are not there.
func (missing) Is(target error) bool { return target == fs.ErrNotExist }
