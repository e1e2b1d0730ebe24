// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package atomicfile writes files completely or not at all, locks files against other processes, and opens files without waiting. moonloop
// uses it to write every file that others read, except for journals, which grow in place and use only the lock.
package atomicfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Over says what a file may replace.
type Over int

// What a file may replace:
const (
	Anything Over = iota // anything with the name
	Regular              // a regular file: no device, no folder, and no symbolic link, because it is unclear whether the link or its target is meant
	Nothing              // no existing file
)

// File is a file that is being written under a temporary name, readable only by its owner. Commit renames it to its name. Discard removes
// it; Close keeps what was written under the temporary name.
type File struct {
	*os.File
	name string
	over Over
	done bool
}

// Create starts a file under a temporary name next to its own. The file is locked, so that those of killed processes can be distinguished
// from those that are being written; what killed writers of the same file left is removed. The error is [fs.ErrExist] if the file exists
// and over is Nothing.
func Create(name string, over Over) (*File, error) {
	if err := Vacant(name, over); err != nil {
		return nil, err
	}
	sweep(name)
	for {
		// os.CreateTemp gives mode 0600.
		f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*.tmp")
		if err != nil {
			if pe, ok := errors.AsType[*fs.PathError](err); ok {
				err = pe.Err // the temporary name would confuse users
			}
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if err := Lock(f); !errors.Is(err, errHeld) && InPlace(f) == nil { // on a file system without locks, nothing is swept
			return &File{File: f, name: name, over: over}, nil
		}
		_ = f.Close() // another process's sweep has removed it in between
	}
}

// Write writes a file with a function, through a buffer. After an error the file is what it was before.
func Write(name string, over Over, write func(io.Writer) error) error {
	f, err := Create(name, over)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 64<<10)
	if err = write(w); err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = f.Commit()
	}
	if err != nil {
		return errors.Join(err, f.Discard())
	}
	return nil
}

// CreateAs starts a file under the caller's temporary name, on the same file system. Existing files with either name are replaced. Nothing
// is locked or swept, because the folder belongs to the caller.
func CreateAs(temp, name string) (*File, error) {
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600) //nolint:gosec // the caller chooses the name
	if err != nil {
		return nil, err
	}
	return &File{File: f, name: name}, nil
}

// Reopen continues, at its end, a file that CreateAs started and an earlier process left. A missing one is started.
func Reopen(temp, name string) (*File, error) {
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the caller chooses the name
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &File{File: f, name: name}, nil
}

// Vacant returns nil if a file can be written under a name. Otherwise it returns the reason why the existing file must not be replaced.
func Vacant(name string, over Over) error {
	info, err := os.Lstat(name)
	switch {
	case over == Anything, errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a directory: name a file in it", name)
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link: name the file that it leads to, or remove it", name)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file: name one that may be replaced", name)
	case over == Nothing:
		return fmt.Errorf("%s: %w", name, fs.ErrExist)
	}
	return nil
}

// sweep removes the temporary files of a name that are no longer being written.
func sweep(name string) {
	dir := filepath.Dir(name)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // creating reports the error
	}
	for _, entry := range entries {
		digits, ok := strings.CutPrefix(entry.Name(), "."+filepath.Base(name)+".")
		digits, tmp := strings.CutSuffix(digits, ".tmp")
		if ok && tmp && entry.Type().IsRegular() && digits != "" && strings.Trim(digits, "0123456789") == "" {
			removeStale(filepath.Join(dir, entry.Name()))
		}
	}
}

// Commit makes the file durable, renames it to its name and closes it. After an error the caller discards or closes it.
func (f *File) Commit() error {
	if err := f.Sync(); err != nil {
		return err
	}
	// Closing it releases the lock that protects it from another writer's sweep, so it is renamed first.
	first, then := f.rename, f.Close
	if runtime.GOOS == "windows" { // which cannot rename open files
		first, then = then, first
	}
	if err := first(); err != nil {
		return err
	}
	if err := then(); err != nil {
		return err
	}
	f.done = true
	SyncDir(filepath.Dir(f.name))
	return nil
}

// rename renames the file to its name.
func (f *File) rename() error {
	if err := Vacant(f.name, f.over); err != nil {
		return err // another process created it meanwhile
	}
	if f.over == Nothing {
		// Unlike a rename, a link never replaces anything.
		err := os.Link(f.Name(), f.name)
		if err == nil {
			_ = os.Remove(f.Name())
			return nil
		}
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%s: %w", f.name, fs.ErrExist)
		}
		// This file system does not support links.
	}
	return os.Rename(f.Name(), f.name)
}

// Discard closes the file and removes it, unless it was committed. It can be deferred, and called twice.
func (f *File) Discard() error {
	if f.done {
		return nil
	}
	f.done = true
	_ = f.Close()
	if err := os.Remove(f.Name()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil // another writer's sweep was faster
}

// SyncDir makes creations, renames and removals in a folder durable. Some file systems do not support this, and make them durable anyway.
func SyncDir(dir string) {
	if f, err := os.Open(dir); err == nil { //nolint:gosec // the caller chooses the folder
		_ = f.Sync()
		_ = f.Close()
	}
}
