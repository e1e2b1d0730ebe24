// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/moonloop/moonloop/internal/atomicfile"
)

// File is a trace file that is being written. Nothing is visible under its name until Commit, and then it is all
// there; files can be read by their owner only.
type File struct {
	*Writer
	name string
	over atomicfile.Over
	out  *atomicfile.File
	buf  *bufio.Writer
	pack io.Closer // nil without compression
	rows io.Closer // of Parquet, else nil
}

// Create starts a trace file. A name that ends in .gz or .zst is written compressed, and one that ends in .parquet as Parquet. The caller writes rows, then
// calls Commit; Close without Commit leaves nothing behind and is otherwise without effect, so it can be deferred.
//
// A regular file of that name is replaced, and so is its sidecar. Anything else is refused: a device, a folder, or a symbolic link,
// because it is unclear whether the link or its target is to be replaced.
func Create(name string) (*File, error) { return create(name, atomicfile.Regular) }

// CreateNew starts a trace file like [Create], but replaces nothing. If the file or its sidecar exists, the error is [fs.ErrExist].
// If another process creates one of them meanwhile, Commit returns that error and changes neither.
func CreateNew(name string) (*File, error) { return create(name, atomicfile.Nothing) }

func create(name string, over atomicfile.Over) (*File, error) {
	for _, target := range []string{name, MetaName(name)} {
		if err := atomicfile.Vacant(target, over); err != nil {
			return nil, fmt.Errorf("trace cannot be created: %w", err)
		}
	}
	out, err := atomicfile.Create(name, over)
	if err != nil {
		return nil, fmt.Errorf("trace file cannot be created: %w; name a file in a directory that exists and can be written", err)
	}
	f := &File{name: name, out: out, over: over}
	var w io.Writer = out
	switch {
	case strings.HasSuffix(name, ".gz"):
		z := gzip.NewWriter(w)
		w, f.pack = z, z
	case strings.HasSuffix(name, ".zst"), strings.HasSuffix(name, ".zstd"):
		z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("trace file cannot be compressed: %w", err), out.Discard())
		}
		w, f.pack = z, z
	}
	f.buf = bufio.NewWriterSize(w, 256<<10)
	f.Writer = NewWriter(f.buf)
	if isParquet(name) {
		rows := newParquetWriter(f.buf)
		f.rows = rows
		f.EncodeWith(rows.encode, nil)
	}
	return f, nil
}

// Commit completes the file and puts it, synced, under its name, with its sidecar unless meta is nil. A sidecar that
// gives no rows is given the number of rows written, and each one what they let out ([Privacy]); meta is then as it was written.
func (f *File) Commit(meta *Meta) error {
	var err error
	if f.rows != nil {
		err = f.rows.Close()
	}
	err = errors.Join(err, f.buf.Flush())
	if f.pack != nil {
		err = errors.Join(err, f.pack.Close())
	}
	var side *atomicfile.File
	if meta != nil && err == nil {
		if meta.Rows == 0 {
			meta.Rows = f.Rows()
		}
		meta.Privacy = f.privacy.of(meta)
		if side, err = atomicfile.Create(MetaName(f.name), f.over); err == nil { // before the trace is there
			err = meta.Write(side)
		}
	}
	if err == nil {
		err = f.out.Commit()
	}
	if err == nil && side != nil {
		if err = side.Commit(); err != nil && f.over == atomicfile.Nothing {
			err = errors.Join(err, os.Remove(f.name)) // this call wrote it, and no trace may stay without its sidecar
		}
	}
	if err != nil {
		if side != nil {
			err = errors.Join(err, side.Discard())
		}
		return fmt.Errorf("%s was not written: %w", f.name, errors.Join(err, f.out.Discard()))
	}
	return nil
}

// Close discards the file unless it was committed.
func (f *File) Close() error { return f.out.Discard() }
