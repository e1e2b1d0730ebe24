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
	"path/filepath"
	"runtime"
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
//
// A regular file of that name is replaced, and so is its sidecar. Anything else is refused: a device, a folder, and a
// symbolic link, of which nobody can say whether the link is meant or what it leads to.
func Create(name string) (*File, error) { return create(name, false) }

// CreateNew starts a trace file like [Create], but replaces nothing: where the file or its sidecar exists the error is
// [fs.ErrExist], now or, if somebody else was faster, at Commit, which then leaves both alone.
func CreateNew(name string) (*File, error) { return create(name, true) }

func create(name string, fresh bool) (*File, error) {
	for _, target := range []string{name, MetaName(name)} {
		if err := vacant(target, fresh); err != nil {
			return nil, fmt.Errorf("trace cannot be created: %w", err)
		}
	}
	out, err := newAtomicFile(name)
	if err != nil {
		return nil, fmt.Errorf("trace file cannot be created: %w; name a file in a directory that exists and can be written", err)
	}
	out.fresh = fresh
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
			side.fresh = f.out.fresh
			err = errors.Join(m.Write(side), vacant(side.name, side.fresh)) // before the trace is there
		}
	}
	if err == nil {
		err = f.out.commit()
	}
	if err == nil && side != nil {
		if err = side.commit(); err != nil && f.out.fresh {
			err = errors.Join(err, os.Remove(f.name)) // which is ours: a trace is there with its sidecar, or not at all
		}
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

// atomicFile is a temporary file beside the one that it will become. It is locked, so that what a killed process left
// behind can be told from what is still being written.
type atomicFile struct {
	*os.File
	name  string
	fresh bool // nothing may be replaced
	done  bool
}

// newAtomicFile starts a file, and removes what earlier writers of the same one left behind when they were killed.
func newAtomicFile(name string) (*atomicFile, error) {
	if err := vacant(name, false); err != nil {
		return nil, err
	}
	sweep(name)
	for {
		// os.CreateTemp gives mode 0600.
		f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*.tmp")
		if err != nil {
			if pe, ok := errors.AsType[*fs.PathError](err); ok {
				err = pe.Err // the temporary name means nothing to anyone
			}
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if claim(f) {
			return &atomicFile{File: f, name: name}, nil
		}
		_ = f.Close() // somebody's sweep was between the two: it is gone
	}
}

// vacant reports why nothing can be put under a name: what is there is not a regular file, or, for a fresh one, is there.
func vacant(name string, fresh bool) error {
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a directory: name a file in it", name)
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link: name the file that it leads to, or remove it", name)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file: name one that may be replaced", name)
	case fresh:
		return fmt.Errorf("%s: %w", name, fs.ErrExist)
	}
	return nil
}

// sweep removes the temporary files of a name that nobody writes any more.
func sweep(name string) {
	dir := filepath.Dir(name)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // creating will say why
	}
	for _, entry := range entries {
		digits, ok := strings.CutPrefix(entry.Name(), "."+filepath.Base(name)+".")
		digits, tmp := strings.CutSuffix(digits, ".tmp")
		if ok && tmp && entry.Type().IsRegular() && digits != "" && strings.Trim(digits, "0123456789") == "" {
			removeStale(filepath.Join(dir, entry.Name()))
		}
	}
}

func (f *atomicFile) commit() error {
	if err := f.Sync(); err != nil {
		return err
	}
	// Closing it ends the lock that keeps the sweep of another writer from it, so it first gets its name.
	place, closed := f.place, f.Close
	if runtime.GOOS == "windows" { // which renames no open file
		place, closed = closed, place
	}
	if err := place(); err != nil {
		return err
	}
	if err := closed(); err != nil {
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

// place gives the file its name.
func (f *atomicFile) place() error {
	if err := vacant(f.name, f.fresh); err != nil {
		return err // somebody was there since it was begun
	}
	if f.fresh {
		// Unlike a rename, a link replaces nothing, whoever comes between.
		err := os.Link(f.Name(), f.name)
		if err == nil {
			_ = os.Remove(f.Name())
			return nil
		}
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%s: %w", f.name, fs.ErrExist)
		}
		// This file system has no links.
	}
	return os.Rename(f.Name(), f.name)
}

// discard removes the temporary file, once.
func (f *atomicFile) discard() error {
	if f.done {
		return nil
	}
	f.done = true
	_ = f.Close()
	if err := os.Remove(f.Name()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil // the sweep of another writer was faster
}
