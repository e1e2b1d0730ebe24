// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// ErrUncountable is the error of [CountRows] for a trace whose rows can only be counted by reading all of it with a [Reader].
var ErrUncountable = errors.New("its rows can only be counted by reading it")

// CountRows counts the rows of a plain trace file: its lines that are not blank. It does not parse them. It stops after the given time;
// then whole is false, and the file has at least the returned number of rows. It returns [ErrUncountable] for anything but a regular,
// uncompressed file in which each such line begins with an object: a Parquet file, a table and rows of several lines are none.
func CountRows(name string, limit time.Duration) (rows int64, whole bool, err error) {
	switch info, err := os.Stat(name); {
	case err != nil:
		return 0, false, fmt.Errorf("%w: %w", ErrUncountable, err)
	case !info.Mode().IsRegular(): // os.Open blocks on a pipe
		return 0, false, ErrUncountable
	}
	f, err := os.Open(name) //nolint:gosec // the user's trace
	if err != nil {
		return 0, false, fmt.Errorf("rows cannot be counted: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	buf := make([]byte, 1<<20)
	begun := false // the current line is not blank
	for start, first := time.Now(), true; time.Since(start) < limit || first; first = false {
		n, err := f.Read(buf)
		for line := range bytes.Lines(buf[:n]) {
			if text := bytes.TrimSpace(line); !begun && len(text) > 0 {
				if text[0] != '{' { // also every compressed file and Parquet's
					return 0, false, ErrUncountable
				}
				begun = true
			}
			if line[len(line)-1] == '\n' {
				if begun {
					rows++
				}
				begun = false
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			if begun { // the last line may lack its newline
				rows++
			}
			return rows, true, nil
		case err != nil:
			return rows, false, fmt.Errorf("rows cannot be counted: %w", err)
		}
	}
	return rows, false, nil
}
