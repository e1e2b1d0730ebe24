// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package ondisk stores data that does not fit into memory. It has temporary files, and arrays of which only a part is in memory.
package ondisk

import (
	"errors"
	"fmt"
	"os"
)

// Pattern is the pattern of the names of temporary files, as for [os.CreateTemp].
const Pattern = "moonloop-compile-*.tmp"

// File is a temporary file to append to, with mode 0600. It is removed when it is closed. The zero value has no file yet.
type File struct {
	File *os.File // nil until Open
	Size int64    // bytes; Write appends after them
	Kept bool     // the file has a temporary name until Keep or Close; set it before Open
}

// Open creates the file in a folder ("" means the system's temporary folder), unless it is open.
func (s *File) Open(dir string) error {
	if s.File != nil {
		return nil
	}
	f, err := os.CreateTemp(dir, Pattern)
	if err != nil {
		return fmt.Errorf("temporary file cannot be created (name another folder for it): %w", err)
	}
	if !s.Kept {
		// A file without a name disappears with the process, however that ends. If an open file cannot be removed, Close does it.
		_ = os.Remove(f.Name())
	}
	s.File, s.Size = f, 0
	return nil
}

// Keep gives the file a permanent name, once it is on disk.
func (s *File) Keep(name string) error {
	f := s.File
	err := f.Sync()
	s.File = nil
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// Write appends.
func (s *File) Write(p []byte) (int, error) {
	n, err := s.File.WriteAt(p, s.Size)
	s.Size += int64(n)
	return n, err
}

// Close removes the file.
func (s *File) Close() {
	if s.File != nil {
		_ = s.File.Close()
		_ = os.Remove(s.File.Name())
		s.File = nil
	}
}
