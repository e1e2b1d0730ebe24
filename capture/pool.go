// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"

	"github.com/moonloop/moonloop/internal/ondisk"
)

// pool holds byte strings in memory up to a limit, and beyond it in a temporary file.
type pool struct {
	limit int
	dir   string
	mem   []byte
	file  ondisk.File
	buf   []byte
}

// slot is where a pool holds a string.
type slot struct {
	at   int64 // below 0: offset ^at in the file
	size int
}

// put stores a copy of a string.
func (p *pool) put(b []byte) (slot, error) {
	if len(p.mem)+len(b) <= p.limit {
		p.mem = append(p.mem, b...)
		return slot{int64(len(p.mem) - len(b)), len(b)}, nil
	}
	if err := p.file.Open(p.dir); err != nil {
		return slot{}, err
	}
	at := p.file.Size
	if _, err := p.file.Write(b); err != nil {
		return slot{}, fmt.Errorf("records of one trace cannot be stored on disk: %w", err)
	}
	return slot{^at, len(b)}, nil
}

// get returns a string, which is valid until the next call of get.
func (p *pool) get(at slot) ([]byte, error) {
	if at.at >= 0 {
		return p.mem[at.at : at.at+int64(at.size)], nil
	}
	if cap(p.buf) < at.size {
		p.buf = make([]byte, at.size)
	}
	p.buf = p.buf[:at.size]
	if _, err := p.file.File.ReadAt(p.buf, ^at.at); err != nil {
		return nil, fmt.Errorf("records of one trace cannot be read back: %w", err)
	}
	return p.buf, nil
}

// reset empties the pool.
func (p *pool) reset() {
	p.mem = p.mem[:0]
	p.file.Size = 0 // the file's contents will be overwritten
}

func (p *pool) close() { p.file.Close() }
