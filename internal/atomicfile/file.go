// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package atomicfile writes files that are there whole or not at all, locks files against other processes, and opens files without waiting. Every file
// that moonloop writes for somebody to read goes through it; only journals, which grow in place, need its lock alone.
package atomicfile

import (
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

// What a file may replace.
const (
	Anything Over = iota // whatever has the name
	Regular              // a regular file: no device, no folder, and no symbolic link, which may be meant or what it leads to
	Nothing              // not even that
)

// File is a file that is being written under a temporary name, readable by its owner only. Commit gives it its own name.
// Discard removes it; Close leaves what was written under the temporary name.
type File struct {
	*os.File
	name string
	over Over
	done bool
}

// Create starts a file under a temporary name beside its own. It is locked, so that what a killed process left behind can be
// told from what is still being written; what earlier writers of the same file left behind is removed. The error is
// [fs.ErrExist] where there is something and over is Nothing.
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
				err = pe.Err // the temporary name means nothing to anyone
			}
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if err := Lock(f); !errors.Is(err, errHeld) && InPlace(f) == nil { // a file system without locks is never swept
			return &File{File: f, name: name, over: over}, nil
		}
		_ = f.Close() // somebody's sweep was between the two: it is gone
	}
}

// CreateAs starts a file under a temporary name of the caller's, on the same file system. What has the one name or the other
// is replaced. Nothing is locked or swept: the folder is the caller's own.
func CreateAs(temp, name string) (*File, error) {
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600) //nolint:gosec // the caller chooses the name
	if err != nil {
		return nil, err
	}
	return &File{File: f, name: name}, nil
}

// Reopen goes on with a file that CreateAs started and a process left, at its end. One that is not there is started.
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

// Vacant reports why nothing can be put under a name: what is there may not be replaced.
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

// Commit makes what was written durable, gives the file its name and closes it. After an error the caller discards or
// closes it.
func (f *File) Commit() error {
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
	SyncDir(filepath.Dir(f.name))
	return nil
}

// place gives the file its name.
func (f *File) place() error {
	if err := Vacant(f.name, f.over); err != nil {
		return err // somebody was there since it was begun
	}
	if f.over == Nothing {
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
	return nil // the sweep of another writer was faster
}

// SyncDir makes durable what was created, renamed or removed in a folder. Some file systems cannot, which is no loss of data:
// they do so anyway.
func SyncDir(dir string) {
	if f, err := os.Open(dir); err == nil { //nolint:gosec // the caller chooses the folder
		_ = f.Sync()
		_ = f.Close()
	}
}
