// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package export

import (
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"github.com/moonloop/moonloop/agent/report/lines"
	"github.com/moonloop/moonloop/internal/atomicfile"
)

// groupRows is the number of requests in a row group, which is kept in memory.
const groupRows = 20_000

// Parquet writes the requests of a folder as a Parquet file with the columns of [Request], compressed with zstd. An existing file is
// replaced when the new one is complete.
func Parquet(dir, name string) error {
	err := atomicfile.Write(name, atomicfile.Anything, func(out io.Writer) error {
		w := parquet.NewGenericWriter[Request](out, parquet.Compression(&zstd.Codec{}), parquet.MaxRowsPerRowGroup(groupRows))
		err := lines.Read(dir, parseRequest, func(r *Request) error {
			_, err := w.Write([]Request{*r})
			return err
		})
		if err != nil {
			return err
		}
		return w.Close()
	})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
