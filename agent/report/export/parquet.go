// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package export

import (
	"errors"
	"fmt"

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
	f, err := atomicfile.CreateAs(name+".partial", name)
	if err != nil {
		return fmt.Errorf("%s cannot be written: %w", name, err)
	}
	w := parquet.NewGenericWriter[Request](f, parquet.Compression(&zstd.Codec{}), parquet.MaxRowsPerRowGroup(groupRows))
	err = lines.Read(dir, parseRequest, func(r *Request) error {
		_, err := w.Write([]Request{*r})
		return err
	})
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		err = f.Commit()
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", name, err), f.Discard())
	}
	return nil
}
