// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/moonloop/moonloop/internal/atomicfile"
)

// File is a trace file that is being written. The file appears, complete, when Commit is called. Only its owner can read it.
type File struct {
	*Writer
	name string
	over atomicfile.Over
	out  *atomicfile.File
	buf  *bufio.Writer
	pack io.Closer // nil if the file is not compressed
	rows io.Closer // for Parquet, else nil
}

// ended is what rows are written to after Commit or Close.
type ended struct{}

func (ended) Write([]byte) (int, error) {
	return 0, fmt.Errorf("the file was committed or closed before: %w", fs.ErrClosed)
}

// Create starts a trace file. If the name ends in .gz or .zst, the file is compressed; if it ends in .parquet, it is a Parquet file. The
// caller writes rows and then calls Commit. Close without Commit leaves no file behind, and Write and Commit then return [fs.ErrClosed];
// after Commit it has no effect, so it can be deferred.
//
// An existing regular file with the name is replaced, and so is its sidecar. Create refuses anything else: a device, a folder, or a
// symbolic link, because it is unclear whether the link or its target should be replaced.
func Create(name string) (*File, error) { return create(name, atomicfile.Regular) }

// CreateNew starts a trace file like [Create], but replaces nothing. If the file or its sidecar exists, it returns [fs.ErrExist]. If
// another process creates one of them meanwhile, Commit returns that error and changes neither.
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
		z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(2))
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

// Commit completes the file, syncs it, and renames it to its name. It also writes the sidecar, unless meta is nil. If meta has no number of
// rows, Commit sets it to the number written. It also sets the privacy of the rows ([Privacy]). Afterwards meta is what was written, and Write
// and Commit return [fs.ErrClosed].
func (f *File) Commit(meta *Meta) error {
	if f.w == (ended{}) {
		return fmt.Errorf("%s was committed or closed before: %w", f.name, fs.ErrClosed)
	}
	defer func() { f.w = ended{} }()
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
		if side, err = atomicfile.Create(MetaName(f.name), f.over); err == nil { // before the trace appears
			err = meta.Write(side)
		}
	}
	if err == nil {
		err = f.out.Commit()
	}
	if err == nil && side != nil {
		if err = side.Commit(); err != nil && f.over == atomicfile.Nothing {
			err = errors.Join(err, os.Remove(f.name)) // this call wrote it, and a trace must not remain without its sidecar
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
func (f *File) Close() error {
	f.w = ended{}
	return f.out.Discard()
}
