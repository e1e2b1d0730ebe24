// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/parquet-go/parquet-go"

	"github.com/moonloop/moonloop/mooncake"
)

// parquetMagic is what a file of Parquet begins with.
const parquetMagic = "PAR1"

// Unpack gives an input of Parquet as JSON lines, an object for each row, so that a format is the same in both; any other one as it is. Until
// it is closed, the file is kept in a folder for temporary files, "" for the system's, since Parquet is not read from its beginning.
func Unpack(in *mooncake.Input, folder string) error {
	if head, _ := in.Peek(len(parquetMagic)); string(head) != parquetMagic {
		return nil
	}
	file, err := os.CreateTemp(folder, "moonloop-convert-*.parquet")
	if err != nil {
		return fmt.Errorf("no temporary file for %s: %w", in.Label, err)
	}
	remove := func() error { return errors.Join(file.Close(), os.Remove(file.Name())) }
	size, err := io.Copy(file, in)
	if err != nil {
		return errors.Join(fmt.Errorf("%s: cannot be read: %w", in.Label, err), remove())
	}
	lines, out := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = out.CloseWithError(writeParquet(out, file, size)) // never fails
	}()
	in.Replace(lines, func() error {
		_ = lines.Close() // never fails
		<-ended
		return remove()
	})
	return nil
}

// parquetRows is how many rows are decoded at once.
const parquetRows = 64

// writeParquet writes the rows of a file as JSON lines.
func writeParquet(w io.Writer, file io.ReaderAt, size int64) (err error) {
	defer func() {
		if broken := recover(); broken != nil { // the library does that with some damaged files
			err = errors.New("damaged Parquet; take a whole copy of the file")
		}
	}()
	open, err := parquet.OpenFile(file, size)
	if err != nil {
		return fmt.Errorf("damaged Parquet: %w; take a whole copy of the file", err)
	}
	r := parquet.NewGenericReader[any](open, open.Schema())
	out := bufio.NewWriter(w)
	to := json.NewEncoder(out)
	to.SetEscapeHTML(false)
	rows := make([]any, parquetRows)
	for {
		n, err := r.Read(rows)
		for _, row := range rows[:n] {
			if err := to.Encode(row); err != nil {
				return fmt.Errorf("a row of Parquet is no JSON: %w", err)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return errors.Join(out.Flush(), r.Close())
		case err != nil:
			return errors.Join(fmt.Errorf("damaged Parquet: %w; take a whole copy of the file", err), r.Close())
		}
		clear(rows)
	}
}
