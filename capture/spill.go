// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"fmt"
	"os"
)

const tempPattern = "moonloop-compile-*.tmp"

// spill is a temporary file to append to, with mode 0600. It is removed when it is closed.
type spill struct {
	file *os.File
	size int64
	kept bool // it has a name, until it is kept or closed
}

// open creates the file unless it is open.
func (s *spill) open(dir string) error {
	if s.file != nil {
		return nil
	}
	f, err := os.CreateTemp(dir, tempPattern)
	if err != nil {
		return fmt.Errorf("temporary file cannot be created (name another folder for it): %w", err)
	}
	if !s.kept {
		// A file without a name disappears with the process, however that ends. Where an open file cannot be removed, close
		// does it.
		_ = os.Remove(f.Name())
	}
	s.file, s.size = f, 0
	return nil
}

// keep gives the file its name for good, once it is on the disk.
func (s *spill) keep(name string) error {
	f := s.file
	err := f.Sync()
	s.file = nil
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("what other shards need cannot be written: %w", err)
	}
	return nil
}

// Write appends.
func (s *spill) Write(p []byte) (int, error) {
	n, err := s.file.WriteAt(p, s.size)
	s.size += int64(n)
	return n, err
}

func (s *spill) close() {
	if s.file != nil {
		_ = s.file.Close()
		_ = os.Remove(s.file.Name())
		s.file = nil
	}
}

// pool holds byte strings in memory up to a limit, and beyond it in a temporary file.
type pool struct {
	limit int
	dir   string
	mem   []byte
	file  spill
	buf   []byte
}

// slot is where a pool holds a string.
type slot struct {
	at   int64 // below 0: offset ^at in the file
	size int
}

// put stores a copy.
func (p *pool) put(b []byte) (slot, error) {
	if len(p.mem)+len(b) <= p.limit {
		p.mem = append(p.mem, b...)
		return slot{int64(len(p.mem) - len(b)), len(b)}, nil
	}
	if err := p.file.open(p.dir); err != nil {
		return slot{}, err
	}
	at := p.file.size
	if _, err := p.file.Write(b); err != nil {
		return slot{}, fmt.Errorf("records of one trace cannot be kept on disk: %w", err)
	}
	return slot{^at, len(b)}, nil
}

// get returns a string, valid until the next call.
func (p *pool) get(at slot) ([]byte, error) {
	if at.at >= 0 {
		return p.mem[at.at : at.at+int64(at.size)], nil
	}
	if cap(p.buf) < at.size {
		p.buf = make([]byte, at.size)
	}
	p.buf = p.buf[:at.size]
	if _, err := p.file.file.ReadAt(p.buf, ^at.at); err != nil {
		return nil, fmt.Errorf("records of one trace cannot be read back: %w", err)
	}
	return p.buf, nil
}

// reset empties the pool.
func (p *pool) reset() {
	p.mem = p.mem[:0]
	p.file.size = 0 // the file's contents will be overwritten
}

func (p *pool) close() { p.file.close() }
