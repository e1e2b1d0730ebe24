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
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// File is a trace file that is being written. Nothing is visible under its name until Commit, and then it is all
// there; files can be read by their owner only.
type File struct {
	*Writer
	name string
	out  *atomicFile
	buf  *bufio.Writer
	pack io.Closer // nil without compression
}

// Create starts a trace file. A name that ends in .gz or .zst is written compressed. The caller writes rows, then
// calls Commit; Close without Commit leaves nothing behind and is otherwise without effect, so it can be deferred.
func Create(name string) (*File, error) {
	out, err := newAtomicFile(name)
	if err != nil {
		return nil, fmt.Errorf("trace file cannot be created: %w", err)
	}
	f := &File{name: name, out: out}
	var w io.Writer = out
	switch {
	case strings.HasSuffix(name, ".gz"):
		z := gzip.NewWriter(w)
		w, f.pack = z, z
	case strings.HasSuffix(name, ".zst"), strings.HasSuffix(name, ".zstd"):
		z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("trace file cannot be compressed: %w", err), out.discard())
		}
		w, f.pack = z, z
	}
	f.buf = bufio.NewWriterSize(w, 256<<10)
	f.Writer = NewWriter(f.buf)
	return f, nil
}

// Commit completes the file and puts it, synced, under its name, with its sidecar unless meta is nil. A sidecar that
// gives no rows is given the number of rows written.
func (f *File) Commit(meta *Meta) error {
	err := f.buf.Flush()
	if f.pack != nil {
		err = errors.Join(err, f.pack.Close())
	}
	var side *atomicFile
	if meta != nil && err == nil {
		m := *meta
		if m.Rows == 0 {
			m.Rows = f.Rows()
		}
		if side, err = newAtomicFile(MetaName(f.name)); err == nil {
			err = m.Write(side)
		}
	}
	if err == nil {
		err = f.out.commit()
	}
	if err == nil && side != nil {
		err = side.commit()
	}
	if err != nil {
		if side != nil {
			err = errors.Join(err, side.discard())
		}
		return fmt.Errorf("%s was not written: %w", f.name, errors.Join(err, f.out.discard()))
	}
	return nil
}

// Close discards the file unless it was committed.
func (f *File) Close() error { return f.out.discard() }

// atomicFile is a temporary file beside the one that it will become.
type atomicFile struct {
	*os.File
	name string
	done bool
}

func newAtomicFile(name string) (*atomicFile, error) {
	// os.CreateTemp gives mode 0600.
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*.tmp")
	if err != nil {
		return nil, err
	}
	return &atomicFile{File: f, name: name}, nil
}

func (f *atomicFile) commit() error {
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), f.name); err != nil {
		return err
	}
	f.done = true
	// The rename is durable once the folder is; some file systems cannot sync a folder, which is no loss of data.
	if dir, err := os.Open(filepath.Dir(f.name)); err == nil {
		_ = dir.Sync()
		_ = dir.Close()
	}
	return nil
}

// discard removes the temporary file, once.
func (f *atomicFile) discard() error {
	if f.done {
		return nil
	}
	f.done = true
	_ = f.Close()
	return os.Remove(f.Name())
}
